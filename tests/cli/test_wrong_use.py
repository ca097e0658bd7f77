"""Wrong commands: one line that says what is wrong and what to do, exit code 2, and no file or folder."""

import subprocess
import sys
from pathlib import Path

import pytest

from varlearn.cli import main

DIGITS = ["train", "digits-ivon"]

# words of the command, words of the message
WRONG = [
    (["trian"], 'Unknown command "trian". Did you mean "train"?'),
    (["train"], "no RECIPE given; varlearn list shows them"),
    (["train", "--resume", "--out", "nowhere"], "--resume --out nowhere: that folder holds no run to go on with"),
    (["train", "--resume", "--out", "nowhere", "--lr", "1"], "give a RECIPE to start a run in it"),
    (["merge", "--base", "x", "--model", "y", "--out", "z"], "x does not exist; give a folder with model.safetensors"),
    (["train", "digit-ivon"], "'digit-ivon' is not a recipe; did you mean digits-ivon"),
    (["train", "nowhere.toml"], "nowhere.toml cannot be read: No such file"),
    (["train", "--config", "nowhere.toml"], "nowhere.toml cannot be read: No such file"),
    ([*DIGITS, "--optim.lrr", "1"], "Unknown option: --optim.lrr. Did you mean --optim.lr? See varlearn train --help."),
    ([*DIGITS, "--train.lr", "1"], "Unknown option: --train.lr. Did you mean --optim.lr?"),
    ([*DIGITS, "--learning_rat", "1"], "Did you mean --optim.lr?"),
    ([*DIGITS, "--samples", "3"], "--samples may mean --optim.samples or --evaluate.samples; write one of them"),
    ([*DIGITS, "--optim.lr", "fast"], 'Invalid value for --optim.lr: unable to convert "fast" into float'),
    ([*DIGITS, "--lr", "fast"], 'Invalid value for --optim.lr: unable to convert "fast" into float'),
    ([*DIGITS, "--optim.lr", "-1"], "optim.lr=-1.0 must be >= 0 and finite"),
    ([*DIGITS, "--optim.name", "adam"], 'Invalid value "adam" for --optim.name'),
    ([*DIGITS, "--optim.ess", "0"], "optim.ess=0.0 must be > 0 and finite"),
    ([*DIGITS, "--data.name", "digts"], "data.name='digts' is not a data set; did you mean digits?"),
    ([*DIGITS, "--data.ood", "svnh"], "data.ood='svnh' is not a data set; did you mean svhn?"),
    ([*DIGITS, "--data.name", "mine.txt"], "data.name='mine.txt': the file mine.txt does not exist"),
    ([*DIGITS, "--model.name", "resnet21"], "model.name='resnet21' is not a network; did you mean resnet20?"),
    ([*DIGITS, "--model.name", "resnet20"], "model.name='resnet20' cannot compute the inputs of data.name='digits'"),
    ([*DIGITS, "--model.name", "gru"], "model.name='gru' does not read data.name='digits'"),
    ([*DIGITS, "--model.classes", "7"], "model.classes=7 must be the 10 classes of digits"),
    ([*DIGITS, "--device", "gpu"], "--device gpu is not a device; use e.g. cpu or cuda:0"),
    ([*DIGITS, "--data.batch_size", "0"], "data.batch_size=0 must be >= 1"),
    ([*DIGITS, "--seed", "-3"], "seed=-3 must be >= 0"),
    ([*DIGITS, "--epochs", "1.5"], 'Invalid value for --train.epochs: unable to convert "1.5" into int'),
    ([*DIGITS, "--seed", "0.5"], 'Invalid value for --seed: unable to convert "0.5" into int'),
    ([*DIGITS, "--data.subset", "5000"], "data.subset=5000 must be between 1 and the 1000 training examples of digits"),
    (["list", "cifar11"], "'cifar11' is not a group, a recipe, or one of methods, models, data; did you mean cifar10"),
    (["predict"], 'Command "predict" parameter RUN requires an argument'),
    (["predict", "nowhere"], "nowhere holds no run; train first"),
    (["score", "nowhere"], "nowhere holds no run; train first"),
    (["report", "nowhere"], "nowhere holds no run; train first"),
    (["report"], "no run given; name the folder of at least one"),
    (["reproduce", "table22"], "'table22' cannot be reproduced; did you mean table2 or table12?"),
    (["reproduce", "table1", "--data", "mnist"], "--data mnist is not in table1; it has cifar10"),
    (["reproduce", "table1", "--seeds", "0"], "seeds=0 must be at least 1"),
    (["demo", "--seeds", "0"], "--seeds 0 must be at least 1"),
    (["sweep", "digits-ivon"], "no setting to try; give some, e.g. --optim.lr 0.1,0.3,1"),
    (["sweep", "digits-ivon", "--optim.lrr", "1,2"], "--optim.lrr is not a setting of a run; did you mean --optim.lr?"),
    (["sweep", "digits-ivon", "--lr", "1,fast"], 'Invalid value for --optim.lr: unable to convert "fast" into float'),
    (["sweep", "digits-ivon", "--optim.ess", "10,-10"], "optim.ess=-10.0 must be > 0 and finite"),
    (["sweep", "digits-ivon", "--lr", "1,2", "--seeds", "0"], "--seeds 0 must be at least 1"),
    (["sweep", "digits-ivon", "--lr", "0.1:1"], "--optim.lr 0.1:1 is a range; say how many combinations to try"),
    (
        ["sweep", "digits-ivon", "--lr", "1:0.1", "--trials", "2"],
        "the range 1:0.1 must have two finite ends, the lower",
    ),
    (["sweep", "digits-ivon", "--lr", "0.1:fast", "--trials", "2"], "the range 0.1:fast must have a number on both"),
    (["sweep", "digits-ivon", "--lr", "0.1:1,2", "--trials", "2"], "0.1:1,2 mixes a range with values"),
    (["sweep", "digits-ivon", "--optim.ess", "-1:10", "--trials", "2"], "optim.ess=-1.0 must be > 0 and finite"),
    (["sweep", "digits-ivon", "--lr", "0.1:1", "--trials", "0"], "--trials 0 must be at least 1"),
    (["prepare", "openwebtxt", "a.txt"], 'Unknown command "openwebtxt". Did you mean "openwebtext"?'),
    (["prepare", "openwebtext"], 'Command "prepare openwebtext" parameter SOURCE requires an argument'),
    (["prepare", "openwebtext", ".", "--held_out", "2"], "held_out=2.0 must be a share between 0 and 1"),
    (["prepare", "openwebtext", ".", "--processes", "0"], "processes=0 must be at least 1"),
    (["prepare", "imagenet", ".", "--shorter_side", "0"], "shorter_side=0 must be at least 1"),
    (["prepare", "imagenet", "nowhere"], "nowhere does not exist; give the folder that holds train and val"),
    (["prepare", "openwebtext", "nowhere.txt"], "nowhere.txt does not exist; give the files of the corpus"),
    (["completion", "tcsh"], 'Invalid value "tcsh"'),
]
NEED_TORCH = ("gpu", "resnet20", "gru", "7", "5000")  # the device, or the data and the network, must be looked at
WITHOUT_TORCH = [words for words, _ in WRONG if words[-1] not in NEED_TORCH and words[0] != "merge"]


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_wrong_use_is_one_line_exit_code_2_and_no_folder(
    words: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    captured = capsys.readouterr()
    error = [line for line in captured.err.splitlines() if not line.startswith("writing to ")]
    assert len(error) == 1
    assert error[0].startswith("varlearn: ")
    assert message in error[0]
    assert list(tmp_path.iterdir()) == []


def test_wrong_use_does_not_wait_for_torch(tmp_path: Path) -> None:
    code = f"""
import contextlib, io, sys
from varlearn.cli import main
for words in {WITHOUT_TORCH!r}:
    with contextlib.redirect_stderr(io.StringIO()):
        main(words)
    if "torch" in sys.modules:
        sys.exit("torch was imported by " + " ".join(words))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_cuda_on_a_build_for_the_cpu_is_said_in_words(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    assert main([*DIGITS, "--device", "cuda:0"]) == 2
    message = f"--device cuda:0 needs a GPU, but this PyTorch ({torch.__version__}) was built without CUDA"
    assert message in capsys.readouterr().err
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert main([*DIGITS, "--device", "cuda:3"]) == 2
    assert "--device cuda:3 does not exist: PyTorch finds 1 GPU(s) here" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_data_that_are_missing_leave_no_folder(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VARLEARN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("VARLEARN_DATA", raising=False)
    assert main(["train", "imagenet-resnet50-sgd", "--quiet"]) == 1  # the command is right, the data are not there
    assert "imagenet" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
