"""Files read in parts equal files read whole; whatever is cut, changed or made up is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from varlearn.files import sealed
from varlearn.files.formats import CorruptFileError
from varlearn.files.tensor_file import DTYPES, TensorFile, file_sha256


def example(path: Path) -> dict[str, torch.Tensor]:
    values = {f"t{place}": torch.arange(7).to(dtype) for place, dtype in enumerate(DTYPES.values())}
    values |= {"scalar": torch.tensor(3.5), "empty": torch.zeros(0, 2), "matrix": torch.randn(3, 5)}
    save_file(values, path)
    return values


def test_parts_are_parts(tmp_path: Path) -> None:
    values = example(tmp_path / "x.safetensors")
    file = TensorFile(tmp_path / "x.safetensors")
    assert file.entries.keys() == values.keys()
    for name, value in values.items():
        entry = file.entries[name]
        assert (entry.dtype, entry.shape) == (value.dtype, value.shape)
        flat = value.flatten()
        for start, stop in ((0, None), (1, 3), (2, 100), (5, 2)):
            found = file.read(name, start, stop)
            assert torch.equal(found.view(torch.uint8), flat[start:stop].contiguous().view(torch.uint8)), name


@given(cut=st.integers(0, 2000))
def test_every_cut_is_noticed(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("cut") / "x.safetensors"
    save_file({"w": torch.ones(300)}, path)
    raw = path.read_bytes()
    path.write_bytes(raw[: min(cut, len(raw) - 1)])
    with pytest.raises(CorruptFileError, match="no whole safetensors file.*copy or download it again"):
        TensorFile(path)


def header(path: Path, entries: object, data: bytes = b"\0" * 8) -> Path:
    text = json.dumps(entries).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


BAD = [
    ({"w": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}, "dtype 'F99'"),
    ({"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, "must take 12"),
    ({"w": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, "must take 4 from 0"),
    ({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, "its header describes"),
    ({"w": {"dtype": "F32", "shape": [2]}}, "data_offsets"),
    ([1], "no whole safetensors file"),
    ({"w": 3}, "no whole safetensors file"),
]


@pytest.mark.parametrize(("entries", "message"), BAD)
def test_headers_that_do_not_describe_the_file_are_refused(tmp_path: Path, entries: object, message: str) -> None:
    with pytest.raises(CorruptFileError, match=message):
        TensorFile(header(tmp_path / "x.safetensors", entries))


def test_a_huge_header_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes((2**60).to_bytes(8, "little") + b"{}")
    with pytest.raises(CorruptFileError, match="does not fit into 10 bytes"):
        TensorFile(tmp_path / "x")


def test_a_checksum_is_compared(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    sealed.write(path, {"w": torch.ones(4)}, {"kind": "example"})
    file = TensorFile(path)
    assert file.sealed
    file.verify()
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    with pytest.raises(CorruptFileError, match="it is damaged"):
        TensorFile(path).verify()
    plain = tmp_path / "plain"
    save_file({"w": torch.ones(4)}, plain)
    TensorFile(plain).verify()  # it has none
    assert len(file_sha256(plain)) == 64
    assert load_file(plain)["w"].tolist() == [1.0] * 4
