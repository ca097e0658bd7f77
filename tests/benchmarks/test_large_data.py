"""The rehearsal of data at the paper's scale, at a hundredth of a thousandth of its size."""

import json
import os
from pathlib import Path

import pytest

from benchmarks import large_data
from varlearn.data import bpe, corpora

pytest.importorskip("tokenizers")


@pytest.mark.slow
def test_the_rehearsal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = " ".join(f"word{number % 97} of the page" for number in range(3_000))
    monkeypatch.setattr(corpora, "brown", lambda split: words)
    monkeypatch.setattr(large_data, "MERGES", 100)
    monkeypatch.setattr(bpe, "MERGES", bpe.MERGES)  # the rehearsal replaces it, and this variable
    monkeypatch.setenv("VARLEARN_LOADERS", "0")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0}, raising=False)
    sizes = ["--megabytes", "6", "--images", "10", "--processes", "1"]
    assert large_data.main(["--out", str(tmp_path), *sizes]) == 0
    found = json.loads((tmp_path / "large_data.json").read_text())
    text = found["text"]
    assert text["bytes"] >= 6_000_000
    assert text["tokens_now"] == sum(text["tokens"].values()) > 0
    assert min(text["tokens_per_second"], text["training_tokens_per_second"]) > 0
    assert text["peak_mib_per_process"] < 2048
    assert [row["what"] for row in found["images"]][:2] == ["pack shards", "pack shards, shorter side 256"]
    assert len(found["images"]) == 2 + 3 * 2
