from itertools import pairwise

import pytest
import torch

from varlearn.data import CORRUPTIONS, corrupt, synthetic


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return synthetic("cifar10", 40).inputs[:]


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_contract(kind: str, images: torch.Tensor) -> None:
    before = torch.get_rng_state()
    result = corrupt(images, kind, 3, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert (result.shape, result.dtype) == (images.shape, torch.uint8)
    assert not torch.equal(result, images)
    assert torch.equal(result[:7], corrupt(images[:7], kind, 3, seed=1))  # whatever follows
    assert torch.equal(result, corrupt(images, kind, 3, seed=1))
    random = kind not in ("defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression")
    assert torch.equal(result, corrupt(images, kind, 3, seed=2)) != random
    grey = corrupt(images[:, :1], kind, 5)
    assert grey.shape == (40, 1, 32, 32)


UNEVEN = ("glass_blur", "motion_blur", "frost", "elastic_transform")  # worse for the eye, not in squared error


@pytest.mark.parametrize("kind", [kind for kind in CORRUPTIONS if kind not in UNEVEN])
def test_severity_grows(kind: str, images: torch.Tensor) -> None:
    change = [(corrupt(images, kind, s).float() - images.float()).pow(2).mean().item() for s in range(1, 6)]
    assert all(b > 0.95 * a for a, b in pairwise(change))
    assert change[4] > 1.2 * change[0]


def test_refusals(images: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="kind='rain' must be one of gaussian_noise, shot_noise"):
        corrupt(images, "rain")
    with pytest.raises(ValueError, match="severity=0 must be 1, 2, 3, 4 or 5"):
        corrupt(images, "fog", 0)
    with pytest.raises(ValueError, match=r"images must be uint8 \(N, 1 or 3, H, W\), not torch.float32"):
        corrupt(images.float(), "fog")


@pytest.mark.parametrize("kind", ["defocus_blur", "zoom_blur", "motion_blur", "glass_blur", "elastic_transform"])
def test_what_is_constant_stays_so(kind: str) -> None:
    flat = torch.full((2, 3, 32, 32), 77, dtype=torch.uint8)
    assert corrupt(flat, kind, 5).float().sub(77).abs().max() <= 1
