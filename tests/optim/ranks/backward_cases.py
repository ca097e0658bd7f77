"""What a training block may do besides one backward, under DistributedDataParallel with noise of its own on each rank.

Each case runs twice: on the wrapped model, whose optimizer is tested, and on a copy of the model at the same sample,
without optimizer and reducer. What the copy then has in `p.grad` is what this rank contributes.
"""

import copy
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from tests.optim.ranks.two_processes import flat
from varlearn import IVON

STEPS = 3
SETTINGS: dict[str, Any] = {"lr": 0.1, "ess": 100.0, "betas": (0.9, 0.9), "weight_decay": 0.01, "seed": 0}
DDP_OPTIONS: dict[str, dict[str, Any]] = {
    "": {},
    ", bucket views": {"gradient_as_bucket_view": True},
    ", unused parameters": {"find_unused_parameters": True},
}

Net = Callable[[Tensor], Tensor]
Work = Callable[[Net, list[Tensor], Tensor], None]


def loss(net: Net, x: Tensor) -> Tensor:
    return net(x).square().mean()


def plain(net: Net, params: list[Tensor], x: Tensor) -> None:
    loss(net, x).backward()


def norm_logged_before(net: Net, params: list[Tensor], x: Tensor) -> None:
    value = loss(net, x)
    sum(grad.norm() for grad in torch.autograd.grad(value, params, retain_graph=True))
    value.backward()


def norm_logged_after(net: Net, params: list[Tensor], x: Tensor) -> None:
    value = loss(net, x)
    value.backward(retain_graph=True)
    sum(grad.norm() for grad in torch.autograd.grad(value, params))


def gradient_penalty(net: Net, params: list[Tensor], x: Tensor) -> None:
    value = loss(net, x)
    grads = torch.autograd.grad(value, params, create_graph=True)
    (value + 0.1 * torch.stack([grad.square().sum() for grad in grads]).sum()).backward()


def input_penalty(net: Net, params: list[Tensor], x: Tensor) -> None:
    x = x.clone().requires_grad_()
    value = loss(net, x)
    (grad,) = torch.autograd.grad(value, x, create_graph=True)
    (value + grad.square().sum()).backward()


def graph_kept(net: Net, params: list[Tensor], x: Tensor) -> None:
    with net.no_sync() if isinstance(net, DistributedDataParallel) else torch.enable_grad():
        value = loss(net, x)
        value.backward(retain_graph=True)
        value.backward()
    loss(net, x).backward()


def two_losses(net: Net, params: list[Tensor], x: Tensor) -> None:
    loss(net, x[:4]).backward()
    (0.5 * loss(net, x[4:])).backward()


def checkpointed(reentrant: bool) -> Work:
    def work(net: Net, params: list[Tensor], x: Tensor) -> None:
        x = x.clone().requires_grad_()  # without it a reentrant checkpoint has no gradient
        out = checkpoint(net, x, use_reentrant=reentrant)
        assert isinstance(out, Tensor)
        out.square().mean().backward()

    return work


