"""The comparison of Bayesian methods (Section 4.2, Appendix C.3): ResNet-20 on CIFAR-10, one protocol for all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from varlearn.methods import METHODS, Optim, named
from varlearn.recipes.images import BATCH, EPOCHS, SETS, WARMUP_EPOCHS
from varlearn.recipes.scales import Scale, short_ivon
from varlearn.train.config import Data, Evaluate, Model, Run, Train

OUTSIDE = ("svhn", "flowers102", "tinyimagenet", "cifar100")  # the paper has the first two
DECAY = 2e-4
_IVON: dict[str, Any] = {"lr": 0.2, "weight_decay": DECAY, "hess_init": 0.5, "beta2": 1 - 1e-5}

# What the paper says of each method (Appendix C.3), else the publication of the method or varlearn's own defaults.
# A method without a row has its own defaults.
SETTINGS: dict[str, dict[str, Any]] = {
    "adamw": {"lr": 0.002, "weight_decay": DECAY, "beta2": 0.999},
    "sgd": {"lr": 0.2, "weight_decay": DECAY},
    "adahessian": {"lr": 0.05, "weight_decay": DECAY, "beta2": 0.999},
    "sam": {"lr": 0.2, "weight_decay": DECAY},
    "bbb": {"lr": 0.002, "hess_init": 0.5},
    "bbb-paper": {"lr": 0.002, "hess_init": 0.5},
    "laplace": {"lr": 0.2, "weight_decay": DECAY},
    "mc-dropout": {"lr": 0.2, "weight_decay": DECAY},
    "swag": {"lr": 0.05, "weight_decay": DECAY},
    "sae": {"weight_decay": DECAY},  # the rest is the published one
    "ivon": _IVON,
    "vogn": _IVON | {"lr": 0.02},  # its momentum is a sum of ten gradients, IVON's an average
    "vogn-paper": _IVON,
    "ivon-2021": _IVON,
}
LIKE_IVON = ("ivon", "vogn", "vogn-paper", "ivon-2021")  # these take `presets.short_run` where the run is short
LARGE_HEADS = ("frn_cnn",)  # networks whose last layer is too large for a full matrix: Laplace takes Kronecker factors
SAMPLES = {"mc-dropout": 32}  # at the paper's scale; 64 for the others


@dataclass(frozen=True)
class Size:
    """How large a comparison is.

    Attributes:
        network: a network for 32 x 32 images.
        images: of the training set, the first this many.
        epochs: passes over them.
        tested: images of the test set and of each set out of the domain.
        samples: of the posterior.
        precision: of the forward pass in training.
    """

    network: str = "resnet20"
    images: int = 10_000
    epochs: int = 30
    tested: int | None = 2_500
    samples: int = 64
    precision: Any = "bf16"


def methods() -> tuple[str, ...]:
    """The methods that can be compared: all that `METHODS` lists.

    >>> "ivon" in methods()
    True
    """
    return tuple(METHODS)


def comparison(method: str, scale: Scale = "small", seed: int = 0, size: Size | None = None) -> Run:
    """A run of the comparison (Tables 2 and 3, the figures of shift, samples and entropy).

    At the paper's scale: ResNet-20 with filter response normalization on CIFAR-10, 200 epochs of batches of 50, five
    epochs of warm-up, cosine to 0, delta 2e-4; SGD at 0.2, unlike in Table 1. Four data sets are out of the domain:
    SVHN and Flowers102 as in the paper, TinyImageNet and CIFAR-100, each normalised by its own statistics.

    At the small scale: the first 10,000 images and 30 epochs, and of the other data sets the parts that the pack has.
    Every method keeps the settings that the paper gives it, but IVON and VOGN take `presets.short_run` at twice its
    learning rate, because theirs are made for 200,000 steps. Nothing is tuned.

    Args:
        method: one of `methods()`.
        scale: "paper" or "small".
        seed: of initialization, order of the data, augmentation and noise.
        size: of the small scale; the one above unless given.

    >>> comparison("sgd", "paper").optim.lr, comparison("ivon", "paper").optim.hess_init
    (0.2, 0.5)
    >>> comparison("ivon").data.subset, comparison("sgd", size=Size("frn_cnn", 5_000, 10)).train.epochs
    (10000, 10)
    >>> comparison("laplace").optim.structure, comparison("laplace", size=Size("frn_cnn")).optim.structure
    ('full', 'kron')
    """
    facts = SETS["cifar10"]
    own = named(method).Settings
    settings: Optim = own(name=method, **SETTINGS.get(method, {}))
    paper = Run(
        recipe=f"comparison-resnet20-{method}",
        scale=scale,
        seed=seed,
        model=Model(name="resnet20", classes=facts.classes),
        data=Data(name="cifar10", batch_size=BATCH, ood=OUTSIDE, ood_own_statistics=True),
        optim=settings,
        train=Train(epochs=EPOCHS, warmup=WARMUP_EPOCHS * facts.examples // BATCH, warmup_from=0.2),
        evaluate=Evaluate(samples=SAMPLES.get(method, 64)),
    )
    return paper if scale == "paper" else _small(paper, size or Size())


def _small(run: Run, size: Size) -> Run:
    steps_per_epoch = size.images // BATCH
    optim = run.optim
    if optim.name in LIKE_IVON:
        short = short_ivon(size.images, size.epochs * steps_per_epoch)
        shared = ("weight_decay", "beta1", "beta2", "ess", "hess_init", "clip_radius", "rescale_lr")
        lr = 2.0 * short.lr * (1.0 - short.beta1 if optim.name == "vogn" else 1.0)
        optim = replace(optim, lr=lr, **{name: getattr(short, name) for name in shared})
    if optim.name == "laplace" and size.network in LARGE_HEADS:
        optim = replace(optim, **{"structure": "kron"})
    return replace(
        run,
        model=replace(run.model, name=size.network),
        data=replace(run.data, subset=size.images, ood=tuple(f"{name}-pack" for name in run.data.ood)),
        optim=optim,
        train=replace(run.train, epochs=size.epochs, warmup=steps_per_epoch, precision=size.precision, eval_every=0),
        evaluate=Evaluate(samples=size.samples, subset=size.tested),
    )
