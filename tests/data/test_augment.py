import pytest
import torch
from torch.nn import functional as F

from varlearn.data.augment import draw, flip_crop


@pytest.mark.parametrize(("side", "pad"), [(32, 4), (64, 8), (8, 1), (5, 0)])
def test_flip_crop_is_pad_slice_flip(side: int, pad: int) -> None:
    images = torch.randint(0, 256, (16, 3, side, side), dtype=torch.uint8)
    choices = draw(16, pad, True, seed=3, epoch=1)
    result = flip_crop(images, choices, pad)
    assert result.dtype == torch.uint8
    for image, (flip, top, left), got in zip(images, choices.tolist(), result, strict=True):
        expected = F.pad(image, (pad, pad, pad, pad))[:, top : top + side, left : left + side]
        assert torch.equal(got, expected.flip(2) if flip else expected)


def test_an_oblong_image() -> None:
    image = torch.arange(6).view(1, 1, 2, 3)
    assert flip_crop(image, torch.tensor([[1, 1, 1]]), 1).tolist() == [[[[2, 1, 0], [5, 4, 3]]]]


def test_draws_are_uniform_over_all_crops_and_flips() -> None:
    flip, top, left = draw(200_000, 4, True, seed=0, epoch=0).unbind(1)
    counts = torch.bincount((flip * 9 + top) * 9 + left, minlength=162).double()
    expected = 200_000 / 162
    chi2 = ((counts - expected) ** 2 / expected).sum().item()
    assert abs(chi2 - 161) < 5 * (2 * 161) ** 0.5


def test_draws_depend_on_seed_and_epoch_and_flips_can_be_off() -> None:
    one = draw(50, 4, True, seed=0, epoch=0)
    assert torch.equal(one, draw(50, 4, True, seed=0, epoch=0))
    assert not torch.equal(one, draw(50, 4, True, seed=0, epoch=1))
    assert not torch.equal(one, draw(50, 4, True, seed=1, epoch=0))
    assert draw(50, 4, False, seed=0, epoch=0)[:, 0].sum() == 0


@pytest.mark.bench
def test_augmentation_is_small_beside_a_training_step() -> None:
    from time import perf_counter

    from varlearn.data import Batches, synthetic

    batches = Batches(synthetic("cifar10", 10_000), 50, seed=0, shuffle=True, augment=True)
    list(zip(range(20), batches.epoch(0), strict=False))
    start = perf_counter()
    list(batches.epoch(1))
    assert (perf_counter() - start) / len(batches) < 4e-3  # a step of ResNet-20 takes some 60 ms on one core
