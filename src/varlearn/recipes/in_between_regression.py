"""Figure 3c's runs: regression with a gap between two clusters of inputs."""

from __future__ import annotations

from dataclasses import replace

from varlearn.methods import named
from varlearn.recipes.scales import Scale, short_ivon
from varlearn.train.config import Data, Evaluate, Model, Run, Train

EXAMPLES, BATCH, STEPS = 100, 20, 5_000
SGD_STEPS = ("sgd", "mc-dropout", "swag", "sam", "laplace")  # methods that diverge here at their own learning rate
SGD_LR = 0.01


def in_between_run(method: str, scale: Scale = "small", seed: int = 0) -> Run:
    """Regression with a gap: 5,000 steps of 20; IVON takes `presets.short_run`, the others have their own defaults.

    Methods that take the steps of SGD have a learning rate of 0.01, AdamW has 0.003.

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
        optim = replace(optim, layers="all", structure="full")
    if method in SGD_STEPS:
        optim = replace(optim, lr=SGD_LR)
    if method == "swag":
        optim = replace(optim, collect_lr=SGD_LR / 5)  # as in the method's own settings
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
