import pytest
import torch

from varlearn.data.corruption import pixel_noise
from varlearn.data.seeds import generator


def test_moments_of_the_noises() -> None:
    flat = torch.full((50, 3, 32, 32), 0.5)
    source = generator("test")
    gaussian = pixel_noise.gaussian_noise(flat, 0.1, source) - 0.5
    assert gaussian.std().item() == pytest.approx(0.1, rel=0.01)
    assert gaussian.mean().item() == pytest.approx(0, abs=1e-3)
    shot = pixel_noise.shot_noise(flat, 50, source)
    assert shot.mean().item() == pytest.approx(0.5, rel=0.01)
    assert shot.var().item() == pytest.approx(0.5 / 50, rel=0.03)
    impulse = pixel_noise.impulse_noise(flat, 0.06, source)
    for value, share in ((0.0, 0.03), (1.0, 0.03), (0.5, 0.94)):
        assert (impulse == value).double().mean().item() == pytest.approx(share, abs=2e-3)
