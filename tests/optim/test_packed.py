"""The packed path against the plain loop: pieces, joins, strides, dtypes, several samples."""

import pytest
import torch
from torch import Tensor, nn

from varlearn import IVON
from varlearn.optim import layout, loop, native, packed
from varlearn.optim.tasks import Fold, Noise

SHAPES = [(3, 5), (7,), (), (0, 4), (60, 50), (9, 2, 3, 3), (1,), (513,)]


def parameters(dtype: torch.dtype) -> list[nn.Parameter]:
    """Odd, empty, large, channels_last, transposed and sliced ones."""
    generator = torch.Generator().manual_seed(1)
    tensors = [torch.randn(shape, generator=generator) for shape in SHAPES]
    tensors[5] = tensors[5].contiguous(memory_format=torch.channels_last)
    matrices = torch.randn(2, 6, 8, generator=generator)
    return [nn.Parameter(tensor.to(dtype)) for tensor in [*tensors, matrices[0][:, ::2], matrices[1].t()]]


def train(dtype: torch.dtype, samples: int, **kwargs: object) -> list[Tensor]:
    params = parameters(dtype)
    opt = IVON(params, **{"lr": 0.1, "ess": 100.0, "betas": (0.9, 0.9), "seed": 5, **kwargs})
    generator = torch.Generator().manual_seed(0)
    for _ in range(4):
        for _ in range(samples):
            with opt.sampled_params(train=True):
                opt.zero_grad()
                for param in params:
                    param.grad = torch.randn(param.shape, generator=generator).to(dtype) + param.detach()
        opt.step()
    states = [opt.state[param][name] for param in params for name in ("hess", "momentum")]
    return [*(param.detach() for param in params), *states]


@pytest.mark.parametrize("piece", [1 << 17, 256], ids=["whole", "cut"])
@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"clip_radius": 0.5, "weight_decay": 0.0},
        {"hess_approx": "squared_gradient"},
        {"prior_mean": "init", "maximize": True, "max_grad_norm": 1.0, "memory": "lean"},
    ],
    ids=["plain", "clipped", "squared", "prior"],
)
def test_packed_is_the_loop(
    variant: dict[str, object], dtype: torch.dtype, samples: int, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "_CPU_PIECE", piece)
    expected = train(dtype, samples, foreach=False, fused=False, **variant)
    found = train(dtype, samples, foreach=True, **variant)
    # The same operations on the same numbers; only how a vector loop ends may differ, by an ulp of log, sin or cos.
    # The mean gradient of several samples is rounded to the gradient's own dtype.
    tolerance = 1e-12 if dtype == torch.float64 else 2e-6
    if samples > 1 and dtype in (torch.float16, torch.bfloat16):
        tolerance = 4.0 * torch.finfo(dtype).eps
    for new, old in zip(found, expected, strict=True):
        torch.testing.assert_close(new, old, rtol=tolerance, atol=tolerance)


def quadratic_step(opt: IVON, param: nn.Parameter) -> None:
    with opt.sampled_params(train=True):
        opt.zero_grad()
        (param * param).sum().backward()
    opt.step()


@pytest.mark.parametrize("ess", [1e2, 1e10], ids=str)
def test_each_of_a_hundred_steps_is_the_loop_s(ess: float) -> None:
    params = [nn.Parameter(torch.linspace(-3.0, 3.0, 300)) for _ in range(2)]
    settings = {"lr": 0.05, "ess": ess, "betas": (0.9, 0.9999), "seed": 5, "fused": False}
    opts = [IVON([param], **settings, foreach=foreach) for param, foreach in zip(params, (True, False), strict=True)]
    for _ in range(100):
        for opt, param in zip(opts, params, strict=True):
            quadratic_step(opt, param)
        for new, old in zip(*([p, *opt.state[p].values()] for opt, p in zip(opts, params, strict=True)), strict=True):
            torch.testing.assert_close(new, old, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("prior_mean", [0.0, "init"])
def test_the_step_takes_the_noise_that_the_draw_kept(
    prior_mean: object, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    param = nn.Parameter(torch.ones(50, dtype=dtype))
    opt = IVON([param], lr=0.1, ess=100.0, seed=5, foreach=True, prior_mean=prior_mean)
    with opt.sampled_params(train=True):
        (param * param).sum().backward()
    with opt.sampled_params():  # an evaluation has noise of its own, and does not touch it
        pass
    monkeypatch.setattr(packed, "_normals", None)
    opt.step()
    assert opt.state[param]["step"] == 1


@pytest.mark.parametrize("between", ["another sample", "a moved parameter"])
def test_noise_that_is_not_kept_is_made_again(between: str) -> None:
    outcomes = []
    for foreach in (True, False):
        param = nn.Parameter(torch.ones(50))
        opt = IVON([param], lr=0.1, ess=100.0, seed=5, foreach=foreach, fused=False)
        with opt.sampled_params(train=True):
            (param * param).sum().backward()
        if between == "another sample":
            with opt.sampled_params(train=True):
                opt.zero_grad()
                (param * param).sum().backward()
        else:
            param.data = param.data.clone()
        opt.step()
        outcomes.append(torch.cat([param.detach(), opt.state[param]["hess"]]))
    torch.testing.assert_close(*outcomes, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("path", [packed, native], ids=["packed", "native"])
@pytest.mark.parametrize("approximation", ["reparam", "squared_gradient"])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_fold_is_the_loops(path: object, approximation: str, count: int) -> None:
    def folded(path: object) -> Tensor:
        generator = torch.Generator().manual_seed(0)
        tasks = []
        for index, size in enumerate((5, 128, 1_000, 40_001)):
            grad, grad_mean, estimate = torch.randn(3, size, generator=generator)
            hess = torch.rand(size, generator=generator) + 0.1
            if count == 0:
                estimate.zero_()
            noise = Noise(99 + index, 50.0, 1e-3)
            means, captured = (grad_mean, torch.zeros(size)) if count else (None, None)
            tasks.append(Fold(grad, means, estimate, hess, approximation, noise, count, captured))
        path.fold(tasks)
        for task in tasks:
            assert task.captured is None or torch.equal(task.captured, task.grad_mean)
        return torch.cat(
            [tensor for task in tasks for tensor in (task.estimate_mean, task.grad_mean) if tensor is not None]
        )

    torch.testing.assert_close(folded(path), folded(loop), rtol=1e-5, atol=1e-5)
