import threading
from pathlib import Path

import pytest
import torch

from tests.data.files import encoded, random_images, write
from varlearn.data.batches import Batches
from varlearn.data.errors import CorruptDataError
from varlearn.data.examples import Examples
from varlearn.data.image_folder import ImageFiles


@pytest.fixture
def photographs(tmp_path: Path) -> Examples:
    sizes = [(40, 60), (60, 40), (50, 50), (32, 90), (33, 33), (80, 41), (64, 64)]
    files = []
    for number, (height, width) in enumerate(sizes):
        image = torch.full((3, height, width), 10 * number, dtype=torch.uint8)
        image[:, :, : width // 2] += 100  # the left half is brighter
        files.append(write(tmp_path / f"{number}.png", encoded(image, "PNG")))
    return Examples(ImageFiles(tuple(files), 32), torch.arange(7), ("a",) * 7, "image", mirror=True)


def test_the_centre_for_evaluation(photographs: Examples) -> None:
    batches = list(Batches(photographs, 3))
    assert [tuple(x.shape) for x, _ in batches] == [(3, 3, 32, 32), (3, 3, 32, 32), (1, 3, 32, 32)]
    for x, y in batches:
        for image, number in zip(x * 255, y.tolist(), strict=True):
            assert image[:, :, :12].unique().round().tolist() == [10 * number + 100]
            assert image[:, :, -12:].unique().round().tolist() == [10 * number]


def test_training_is_a_function_of_the_numbers(photographs: Examples) -> None:
    batches = Batches(photographs, 2, seed=3, shuffle=True, augment=True)
    whole = list(batches.epoch(1))
    for (x, y), (u, v) in zip(whole[2:], batches.epoch(1, start=2), strict=True):
        assert torch.equal(x, u)
        assert torch.equal(y, v)
    other = Batches(photographs, 7, seed=3, shuffle=True, augment=True)
    ((x, y),) = other.epoch(1)
    together = torch.cat([image for image, _ in whole])[torch.cat([label for _, label in whole]).argsort()]
    assert torch.equal(x[y.argsort()], together)


def test_training_crops_and_mirrors(photographs: Examples) -> None:
    files = photographs.inputs
    assert isinstance(files, ImageFiles)
    epochs = [files.decode(torch.tensor([2]), files.draw(True, seed=0, epoch=k))[0, 0] for k in range(40)]
    brighter_left = [bool(image[0, 0] > image[0, -1]) for image in epochs if image[0, 0] != image[0, -1]]
    assert True in brighter_left
    assert False in brighter_left
    assert not any(files.draw(False, seed=0, epoch=k)[:, 0].any() for k in range(3))


def test_the_next_batch_is_decoded_meanwhile(photographs: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    started, fourth = list[int](), threading.Event()

    def one(self: ImageFiles, number: int, choice: object) -> torch.Tensor:
        started.append(number)
        if len(started) == 4:
            fourth.set()
        return torch.zeros(3, 32, 32, dtype=torch.uint8)

    monkeypatch.setattr(ImageFiles, "one", one)
    batches = iter(Batches(photographs, 2))
    next(batches)
    assert fourth.wait(120)
    assert sorted(started) == [0, 1, 2, 3]


def test_leaving_an_epoch_early_is_fine(photographs: Examples) -> None:
    for _ in Batches(photographs, 2).epoch(0):
        break


def test_subsets_stay_undecoded(photographs: Examples) -> None:
    assert isinstance(photographs.first(2).inputs, ImageFiles)
    assert photographs.select(torch.tensor([6, 0])).inputs.shape == (2, 3, 32, 32)


@pytest.mark.parametrize("damage", [b"", b"not an image", None])
def test_a_damaged_file_is_named(tmp_path: Path, damage: bytes | None) -> None:
    whole = encoded(random_images(1, 3, 40, 40)[0], "PNG")
    path = write(tmp_path / "bad.png", whole[: len(whole) // 2] if damage is None else damage)
    with pytest.raises(CorruptDataError, match=r"bad.png must be an image"):
        ImageFiles((path,), 32).decode(torch.tensor([0]))
