"""`varlearn list`."""

import re
from pathlib import Path

import pytest

from varlearn import data
from varlearn.cli import main
from varlearn.cli.listing import FILES, MADE_HERE, at_hand, parameters
from varlearn.data import MissingDataError
from varlearn.data.errors import DownloadError
from varlearn.methods import METHODS
from varlearn.recipes import names, recipe


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main(["list", *words]) == 0
    return [line for line in capsys.readouterr().out.splitlines() if line.strip()]


@pytest.mark.parametrize("columns", ["80", "200"])
def test_the_overview_is_short_and_names_every_recipe(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    lines = listed(capsys)
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    words = set(re.split(r"[\s-]+", " ".join(lines)))
    for name in names():
        assert set(name.split("-")) <= {word.rstrip(".") for word in words}, name


def test_a_group_shows_its_recipes_data_and_length(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    groups = {name.partition("-")[0] for name in names()}
    rows = [line for group in groups for line in listed(capsys, group, "--scale", "paper")]
    lines = {line.split()[0]: line for line in rows}
    assert set(names()) <= lines.keys()
    assert re.search(r"cifar100\s+200 epochs\s+(yes|no)", lines["cifar100-resnet20-ivon"])
    assert max(map(len, rows)) <= 80


def test_a_recipe_shows_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "cifar10-resnet18-sgd", "--scale", "paper"]) == 0
    shown = capsys.readouterr()
    assert "lr=0.1" in shown.out
    assert "11,178,762 parameters" in shown.err


def test_names_that_need_no_torch_are_those_of_data_and_models(capsys: pytest.CaptureFixture[str]) -> None:
    from varlearn.models.model_table import MODELS

    assert listed(capsys, "models") == list(MODELS)
    assert listed(capsys, "data") == data.names()
    assert listed(capsys, "methods") == list(METHODS)


def test_parameters_of_each_kind_of_network() -> None:
    assert parameters(recipe("digits-ivon")) == 64 * 100 + 100 + 100 * 100 + 100 + 100 * 10 + 10
    assert parameters(recipe("ag_news-gru-ivon")) == 1_972_228
    assert parameters(recipe("gpt2-125m-ivon")) == 3_279_104 - 128 * 256  # positions for 128 bytes, not 256


def test_every_data_set_of_a_recipe_is_known() -> None:
    used = {recipe(name, scale).data.name for name in names() for scale in ("paper", "small")}
    assert used - {"digits", *MADE_HERE} == FILES.keys()


@pytest.mark.parametrize("name", FILES)
def test_what_is_not_at_hand_cannot_be_loaded(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an empty folder and no network; an empty file where one is expected is what the loader then reads."""
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("VARLEARN_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("VARLEARN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    assert not at_hand(name)
    with pytest.raises((MissingDataError, DownloadError)):
        data.load(name, "train")
    for path in FILES[name]:
        file = tmp_path / "data" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")
        assert at_hand(name)
        with pytest.raises(Exception, match=re.escape(file.name.split(".")[0])) as caught:
            data.load(name, "train")
        assert not isinstance(caught.value, (MissingDataError, DownloadError))
        file.unlink()
        if file.parent != tmp_path / "data":
            file.parent.rmdir()


def test_a_text_file_is_at_hand_where_it_is(tmp_path: Path) -> None:
    assert not at_hand(str(tmp_path / "a.txt"))
    (tmp_path / "a.txt").write_text("x")
    assert at_hand(str(tmp_path / "a.txt"))
