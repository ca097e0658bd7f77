"""From a configuration to its parts: what fits is built, what does not is refused with a cure."""

from dataclasses import replace

import pytest
import torch

from tests.models.cases import FROM_FILES
from tests.train.tiny import load, tiny_run
from varlearn import data, models
from varlearn.data import hold_out
from varlearn.data.examples import Examples
from varlearn.models import MODELS
from varlearn.train.build import build_batches, build_examples, build_model
from varlearn.train.config import Data, Evaluate, Model, Run


def examples_for(name: str) -> Examples:
    if name.startswith("gpt2"):
        return Examples(torch.zeros(50, dtype=torch.uint8), torch.empty(0), (), "tokens", vocab=256)
    if name == "gru":
        return Examples(torch.zeros(2, 5, dtype=torch.long), torch.tensor([0, 1]), ("a", "b"), "text", vocab=9)
    return Examples(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), torch.tensor([0, 1]), ("a", "b"), "image")


def test_every_function_of_models_has_its_name() -> None:
    functions = {name for name in models.__all__ if name.islower()}
    assert functions == set(MODELS)
    assert all(MODELS[name].function is getattr(models, name) for name in functions)


@pytest.mark.parametrize("name", sorted(MODELS.keys() - FROM_FILES))
def test_every_model_is_built(name: str) -> None:
    with torch.device("meta"):
        model = build_model(Run(model=Model(name, classes=2), data=Data(context=16)), examples_for(name))
    assert any(param.requires_grad for param in model.parameters())


def test_the_vocabulary_is_filled_up_to_a_multiple_of_64() -> None:
    examples = replace(examples_for("gpt2_tiny"), vocab=50257)
    with torch.device("meta"):
        model = build_model(Run(model=Model("gpt2_tiny"), data=Data(context=16)), examples)
    assert model.tokens.weight.shape[0] == 50304  # type: ignore[union-attr]
    assert model.positions.weight.shape[0] == 16  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("model", "kind", "message"),
    [
        (
            Model("resnet20", classes=10),
            "mlp",
            r"model.classes=10 must be the 2 classes of cifar10; use model.classes=2",
        ),
        (
            Model("gru", classes=2),
            "mlp",
            r"model.name='gru' does not read data.name='cifar10' \(image, classification\)",
        ),
        (Model("resnet20"), "gpt2_tiny", r"model.name='resnet20' .*; use one of \['gpt2_10m'"),
        (Model("resnet21", classes=2), "mlp", r"model.name='resnet21' .*'resnet20'"),
    ],
)
def test_what_does_not_fit_is_refused(model: Model, kind: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_model(Run(model=model), examples_for(kind))


def test_batches_for_training_and_for_evaluation() -> None:
    run, examples = tiny_run(), load("blobs", "train")
    train, test = build_batches(run, examples, train=True), build_batches(run, examples, train=False)
    assert (train.batch_size, train.shuffle, train.augment, len(train)) == (16, True, True, 6)
    assert (test.batch_size, test.shuffle, test.augment, len(test)) == (20, False, False, 5)


@pytest.mark.usefixtures("tiny_data")
def test_subsets() -> None:
    run = replace(tiny_run(), data=Data("blobs", subset=10), evaluate=Evaluate(subset=7))
    assert len(build_examples(run, "train")) == 10
    assert len(build_examples(run, "test")) == 7
    with pytest.raises(ValueError, match="data.subset=1000 must be between 1 and the 96 training examples of blobs"):
        build_examples(replace(run, data=Data("blobs", subset=1000)), "train")


def test_options_of_the_data_set_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {}

    def loader(name: str, split: str, root: None = None, **options: object) -> Examples:
        seen[name] = options
        return load("blobs", split)

    monkeypatch.setattr(data, "load", loader)
    monkeypatch.setattr(data, "options_of", lambda name: ("tokens", "vocab") if name == "text" else ())
    for name in ("text", "image"):
        build_examples(Run(data=Data(name, tokens="words", context=9)), "train")
    assert seen == {"text": {"tokens": "words"}, "image": {}}


def test_a_regression_reads_two_outputs_and_keeps_the_names_of_the_weights() -> None:
    model = build_model(replace(tiny_run(), data=Data("line"), model=Model("mlp", hidden=(4,))), load("line", "train"))
    assert [name for name, _ in model.named_parameters()] == ["1.weight", "1.bias", "3.weight", "3.bias"]
    mean, variance = model(torch.zeros(3, 1))
    assert (mean.shape, variance.shape) == ((3, 1), (3, 1))


def test_what_cannot_regress_is_refused() -> None:
    examples = Examples(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.zeros(2), (), "image")
    with pytest.raises(ValueError, match=r"'resnet20' .* \(image, regression\); use one of \['mlp'\]"):
        build_model(Run(model=Model("resnet20")), examples)


@pytest.mark.usefixtures("tiny_data")
def test_validation_is_held_out_of_the_subset() -> None:
    run = Run(data=Data("blobs", subset=50, validation=0.2))
    train, validation = build_examples(run, "train"), build_examples(run, "validation")
    assert (len(train), len(validation)) == (40, 10)
    expected = hold_out(load("blobs", "train").first(50), 0.2)
    assert torch.equal(validation.inputs[:], expected[1].inputs[:])
    assert torch.equal(train.inputs[:], expected[0].inputs[:])
    with pytest.raises(ValueError, match="data.validation=0 holds no examples out"):
        build_examples(Run(data=Data("blobs")), "validation")