def function_transform(net: Net, params: list[Tensor], x: Tensor) -> None:
    module = net.module if isinstance(net, DistributedDataParallel) else net
    assert isinstance(module, nn.Module)
    named = dict(module.named_parameters())

    def value(named: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(module, named, (x,)).square().mean()

    torch.func.grad(value)(named)
    torch.func.grad(value)({name: each.detach() for name, each in named.items()})
    loss(net, x).backward()


def named_inputs(net: Net, params: list[Tensor], x: Tensor) -> None:
    loss(net, x).backward(inputs=params)


def scaled(grad: Tensor) -> Tensor:
    return 3.0 * grad


def clipped(grad: Tensor) -> Tensor:
    return grad.clamp(-0.05, 0.05)


def hooks_in_block(net: Net, params: list[Tensor], x: Tensor) -> None:
    handles = [param.register_hook(clipped) for param in params]
    loss(net, x).backward()
    for handle in handles:
        handle.remove()


def dropped(net: Net, params: list[Tensor], x: Tensor) -> None:
    """A first backward whose gradients are thrown away, as for a probe of the loss."""
    with net.no_sync() if isinstance(net, DistributedDataParallel) else torch.enable_grad():
        (7.0 * loss(net, x)).backward()
    for param in params:
        param.grad = None
    loss(net, x).backward()


def dropped_by_optimizer(net: Net, params: list[Tensor], x: Tensor) -> None:
    """The same, set to zero in place."""
    with net.no_sync() if isinstance(net, DistributedDataParallel) else torch.enable_grad():
        (7.0 * loss(net, x)).backward()
    optimizer = getattr(net, "optimizer", None)
    if optimizer is not None:
        optimizer.zero_grad(set_to_none=False)
    else:
        for param in params:
            assert param.grad is not None
            param.grad.zero_()
    loss(net, x).backward()


def cleared_first(net: Net, params: list[Tensor], x: Tensor) -> None:
    """The loop of the documentation, with gradients set to zero in place; the earlier blocks are kept."""
    if isinstance(net, DistributedDataParallel):
        net.optimizer.zero_grad(set_to_none=False)  # type: ignore[operator]
    loss(net, x).backward()


CASES: dict[str, Work] = {
    "plain": plain,
    "norm logged before backward": norm_logged_before,
    "norm logged after backward": norm_logged_after,
    "gradient penalty": gradient_penalty,
    "penalty on the inputs' gradient": input_penalty,
    "graph kept": graph_kept,
    "two losses": two_losses,
    "checkpoint": checkpointed(reentrant=False),
    "reentrant checkpoint": checkpointed(reentrant=True),
    "torch.func.grad": function_transform,
    "backward(inputs=...)": named_inputs,
    "hooks in the block": hooks_in_block,
    "first backward dropped": dropped,
    "first backward set to zero": dropped_by_optimizer,
}


def run_case(
    work: Work, rank: int, blocks: int = 1, micro: int = 1, no_sync: bool = True, hook: Any = None, **ddp: Any
) -> dict[str, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    params = list(model.parameters())
    twin = copy.deepcopy(model)
    twins = list(twin.parameters())
    for each in [*params, *twins] if hook is not None else []:
        each.register_hook(hook)
    net = DistributedDataParallel(model, **ddp)
    opt = IVON(params, **SETTINGS)
    net.optimizer = opt  # type: ignore[assignment]
    found: dict[str, Any] = {"start": flat(params), "thetas": [], "grads": [], "samples": blocks}
    generator = torch.Generator().manual_seed(100 + rank)
    for _ in range(STEPS):
        opt.zero_grad()
        for block in range(blocks):
            with opt.sampled_params(train=True):
                set_to(twins, params)
                for part in range(micro):
                    x = torch.randn(8, 4, generator=generator, dtype=torch.float64)
                    if no_sync and (block, part) != (blocks - 1, micro - 1):
                        with net.no_sync():
                            work(net, params, x)
                    else:
                        work(net, params, x)
                    work(twin, twins, x)
            found["thetas"].append(flat(twins))
            found["grads"].append(flat(each.grad for each in twins))
        opt.step()
    found |= {name: flat(opt.state[p][name] for p in params) for name in ("momentum", "hess")}
    return found | {"mean": flat(params)}


def set_to(params: Iterable[Tensor], values: Iterable[Tensor]) -> None:
    for param, value in zip(params, values, strict=True):
        param.data.copy_(value.detach())
        param.grad = None


def all_cases(rank: int, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, work in CASES.items():
        for suffix, options in DDP_OPTIONS.items():
            found[name + suffix] = run_case(work, rank, **options)
        if not name.startswith("first backward"):
            found[f"{name}, two blocks"] = run_case(work, rank, blocks=2)
            found[f"{name}, micro-batches"] = run_case(work, rank, micro=2, gradient_as_bucket_view=True)
    for name in ("plain", "norm logged before backward", "gradient penalty"):
        found[f"{name}, hooks from the start"] = run_case(CASES[name], rank, hook=scaled)
    for blocks in (1, 2, 3):
        found[f"cleared first, {blocks}"] = run_case(cleared_first, rank, blocks=blocks, no_sync=False)
    found["cleared late"] = cleared_late(rank)
    found["plain, static graph"] = run_case(plain, rank, static_graph=True)
    return found


def cleared_late(rank: int) -> str:
    """Gradients are cleared after a backward of the second block, when those of the first are already in them."""
    torch.manual_seed(0)
    net = DistributedDataParallel(nn.Linear(4, 2).double())
    opt = IVON(net.parameters(), **SETTINGS)
    x = torch.ones(1, 4, dtype=torch.float64)
    try:
        for _ in range(2):
            with opt.sampled_params(train=True):
                loss(net, x).backward()
                opt.zero_grad()
                loss(net, x).backward()
    except RuntimeError as error:
        return str(error)
    return ""
