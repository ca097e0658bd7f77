"""The paper's table of recurrent networks: a GRU on CoLA, IMDB and AG News with AdamW, SGD and IVON."""

from __future__ import annotations

from dataclasses import dataclass

from varlearn.recipes.scales import Scale, short_ivon
from varlearn.train.config import Data, Evaluate, Model, Optim, Run, Train

BATCH = 50
SMALL_EXAMPLES, SMALL_EPOCHS = 8_000, 5


@dataclass(frozen=True)
class TextSet:
    """What is known of a set, and what stands in for it at the small scale.

    Attributes:
        examples: to train on.
        classes: to tell apart.
        epochs: passes over the examples; our choice, the paper states none.
        context: words that a text is cut to.
        small: name of the stand-in.
        small_context: words there.
        small_test: test examples there; None for all.
    """

    examples: int
    classes: int
    epochs: int
    context: int
    small: str
    small_context: int
    small_test: int | None


SETS = {
    "cola": TextSet(8_551, 2, 20, 32, "cola", 32, None),
    "imdb": TextSet(25_000, 2, 20, 256, "imdb", 64, 2_500),
    "ag_news": TextSet(120_000, 4, 10, 64, "ag_news-pack", 32, 2_500),
}


def text(data: str, optim: str, scale: Scale = "small", seed: int = 0) -> Run:
    """A row of the paper's Table 13: a GRU of 2M parameters that classifies texts.

    The paper gives the network, not the hyperparameters. These are ours at both scales: batches of 50, cosine to 0
    after 5% of warm-up, `presets.short_run` for IVON, AdamW 3e-3 and SGD 1 with gradients clipped to norm 1. At the
    small scale: 8,000 texts (of a sample of AG News that is easier to come by), shorter ones, 5 epochs, and at
    most 2,500 test texts, a few minutes on one core.

    Args:
        data: "cola", "imdb" or "ag_news".
        optim: "ivon", "adamw" or "sgd".
        scale: "paper" or "small".
        seed: of initialization, order of the data and noise.

    >>> text("ag_news", "ivon", scale="paper").train.epochs
    10
    >>> text("ag_news", "adamw").recipe
    'ag_news-gru-adamw'
    """
    if data not in SETS:
        raise ValueError(f"{data} is not in the paper's table of recurrent networks; choose one of {', '.join(SETS)}")
    facts = SETS[data]
    small = scale == "small"
    examples, epochs = (SMALL_EXAMPLES, SMALL_EPOCHS) if small else (facts.examples, facts.epochs)
    steps = epochs * -(-examples // BATCH)
    return Run(
        recipe=f"{data}-gru-{optim}",
        scale=scale,
        seed=seed,
        model=Model(name="gru", classes=facts.classes),
        data=Data(
            name=facts.small if small else data,
            subset=SMALL_EXAMPLES if small else None,
            batch_size=BATCH,
            augment=False,
            context=facts.small_context if small else facts.context,
            tokens="words",
        ),
        optim={
            "ivon": short_ivon(examples, steps, like="adamw"),
            "sgd": Optim(name="sgd", lr=1.0, weight_decay=2e-4),
            "adamw": Optim(name="adamw", lr=3e-3, weight_decay=2e-4, beta2=0.999),
        }[optim],
        train=Train(epochs=epochs, warmup=steps // 20, max_grad_norm=1.0),
        evaluate=Evaluate(samples=16, subset=facts.small_test) if small else Evaluate(samples=64),
    )
