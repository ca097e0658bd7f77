"""Figure 3c's runs: regression with a gap between two clusters of inputs."""

from __future__ import annotations

from dataclasses import replace

from varlearn.methods import named
from varlearn.recipes.scales import Scale, short_ivon
from varlearn.train.config import Data, Evaluate, Model, Run, Train

EXAMPLES, BATCH, STEPS = 100, 20, 5_000


def in_between_run(method: str, scale: Scale = "small", seed: int = 0) -> Run:
    """Regression with a gap: 5,000 steps of 20, with each method's own defaults; IVON takes `presets.short_run`.

    Args:
        method: name of a method.
        scale: kept in the run; both are the same.
        seed: of initialization, order of the data and noise.

    >>> in_between_run("ivon").train.steps
    5000
    """
    optim = named(method).Settings(name=method)
    if method == "ivon":
        short = short_ivon(EXAMPLES, STEPS)
        names = ("lr", "weight_decay", "beta1", "beta2", "ess", "hess_init", "clip_radius", "rescale_lr")
        optim = replace(optim, **{name: getattr(short, name) for name in names})
    if method == "laplace":
        optim = replace(optim, layers="all", structure="full", lr=0.01)
    if method == "sgd":
        optim = replace(optim, lr=0.01)
    if method == "adamw":
        optim = replace(optim, lr=0.003, beta2=0.999)
    return Run(
        recipe=f"inbetween-mlp-{method}",
        scale=scale,
        seed=seed,
        model=Model(name="mlp", classes=1, hidden=(50, 50)),
        data=Data(name="in-between", batch_size=BATCH, augment=False),
        optim=optim,
        train=Train(steps=STEPS, eval_every=0, checkpoint_every=0, log_every=500),
        evaluate=Evaluate(samples=64),
    )
