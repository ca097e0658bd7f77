"""The completion scripts: valid in their shells where these are installed, and complete."""

import shutil
import subprocess
import sys

import pytest

from varlearn.cli import main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_know_commands_flags_and_values(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("train", "sweep", "reproduce", "optim.lr", "cosine", "table13"):
        assert word in script, word
    if (program := shutil.which(shell)) is not None:
        checked = subprocess.run([program, "-n"], input=script, text=True, capture_output=True, timeout=600)
        assert checked.returncode == 0, checked.stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tr"], {"train"}),
        (["train", "--optim.l"], {"--optim.labels", "--optim.layers", "--optim.lr"}),
        (["train", "digits-va"], {"digits-vadamw"}),
    ],
)
def test_bash_completes(words: list[str], expected: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    line = " ".join(f"'{word}'" for word in ["varlearn", *words])
    ask = f"COMP_WORDS=({line}); COMP_CWORD={len(words)}; _varlearn; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], text=True, capture_output=True, timeout=600)
    assert {word.strip() for word in done.stdout.split()} == expected, done.stderr


def test_completion_does_not_wait_for_torch() -> None:
    code = "import sys; from varlearn.cli import main; main(['completion', 'bash']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=600).returncode == 0
