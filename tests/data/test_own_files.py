from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.files import write
from varlearn.data import Batches, load
from varlearn.data.errors import CorruptDataError, MissingDataError


def test_one_file(tmp_path: Path) -> None:
    path = write(tmp_path / "mine.txt", b"abcdefghij")
    assert bytes(load(str(path), "train").inputs[:].tolist()) == b"abcdefghi"
    assert bytes(load(str(path), "test").inputs[:].tolist()) == b"j"
    with pytest.raises(ValueError, match="split='valid' must be one of train, test"):
        load(str(path), "valid")


def test_a_file_per_split(tmp_path: Path) -> None:
    write(tmp_path / "train.txt", b"a b")
    write(tmp_path / "valid.txt", b"b c")
    name = str(tmp_path / "{split}.txt")
    assert bytes(load(name, "valid").inputs[:].tolist()) == b"b c"
    assert load(name, "valid", tokens="words").inputs[:].tolist() == [2, 0]
    with pytest.raises(MissingDataError, match=r"test.txt does not exist; give the path of a file"):
        load(name, "test")


def test_tokens(tmp_path: Path) -> None:
    numbers = np.arange(50_157, 50_257, dtype="<u2")
    path = write(tmp_path / "mine.bin", numbers.tobytes())
    train = load(str(path), "train")
    assert train.inputs[:].long().tolist() == numbers[:90].tolist()
    assert (len(load(str(path), "test")), train.vocab, train.kind) == (10, 50_257, "tokens")
    x, y = next(iter(Batches(train, 2, context=4)))
    assert x.tolist() == [[50_157, 50_158, 50_159, 50_160], [50_161, 50_162, 50_163, 50_164]]
    assert torch.equal(y, x + 1)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"\xff\xfe", r"a.txt must be text in UTF-8"),
        ("a.bin", b"abc", r"a.bin has 3 bytes, not two for each"),
        ("a.bin", b"", r"a.bin has 0 bytes"),
        ("a.txt", None, r"a.txt must be a file, not a directory"),
    ],
)
def test_damage(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is None:
        (tmp_path / name).mkdir()
    else:
        write(tmp_path / name, content)
    with pytest.raises(CorruptDataError, match=message):
        load(str(tmp_path / name), "train")
