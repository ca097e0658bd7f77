"""`main`: exit codes, errors without tracebacks, and what a shell may do to it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from varlearn.cli import main

TINY = ["--train.steps", "6", "--train.checkpoint_every", "2", "--train.eval_every", "0", "--evaluate.samples", "2"]
COMMANDS = (
    "list",
    "train",
    "sweep",
    "predict",
    "score",
    "ensemble",
    "merge",
    "report",
    "sensitivity",
    "examples",
    "export",
    "reproduce",
    "demo",
    "prepare",
    "doctor",
    "completion",
)
PREPARE = ("prepare openwebtext", "prepare imagenet")
PREVIEW = ("merge preview",)


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def start(*words: str, **options: object) -> subprocess.Popen:
    """The command line in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "varlearn", *words]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload]


def flags(command: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What the help of a command names, in its left column."""
    assert main([*command.split(), "--help"]) == 0
    left = re.findall(r"^│ (?:\* )? *(\S.*?)(?:  |│)", capsys.readouterr().out, flags=re.MULTILINE)
    words = [word for line in left for word in line.split() if re.fullmatch(r"--[\w.-]+|[A-Z]+", word)]
    types = {"PATH", "STR", "INT", "FLOAT", "CHOICE"}
    return sorted({f"{command} {word}" for word in words if word not in types})


def test_the_flags_are_frozen(capsys: pytest.CaptureFixture[str]) -> None:
    """Scripts depend on them. After a change on purpose: write what this test finds into flags.txt, and tell users."""
    found = [flag for command in (*COMMANDS, *PREPARE, *PREVIEW) for flag in flags(command, capsys)]
    assert found == (Path(__file__).parent / "flags.txt").read_text().splitlines()


def test_help_lists_the_commands_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert [command in out for command in COMMANDS] == [True] * len(COMMANDS)
    for code in (0, 1, 2, 3, 4, 130, 143):
        assert re.search(rf"\b{code}\s", out), code


@pytest.mark.parametrize(
    "words",
    [[], ["--help"], ["--version"], ["list"], ["list", "cifar10"]]
    + [[*command.split(), "--help"] for command in (*COMMANDS, *PREPARE, *PREVIEW)],
    ids=" ".join,
)
def test_help_and_wrong_words_do_not_wait_for_torch(words: list[str]) -> None:
    code = "import sys; from varlearn.cli import main; main(sys.argv[1:]); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code, *words], capture_output=True, timeout=600).returncode == 0


def test_help_is_as_wide_as_the_screen_is_now(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    widths = []
    for columns in ("60", "120"):
        monkeypatch.setenv("COLUMNS", columns)
        assert main(["train", "--help"]) == 0
        widths.append(max(map(len, capsys.readouterr().out.splitlines())))
    assert widths == [60, 120]


def test_help_imports_no_command() -> None:
    code = """
import sys
from varlearn.cli import main
main(["--help"])
loaded = [name for name in sys.modules if name in ("varlearn.train", "varlearn.recipes", "varlearn.data", "matplotlib")]
assert loaded == [], loaded
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    import varlearn

    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == varlearn.__version__


def test_debug_adds_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "nowhere", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("package", ["cyclopts", "rich"])
def test_a_missing_package_is_named_with_its_cure(
    package: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("varlearn.cli.") or name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["list"]) == 1
    assert capsys.readouterr().err == (
        f"varlearn: the command line needs {package}, which is not installed; pip install 'varlearn[cli]'\n"
    )


def test_a_package_that_a_command_lacks_is_named_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("varlearn.data")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "varlearn.data.sources", None)  # stands for numpy, which cannot be imported twice
    assert main(["list"]) == 1
    assert "this command needs varlearn, which is not installed" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--help"], pytest.param(["list"], marks=pytest.mark.slow)])
def test_a_reader_that_goes_away_is_no_error(words: list[str]) -> None:
    process = start(*words, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=600)
    assert process.returncode == 141, err
    assert "Traceback" not in err
    assert "BrokenPipe" not in err


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.slow)])
def test_a_stopped_run_is_resumed_to_the_bits_of_a_whole_one(number: signal.Signals, tmp_path: Path) -> None:
    settings = ["--train.steps", "400", "--train.checkpoint_every", "40", "--train.eval_every", "0"]
    settings += ["--evaluate.samples", "2", "--model.hidden", "8", "--train.log_every", "100", "--quiet"]
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    process = start("train", "digits-ivon", *settings, "--out", str(stopped), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 600
    while not any((stopped / "checkpoint").glob("*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(number)
    err = process.communicate(timeout=600)[1]
    if number == signal.SIGINT:
        assert process.returncode == 130, err
        assert "--resume" in err
        assert "Traceback" not in err
    else:
        assert process.returncode == -signal.SIGKILL
    assert not (stopped / "posterior.safetensors").exists()
    assert main(["train", "--resume", "--out", str(stopped), "--quiet"]) == 0  # the folder knows its recipe
    assert main(["train", "digits-ivon", *settings, "--out", str(whole)]) == 0
    for name in ("config.json", "log.jsonl", "posterior.safetensors", "predictions.safetensors", "metrics.json"):
        assert (stopped / name).read_bytes() == (whole / name).read_bytes(), name


def test_from_training_to_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "x"
    words = ["train", "digits-ivon", *TINY, "--data.ood", "digits", "--seed", "4", "--out", str(out), "--quiet"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    metrics = json.loads((out / "metrics.json").read_text())
    assert "run recipe=digits-ivon  scale=small  seed=4" in shown
    assert f"{metrics['averaged']['nll']:.4f}" in shown
    assert metrics["averaged"]["ood"]["digits"]["auroc"] == pytest.approx(0.5)  # the test set, told from itself
    before = {name: (out / name).read_bytes() for name in ("predictions.safetensors", "metrics.json")}
    for name in before:
        (out / name).unlink()
    assert main(["predict", str(out), "--quiet"]) == 0
    assert main(["score", str(out)]) == 0
    assert {name: (out / name).read_bytes() for name in before} == before
    capsys.readouterr()
    (out / "log.jsonl").unlink()  # fewer figures to draw
    assert main(["report", str(out), "--out", str(tmp_path / "page")]) == 0
    assert "test set" in (tmp_path / "page" / "report.html").read_text()
    assert str(tmp_path / "page" / "report.html") in capsys.readouterr().err


def test_a_folder_in_use_and_other_settings_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "digits-sgd", *TINY, "--out", str(tmp_path / "x"), "--quiet"]
    assert main(words) == 0
    capsys.readouterr()
    assert main(words) == 2
    assert "already holds a run; resume it" in capsys.readouterr().err
    assert main([*words, "--resume", "--optim.lr", "0.5"]) == 2
    assert "optim.lr was 0.1, is now 0.5" in capsys.readouterr().err


def test_a_full_disk_has_a_code_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert main(["train", "digits-sgd", *TINY, "--out", str(tmp_path / "x"), "--quiet"]) == 3
    err = capsys.readouterr().err
    assert "No space left on device" in err
    assert "Traceback" not in err


def test_a_loss_that_is_not_finite_has_a_code_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "train",
        "digits-sgd",
        "--optim.lr",
        "1e30",
        "--train.steps",
        "20",
        "--out",
        str(tmp_path / "x"),
        "--quiet",
    ]
    assert main(words) == 4
    assert "the loss is" in capsys.readouterr().err
