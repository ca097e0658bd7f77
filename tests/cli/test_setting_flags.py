"""Short names of settings, and suggestions."""

import pytest

from varlearn.cli.app import app
from varlearn.cli.setting_flags import SYNONYMS, expanded, full_names, setting_names, suggestion


def own_flags(command: str) -> set[str]:
    arguments = app[command].assemble_argument_collection(parse_docstring=False)
    names = {name for argument in arguments for name in argument.names if name.startswith("--") and "." not in name}
    return names - {f"--{section}" for section in ("model", "data", "optim", "train", "evaluate")}


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_no_flag_of_a_command_is_taken_for_a_setting(command: str) -> None:
    assert "--out" in own_flags(command)
    assert {flag: full_names(flag[2:]) for flag in own_flags(command) if full_names(flag[2:])} == {}


def test_every_synonym_is_a_setting_and_no_other_word() -> None:
    assert set(SYNONYMS.values()) <= set(setting_names())
    leaves = {name.rpartition(".")[2] for name in setting_names()}
    assert not leaves & SYNONYMS.keys()


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["--lr", "1"], ["--optim.lr", "1"]),
        (["--learning-rate=1"], ["--optim.lr=1"]),
        (["--learning_rate", "1"], ["--optim.lr", "1"]),
        (["--batch-size", "8"], ["--data.batch_size", "8"]),
        (["--data.batch-size", "8"], ["--data.batch_size", "8"]),
        (["--model", "mlp"], ["--model.name", "mlp"]),
        (["--no-augment"], ["--data.no-augment"]),
        (["--optim.lr", "-1"], ["--optim.lr", "-1"]),
        (["--nonsense", "x", "--out", "lr"], ["--nonsense", "x", "--out", "lr"]),
    ],
)
def test_short_names_are_made_full(given: list[str], meant: list[str]) -> None:
    assert expanded(given) == meant


def test_a_word_of_two_settings_is_refused() -> None:
    with pytest.raises(ValueError, match="--subset may mean --data.subset or --evaluate.subset; write one of them"):
        expanded(["--subset", "3"])


@pytest.mark.parametrize(
    ("flag", "meant"),
    [("--optim.learning_rate", "--optim.lr"), ("--epoch", "--train.epochs"), ("--foo", None), ("--outt", "--out")],
)
def test_suggestions(flag: str, meant: str | None) -> None:
    assert suggestion(flag, ["--out", "--logger"]) == meant
