import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.data.files import md5, write_tar, write_xz, write_zip
from varlearn.data import glue
from varlearn.data.errors import CorruptDataError, DataError, DownloadError

GLUE = {
    "cola": (
        "cola_public_1.1.zip",
        "cola_public/raw/in_domain_dev.tsv",
        'gj04\t1\t\tA "fine one.\ngj04\t0\t*\tOne fine.\n',
    ),
    "sst2": ("SST-2.zip", "SST-2/dev.tsv", 'sentence\tlabel\nA "fine one.\t1\nOne fine.\t0\n'),
    "qqp": (
        "QQP-clean.zip",
        "QQP/dev.tsv",
        'id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n1\t2\t3\tA "fine one.\tS\t1\n4\t5\t6\tOne fine.\tT\t0\n',
    ),
    "wnli": ("WNLI.zip", "WNLI/dev.tsv", 'index\ta\tb\tlabel\n0\tA "fine one.\tS\t1\n1\tOne fine.\tT\t0\n'),
    "qnli": (
        "QNLIv2.zip",
        "QNLI/dev.tsv",
        'index\tq\ts\tlabel\n0\tA "fine one.\tS\tnot_entailment\n1\tOne fine.\tT\tentailment\n',
    ),
    "rte": (
        "RTE.zip",
        "RTE/dev.tsv",
        'index\ta\tb\tlabel\r\n0\tA "fine one.\tS\tnot_entailment\r\n1\tOne fine.\tT\tentailment\r\n',
    ),
    "mnli": (
        "multinli_1.0.zip",
        "multinli_1.0/multinli_1.0_dev_matched.jsonl",
        "".join(
            json.dumps({"gold_label": label, "sentence1": a, "sentence2": b}) + "\n"
            for label, a, b in (
                ("neutral", 'A "fine one.', "S"),
                ("-", "left out", "x"),
                ("entailment", "One fine.", "T"),
            )
        ),
    ),
}


@pytest.mark.parametrize("name", GLUE)
def test_glue_as_published(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    archive, inside, content = GLUE[name]
    path = write_zip(tmp_path / archive, {inside: content.encode()})
    task = replace(glue.TASKS[name], joined={}, prepared={})
    public, _ = task.files["dev_in" if name == "cola" else "dev"]
    checksum = md5(path) if public.checksum else None
    small = replace(task, counts={"dev": 2}, files={"dev": (replace(public, checksum=checksum), inside)})
    for split in ("dev", "test"):
        dev = small.texts(split, tmp_path)
        assert dev.texts == ('A "fine one.', "One fine.")
        assert dev.targets.tolist() == [1, 0]
        assert dev.seconds == (() if name in ("cola", "sst2") else ("S", "T"))
    with pytest.raises(DownloadError if checksum is None else CorruptDataError):
        glue.TASKS[name].texts("dev", tmp_path / "nowhere" if checksum is None else tmp_path)
    with pytest.raises(ValueError, match="split='valid' must be one of"):
        small.texts("valid", tmp_path)
    broken = replace(small, files={"dev": (replace(public, checksum=None), inside)})
    write_zip(path, {inside: content.replace("\t", " ").replace("gold", "bold").encode()})
    with pytest.raises(CorruptDataError, match=f"is not {name}'s table"):
        broken.texts("dev", tmp_path)
    write_zip(path, {"other": b""})
    with pytest.raises(CorruptDataError, match=f"has no readable {inside}"):
        broken.texts("dev", tmp_path)


def test_stsb_as_published(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    table = "news\tf\t2012\t1\t3.8\tA man.\tA woman.\nnews\tf\t2012\t2\t0.000\tOne.\tTwo.\tsource\tsource\n"
    path = write_tar(tmp_path / "Stsbenchmark.tar.gz", {"stsbenchmark/sts-dev.csv": table.encode()})
    monkeypatch.setattr(glue, "_STSB", replace(glue._STSB, checksum=md5(path)))
    with pytest.raises(CorruptDataError, match="holds 2 pairs of dev, not 1500"):
        glue.stsb("dev", tmp_path)
    monkeypatch.setattr(glue, "_STSB_COUNTS", {"dev": 2})
    dev = glue.stsb("dev", tmp_path)
    assert dev.targets.tolist() == pytest.approx([3.8, 0.0])
    assert (dev.texts, dev.seconds, dev.classes) == (("A man.", "One."), ("A woman.", "Two."), ())


def test_prepared_tables_are_checked(tmp_path: Path) -> None:
    write_xz(tmp_path / "text" / "cola_dev.tsv.xz", "1\tGood.\n0\tBad\textra\n")
    with pytest.raises(CorruptDataError, match="rows of different length"):
        glue.TASKS["cola"].texts("dev", tmp_path)
    write_xz(tmp_path / "text" / "cola_dev.tsv.xz", "1\tGood.\n0\tBad\n")
    with pytest.raises(CorruptDataError, match=r"cola_dev.tsv.xz holds 2 texts, not 527"):
        glue.TASKS["cola"].texts("dev", tmp_path)


def test_colas_dev_set_is_both_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    small = replace(glue.TASKS["cola"], counts={"train": 1, "dev_in": 2, "dev_ood": 1})
    write_xz(tmp_path / "text" / "cola_dev.tsv.xz", "1\tGood.\n0\tBad.\n")
    write_xz(tmp_path / "text" / "cola_dev_ood.tsv.xz", "1\tOther.\n")
    for split in ("dev", "test"):
        assert small.texts(split, tmp_path).texts == ("Good.", "Bad.", "Other.")
        assert small.texts(split, tmp_path).targets.tolist() == [1, 0, 1]
    assert small.texts("dev_in", tmp_path).texts == ("Good.", "Bad.")


def test_stsb_prepared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(glue, "_STSB_COUNTS", {"dev": 2})
    write_xz(tmp_path / "text" / "stsb_dev.tsv.xz", "3.8\tA man.\tA woman.\n0\tOne.\tTwo.\n")
    assert glue.stsb("dev", tmp_path).targets.tolist() == pytest.approx([3.8, 0.0])
    write_xz(tmp_path / "text" / "stsb_dev.tsv.xz", "x\tA man.\tA woman.\n0\tOne.\tTwo.\n")
    with pytest.raises(CorruptDataError, match="has a score that is no number"):
        glue.stsb("dev", tmp_path)


def test_tasks_that_are_not_at_hand_say_so(tmp_path: Path) -> None:
    for name, task in glue.TASKS.items():
        with pytest.raises(DataError, match="VARLEARN_DATA"):
            task.texts("train", tmp_path)
        assert name == task.name
