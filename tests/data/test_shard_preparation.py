import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest
import torch
from PIL import Image

from tests.data.files import encoded, random_images, write
from varlearn.data import Batches, checksum, imagenet
from varlearn.data.errors import CorruptDataError, MissingDataError
from varlearn.data.image_shards import read_shards
from varlearn.data.shard_preparation import prepare_images
from varlearn.files.atomic import WriteError
from varlearn.files.locking import BusyError, locked

CLASSES = ("n01", "n02", "n03")


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    """30 images to train on and 6 for validation, of three classes."""
    for split, count in (("train", 10), ("val", 2)):
        for name in CLASSES:
            for k in range(count):
                image = encoded(random_images(1, 3, 40, 30 + k)[0], "JPEG")
                write(tmp_path / "source" / split / name / f"{name}_{k}.JPEG", image)
    return tmp_path / "source"


def size_of(file: Path | IO[bytes]) -> tuple[int, int]:
    with Image.open(file) as image:
        return image.size


def test_every_image_of_every_class(folders: Path, tmp_path: Path) -> None:
    made = prepare_images(folders, tmp_path / "out", processes=1, per_shard=8)
    assert (made.images, made.new_images) == ({"train": 30, "val": 6}, 36)
    for split in ("train", "val"):
        images, labels, classes = read_shards(tmp_path / "out", split, 16)
        assert classes == CLASSES
        found = sorted((classes[label], images.opened(k)[0].read()) for k, label in enumerate(labels.tolist()))
        assert found == sorted((path.parent.name, path.read_bytes()) for path in (folders / split).rglob("*.JPEG"))
    assert len(labels.unique()) == 3
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    shards = [f"train-{k:05d}.tar" for k in range(4)] + ["val-00000.tar"]
    assert names == sorted(["index.npz", "prepared.json", *shards])


def test_webdataset_can_read_the_shards(folders: Path, tmp_path: Path) -> None:
    """Of one key: an image and its class, side by side."""
    prepare_images(folders, tmp_path / "out", processes=1, per_shard=8)
    _, labels, _ = read_shards(tmp_path / "out", "train", 16)
    with tarfile.open(tmp_path / "out" / "train-00001.tar") as archive:
        members = archive.getmembers()
        assert [member.name for member in members[:4]] == ["000000.jpg", "000000.cls", "000001.jpg", "000001.cls"]
        classes = [int(archive.extractfile(member).read()) for member in members[1::2]]  # type: ignore[union-attr]
    assert classes == labels[8:16].tolist()
    assert len(set(classes)) > 1  # mixed, so that reading in order is not one class after the other


def test_shards_are_trained_on_as_folders_are(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"train": 30, "valid": 6, "test": 6}
    monkeypatch.setattr(imagenet, "IMAGENET", replace(imagenet.IMAGENET, classes=CLASSES, counts=counts))
    folders.rename(tmp_path / "imagenet")
    prepare_images(tmp_path / "imagenet", tmp_path / "packed" / "imagenet", processes=1, per_shard=8)
    for split in ("train", "test"):
        files, shards = (
            imagenet.imagenet(split, tmp_path, size=16),
            imagenet.imagenet(split, tmp_path / "packed", size=16),
        )
        assert shards.classes == files.classes
        seen = [
            {(int(y), x.sum().item()) for xs, ys in Batches(one, 5) for x, y in zip(xs, ys, strict=True)}
            for one in (files, shards)
        ]
        assert seen[0] == seen[1]
        assert len(seen[0]) == counts[split]
    monkeypatch.setattr(imagenet, "IMAGENET", replace(imagenet.IMAGENET, classes=CLASSES, counts=counts | {"test": 7}))
    with pytest.raises(CorruptDataError, match=r"holds \(6,\) labels, not 7"):
        imagenet.imagenet("test", tmp_path / "packed")


def test_several_processes_and_interruptions_change_nothing(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*numbers: int) -> None:
        raise KeyboardInterrupt

    prepare_images(folders, tmp_path / "one", processes=1, per_shard=8)
    with pytest.raises(KeyboardInterrupt):
        prepare_images(folders, tmp_path / "two", processes=1, per_shard=8, progress=stop)
    made = prepare_images(folders, tmp_path / "two", processes=2, per_shard=8)
    assert made.new_images == 28
    for path in (tmp_path / "one").iterdir():
        if path.suffix == ".tar" or path.name == "prepared.json":
            assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()
    assert sorted(p.name for p in (tmp_path / "one").iterdir()) == sorted(p.name for p in (tmp_path / "two").iterdir())


