import hashlib
import lzma
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.data.files import random_images, write, write_npz, write_sheet, write_xz
from varlearn.data import prepared
from varlearn.data.errors import CorruptDataError, MissingDataError


def test_sheets_give_back_the_images(tmp_path: Path) -> None:
    images = random_images(75, 3, 32, 32)
    paths = [write_sheet(tmp_path / "a.webp", images[:50]), write_sheet(tmp_path / "b.webp", images[50:])]
    assert torch.equal(prepared.sheets(paths), images)


def test_a_sheet_of_the_wrong_size(tmp_path: Path) -> None:
    Image.new("RGB", (700, 32)).save(tmp_path / "a.webp", lossless=True)
    with pytest.raises(CorruptDataError, match="has 700x32 pixels, not 800 by a multiple of 32"):
        prepared.sheets([tmp_path / "a.webp"])


def test_arrays_and_texts(tmp_path: Path) -> None:
    write_npz(tmp_path / "a.npz", x=np.arange(3))
    assert prepared.arrays(tmp_path / "a.npz")["x"].tolist() == [0, 1, 2]
    write_xz(tmp_path / "t.tsv.xz", "1\ta b\n0\tc\n")
    assert prepared.rows(tmp_path / "t.tsv.xz", 2) == [["1", "a b"], ["0", "c"]]
    with pytest.raises(CorruptDataError, match="line 1 has 2 columns, not 3"):
        prepared.rows(tmp_path / "t.tsv.xz", 3)


@pytest.mark.parametrize("name", ["a.npz", "a.npy.xz", "a.txt.xz", "a.webp"])
def test_each_way_to_be_damaged(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    read = {
        "a.npz": prepared.arrays,
        "a.npy.xz": prepared.array,
        "a.txt.xz": prepared.text,
        "a.webp": lambda p: prepared.sheets([p]),
    }[name]
    with pytest.raises(MissingDataError, match=f"{name} is missing"):
        read(path)
    path.mkdir()
    with pytest.raises(CorruptDataError, match=f"{name} must be a file"):
        read(path)
    path.rmdir()
    write(path, b"")
    with pytest.raises(CorruptDataError, match=f"{name} is empty"):
        read(path)
    write_npz(tmp_path / "whole.npz", x=np.arange(1000))
    np.save(tmp_path / "whole.npy", np.arange(1000))
    write(tmp_path / "whole.npy.xz", lzma.compress((tmp_path / "whole.npy").read_bytes()))
    write_xz(tmp_path / "whole.txt.xz", "text" * 1000)
    write_sheet(tmp_path / "whole.webp", random_images(25, 3, 32, 32))
    whole = (tmp_path / name.replace("a.", "whole.")).read_bytes()
    for damaged in (whole[: len(whole) // 2], b"\x00" * 50):
        write(path, damaged)
        with pytest.raises(CorruptDataError, match=rf"{name} \({len(damaged):,} bytes\) cannot be read"):
            read(path)
    write(path, whole)
    read(path)


def test_one_flipped_bit_is_found_by_the_checksums(tmp_path: Path) -> None:
    images = random_images(25, 3, 32, 32)
    path = write_sheet(tmp_path / "deep" / "a.webp", images)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    write(tmp_path / "SHA256SUMS", f"{digest}  ./deep/a.webp\n".encode())
    assert torch.equal(prepared.sheets([path]), images)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptDataError, match=f"not {digest}"):
        prepared.sheets([path])


def test_a_file_that_the_checksums_do_not_name_is_read(tmp_path: Path) -> None:
    write(tmp_path / "SHA256SUMS", b"0" * 64 + b"  ./other\n")
    write_xz(tmp_path / "a.txt.xz", "text")
    assert prepared.text(tmp_path / "a.txt.xz") == "text"
