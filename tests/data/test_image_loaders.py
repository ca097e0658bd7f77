from pathlib import Path

import pytest
import torch

from tests.data.files import encoded, random_images, write
from varlearn.data import Batches, image_loaders
from varlearn.data.errors import CorruptDataError
from varlearn.data.examples import Examples
from varlearn.data.image_folder import ImageFiles


@pytest.fixture
def images(tmp_path: Path) -> Examples:
    paths = [write(tmp_path / f"{k}.png", encoded(random_images(1, 3, 40, 50)[0], "PNG")) for k in range(11)]
    return Examples(ImageFiles(tuple(paths), 16), torch.arange(11), ("a",) * 11, "image", mirror=True)


@pytest.mark.parametrize("count", ["1", "2"])
def test_processes_give_what_threads_give(images: Examples, monkeypatch: pytest.MonkeyPatch, count: str) -> None:
    batches = Batches(images, 3, seed=1, shuffle=True, augment=True)
    monkeypatch.setenv("VARLEARN_LOADERS", "0")
    threads = [list(batches.epoch(2)), list(batches)]
    monkeypatch.setenv("VARLEARN_LOADERS", count)
    before = torch.get_rng_state()
    for expected, found in zip(threads, [list(batches.epoch(2)), list(batches)], strict=True):
        for (x, y), (u, v) in zip(expected, found, strict=True):
            assert torch.equal(x, u)
            assert torch.equal(y, v)
    assert torch.equal(torch.get_rng_state(), before)


def test_leaving_an_epoch_early_ends_the_processes(images: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARLEARN_LOADERS", "2")
    for _ in Batches(images, 2).epoch(0):
        break


def test_damage_is_named(tmp_path: Path, images: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARLEARN_LOADERS", "1")
    write(tmp_path / "4.png", b"no image")
    with pytest.raises(CorruptDataError, match=r"^/.*4.png must be an image"):
        list(Batches(images, 3))


@pytest.mark.parametrize(
    ("processors", "ranks", "images", "expected"),
    [(2, 1, 10**6, 0), (8, 1, 10**6, 8), (8, 1, 100, 0), (64, 1, 10**6, 16), (64, 8, 10**6, 8), (8, 4, 10**6, 0)],
)
def test_how_many(monkeypatch: pytest.MonkeyPatch, processors: int, ranks: int, images: int, expected: int) -> None:
    monkeypatch.delenv("VARLEARN_LOADERS", raising=False)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    monkeypatch.setattr("os.cpu_count", lambda: processors)
    assert image_loaders.processes(images) == expected


def test_a_wrong_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARLEARN_LOADERS", "many")
    with pytest.raises(ValueError, match="VARLEARN_LOADERS='many' must be a number of processes"):
        image_loaders.processes(10)
