"""Flags, files and what they are laid over."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from varlearn.cli.overrides import as_flags, given, laid_over, optional, read_settings
from varlearn.cli.train_command import chosen
from varlearn.methods import METHODS
from varlearn.recipes import recipe
from varlearn.train.config import Run, to_json


def test_every_setting_has_a_flag_but_those_named_apart() -> None:
    made = optional(Run)()
    for section in ("model", "data", "train", "evaluate"):
        assert [f.name for f in fields(getattr(made, section))] == [f.name for f in fields(getattr(Run(), section))]
    of_methods = {field.name for method in METHODS.values() for field in fields(method.Settings)}
    assert {field.name for field in fields(made.optim)} == of_methods
    assert not hasattr(made, "seed")
    assert given(made) == {}


def test_none_is_a_value_and_infinity_survives() -> None:
    base = recipe("cifar10-resnet20-ivon")
    changed = laid_over(base, {"data": {"subset": None}, "optim": {"clip_radius": float("inf")}})
    assert changed.data.subset is None
    assert changed.optim.clip_radius == float("inf")
    assert laid_over(base, {}) == base


def test_epochs_take_the_place_of_a_recipes_steps(tmp_path: Path) -> None:
    base = recipe("digits-ivon")
    assert base.train.steps is not None
    changed = laid_over(base, {"train": {"epochs": 2}})
    assert (changed.train.epochs, changed.train.steps) == (2, None)
    assert laid_over(base, {"train": {"epochs": 2, "steps": 5}}).train.steps == 5
    assert laid_over(base, {"train": {"log_every": 2}}).train.steps == base.train.steps
    path = tmp_path / "config.json"
    path.write_text(to_json(base))
    assert chosen(None, None, None, None, path, {}) == base  # a run's own file has both


def test_a_file_changes_the_recipe_and_a_flag_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("seed = 5\n[optim]\nlr = 0.3\ness = 100.0\n[data]\nood = ['svhn']\n")
    run = chosen("cifar10-resnet20-ivon", None, None, None, path, {"optim": {"lr": 0.4}})
    assert (run.seed, run.optim.lr, run.optim.ess, run.data.ood) == (5, 0.4, 100.0, ("svhn",))
    assert run.data.subset == 10_000
    assert chosen("cifar10-resnet20-ivon", None, None, 6, path, {}).seed == 6


def test_the_config_of_a_run_is_a_run(tmp_path: Path) -> None:
    run = recipe("ag_news-gru-sgd", "paper", 2)
    path = tmp_path / "config.json"
    path.write_text(to_json(run))
    assert chosen(None, None, None, None, path, {}) == run


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.toml", "[optim]\nlearning_rate = 1.0", r"optim\.learning_rate is not a setting of a run"),
        ("a.toml", "[optimm]\nlr = 1.0", "optimm is not a setting of a run; did you mean optim?"),
        ("a.toml", "lr = = 1", r"a\.toml is not TOML"),
        ("a.json", "{", r"a\.json is not JSON"),
        ("a.json", "[1]", "must hold settings by name, not a list"),
        ("a.json", '{"optim": {"name": []}}', r"optim\.name=\[\] must be one of ivon"),
        ("a.toml", "seed = 2024-01-01", r"seed='2024-01-01' must be of type int"),
    ],
)
def test_files_that_are_refused(name: str, text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        chosen("digits-ivon", None, None, None, path, {})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, r"a\.json is not JSON: maximum recursion depth"),
        ('{"optim": {"lr": ' + "9" * 400 + "}}", r"^optim\.lr is a number of 400 digits; a float is at most 1.8e308$"),
        ('{"optim": {"lr": "' + "x" * 10**6 + '"}}', r"^optim\.lr='x{50,}\.{3}x{50,}' must be of type float.{,99}$"),
        ('{"' + "x" * 10**6 + '": 1}', r"^x{100} is not a setting of a run.{,150}$"),
    ],
    ids=["deep", "digits", "value", "name"],
)
def test_long_values_give_short_messages(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        laid_over(Run(), read_settings(path))


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    for name in ("a.toml", "a.json"):
        (tmp_path / name).write_bytes(b"\xff")
        with pytest.raises(ValueError, match=rf"{name} is not [A-Z]+: 'utf-8' codec can't decode"):
            read_settings(tmp_path / name)


def test_flags_say_what_they_change() -> None:
    changes = {"optim": {"hess_init": 0.1, "rescale_lr": False}, "data": {"subset": None, "augment": True}}
    words = "--optim.hess_init 0.1 --optim.no-rescale_lr --data.subset none --data.augment"
    assert as_flags(changes) == words.split()


def test_settings_are_read_as_written(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"seed": 1}))
    assert read_settings(path) == {"seed": 1}


@pytest.mark.parametrize("key", ["a." * 20_000 + "a", '"a b" . ' * 20_000 + "a", "[" + "a." * 20_000 + "a]\nb"])
def test_a_key_of_many_names_is_refused_before_it_takes_memory(key: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(f"{key} = 0\n")
    with pytest.raises(ValueError, match="more than 100 names"):
        read_settings(path)


def test_settings_that_json_just_reads_and_python_cannot_merge_are_refused(tmp_path: Path) -> None:
    for depth in (100, 900, 990, 5_000):
        deep: dict[str, object] = {}
        for _ in range(depth):
            deep = {"optim": deep}
        with pytest.raises(ValueError, match="optim|nested"):
            laid_over(Run(), deep)
