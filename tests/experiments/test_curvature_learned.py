"""The exact diagonal of experiments/curvature_learned against curvlinops and torch.func, and its rank correlation."""

from __future__ import annotations

import pytest
import torch
from curvlinops import HessianLinearOperator
from torch import Tensor, nn

from experiments.curvature_learned.hessian import hessian_diagonal
from experiments.curvature_learned.run import rank_correlation
from experiments.no_tuning.ivon_options import PairedIVON
from experiments.no_tuning.tasks import TASKS
from experiments.no_tuning.training import loss
from varlearn.models import mlp


class MeanLoss(nn.Module):
    """The loss of a task as curvlinops wants it."""

    reduction = "mean"

    def __init__(self, task: str) -> None:
        super().__init__()
        self.task = TASKS[task]

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return loss(self.task, outputs, targets)


CASES = {"digits-mlp": (3, lambda n: torch.randint(3, (n,))), "concrete": (2, lambda n: torch.randn(n))}


@pytest.mark.parametrize("task", CASES)
def test_the_diagonal_is_that_of_curvlinops_and_of_torch_func(task: str) -> None:
    outputs, draw_targets = CASES[task]
    model = mlp(4, outputs, (6, 5)).double()
    inputs, targets = torch.randn(12, 4, dtype=torch.float64), draw_targets(12)
    of_task = MeanLoss(task)
    ours = hessian_diagonal(model, of_task, inputs, targets)

    params = dict(model.named_parameters())
    operator = HessianLinearOperator(model, of_task, list(params.values()), [(inputs, targets)])
    assert torch.allclose(ours, (operator @ torch.eye(len(ours), dtype=torch.float64)).diagonal())

    def whole(flat: Tensor) -> Tensor:
        parts = flat.split([param.numel() for param in params.values()])
        values = {name: part.view_as(param) for (name, param), part in zip(params.items(), parts, strict=True)}
        return of_task(torch.func.functional_call(model, values, (inputs,)), targets)

    flat = torch.cat([param.detach().flatten() for param in params.values()])
    assert torch.allclose(ours, torch.func.hessian(whole)(flat).diagonal())


def test_a_layer_that_is_not_linear_in_each_weight_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    with pytest.raises(ValueError, match=r"\['Tanh'\] must be Linear, ReLU or Flatten"):
        hessian_diagonal(model, lambda outputs, targets: outputs.mean(), torch.zeros(1, 2), torch.zeros(1))


def test_equal_numbers_share_their_rank() -> None:
    assert rank_correlation(torch.tensor([0.0, 0.0, 5.0]), torch.tensor([1.0, 1.0, 2.0])) == pytest.approx(1.0)
    assert rank_correlation(torch.tensor([0.0, 0.0]), torch.tensor([1.0, 2.0])) == 0.0


def test_a_pair_has_opposite_noise_and_its_estimate_is_exact_on_a_linear_loss() -> None:
    """hhat of +eps and -eps cancels the gradient, which is all the noise that a linear loss has."""
    weight = nn.Parameter(torch.zeros(4))
    opt = PairedIVON([weight], lr=0.0, ess=10.0, betas=(0.9, 0.5), weight_decay=0.0, seed=0)
    seen = []
    for _ in range(2):
        with opt.sampled_params(train=True):
            seen.append(weight.detach().clone())
            (3.0 * weight).sum().backward()
    opt.step()
    assert torch.equal(seen[0], -seen[1])
    torch.testing.assert_close(opt.state[weight]["hess"], torch.full((4,), 0.5 + 0.125))  # h = 1, hhat = 0
