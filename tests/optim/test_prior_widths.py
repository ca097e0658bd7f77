"""How wide the prior is: by depth, by the weights' size, and for parameters that have none."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.optim.contract import in_block
from varlearn.models import resnet20
from varlearn.optim import VAdamW, prior_widths
from varlearn.optim.prior_widths import is_matrix, suggested_lr


def first(params: Any, **options: Any) -> tuple[VAdamW, list[float]]:
    """The prior widths at the first sample."""
    opt = VAdamW(params, n=100, batch_size=10, seed=0, **options)
    with opt.sampled_params():
        pass
    return opt, [opt.state[param]["prior_std"] for group in opt.param_groups for param in group["params"]]


def filled(value: float, *shape: int) -> Tensor:
    return nn.Parameter(torch.full(shape, value))


@pytest.mark.parametrize(("depth", "width"), [(1, 1.0), (2, 2 / 3), (3, 0.5), (20, 2 / 21)])
def test_deep_networks_have_narrow_priors(depth: int, width: float) -> None:
    net = nn.Sequential(nn.Embedding(7, 3), *[nn.Linear(3, 3) for _ in range(depth)])
    widths = prior_widths(net)
    assert widths.pop("0.weight") == 1.0
    assert list(widths.values()) == pytest.approx([width] * (2 * depth))
    assert list(widths) == [name for name, _ in net.named_parameters()][1:]


def test_frozen_layers_do_not_count() -> None:
    net = nn.Sequential(*[nn.Linear(3, 3) for _ in range(4)])
    net[:3].requires_grad_(False)
    assert prior_widths(net) == {"3.weight": 1.0, "3.bias": 1.0}


def test_tied_weights_count_once() -> None:
    net = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 3, bias=False), nn.Linear(3, 5, bias=False))
    net[2].weight = net[0].weight
    assert prior_widths(net) == {"0.weight": 1.0, "1.weight": 1.0}


def test_groups_have_the_parameters_in_order_under_their_names() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.Embedding(4, 3), nn.Linear(3, 3), nn.Linear(3, 3))
    opt = VAdamW.for_model(net, n=100, batch_size=10)
    assert [group["prior_width"] for group in opt.param_groups] == pytest.approx([0.5, 1.0, 0.5])
    names = [name for group in opt.param_groups for name in group["param_names"]]
    assert names == [name for name, _ in net.named_parameters()]


def test_a_vector_takes_the_size_of_the_matrix_before_it_unless_its_own_is_larger() -> None:
    params = [filled(9.0, 2), filled(0.5, 2, 2), filled(0.0, 2), filled(2.0, 3, 2), filled(0.0, 1), filled(3.0, 1)]
    _, widths = first(params, prior_width=1.0)
    assert widths == pytest.approx([9.0, 0.5, 0.5, 2.0, 2.0, 3.0])


def test_without_a_matrix_the_largest_vector_gives_the_size() -> None:
    assert first([filled(0.0, 3), filled(0.5, 2), filled(0.25)])[1] == pytest.approx([0.5, 0.5, 0.5])


def test_a_scalar_alone_has_its_own_size() -> None:
    assert first([filled(-0.25)])[1] == pytest.approx([0.25])


def test_the_size_of_the_first_weights_stays_a_lower_bound_and_the_present_ones_widen_the_prior() -> None:
    shrinking, growing = filled(1.0, 20, 20), filled(0.1, 20, 20)
    opt, before = first([shrinking, growing], lr=0.05, ess=1e6, prior_width=1.0)
    for _ in range(9):
        in_block(opt, lambda: (shrinking**2).sum() + ((growing - 5.0) ** 2).sum())
        opt.step()
    assert [opt.state[each]["prior_std"] for each in (shrinking, growing)] == before
    in_block(opt, lambda: (shrinking**2).sum() + ((growing - 5.0) ** 2).sum())
    opt.step()
    size = float(growing.detach().square().mean().sqrt())
    assert size > 0.3
    assert opt.state[shrinking]["prior_std"] == before[0]
    assert opt.state[growing]["prior_std"] == pytest.approx(size, rel=1e-5)


def test_a_matrix_of_zeros_has_no_noise_until_it_has_moved() -> None:
    """LoRA: B starts at 0, and noise in it would change the function that the first weights compute."""
    down, up = nn.Parameter(torch.randn(2, 6)), filled(0.0, 6, 2)
    opt, _ = first([down, up], lr=0.1)
    for step in range(12):
        with opt.sampled_params(train=True):
            if step == 5:
                sample = up.detach().clone()
            opt.zero_grad()
            ((up @ down).sum() - 1.0).square().backward()
        if step == 5:
            torch.testing.assert_close(sample, up.detach(), rtol=1e-6, atol=1e-9)
        opt.step()
    with opt.sampled_params():
        assert float((up.detach() - up.detach().mean()).abs().max()) > 1e-4
    assert bool(torch.isfinite(up).all())
    assert bool(torch.isfinite(opt.kl()))


def test_weights_that_are_all_zero_everywhere_train() -> None:
    weight = filled(0.0, 3)
    opt = VAdamW([weight], 0.1, n=100, batch_size=10)
    for _ in range(30):
        in_block(opt, lambda: ((weight - 1.0) ** 2).sum())
        opt.step()
    assert bool(torch.isfinite(weight).all())
    assert opt.state[weight]["prior_std"] > 0.1


def test_a_parameter_without_elements() -> None:
    weight, empty = filled(1.0, 2, 2), nn.Parameter(torch.zeros(0, 3))
    opt = VAdamW([empty, weight], 0.1, n=100, batch_size=10)
    in_block(opt, lambda: (weight**2).sum() + empty.sum())
    opt.step()
    assert bool(torch.isfinite(weight).all())


def test_a_group_may_set_its_own_width() -> None:
    params = [{"params": [filled(2.0, 2, 2)], "prior_width": 0.1}, {"params": [filled(1.0, 2, 2)]}]
    assert first(params)[1] == pytest.approx([0.2, 2 / 3])  # two matrices


def test_the_width_is_measured_at_the_mean_and_not_at_a_sample() -> None:
    """A step that is dropped at its tenth count, with the sample in the weights, measures nothing."""
    weight = nn.Parameter(torch.randn(10, 10))
    opt = VAdamW([weight], 0.01, n=100, batch_size=10, ess=1.0)
    for _ in range(10):
        in_block(opt, lambda: (1e-4 * weight**2).sum())  # so flat that samples are as wide as the prior
        opt.step()
    before = opt.state[weight]["prior_std"]
    opt.train()
    (weight * torch.nan).sum().backward()
    opt.step()
    assert (opt.skipped_steps, opt.state[weight]["prior_std"]) == (1, before)


@pytest.mark.parametrize(("passes", "share"), [(None, 1.0), (40.0, 1.0), (5.0, 0.5)])
def test_short_runs_have_narrow_priors(passes: float | None, share: float) -> None:
    net = nn.Sequential(nn.Embedding(7, 3), nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    assert list(prior_widths(net, passes).values()) == pytest.approx([share, 2 / 3 * share, 2 / 3 * share])
    assert list(prior_widths(net, passes, pretrained=True).values()) == pytest.approx([2 / 3 * share] * 3)


def test_gains_of_convolutions_are_no_matrices() -> None:
    assert len([p for p in resnet20().parameters() if is_matrix(p)]) == 22


def test_the_suggested_rate_is_that_of_the_middle_matrix() -> None:
    net = nn.Sequential(*[nn.Linear(2, 2) for _ in range(4)], nn.Embedding(3, 2))
    for layer, size in zip(net, (0.0, 0.1, 0.3, 0.2, 5.0), strict=True):
        nn.init.constant_(layer.weight, size)
    assert suggested_lr(net) == pytest.approx(0.15 * 0.2)
    assert suggested_lr(nn.LayerNorm(3)) == 1e-3


def test_the_rule_reads_the_length_of_the_run() -> None:
    net = nn.Linear(4, 3)
    opt = VAdamW.for_loader(net, [0] * 5, n=50, batch_size=10, epochs=4, seed=0)
    (group,) = opt.param_groups
    assert (group["steps"], group["lr"], group["prior_width"]) == (20, suggested_lr(net), 0.4)
    assert group["ess"] == 50_000.0
    for _ in range(20):
        in_block(opt, lambda: net(torch.ones(2, 4)).square().mean())
        opt.step()
    assert group["ess"] == pytest.approx(50.0)


def test_a_pretrained_model_needs_a_rate() -> None:
    with pytest.raises(ValueError, match="pretrained.*1e-4"):
        VAdamW.for_model(nn.Linear(2, 2), pretrained=True, n=10, batch_size=1)
