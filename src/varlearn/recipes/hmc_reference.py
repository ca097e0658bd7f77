"""Runs to compare with Hamiltonian Monte Carlo on CIFAR-10: its network, its prior, no augmentation."""

from __future__ import annotations

from dataclasses import replace

from varlearn.recipes.bayesian_comparison import Size, comparison
from varlearn.recipes.images import SETS
from varlearn.recipes.scales import Scale
from varlearn.train.config import Run

# The paper of the reference has a Gaussian prior of variance 1/5, its notebook one of variance 5.
PRIOR_PRECISIONS = {"prior variance 1/5": 5.0, "prior variance 5": 0.2}


def reference_run(
    method: str, scale: Scale = "small", seed: int = 0, *, precision: float = 5.0, size: Size | None = None
) -> Run:
    """A run of the comparison on ResNet-20 with Swish, without augmentation, with delta = precision / n.

    Args:
        method: name of a method.
        scale: "paper" or "small".
        seed: of initialization, order of the data and noise.
        precision: of the prior; see `PRIOR_PRECISIONS`.
        size: of the small scale; its network takes the place of the reference's.

    >>> reference_run("ivon", "paper").optim.weight_decay
    0.0001
    """
    run = comparison(method, scale, seed, size)
    n = run.data.subset or SETS["cifar10"].examples
    return replace(
        run,
        recipe=f"hmc-resnet20_swish-{method}",
        model=replace(run.model, name="resnet20_swish" if size is None else run.model.name),
        data=replace(run.data, augment=False, ood=()),
        optim=replace(run.optim, weight_decay=precision / n),
    )
