"""The Trainer in two processes: ranks stay bitwise equal, and hhat is the mean over ranks of their own products."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.integrations.recording_trainer import SETTINGS, bert
from tests.integrations.trainer_ranks import run
from varlearn.core import update

pytestmark = pytest.mark.slow  # two processes import transformers
BETA1, BETA2 = SETTINGS["betas"]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, dict[str, Any]]]:
    return run(tmp_path_factory.mktemp("ranks"))


def named(flat: Tensor, like: dict[str, Tensor]) -> dict[str, Tensor]:
    parts = flat.split([value.numel() for value in like.values()])
    return {name: part.view_as(value) for (name, value), part in zip(like.items(), parts, strict=True)}


def by_the_paper(ranks: list[dict[str, Any]], scale: float = 1.0) -> dict[str, update.Gaussian]:
    """Algorithm 1 on the samples and batches that the ranks saw, with losses that are `scale` times theirs."""
    model = bert()
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    state = {
        name: update.Gaussian(value, torch.zeros_like(value), torch.full_like(value, SETTINGS["hess_init"]))
        for name, value in before.items()
    }
    for step in range(len(ranks[0]["seen"])):
        grads: dict[str, list[Tensor]] = {name: [] for name in state}
        products: dict[str, list[Tensor]] = {name: [] for name in state}
        for rank in ranks:
            sample = named(rank["seen"][step], before)
            nn.utils.vector_to_parameters(rank["seen"][step], model.parameters())
            loss = scale * model(**rank["batches"][step]).loss
            for name, grad in zip(state, torch.autograd.grad(loss, list(model.parameters())), strict=True):
                decay = 0.01 * (name in rank["decayed"])
                std = update.std(state[name].hess, SETTINGS["ess"], decay)
                grads[name].append(grad)
                products[name].append(update.hess_reparam(grad, (sample[name] - state[name].mean) / std**2))
        for name, gaussian in state.items():
            decay = 0.01 * (name in ranks[0]["decayed"])
            lr = SETTINGS["lr"] * (SETTINGS["hess_init"] + decay)
            debias = 1 - BETA1 ** (step + 1)
            hyper = update.Hyper(lr, SETTINGS["ess"], decay, BETA1, BETA2, float("inf"), debias)
            mean, product = (torch.stack(parts[name]).mean(0) for parts in (grads, products))
            state[name] = update.step(gaussian, mean, product, hyper)
    return state


def assert_follows(found: dict[str, Any], expected: dict[str, update.Gaussian]) -> None:
    for name, gaussian in expected.items():
        torch.testing.assert_close(found["weights"][name], gaussian.mean, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(found["hess"][name], gaussian.hess, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("variant", ["own mean", "default"])
def test_ranks_draw_apart_and_stay_bitwise_equal(ranks: list[dict[str, dict[str, Any]]], variant: str) -> None:
    first, second = (rank[variant] for rank in ranks)
    assert len(first["seen"]) == 3
    for one, other in zip(first["seen"], second["seen"], strict=True):
        assert not torch.equal(one, other)
    for key in ("weights", "hess"):
        assert all(torch.equal(value, second[key][name]) for name, value in first[key].items())


def test_hhat_is_the_mean_of_the_ranks_products(ranks: list[dict[str, dict[str, Any]]]) -> None:
    found = [rank["own mean"] for rank in ranks]
    assert_follows(found[0], by_the_paper(found))


def test_by_default_the_trainer_multiplies_the_loss_by_the_number_of_processes(
    ranks: list[dict[str, dict[str, Any]]],
) -> None:
    found = [rank["default"] for rank in ranks]
    assert_follows(found[0], by_the_paper(found, scale=2.0))
