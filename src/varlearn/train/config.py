"""A run, complete: what `config.json` holds, what a recipe returns, what the command line overrides."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from typing import Any, ClassVar, Literal, get_args

from varlearn.files.checked_json import parse_json
from varlearn.methods import Optim, named, settings_for
from varlearn.setting_checks import Rule, at_least, check, hints_of, positive, shortened

Schedule = Literal["cosine", "linear", "constant"]
Precision = Literal["fp32", "bf16", "fp16"]
_FRACTION: Rule = ("between 0 and 1", lambda value: 0 <= value <= 1, "it is a fraction of the peak learning rate")


@dataclass(frozen=True)
class Model:
    """Which network: a function of `varlearn.models`.

    Attributes:
        name: name of the function, e.g. "resnet20".
        classes: outputs of a classifier; ignored by language models.
        hidden: widths of the hidden layers of "mlp"; ignored by the others.
        compile: compile the network with `torch.compile`.
        path: where "pretrained" is read from: a folder, an installed package that has one, or a name on the Hugging
            Face Hub; ignored by the others.
        head_dropout: dropout before the last layer of "pretrained"; None for its own.
    """

    RULES: ClassVar[dict[str, Rule]] = {
        "classes": at_least(1, "use the number of classes of the data set"),
        "hidden": ("widths >= 1", lambda widths: all(width >= 1 for width in widths), "e.g. 50 or 200 200"),
        "head_dropout": ("in [0, 1)", lambda share: 0 <= share < 1, "0 for none; leave it out for the model's own"),
    }

    name: str = "resnet20"
    classes: int = 10
    hidden: tuple[int, ...] = (50,)
    compile: bool = False
    path: str = ""
    head_dropout: float | None = None

    def __post_init__(self) -> None:
        check(self, "model.")


@dataclass(frozen=True)
class Data:
    """Which examples, and how they are served.

    Attributes:
        name: name of a data set of `varlearn.data`, e.g. "cifar10".
        subset: use the first this many training examples; None for all.
        validation: hold out this many of them to choose by: a share below 1, or a whole number; 0 for none.
        batch_size: examples per step on one device and micro-batch.
        eval_batch_size: examples per forward pass when predicting.
        augment: random flips and crops for images, nothing for text.
        context: tokens per example of text.
        tokens: how text is cut: "bytes", "gpt2", "words", or "model" as a pretrained model cuts it.
        test: the split that is tested on, e.g. "dev" for GLUE's tasks, or "dev_mismatched" for MNLI.
        ood: data sets on which the finished model should be unsure.
        ood_own_statistics: normalise each of them by its own mean and deviation, as the paper did; by those of the
            training data otherwise.
    """

    RULES: ClassVar[dict[str, Rule]] = {
        "subset": at_least(1, "leave it out for all examples"),
        "validation": (
            "a share between 0 and 1, or a whole number",
            lambda value: 0 <= value < 1 or (value >= 1 and value == value // 1),
            "0.1 holds out a tenth, 0 nothing",
        ),
        "batch_size": at_least(1, "50 is the paper's"),
        "eval_batch_size": at_least(1, "500 is usual"),
        "context": at_least(1, "256 tokens is usual"),
    }

    name: str = "cifar10"
    subset: int | None = None
    validation: float = 0.0
    batch_size: int = 50
    eval_batch_size: int = 500
    augment: bool = True
    context: int = 256
    tokens: Literal["bytes", "gpt2", "words", "model"] = "bytes"
    test: str = "test"
    ood: tuple[str, ...] = ()
    ood_own_statistics: bool = False

    def __post_init__(self) -> None:
        check(self, "data.")
        object.__setattr__(self, "validation", float(self.validation))  # 100 and 100.0 are the same run


@dataclass(frozen=True)
class Train:
    """How long, how the learning rate goes, and what is written when.

    Attributes:
        epochs: passes over the training examples; used when `steps` is None.
        steps: optimizer steps; None to count in epochs.
        warmup: linear warm-up: a share of the steps below 1, or a whole number of steps.
        warmup_from: fraction of the peak learning rate that the warm-up starts at.
        schedule: what follows the warm-up, down to `final` times the peak.
        final: see `schedule`.
        accumulate: micro-batches per step.
        max_grad_norm: clip the gradient's norm; None for no clipping.
        precision: of the forward pass; weights and state stay float32.
        eval_every: steps between evaluations at the mean; None for once an epoch, 0 for the end only. They use
            validation data where there are any, else test data.
        checkpoint_every: steps between checkpoints; None for once an epoch, 0 for the end only.
        log_every: steps between lines of the log.
        loo_every: steps between leave-one-out losses of training examples, which estimate the loss on new data; None
            for none, 0 for once an epoch.
        loo_examples: how many training examples that takes, the same ones each time; None for as many as cost a tenth
            of the training at most.
        loo_diagonal: use the diagonal of V alone, as in the paper's CIFAR-10 appendix.
        loo_patience: end the training after this many leave-one-out losses without a new lowest one, with the weights
            of the lowest; None to train to the end.
        snapshots: epochs after which a checkpoint is kept for good.
    """

    RULES: ClassVar[dict[str, Rule]] = {
        "epochs": at_least(1, "one pass over the data is the least"),
        "steps": at_least(1, "leave it out to count in epochs"),
        "warmup": (
            "a share between 0 and 1, or a whole number",
            lambda value: 0 <= value < 1 or (value >= 1 and value == value // 1),
            "0.05 is a twentieth of the run, 0 for no warm-up",
        ),
        "warmup_from": _FRACTION,
        "final": _FRACTION,
        "accumulate": at_least(1, "1 takes a step for every batch"),
        "max_grad_norm": positive("leave it out for no clipping"),
        "eval_every": at_least(0, "leave it out for once an epoch, 0 for the end only"),
        "checkpoint_every": at_least(0, "leave it out for once an epoch, 0 for the end only"),
        "log_every": at_least(1, "50 is usual"),
        "loo_every": at_least(0, "leave it out for none, 0 for once an epoch"),
        "loo_examples": at_least(1, "leave it out for a tenth of the training's cost"),
        "loo_patience": at_least(1, "leave it out to train to the end"),
        "snapshots": ("epochs >= 1", lambda epochs: all(epoch >= 1 for epoch in epochs), "e.g. 30 100"),
    }

    epochs: int = 200
    steps: int | None = None
    warmup: float = 0.05
    warmup_from: float = 0.0
    schedule: Schedule = "cosine"
    final: float = 0.0
    accumulate: int = 1
    max_grad_norm: float | None = None
    precision: Precision = "fp32"
    eval_every: int | None = None
    checkpoint_every: int | None = None
    log_every: int = 50
    loo_every: int | None = None
    loo_examples: int | None = None
    loo_diagonal: bool = False
    loo_patience: int | None = None
    snapshots: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check(self, "train.")
        for name in ("loo_examples", "loo_patience"):
            value = getattr(self, name)
            if value is not None and self.loo_every is None:
                raise ValueError(f"train.{name}={value} needs leave-one-out losses; set train.loo_every=0, say")
        object.__setattr__(self, "warmup", float(self.warmup))  # 100 and 100.0 are the same run


@dataclass(frozen=True)
class Evaluate:
    """How the finished posterior is scored.

    Attributes:
        samples: posterior samples to average over; the paper uses 64.
        subset: score the first this many test examples; None for all.
    """

    RULES: ClassVar[dict[str, Rule]] = {
        "samples": at_least(1, "the paper uses 64"),
        "subset": at_least(1, "leave it out for all examples"),
    }

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
        optim: the method and its settings, in the class that the method declares for them; "auto" unless given.

    >>> run = Run(recipe="demo", optim=Optim(lr=0.1))
    >>> from_json(to_json(run)) == run
    True
    """

    RULES: ClassVar[dict[str, Rule]] = {"seed": at_least(0, "use 0, 1, 2 for three runs")}

    recipe: str = "custom"
    scale: Literal["paper", "small"] = "small"
    seed: int = 0
    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    optim: Optim = field(default_factory=lambda: Optim("auto"))
    train: Train = field(default_factory=Train)
    evaluate: Evaluate = field(default_factory=Evaluate)

    def __post_init__(self) -> None:
        check(self, "")
        object.__setattr__(self, "optim", settings_for(self.optim))


