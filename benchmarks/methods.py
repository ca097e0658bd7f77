"""What methods cost: squares of examples, steps, collections, fits after training, predictions, sensitivities.

Times are those of the processor, so that what other processes take of the core is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from time import process_time
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from benchmarks.part import Part
from benchmarks.results import Figure
from benchmarks.tables import Column
from benchmarks.timing import QUICK, Budget, Timings, take_turns
from varlearn.data.examples import Examples
from varlearn.methods import METHODS, named
from varlearn.models import resnet20
from varlearn.optim.per_example import example_gradients
from varlearn.posterior import DiagGaussian
from varlearn.prediction import Dropout, predict
from varlearn.sensitivities import sensitivity
from varlearn.train.build import build_parts
from varlearn.train.config import Data, Model, Run, Train
from varlearn.train.processes import Processes
from varlearn.train.training import Training

SQUARES, STEP, COLLECTION = "squares of examples", "training step", "SWAG, an epoch of 200 steps"
FIT, PREDICTION = "Laplace after training", "prediction"
SENSITIVITY, SENSITIVITIES = "sensitivity to each example", "sensitivity, {:,} classes"
CLASSES = (10, 1_000)
MORE_CLASSES = "1,000 classes, beside 10"
LOOP = "vectorized, beside the loop"
STEPS_PER_EPOCH = 200
FIT_BATCHES = 5  # times as many images: a fit ends with a decomposition whose time does not depend on them
PREDICTED = ("ivon", "swag", "mc-dropout", "laplace", "bbb")  # one for each kind of posterior
_PASS, _VECTORIZED, _ONE_BY_ONE = "forward and backward", "vectorized", "one by one"


class Size(NamedTuple):
    """How large the network and the data are."""

    network: str
    batch: int
    batches: int
    samples: int
    budget: Budget


FULL = Size("resnet20", 50, 4, 4, Budget(rounds=9, seconds=40.0, least=3, warmup=1))
TINY = Size("resnet20", 2, 2, 2, QUICK._replace(rounds=1, least=1))


def measure(quick: bool) -> list[Figure]:
    """All cases; both sides of each ratio take turns."""
    size = TINY if quick else FULL
    cases = (_squares, _steps, _collection, _fit, _predictions, _sensitivity)
    return [figure for case in cases for figure in case(size)]


def training_of(method: str, size: Size) -> Training:
    """A run of a method on random images, before its first step."""
    torch.manual_seed(0)
    count = size.batch * size.batches
    classes = tuple(str(k) for k in range(10))
    examples = Examples(
        torch.randint(256, (count, 3, 32, 32), dtype=torch.uint8), torch.arange(count) % 10, classes, "image"
    )
    run = Run(
        model=Model(size.network, 10),
        data=Data("cifar10", batch_size=size.batch, augment=False),
        optim=named(method).Settings(name=method),
        train=Train(epochs=1_000, warmup=0.0),
    )
    alone = Processes(0, 1, torch.device("cpu"))
    return Training(build_parts(run, examples, alone), alone)


def _squares(size: Size) -> list[Figure]:
    training = training_of("sgd", size)
    model, (inputs, targets) = training.model, next(iter(training.parts.plain))
    inputs, targets = inputs[: size.batch], targets[: size.batch]

    def loss(network: Callable[..., Tensor], x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(network(x), y)

    turns = {
        _PASS: partial(_backward, model, inputs, targets),
        _VECTORIZED: partial(example_gradients, model, loss, inputs, targets),
        _ONE_BY_ONE: partial(_one_by_one, model, inputs, targets),
    }
    timings = take_turns(turns, size.budget, process_time)
    figures = _figures(SQUARES, timings, dict.fromkeys(turns, _PASS))
    beside = _figures(SQUARES, timings, {_VECTORIZED: _ONE_BY_ONE})[0]
    return [*figures, beside | {"contender": LOOP}]


def _backward(model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
    model.zero_grad()
    cross_entropy(model(inputs), targets).backward()


def _one_by_one(model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
    squares = [torch.zeros_like(param) for param in model.parameters()]
    for k in range(len(inputs)):
        _backward(model, inputs[k : k + 1], targets[k : k + 1])
        for param, square in zip(model.parameters(), squares, strict=True):
            assert param.grad is not None
            square.addcmul_(param.grad, param.grad)


def _steps(size: Size) -> list[Figure]:
    turns = {name: partial(_step, training_of(name, size)) for name in METHODS}
    timings = take_turns(turns, size.budget, process_time)
    return _figures(STEP, timings, dict.fromkeys(turns, "adamw"))


def _step(training: Training) -> None:
    training.gradients()
    training.update()


def _collection(size: Size) -> list[Figure]:
    training = training_of("swag", size)
    method: Any = training.method
    timings = take_turns(
        {"step": partial(_step, training), "collection": partial(method.collection.collect, training.model)},
        size.budget,
        process_time,
    )
    epoch = Timings(
        {
            "epoch": [STEPS_PER_EPOCH * each for each in timings.seconds["step"]],
            "collection": timings.seconds["collection"],
        }
    )
    return _figures(COLLECTION, epoch, {"epoch": "epoch", "collection": "epoch"})


def _fit(size: Size) -> list[Figure]:
    training = training_of("laplace", size._replace(batches=FIT_BATCHES * size.batches))
    batches = list(training.parts.plain)
    training.model.eval()
    turns: Mapping[str, Callable[[], object]] = {
        "forward passes": partial(_forward, training, batches, 1),
        "fit": partial(training.method.finish, training, batches),
    }
    return _figures(FIT, take_turns(turns, size.budget, process_time), {name: "forward passes" for name in turns})


@torch.no_grad()
def _forward(training: Training, batches: list[Any], samples: int) -> None:
    for _ in range(samples):
        for inputs, _ in batches:
            training.forward(inputs)


def _predictions(size: Size) -> list[Figure]:
    figures: list[Figure] = []
    for name in PREDICTED:
        training = training_of(name, size._replace(batches=2 * size.batches))
        for _ in range(2):
            _step(training)
            if name == "swag":
                training.method.collection.collect(training.model)  # type: ignore[attr-defined]
        batches = list(training.parts.plain)
        predictor = training.method.predictor(training.method.finish(training, batches))
        training.model.eval()
        if isinstance(predictor, Dropout):
            predictor.start(training.model)  # so that the forward passes beside draw masks, too
        passes, predicted = f"{name}: forward passes", f"{name}: predict"
        turns: Mapping[str, Callable[[], object]] = {
            passes: partial(_forward, training, batches, size.samples),
            predicted: partial(predict, training.model, predictor, batches, size.samples, progress=False),
        }
        timings = take_turns(turns, size.budget._replace(rounds=min(5, size.budget.rounds), seconds=20.0), process_time)
        figures += _figures(PREDICTION, timings, {passes: passes, predicted: passes})
    return figures


def _sensitivity(size: Size) -> list[Figure]:
    turns: dict[str, Callable[[], object]] = {}
    beside: dict[str, str] = {}
    images = torch.randn(size.batch, 3, 32, 32)
    for classes in CLASSES:
        torch.manual_seed(0)
        model, labels = resnet20(classes=classes).eval(), torch.arange(size.batch) % classes
        mean = {name: value.detach().clone() for name, value in model.named_parameters()}
        posterior = DiagGaussian(mean, {name: torch.ones_like(value) for name, value in mean.items()}, ess=1e4)
        passes, found = f"{_PASS}, {classes:,} classes", SENSITIVITIES.format(classes)
        turns[passes] = partial(_backward, model, images, labels)
        turns[found] = partial(sensitivity, model, posterior, [(images, labels)], progress=False)
        beside |= {passes: passes, found: passes}
    timings = take_turns(turns, size.budget, process_time)
    few, many = (SENSITIVITIES.format(classes) for classes in CLASSES)
    more = _figures(SENSITIVITY, timings, {many: few})[0]
    return [*_figures(SENSITIVITY, timings, beside), more | {"contender": MORE_CLASSES}]


def _figures(case: str, timings: Timings, beside: Mapping[str, str]) -> list[Figure]:
    return [
        {
            "case": case,
            "contender": name,
            "beside": reference,
            "rounds": timings.rounds,
            "ms_min": timings.least_ms(name),
            "ms_median": timings.median_ms(name),
            "ratio": timings.ratio(name, reference),
        }
        for name, reference in beside.items()
    ]


PART = Part(
    name="methods",
    title="methods beside AdamW's step, forward passes and backward passes",
    columns=(
        Column("contender", "what"),
        Column("ms_min", "processor ms, least", ".4g"),
        Column("ms_median", "processor ms, median", ".4g"),
        Column("ratio", "x", ".4f", is_main=True),
        Column("beside", "of"),
        Column("rounds", "rounds", "d"),
    ),
    measure=measure,
)
