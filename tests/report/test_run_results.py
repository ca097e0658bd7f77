"""Reading a run's folder at any stage."""

from pathlib import Path

import pytest
import torch

from varlearn.files.formats import FileFormatError
from varlearn.files.sealed import CorruptFileError
from varlearn.report import write_report
from varlearn.report.run_results import read_run


def test_a_whole_folder(folder: Path) -> None:
    run = read_run(folder)
    assert (run.name, run.label, run.kinds, run.outside) == ("ivon & co", "IVON", ("averaged", "mean"), ("noise",))
    assert [record["step"] for record in run.log] == [1, 1, 2, 2]  # not the half line
    found = run.classified("averaged")
    assert found is not None
    assert found[0][3].exp().tolist() == pytest.approx([0.4, 0.6])
    assert found[1] is not None
    assert torch.equal(found[1], torch.zeros(4, dtype=torch.long))


def test_a_folder_that_has_only_begun(folder: Path) -> None:
    for name in ("env.json", "log.jsonl", "metrics.json", "predictions.safetensors"):
        (folder / name).unlink()
    run = read_run(folder)
    assert (run.env, run.log, run.metrics, run.predictions) == ({}, [], {}, {})
    assert run.classified("mean") is None


def test_no_run_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no run: config.json is missing; give the folder that varlearn train"):
        read_run(tmp_path)


def test_json_that_is_none(folder: Path) -> None:
    (folder / "metrics.json").write_text("{")
    with pytest.raises(ValueError, match=r"metrics\.json is damaged: .*; its stage writes it again"):
        read_run(folder)


def test_a_flipped_bit_in_the_predictions(folder: Path) -> None:
    path = folder / "predictions.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptFileError):
        read_run(folder)


def test_a_damaged_line_of_the_log_is_reported_and_drops_no_other(folder: Path) -> None:
    path = folder / "log.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], "\0" + lines[1], *lines[2:]]))
    run = read_run(folder)
    assert run.damaged_lines == [2]
    assert len(run.log) == 3
    page = write_report([folder], folder / "report").read_text()
    assert "1 line(s) damaged or out of place and left out (2)" in page


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("config.json", '{"optim": 3}', r"the configuration\['optim'\] is 3"),
        ("metrics.json", '{"mean": {}}', "no entry 'averaged'"),
        ("log.jsonl", '{"loss": 0.5}\n', "a record has no entry 'step'"),
        ("log.jsonl", '{"loss": 0.5, "step": "one"}\n', r"a record\['step'\] is 'one'"),
    ],
)
def test_a_sound_file_with_another_content_is_named(name: str, text: str, message: str, folder: Path) -> None:
    (folder / name).write_text(text)
    with pytest.raises(FileFormatError, match=message) as caught:
        read_run(folder)
    assert name in str(caught.value)
