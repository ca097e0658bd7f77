"""Settings of IVON that are allowed and hardly ever meant."""

import math

import pytest
import torch
from torch import nn

from varlearn import IVON


def weight() -> nn.Parameter:
    return nn.Parameter(torch.ones(1))


def test_clipping_with_rescaling_is_warned_of_once_and_names_the_cure() -> None:
    groups = [{"params": [weight()], "clip_radius": math.inf}, *({"params": [weight()]} for _ in range(2))]
    words = (
        r"clip_radius=0\.001 with rescale_lr=True: .*clip_radius = 1\.5e-05 in a step.*pass rescale_lr=False, with "
        r"lr=0\.015 for the same steps"
    )
    with pytest.warns(UserWarning, match=words) as caught:
        IVON(groups, lr=0.03, ess=1.0, hess_init=0.4, weight_decay=0.1, clip_radius=1e-3)
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_the_cure_takes_the_same_steps_without_a_warning() -> None:
    first, second = weight(), weight()
    with pytest.warns(UserWarning, match="rescale_lr=True"):
        warned = IVON([first], lr=0.03, ess=1.0, hess_init=0.4, weight_decay=0.1, clip_radius=1e-3, seed=0)
    cured = {"lr": 0.015, "rescale_lr": False}
    quiet = IVON([second], ess=1.0, hess_init=0.4, weight_decay=0.1, clip_radius=1e-3, seed=0, **cured)
    for opt, param in ((warned, first), (quiet, second)):
        with opt.sampled_params(train=True):
            (param**2).sum().backward()
        opt.step()
    assert abs(first.item() - 1.0) == pytest.approx(1.5e-5, abs=1e-7)
    assert torch.equal(first, second)


@pytest.mark.parametrize("settings", [{}, {"clip_radius": 1e-3, "rescale_lr": False}, {"clip_radius": math.inf}])
def test_other_settings_are_not_warned_of(settings: dict[str, float]) -> None:
    IVON([weight()], lr=0.1, ess=1.0, **settings)  # a warning would be an error
