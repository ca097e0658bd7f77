"""What stands behind wrappers."""

from pathlib import Path

import pytest
import torch
from torch import nn

from varlearn import IVON, VAdamW
from varlearn.integrations.wrapped import diagnostics, posterior_of, save_posterior, variational, warn_of_clipping
from varlearn.posterior import load


class Wrapper:
    """As Accelerate's and Lightning's."""

    def __init__(self, optimizer: object) -> None:
        self.optimizer = optimizer


def test_the_optimizer_is_found_behind_wrappers() -> None:
    net = nn.Linear(2, 1)
    opt = IVON(net.parameters(), lr=0.1, ess=10.0)
    assert variational(Wrapper(Wrapper(opt))) is opt
    assert variational(Wrapper(torch.optim.SGD(net.parameters(), lr=0.1))) is None
    assert variational(None) is None


def test_the_posterior_of_a_wrapped_model_has_the_plain_names(tmp_path: Path) -> None:
    net = nn.Linear(2, 1)
    opt = IVON(net.parameters(), lr=0.1, ess=10.0)
    wrapped = nn.DataParallel(net)
    posterior = posterior_of(wrapped, Wrapper(opt))
    assert set(posterior.mean) == {"weight", "bias"}
    save_posterior(posterior, wrapped, tmp_path / "new" / "folder")
    load(tmp_path / "new" / "folder" / "posterior.safetensors", net)


def test_a_sample_in_the_weights_is_refused() -> None:
    """A wrapper hides `is_sampled`; the optimizer behind it does not."""
    net = nn.Linear(2, 1)
    opt = IVON(net.parameters(), lr=0.1, ess=10.0)
    opt.train()
    with pytest.raises(ValueError, match="the weights are a sample now"):
        posterior_of(net, Wrapper(opt))
    opt.eval()


def test_diagnostics_are_numbers() -> None:
    net = nn.Linear(2, 1)
    opt = IVON([{"params": [net.weight]}, {"params": [net.bias], "hess_init": 4.0}], lr=0.1, ess=1.0, weight_decay=0.0)
    with opt.sampled_params():
        pass
    logged = diagnostics(opt)
    assert logged["ivon/1/hess_max"] == 4.0
    assert logged["ivon/1/std_mean"] == 0.5
    assert all(type(value) is float for value in logged.values())


def test_diagnostics_of_vadamw_have_its_name() -> None:
    net = nn.Linear(2, 1)
    opt = VAdamW.for_model(net, n=10, batch_size=2)
    with opt.sampled_params(train=True):
        net(torch.ones(2, 2)).square().mean().backward()
    opt.step()
    logged = diagnostics(opt)
    assert 0.0 < logged["vadamw/0/effective_params"] < logged["vadamw/0/params"] == 3.0
    assert all(type(value) is float for value in logged.values())


def test_the_warning_of_clipping_names_the_cure() -> None:
    with pytest.warns(
        UserWarning, match=r"a=1 scales the gradient.*use B\(a=0\) and IVON\(\.\.\., max_grad_norm=1\.0\)"
    ):
        warn_of_clipping(IVON([nn.Parameter(torch.ones(1))], lr=0.1, ess=1.0), "a=1", "B(a=0)")


def test_vadamw_notices_clipping_but_not_behind_a_scaler() -> None:
    opt = VAdamW([nn.Parameter(torch.ones(1))], n=10, batch_size=2)
    warn_of_clipping(opt, "a=1", "B(a=0)")  # a warning would be an error
    with pytest.warns(UserWarning, match=r"the curvature is too small.*VAdamW\(\.\.\., max_grad_norm=1\.0\)"):
        warn_of_clipping(opt, "a=1", "B(a=0)", scaled=True)
