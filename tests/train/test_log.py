"""Records of a run: to JSON lines, to TensorBoard, and to packages that are not there."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from varlearn.files.atomic import WriteError
from varlearn.files.checked_json import read_json_lines
from varlearn.train.log import JsonLines, numbers_of, open_logger


def test_what_follows_the_kept_bytes_is_cut_off(tmp_path: Path) -> None:
    log = JsonLines(tmp_path / "log.jsonl")
    log.write({"step": 1})
    kept = log.flush()
    log.write({"step": 2})
    log.close()
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write('{"ste')
    log = JsonLines(tmp_path / "log.jsonl", keep=kept)
    log.write({"step": 3})
    log.close()
    assert read_json_lines(tmp_path / "log.jsonl") == ([{"step": 1}, {"step": 3}], [])


def test_half_a_line_is_cut_off_before_the_next_one(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        log = JsonLines(tmp_path / "timing.jsonl")
        log.write({"step": step})
        log.close()
        with open(tmp_path / "timing.jsonl", "a") as file:
            file.write('{"ste')
    assert read_json_lines(tmp_path / "timing.jsonl") == ([{"step": 1}, {"step": 2}, {"step": 3}], [])


def test_without_a_number_all_is_kept(tmp_path: Path) -> None:
    for step in (1, 2):
        log = JsonLines(tmp_path / "timing.jsonl")
        log.write({"step": step})
        log.close()
    assert len((tmp_path / "timing.jsonl").read_text().splitlines()) == 2


def test_numbers_that_json_has_no_word_for(tmp_path: Path) -> None:
    log = JsonLines(tmp_path / "log.jsonl")
    log.write({"step": 1, "ivon": {"clip": float("inf"), "loss": float("nan")}})
    log.close()
    assert json.loads((tmp_path / "log.jsonl").read_text())["ivon"] == {"clip": "inf", "loss": "nan"}


def test_a_log_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match=r"cannot write .*log.jsonl: No such file or directory"):
        JsonLines(tmp_path / "missing" / "log.jsonl")


def test_a_log_on_a_full_disk() -> None:
    log = JsonLines(Path("/dev/full"))
    with pytest.raises(WriteError, match="No space left on device"):
        log.write({"step": 1})
    log.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TensorBoard's own dependencies, while they are imported
def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    logger = open_logger("tensorboard", tmp_path)
    assert not list(tmp_path.iterdir())
    logger.write({"step": 3, "loss": 0.5, "eval": {"nll": 0.25}})
    logger.close()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(event.step, event.value) for event in events.Scalars("eval/nll")] == [(3, 0.25)]


@pytest.mark.parametrize("name", ["trackio", "wandb"])
def test_trackers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    package = SimpleNamespace(
        init=lambda **options: calls.append(options),
        log=lambda numbers, step: calls.append((step, numbers)),
        finish=lambda: calls.append("finish"),
    )
    monkeypatch.setitem(sys.modules, name, package)
    logger = open_logger(name, tmp_path / "x", {"seed": 1})
    logger.write({"step": 2, "loss": 1.0})
    logger.close()
    assert calls == [{"project": "varlearn", "name": "x", "config": {"seed": 1}}, (2, {"loss": 1.0}), "finish"]


@pytest.mark.parametrize("name", ["trackio", "wandb", "tensorboard"])
def test_a_missing_package_is_named_with_the_cure(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match=rf"logger '{name}' needs the package {name}.*pip install {name}"):
        open_logger(name, tmp_path)


def test_bools_and_words_are_no_curves() -> None:
    assert numbers_of({"step": 1, "a": {"b": {"c": 2}}, "advice": "smaller"}) == {"a/b/c": 2.0}
