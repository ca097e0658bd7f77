"""A run, complete: what `config.json` holds, what a recipe returns, what the command line overrides."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_type_hints

from varlearn.train.setting_checks import check

OptimName = Literal["ivon", "adamw", "sgd"]
Schedule = Literal["cosine", "linear", "constant"]
Precision = Literal["fp32", "bf16", "fp16"]


@dataclass(frozen=True)
class Model:
    """Which network: a function of `varlearn.models`.

    Attributes:
        name: name of the function, e.g. "resnet20".
        classes: outputs of a classifier; ignored by language models.
        hidden: widths of the hidden layers of "mlp"; ignored by the others.
        compile: compile the network with `torch.compile`.
    """

    name: str = "resnet20"
    classes: int = 10
    hidden: tuple[int, ...] = (50,)
    compile: bool = False

    def __post_init__(self) -> None:
        check(self, "model.")


@dataclass(frozen=True)
class Data:
    """Which examples, and how they are served.

    Attributes:
        name: name of a data set of `varlearn.data`, e.g. "cifar10".
        subset: use the first this many training examples; None for all.
        batch_size: examples per step on one device and micro-batch.
        eval_batch_size: examples per forward pass when predicting.
        augment: random flips and crops for images, nothing for text.
        context: tokens per example of text.
        tokens: how text is cut: "bytes", "gpt2" or "words".
        ood: data sets on which the finished model should be unsure.
    """

    name: str = "cifar10"
    subset: int | None = None
    batch_size: int = 50
    eval_batch_size: int = 500
    augment: bool = True
    context: int = 256
    tokens: Literal["bytes", "gpt2", "words"] = "bytes"
    ood: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check(self, "data.")


@dataclass(frozen=True)
class Optim:
    """Which optimizer; the names are those of its constructor. A field that the optimizer does not have is ignored.

    Attributes:
        name: "ivon", "adamw" or "sgd".
        lr: peak learning rate alpha.
        weight_decay: delta, the prior precision over ess (IVON), decoupled decay (AdamW), L2 (SGD).
        matrices_only: decay parameters of two and more dimensions alone, as is usual for transformers.
        beta1: momentum; SGD's momentum too.
        beta2: average of the Hessian (IVON) or of squared gradients (AdamW).
        ess: lambda; None for the number of training examples (tokens, of a text to be continued).
        hess_init: h0.
        clip_radius: xi.
        rescale_lr: multiply lr by h0 + delta.
        samples: Monte-Carlo samples per micro-batch.
    """

    name: OptimName = "ivon"
    lr: float = 0.2
    weight_decay: float = 2e-4
    matrices_only: bool = False
    beta1: float = 0.9
    beta2: float = 1 - 1e-5
    ess: float | None = None
    hess_init: float = 0.5
    clip_radius: float = float("inf")
    rescale_lr: bool = True
    samples: int = 1

    def __post_init__(self) -> None:
        check(self, "optim.")


@dataclass(frozen=True)
class Train:
    """How long, how the learning rate goes, and what is written when.

    Attributes:
        epochs: passes over the training examples; used when `steps` is None.
        steps: optimizer steps; None to count in epochs.
        warmup: steps of linear warm-up.
        warmup_from: fraction of the peak learning rate that the warm-up starts at.
        schedule: what follows the warm-up, down to `final` times the peak.
        final: see `schedule`.
        accumulate: micro-batches per step.
        max_grad_norm: clip the gradient's norm; None for no clipping.
        precision: of the forward pass; weights and state stay float32.
        eval_every: steps between evaluations at the mean; None for once an epoch, 0 for the end only.
        checkpoint_every: steps between checkpoints; None for once an epoch, 0 for the end only.
        log_every: steps between lines of the log.
    """

    epochs: int = 200
    steps: int | None = None
    warmup: int = 0
    warmup_from: float = 0.0
    schedule: Schedule = "cosine"
    final: float = 0.0
    accumulate: int = 1
    max_grad_norm: float | None = None
    precision: Precision = "fp32"
    eval_every: int | None = None
    checkpoint_every: int | None = None
    log_every: int = 50

    def __post_init__(self) -> None:
        check(self, "train.")


@dataclass(frozen=True)
class Evaluate:
    """How the finished posterior is scored.

    Attributes:
        samples: posterior samples to average over; the paper uses 64.
        subset: score the first this many test examples; None for all.
    """

    samples: int = 64
    subset: int | None = None

    def __post_init__(self) -> None:
        check(self, "evaluate.")


@dataclass(frozen=True)
class Run:
    """Everything that decides a run, apart from the machine.

    Attributes:
        recipe: the name under which the command line knows it.
        scale: "paper" for the paper's own setting, "small" for two cores and minutes.
        seed: of initialization, order of the data, augmentation and noise.

    >>> run = Run(recipe="demo", optim=Optim(lr=0.1))
    >>> from_json(to_json(run)) == run
    True
    """

    recipe: str = "custom"
    scale: Literal["paper", "small"] = "small"
    seed: int = 0
    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    optim: Optim = field(default_factory=Optim)
    train: Train = field(default_factory=Train)
    evaluate: Evaluate = field(default_factory=Evaluate)

    def __post_init__(self) -> None:
        check(self, "")


def to_json(run: Run) -> str:
    """The run as indented JSON with sorted keys, infinity as a string, so that equal runs are equal files."""
    return json.dumps(_plain(asdict(run)), indent=2, sort_keys=True, allow_nan=False) + "\n"


def from_json(text: str) -> Run:
    """The run that `to_json` wrote; unknown keys are errors that name the nearest known one."""
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError(f"a run is a JSON object, not a {type(values).__name__}; give what to_json() wrote")
    return _build(Run, values, "")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def _build(cls: type, values: dict[str, Any], path: str) -> Any:
    known = {f.name for f in fields(cls)}
    hints = get_type_hints(cls)
    for key in values:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            cure = f"did you mean {path}{near[0]}?" if near else f"known are {sorted(known)}"
            raise ValueError(f"{path}{key} is not a setting of a run; {cure}")
    return cls(**{key: _value(hints[key], item, f"{path}{key}") for key, item in values.items()})


def _value(hint: Any, value: Any, path: str) -> Any:
    if is_dataclass(hint):
        if not isinstance(value, dict):
            raise ValueError(f"{path}={value!r} must be an object of settings; give what to_json() wrote")
        return _build(hint, value, f"{path}.")  # type: ignore[arg-type]
    if isinstance(value, list):
        return tuple(value)
    takes_float = hint is float or float in get_args(hint)
    if takes_float and value in ("inf", "-inf"):
        return float(value)
    return float(value) if takes_float and type(value) is int else value
