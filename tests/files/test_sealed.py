import hashlib
import json
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from varlearn.files import sealed
from varlearn.files.atomic import remove_orphans
from varlearn.files.sealed import CorruptFileError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.safetensors"


def by_hand(tensors: bytes, header: dict, metadata: dict) -> bytes:
    """The file as the format describes it, made without safetensors."""

    def file(checksum: str) -> bytes:
        text = json.dumps({**metadata, "sha256": checksum}, sort_keys=True)
        head = json.dumps({"__metadata__": {"varlearn": text}, **header}, separators=(",", ":")).encode()
        head += b" " * (-len(head) % 8)
        return struct.pack("<Q", len(head)) + head + tensors

    return file(hashlib.sha256(file("0" * 64)).hexdigest())


def test_exact_bytes(path: Path) -> None:
    tensors = {"b": torch.tensor([[1.0, -2.0]]), "a": torch.tensor([3], dtype=torch.int64)}
    sealed.write(path, tensors, {"kind": "example", "a list": [1, 2.5]})
    expected = by_hand(
        struct.pack("<q", 3) + struct.pack("<2f", 1.0, -2.0),
        {
            "a": {"dtype": "I64", "shape": [1], "data_offsets": [0, 8]},
            "b": {"dtype": "F32", "shape": [1, 2], "data_offsets": [8, 16]},
        },
        {"kind": "example", "a list": [1, 2.5]},
    )
    assert path.read_bytes() == expected
    for _ in range(3):  # and every time
        sealed.write(path, dict(reversed(tensors.items())), {"a list": [1, 2.5], "kind": "example"})
        assert path.read_bytes() == expected


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor(3.5),
        torch.zeros(0, 2),
        torch.randn(3, 2).T,
        torch.randn(4).bfloat16(),
        torch.tensor([float("nan"), float("inf"), -0.0]),
        torch.tensor([True, False]),
        torch.randn(2, 3, 2, 2).to(memory_format=torch.channels_last),
        torch.ones(1).expand(3),
    ],
    ids=lambda value: f"{value.dtype}-{tuple(value.shape)}",
)
def test_round_trip_is_bitwise(path: Path, value: torch.Tensor) -> None:
    sealed.write(path, {"x": value}, {})
    again = sealed.read(path)[0]["x"]
    assert (again.dtype, again.shape) == (value.dtype, value.shape)
    assert torch.equal(again.contiguous().flatten().view(torch.uint8), value.contiguous().flatten().view(torch.uint8))


def test_shared_memory_is_written_twice(path: Path) -> None:
    base = torch.arange(4.0)
    sealed.write(path, {"x": base, "y": base, "z": base[1:]}, {})
    again, _ = sealed.read(path)
    assert torch.equal(again["z"], base[1:])
    assert torch.equal(again["x"], again["y"])


def test_every_flipped_bit_is_an_error(path: Path) -> None:
    sealed.write(path, {"x": torch.tensor([1.0])}, {"n": 1})
    good = path.read_bytes()
    for position in range(len(good)):
        bad = bytearray(good)
        bad[position] ^= 1 << (position % 8)
        path.write_bytes(bad)
        with pytest.raises(CorruptFileError):
            sealed.read(path)
    path.write_bytes(good)
    sealed.read(path)


@pytest.mark.parametrize("size", [0, 5, 8, 40, -1])
def test_truncation_is_an_error(path: Path, size: int) -> None:
    sealed.write(path, {"x": torch.tensor([1.0])}, {})
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CorruptFileError, match="copy or write it again"):
        sealed.read(path)


def test_a_file_of_another_writer_is_refused(path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"x": torch.ones(1)}, path, metadata={"format": "pt"})
    with pytest.raises(CorruptFileError, match="no readable varlearn header"):
        sealed.read(path)


def test_a_header_in_another_encoding_is_refused(path: Path) -> None:
    header = '{"__metadata__": {"varlearn": "{}"}}'.encode("utf-16")
    path.write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(CorruptFileError, match="UnicodeDecodeError"):
        sealed.read(path)


@pytest.mark.parametrize("stage", ["save_file", "_seal", "os.fsync", "os.replace"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file_and_no_orphan(
    path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, error: BaseException
) -> None:
    sealed.write(path, {"x": torch.ones(1)}, {"version": "old"})
    before = path.read_bytes()

    def fail(*arguments: object, **named: object) -> None:
        if stage == "save_file":  # half a file is there already
            Path(arguments[1]).write_bytes(b"half")  # type: ignore[arg-type]
        raise error

    monkeypatch.setattr(f"varlearn.files.sealed.{stage}", fail)
    with pytest.raises(type(error)):
        sealed.write(path, {"x": torch.zeros(1)}, {"version": "new"})
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="needs limits of file sizes")
def test_what_a_crash_in_the_middle_of_a_write_leaves_is_found(path: Path) -> None:
    script = (
        "import resource, signal, sys, torch; from varlearn.files import sealed; "
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL); resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000)); "
        "sealed.write(sys.argv[1], {'x': torch.zeros(10_000)}, {})"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert done.returncode == -signal.SIGXFSZ
    assert list(path.parent.iterdir())
    remove_orphans(path.parent)
    assert not list(path.parent.iterdir())


def test_it_can_be_read_without_varlearn(path: Path) -> None:
    from safetensors import safe_open

    sealed.write(path, {"x": torch.tensor([1.0, 2.0])}, {"answer": 42})
    with safe_open(path, framework="pt") as file:
        assert file.get_tensor("x").tolist() == [1.0, 2.0]
        assert json.loads(file.metadata()["varlearn"])["answer"] == 42


def test_no_pickle(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise AssertionError("pickle was called")

    for name in ("torch.save", "torch.load", "pickle.dump", "pickle.dumps", "pickle.load", "pickle.loads"):
        monkeypatch.setattr(name, refuse)
    sealed.write(path, {"x": torch.ones(1)}, {})
    sealed.read(path)


def test_values_that_json_has_no_word_for_are_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        sealed.write(path, {}, {"x": float("nan")})
    assert not path.exists()


def test_the_checksum_mark_must_be_unique(path: Path) -> None:
    with pytest.raises(ValueError, match="64 zeros"):
        sealed.write(path, {"x": torch.ones(1)}, {"note": "0" * 64})
    assert list(path.parent.iterdir()) == []


def test_others_may_read_what_the_umask_lets_them(path: Path) -> None:
    sealed.write(path, {"a": torch.ones(1)}, {})
    plain = path.with_name("plain")
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode
