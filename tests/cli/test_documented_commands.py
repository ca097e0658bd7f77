"""The commands and recipes in the documents are understood, and the commands of the README are executed in order."""

import re
import shlex
from pathlib import Path

import pytest

from tests.test_docs import DOCUMENTS, REPO, split
from varlearn.cli import main
from varlearn.cli.app import app
from varlearn.cli.overrides import given
from varlearn.cli.setting_flags import COMMANDS, expanded
from varlearn.cli.sweep_command import grid_values
from varlearn.cli.train_command import chosen
from varlearn.merging.merge_recipe import read_recipe
from varlearn.recipes import names


def commands(document: Path) -> list[list[str]]:
    """The words of each command of varlearn in the shell blocks and the indented lines of a document."""
    prose, fences = split(document.read_text(encoding="utf-8"))
    lines = [line for fence in fences if fence.info == "sh" for line in fence.text.splitlines()]
    lines += re.findall(r"^ {4}((?:torchrun|varlearn) .*)$", prose, flags=re.MULTILINE)
    found = [shlex.split(line, comments=True) for line in lines]
    after = [
        words[words.index("-m") + 1 :] if words[:1] == ["torchrun"] and "-m" in words else words for words in found
    ]
    return [words[1:] for words in after if words[:1] == ["varlearn"]]


DOCUMENTED = [(str(path.relative_to(REPO)), words) for path in DOCUMENTS for words in commands(path)]


@pytest.mark.parametrize(("document", "words"), DOCUMENTED, ids=[" ".join(words) for _, words in DOCUMENTED])
def test_a_documented_command_is_understood(document: str, words: list[str]) -> None:
    if words[0] in COMMANDS:
        words = [words[0], *expanded(words[1:])]
    recipe = [word for word in words[1:2] if not word.startswith("-")]
    if words[0] == "sweep":
        assert recipe[0] in names()
        assert grid_values([word for word in words[2:] if word not in ("--trials", "20")])
        return
    _, bound, *_ = app.parse_args(words, exit_on_error=False, print_error=False)
    if words[0] == "train" and recipe:
        settings = bound.arguments.get("settings")
        scale = bound.arguments.get("scale")
        chosen(recipe[0], None, scale, None, None, {} if settings is None else given(settings))


def test_there_are_commands_to_understand() -> None:
    assert len(DOCUMENTED) > 20
    assert {words[0] for _, words in DOCUMENTED} > {"train", "sweep", "report", "merge", "predict", "reproduce", "demo"}


def block(document: str, language: str) -> str:
    (text,) = [
        fence.text for fence in split((REPO / document).read_text(encoding="utf-8"))[1] if fence.info == language
    ]
    return text


def test_the_documented_recipe_of_a_merge_is_read(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(block("docs/merging.md", "toml"), encoding="utf-8")
    recipe = read_recipe(tmp_path / "recipe.toml")
    assert recipe.method == "hessian"
    assert [one.weight for one in recipe.models] == [1.0, 1.0]


def test_the_documented_recipe_for_mergekit_is_read() -> None:
    config = pytest.importorskip("mergekit.config").MergeConfiguration
    yaml = pytest.importorskip("yaml")
    assert config.model_validate(yaml.safe_load(block("docs/merging.md", "yaml"))).merge_method == "varlearn_hessian"


SMALLER = {"cifar10-resnet20-ivon": "digits-ivon"}  # no download, and seconds in the place of an hour
STEPS = ["--steps", "12", "--train.warmup", "0"]
FAR = ("reproduce",)  # many runs of an hour; tests/cli/test_reproduce_command.py has a small one


@pytest.mark.slow
def test_the_readmes_commands_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("optuna")
    image = pytest.importorskip("PIL.Image")
    monkeypatch.chdir(tmp_path)
    image.new("L", (8, 8), 200).save("picture.png")
    for name in ("runs/a", "runs/b", "runs/c", "A", "B", "C"):  # what the page takes for granted
        seed = str("ABC".index(Path(name).name.upper()))
        assert main(["train", "digits-ivon", *STEPS, "--seed", seed, "--quiet", "--out", name]) == 0
    made = {"train": "metrics.json", "merge": "model.safetensors", "ensemble": "metrics.json"}
    for words in commands(REPO / "README.md"):
        if words[0] in FAR:
            continue
        line = [SMALLER.get(word, word) for word in words]
        line = ["2" if before == "--trials" else word for before, word in zip(["", *line], line, strict=False)]
        if line[0] in COMMANDS and "--resume" not in line:
            line += STEPS
        assert main(line) == 0, (words, capsys.readouterr().err)
        if line[0] in made:
            assert Path(line[line.index("--out") + 1], made[line[0]]).exists()
    for path in ("sensitivity.safetensors", "gallery.html", "report.html"):
        assert Path("runs/ivon", path).exists()
