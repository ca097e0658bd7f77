"""Parameters of every kind: tied, empty, sparse, channels_last."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from tests.optim.contract import assert_same, in_block, snapshot
from tests.optim.first_step import KWARGS, Samples
from varlearn import IVON


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.embed(tokens))


def test_tied_weights_are_one_parameter_with_one_noise() -> None:
    model = Tied()
    opt = IVON(model.parameters(), **KWARGS)
    samples = Samples(model)
    tokens = torch.tensor([0, 2, 2, 4])
    with opt.sampled_params(train=True):
        assert model.head.weight is model.embed.weight
        loss = nn.functional.cross_entropy(model(tokens), tokens)
        samples.record(loss)
        loss.backward()
    opt.step()
    assert len(opt.state) == 1
    samples.check(opt)


@pytest.mark.parametrize("path", [{"foreach": False, "fused": False}, {"foreach": True}, {"fused": True}], ids=str)
def test_zero_size_and_zero_dim_parameters(path: dict[str, bool]) -> None:
    empty, scalar, weight = (nn.Parameter(torch.ones(shape)) for shape in ((0, 3), (), (2,)))
    opt = IVON([empty, scalar, weight], **KWARGS, **path)
    for _ in range(2):  # two samples
        in_block(opt, lambda: (empty.sum() + scalar) ** 2 + (weight**2).sum())
    opt.step()
    assert [opt.state[param]["step"] for param in (empty, scalar, weight)] == [1, 1, 1]
    assert opt.state[empty]["hess"].shape == (0, 3)
    assert opt.state[scalar]["hess"].shape == ()
    assert scalar.item() < 1.0
    assert bool(torch.isfinite(opt.kl()))
    assert opt.diagnostics()[0].params == 3
    restored = copy.deepcopy(opt)
    restored.load_state_dict(opt.state_dict())
    assert_same(snapshot(opt), snapshot(restored))


@pytest.mark.parametrize("count", [1, 2], ids=["one sample", "two samples"])
@pytest.mark.parametrize("mode", [False, True], ids=["blocks", "train()"])
def test_sparse_embedding_gradients_are_what_dense_ones_are(count: int, mode: bool) -> None:
    start = torch.randn(6, 2)
    runs = []
    for sparse in (False, True):
        embed = nn.Embedding.from_pretrained(start.clone(), freeze=False, sparse=sparse)
        opt = IVON(embed.parameters(), **KWARGS)
        for step in range(3):
            for part in range(1 if mode else count):
                tokens = torch.tensor([step, step, 5 - part])
                if mode:
                    opt.train()
                    opt.zero_grad()
                    for _ in range(count):
                        (embed(tokens) ** 2).sum().backward()
                else:
                    in_block(opt, lambda embed=embed, tokens=tokens: (embed(tokens) ** 2).sum())
            opt.step()
        runs.append(snapshot(opt))
    assert_same(runs[0], runs[1])


def test_channels_last_stays_channels_last() -> None:
    def run(memory_format: torch.memory_format) -> nn.Conv2d:
        torch.manual_seed(0)
        conv = nn.Conv2d(2, 3, 2).to(memory_format=memory_format)
        opt = IVON(conv.parameters(), **KWARGS)
        for _ in range(3):
            in_block(opt, lambda: conv(torch.ones(1, 2, 4, 4).to(memory_format=memory_format)).square().mean())
            opt.step()
        assert conv.weight.is_contiguous(memory_format=memory_format)
        assert opt.state[conv.weight]["hess"].stride() == conv.weight.stride()
        return conv

    conv = run(torch.channels_last)
    assert not torch.equal(conv.weight, run(torch.contiguous_format).weight)  # noise goes in memory order


def test_a_model_turned_channels_last_while_training_resumes_bitwise() -> None:
    conv = nn.Conv2d(2, 3, 2)
    opt = IVON(conv.parameters(), **KWARGS)

    def run(conv: nn.Conv2d, opt: IVON, steps: int) -> None:
        for _ in range(steps):
            in_block(opt, lambda: conv(torch.ones(1, 2, 4, 4)).square().mean())
            opt.step()

    run(conv, opt, 2)
    conv.to(memory_format=torch.channels_last)
    run(conv, opt, 2)
    other = nn.Conv2d(2, 3, 2).to(memory_format=torch.channels_last)
    other.load_state_dict(conv.state_dict())
    other_opt = IVON(other.parameters(), **KWARGS)
    other_opt.load_state_dict(opt.state_dict())
    run(conv, opt, 2)
    run(other, other_opt, 2)
    assert_same(snapshot(opt), snapshot(other_opt))
