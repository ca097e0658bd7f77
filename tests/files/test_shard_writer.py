"""What is written in pieces is what safetensors writes, byte for byte where its order is the same."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from varlearn.files.atomic import WriteError
from varlearn.files.shard_writer import write_shard
from varlearn.files.tensor_file import DTYPES


def test_other_readers_read_it(tmp_path: Path) -> None:
    values = {f"t{place}": torch.arange(7).to(dtype) for place, dtype in enumerate(DTYPES.values())}
    values |= {"scalar": torch.tensor(3.5), "empty": torch.zeros(0, 2)}
    described = [(name, value.dtype, value.shape) for name, value in values.items()]
    pieces = [(name, iter(value.reshape(-1).split(3))) for name, value in values.items()]
    digest = write_shard(tmp_path / "x", described, pieces, {"format": "pt"})
    found = load_file(tmp_path / "x")
    assert found.keys() == values.keys()
    assert all(torch.equal(found[name].view(torch.uint8), value.view(torch.uint8)) for name, value in values.items()
               if value.dim() and value.numel())  # fmt: skip
    assert found["scalar"].item() == 3.5
    assert digest == hashlib.sha256((tmp_path / "x").read_bytes()).hexdigest()


def test_one_tensor_gives_the_bytes_of_safetensors(tmp_path: Path) -> None:
    value = torch.randn(5, 3)
    write_shard(tmp_path / "a", [("w", value.dtype, value.shape)], [("w", iter([value.flatten()]))], {"format": "pt"})
    save_file({"w": value}, tmp_path / "b", metadata={"format": "pt"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")

    def pieces():
        yield torch.ones(1)
        raise OSError(28, "No space left on device")

    with pytest.raises(WriteError, match="cannot write .*x: No space left on device"):
        write_shard(tmp_path / "x", [("w", torch.float32, torch.Size([2]))], [("w", pieces())], {})
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x", "old")]