def test_a_full_disk(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, fsync = [], os.fsync

    def failing(handle: int) -> None:
        calls.append(handle)
        if len(calls) > 6:
            raise OSError(28, "No space left on device")
        fsync(handle)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(WriteError, match="No space left on device"):
            prepare_images(folders, tmp_path / "out", processes=1, per_shard=8)
    assert not (tmp_path / "out" / "prepared.json").exists()
    assert prepare_images(folders, tmp_path / "out", processes=1, per_shard=8).images == {"train": 30, "val": 6}
    prepare_images(folders, tmp_path / "whole", processes=1, per_shard=8)
    assert read_shards(tmp_path / "out", "train", 8)[0].places.equal(
        read_shards(tmp_path / "whole", "train", 8)[0].places
    )


def test_smaller_images(folders: Path, tmp_path: Path) -> None:
    prepare_images(folders, tmp_path / "out", processes=1, shorter_side=20)
    images, _, _ = read_shards(tmp_path / "out", "train", 16)
    sizes = [size_of(images.opened(k)[0]) for k in range(len(images))]
    assert {min(size) for size in sizes} == {20}
    originals = sorted(size_of(path) for path in (folders / "train").rglob("*.JPEG"))
    assert sorted(round(20 * w / min(w, h)) for w, h in originals) == sorted(w for w, _ in sizes)
    write(folders / "val" / "n01" / "large.png", encoded(torch.zeros(3, 15, 15, dtype=torch.uint8), "PNG"))
    prepare_images(folders, tmp_path / "other", processes=1, shorter_side=20)
    with tarfile.open(tmp_path / "other" / "val-00000.tar") as archive:
        assert [member.name for member in archive if member.name.endswith("png")]  # small ones stay as they are


def test_a_finished_folder_is_compared_with_its_checksums(folders: Path, tmp_path: Path) -> None:
    prepare_images(folders, tmp_path / "out", processes=1)
    facts = json.loads((tmp_path / "out" / "prepared.json").read_text())
    shard = tmp_path / "out" / facts["shards"]["val"][0]["name"]
    assert facts["shards"]["val"][0]["sha256"] == checksum.of(shard, "sha256")
    assert prepare_images(folders, tmp_path / "out", processes=1).new_images == 0
    with pytest.raises(ValueError, match="made of other files or settings"):
        prepare_images(folders, tmp_path / "out", shorter_side=9)
    content = bytearray(shard.read_bytes())
    content[600] ^= 1
    write(shard, bytes(content))
    with pytest.raises(CorruptDataError, match=r"val-00000.tar .* it is damaged"):
        prepare_images(folders, tmp_path / "out")
    write(shard, b"short")
    with pytest.raises(CorruptDataError, match=r"val-00000.tar has 5 bytes, not [\d,]+; run varlearn prepare"):
        read_shards(tmp_path / "out", "val", 8)


def test_damaged_images_are_named(folders: Path, tmp_path: Path) -> None:
    write(folders / "train" / "n02" / "n02_3.JPEG", b"no image")
    with pytest.raises(CorruptDataError, match=r"n02_3.JPEG must be an image"):
        prepare_images(folders, tmp_path / "out", processes=1)
    (folders / "train" / "n02" / "n02_3.JPEG").unlink()
    with pytest.raises(ValueError, match="begun with other files or settings"):
        prepare_images(folders, tmp_path / "out", processes=1)


def test_a_damaged_shard_is_named(folders: Path, tmp_path: Path) -> None:
    prepare_images(folders, tmp_path / "out", processes=1)
    images, _, _ = read_shards(tmp_path / "out", "val", 8)
    start = int(images.places[2, 1])
    content = bytearray(images.shards[0].read_bytes())
    content[start : start + 20] = bytes(20)
    write(images.shards[0], bytes(content))
    with pytest.raises(CorruptDataError, match=f"the image at byte {start:,} of .*val-00000.tar must be an image"):
        images.decode(torch.tensor([2]))


def test_wrong_use_writes_nothing(folders: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(MissingDataError, match="has neither a folder train nor val"):
        prepare_images(tmp_path / "empty", out)
    with pytest.raises(ValueError, match="shorter_side=0 must be at least 1"):
        prepare_images(folders, out, shorter_side=0)
    assert not out.exists()
    write(out / "mine.txt", b"mine")
    with pytest.raises(ValueError, match="is not empty, and not of this command"):
        prepare_images(folders, out)
    for path in (folders / "val" / "n03").iterdir():
        path.unlink()
    with pytest.raises(MissingDataError, match="n03 has no image; each class needs some in each of train, val"):
        prepare_images(folders, tmp_path / "other")


def test_shards_without_an_index(tmp_path: Path) -> None:
    with pytest.raises(CorruptDataError, match=r"prepared.json or index.npz cannot be read"):
        read_shards(tmp_path, "train", 8)


def test_two_processes_do_not_prepare_one_folder(folders: Path, tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out" / ".lock", "busy"):
        with pytest.raises(BusyError, match="another process is preparing .*out; wait for it"):
            prepare_images(folders, tmp_path / "out", processes=1, per_shard=8)
        assert [path.name for path in (tmp_path / "out").iterdir()] == [".lock"]
    assert prepare_images(folders, tmp_path / "out", processes=1, per_shard=8).new_images == 36
