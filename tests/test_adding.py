"""The lists of "Adding things" in CONTRIBUTING.md hold for everything that is there.

Each section there is a kind of thing, each entry of its list begins with a path. For every thing of that kind the file
must exist and name it. `<name>` stands for the name of the thing, with "_" for "-", `<module>` for the module that
defines it. Entries for a fused engine hold for rules that have a kernel there. A new section needs a row in `THINGS`.
"""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest
import torch

from varlearn import core, data, metrics, models, optim, posterior, prediction, recipes
from varlearn.core.rule import Rule
from varlearn.data import loading
from varlearn.data.glue import TASKS
from varlearn.data.glue_samples import SAMPLES
from varlearn.data.review_polarity import REVIEWS
from varlearn.methods import METHODS, Optim
from varlearn.optim.engine.choice import ENGINES
from varlearn.optim.engine.native import rule_kernels
from varlearn.optim.engine.triton import triton_engine
from varlearn.prediction import Predictions, RegressionPredictions, TokenPredictions, score
from varlearn.report.score_table import FURTHER, TITLES

REPO = Path(__file__).parents[1]
COUNTS = {"examples", "tokens"}  # in metrics.json beside the scores
FAMILIES = {*TASKS, *SAMPLES, *REVIEWS, *loading.UCI}  # sets that one table of their module lists


def module_of(thing: object) -> str:
    module = inspect.getmodule(inspect.unwrap(thing))  # type: ignore[arg-type]
    assert module is not None
    return module.__name__.rpartition(".")[2]


def data_sets() -> dict[str, str]:
    tables = {**loading.IMAGES, **loading.TEXTS, **loading.CORPORA, **loading.TOKENS}
    return {name: module_of(function) for name, function in tables.items() if name not in FAMILIES}


def score_names() -> set[str]:
    """The keys of `metrics.json` for the three tasks."""
    halves, targets, one = torch.tensor([[0.5, 0.5]] * 2).log(), torch.tensor([0, 1]), torch.ones(2)
    found = [
        Predictions(halves, targets, one, one),
        TokenPredictions(halves[:, 0], targets, one, one),
        RegressionPredictions(one, one, one, one, one, one),
    ]
    return {name for predictions in found for name in score(predictions)} - COUNTS


def defined(package: object, kind: type | None = None) -> dict[str, str]:
    """The public functions of a package, or its classes of a kind, and the modules that define them."""
    found = {name: getattr(package, name) for name in package.__all__}  # type: ignore[attr-defined]
    if kind is None:
        return {name: module_of(value) for name, value in found.items() if inspect.isfunction(value)}
    return {name: module_of(v) for name, v in found.items() if inspect.isclass(v) and issubclass(v, kind)}


def rules() -> dict[str, Rule]:
    """Module of `varlearn.core` -> the update rule that it defines."""
    modules = {info.name: import_module(f"varlearn.core.{info.name}") for info in iter_modules(core.__path__)}
    return {name: module.RULE for name, module in modules.items() if hasattr(module, "RULE")}


THINGS: dict[str, dict[str, str]] = {
    "A method": {name: module_of(method) for name, method in METHODS.items()},
    "An optimizer": {module: module for module in defined(optim, torch.optim.Optimizer).values()},
    "A rule": {rule.name: module for module, rule in rules().items()},
    "An engine": dict.fromkeys(ENGINES, ""),
    "A posterior": {
        name: module_of(getattr(posterior, name))
        for name in posterior.__all__
        if callable(getattr(getattr(posterior, name), "sample", None))
    },
    "A data set": data_sets(),
    "A model": {name: module_of(row.function) for name, row in models.MODELS.items()},
    "A recipe": {name: module for name, module in defined(recipes).items() if module != "catalogue"},
    "A metric": defined(metrics),
    "A score of runs": dict.fromkeys(score_names(), ""),
}


def lists() -> dict[str, list[str]]:
    """Section -> the paths that the entries of its list begin with."""
    text = (REPO / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("\n## Adding things\n")[2].partition("\n## ")[0]
    parts = re.split(r"^### (.+)$", section, flags=re.MULTILINE)
    return {
        title: re.findall(r"^\d+\. `([^`]+)`", words, flags=re.MULTILINE)
        for title, words in zip(parts[1::2], parts[2::2], strict=True)
    }


def missing(paths: list[str], name: str, module: str) -> Iterator[str]:
    """What the entries of a list demand, and the repository does not have."""
    for entry in paths:
        path = REPO / entry.replace("<name>", name.replace("-", "_")).replace("<module>", module)
        if not path.is_file():
            yield f"{path.relative_to(REPO)} is missing"
        elif not re.search(rf"(?<![a-z0-9]){name.replace('-', '[-_]')}(?![a-z0-9])", path.read_text(), re.IGNORECASE):
            yield f"{path.relative_to(REPO)} does not name {name}"


def test_every_section_is_followed() -> None:
    assert lists().keys() == THINGS.keys()
    assert all(lists().values())
    assert all(THINGS.values())


def needed(paths: list[str], section: str, name: str) -> list[str]:
    """The entries of a list, of a rule without those of the engines that have no kernel of it."""
    if section != "A rule":
        return paths
    kernels = {"native": rule_kernels.RULES, "triton": triton_engine.RULES}
    without = [f"/{engine}/" for engine, known in kernels.items() if name not in known]
    return [path for path in paths if not any(part in path for part in without)]


@pytest.mark.parametrize("section", THINGS)
def test_the_list_holds_for_what_is_there(section: str) -> None:
    paths = lists()[section]
    things = THINGS[section].items()
    found = {name: list(missing(needed(paths, section, name), name, module)) for name, module in things}
    assert {name: words for name, words in found.items() if words} == {}


def test_what_is_missing_is_found() -> None:
    paths = ["src/varlearn/methods/<name>.py", "docs/methods.md"]
    assert list(missing(paths, "vogon", "")) == [
        "src/varlearn/methods/vogon.py is missing",
        "docs/methods.md does not name vogon",
    ]
    assert list(missing(["tests/data/test_<module>.py"], "cifar10-x", "cifar")) != []


@pytest.mark.parametrize("name", METHODS)
def test_the_row_of_a_method_says_what_it_is(name: str) -> None:
    method = METHODS[name]
    text = (REPO / "docs" / "methods.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| `{name}` \|.*$", text, flags=re.MULTILINE)
    _, label, kind, cost, further = [cell.strip() for cell in row.strip("|").split("|")]
    own = [field for field in method.Settings.__dataclass_fields__ if field not in Optim.__dataclass_fields__]
    assert (label, cost) == (method.label, method.cost)
    assert further == ", ".join(f"`{field}`" for field in own)
    assert set(re.findall(r"`(\w+)`", kind)) <= {*posterior.__all__, *prediction.__all__}
    assert (kind == "`Point`") == (not method.averages)


@pytest.mark.parametrize("name", METHODS)
def test_every_setting_of_a_method_has_its_words(name: str) -> None:
    settings = METHODS[name].Settings
    words = inspect.cleandoc(settings.__doc__ or "").partition("\nAttributes:\n")[2]
    own = settings.__annotations__.keys() - {"RULES"}
    assert all(re.search(rf"^    {field}: ", words, flags=re.MULTILINE) for field in own - {"name"})


def test_every_data_set_has_facts_and_every_score_a_title() -> None:
    from varlearn.data import facts

    assert {*facts.IMAGES, *facts.TEXTS, *facts.CORPORA, *facts.TABLES} == set(data.names())
    assert score_names() == {*TITLES, *FURTHER}
