import torch

from varlearn.data.corruption import weather
from varlearn.data.seeds import generator


def test_plasma_fills_the_unit_interval_and_is_smoother_with_more_decay() -> None:
    rough, smooth = (weather.plasma(20, 32, 32, decay, generator(0)) for decay in (1.5, 3))
    for field in (rough, smooth):
        assert field.shape == (20, 1, 32, 32)
        assert field.amin((1, 2, 3)).eq(0).all()
        assert field.amax((1, 2, 3)).eq(1).all()
    assert smooth.diff(dim=3).abs().mean() < 0.6 * rough.diff(dim=3).abs().mean()
    assert weather.plasma(1, 28, 20, 2, generator(0)).shape == (1, 1, 28, 20)


def test_fog_keeps_the_brightest_value_within_reach() -> None:
    images = torch.rand(20, 3, 32, 32)
    foggy = weather.fog(images, (1.5, 1.75), generator(0))
    assert (foggy.amax((1, 2, 3)) <= images.amax((1, 2, 3)) + 1e-6).all()
    assert (foggy.std((1, 2, 3)) < images.std((1, 2, 3))).all()


def test_snow_brightens() -> None:
    images = torch.rand(20, 3, 32, 32) * 0.5
    assert weather.snow(images, (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8), generator(0)).mean() > images.mean() + 0.1


def test_frost_is_the_published_mixture() -> None:
    black, white = torch.zeros(5, 3, 32, 32), torch.ones(5, 3, 32, 32)
    ice = weather.frost(black, (0.75, 0.45), generator(0))
    torch.testing.assert_close(weather.frost(white, (0.75, 0.45), generator(0)), ice + 0.75)
    assert 0 <= ice.min() <= ice.max() <= 0.45