def to_json(run: Run) -> str:
    """The run as indented JSON with sorted keys, infinity as a string, so that equal runs are equal files."""
    return json.dumps(_plain(asdict(run)), indent=2, sort_keys=True, allow_nan=False) + "\n"


def from_json(text: str) -> Run:
    """The run that `to_json` wrote; unknown keys are errors that name the nearest known one."""
    values = parse_json(text)
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
    hints = hints_of(cls)
    for key in values:
        if key not in known:
            near = get_close_matches(key[:100], known, n=1)
            cure = f"did you mean {path}{near[0]}?" if near else f"known are {sorted(known)}"
            raise ValueError(f"{path}{key[:100]} is not a setting of a run; {cure}")
    return cls(**{key: _value(hints[key], item, f"{path}{key}") for key, item in values.items()})


def _value(hint: Any, value: Any, path: str) -> Any:
    if is_dataclass(hint):
        if not isinstance(value, dict):
            raise ValueError(f"{path}={shortened(value)} must be an object of settings; give what to_json() wrote")
        if hint is Optim:
            hint = named(value.get("name", "auto")).Settings
        return _build(hint, value, f"{path}.")  # type: ignore[arg-type]
    if isinstance(value, list):
        return tuple(value)
    takes_float = hint is float or float in get_args(hint)
    if takes_float and value in ("inf", "-inf"):
        return float(value)
    if takes_float and type(value) is int:
        try:
            return float(value)
        except OverflowError as error:
            raise ValueError(f"{path} is a number of {len(str(value))} digits; a float is at most 1.8e308") from error
    return value
