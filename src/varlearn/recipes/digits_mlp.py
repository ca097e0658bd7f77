"""The demo: scikit-learn's 8 x 8 digits with every method."""

from __future__ import annotations

from dataclasses import replace

from varlearn.methods import Optim, named
from varlearn.recipes.scales import Scale, short_ivon
from varlearn.train.config import Data, Evaluate, Model, Run, Train

EXAMPLES, BATCH, STEPS = 1_000, 50, 1_200


def digits(optim: str, scale: Scale = "small", seed: int = 0) -> Run:
    """A perceptron with two hidden layers of 100 on 1,000 digits, 1,200 steps of 50, cosine to 0: seconds on one core.

    AdamW, SGD and IVON have their best learning rate in NLL: AdamW and SGD of five (3e-4 to 3e-2, 0.01 to 1), IVON of
    four (0.3 to 1), with `presets.short_run` for the rest. Other methods have their own defaults. This run is not in
    the paper, so both scales are the same.

    Args:
        optim: name of a method.
        scale: kept in the run.
        seed: of initialization, order of the data and noise.

    >>> digits("ivon").optim.ess
    10000.0
    """
    tuned = {
        "ivon": replace(short_ivon(EXAMPLES, STEPS), lr=1.0),
        "sgd": Optim(name="sgd", lr=0.1, weight_decay=2e-4),
        "adamw": Optim(name="adamw", lr=1e-3, weight_decay=1e-2, beta2=0.999),
    }
    return Run(
        recipe=f"digits-{optim}",
        scale=scale,
        seed=seed,
        model=Model(name="mlp", classes=10, hidden=(100, 100)),
        data=Data(name="digits", subset=EXAMPLES, batch_size=BATCH, augment=False),
        optim=tuned[optim] if optim in tuned else named(optim).Settings(name=optim),
        train=Train(steps=STEPS, eval_every=200, checkpoint_every=600, log_every=20),
        evaluate=Evaluate(samples=64),
    )
