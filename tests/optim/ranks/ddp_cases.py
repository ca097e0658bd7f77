"""Steps of IVON under DistributedDataParallel, in the ways people use it; what each rank saw."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms import Join
from torch.nn.parallel import DistributedDataParallel

from tests.optim.ranks.two_processes import flat
from varlearn import IVON

STEPS = 4
SETTINGS: dict[str, Any] = {"lr": 0.1, "ess": 100.0, "betas": (0.9, 0.9), "weight_decay": 0.01, "seed": 0}


class Branches(nn.Module):
    """Two ways through; the batch's sign decides which is used. One weight is used by none."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(4, 2), nn.Linear(4, 2)
        self.idle = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.left(x) if x[0, 0] > 0 else self.right(x)


def plain_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


def branches() -> nn.Module:
    torch.manual_seed(0)
    return Branches()


class Case:
    """One way to train; `run` records samples and this rank's own gradients at them."""

    def __init__(
        self,
        model: Callable[[], nn.Module] = plain_model,
        *,
        dtype: torch.dtype = torch.float64,
        blocks: int = 1,
        micro: int = 1,
        no_sync: bool = False,
        modes: bool = False,
        stay: bool = False,
        autocast: bool = False,
        compiled: bool = False,
        steps: int = STEPS,
        **ddp: Any,
    ) -> None:
        self.model, self.dtype, self.blocks, self.micro, self.steps = model, dtype, blocks, micro, steps
        self.no_sync, self.modes, self.autocast, self.compiled, self.ddp = no_sync, modes, autocast, compiled, ddp
        self.stay = stay

    def loss(self, net: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            return net(x).float().square().mean() if self.autocast else net(x).square().mean()

    def inputs(self, rank: int, step: int, number: int) -> Tensor:
        generator = torch.Generator().manual_seed(1000 * rank + 10 * step + number)
        x = torch.randn(8, 4, generator=generator, dtype=torch.float64).to(self.dtype)
        x[0, 0] = x[0, 0].abs() * (1.0 if (rank + step) % 3 == 0 else -1.0)
        return x

    def run(self, rank: int) -> dict[str, Any]:
        model = self.model().to(self.dtype)
        params = list(model.parameters())
        net = DistributedDataParallel(model, **self.ddp)
        call = torch.compile(net, backend="aot_eager") if self.compiled else net
        opt = IVON(params, **SETTINGS)
        start = flat(params)
        thetas, grads = [], []
        for step in range(self.steps):
            opt.zero_grad()
            for block in range(self.blocks):
                if self.modes:
                    opt.train(stay=self.stay)
                with contextlib.nullcontext() if self.modes else opt.sampled_params(train=True):
                    theta = [p.detach().clone() for p in params]
                    for part in range(self.micro):
                        x = self.inputs(rank, step, self.micro * block + part)
                        last = block == self.blocks - 1 and part == self.micro - 1
                        with net.no_sync() if self.no_sync and not last else contextlib.nullcontext():
                            (self.loss(call, x) / self.micro).backward()
                thetas.append(flat(theta))
                grads.append(self.own_gradient(model, theta, rank, step, block))
            opt.step()
        opt.eval()
        return state_of(opt) | {"start": start, "thetas": thetas, "grads": grads, "samples": self.blocks}

    def own_gradient(self, model: nn.Module, theta: list[Tensor], rank: int, step: int, block: int) -> Tensor:
        """The gradient of this rank's loss at its sample, out of sight of optimizer and reducer."""
        leaves = [value.clone().requires_grad_() for value in theta]
        named = dict(zip(dict(model.named_parameters()), leaves, strict=True))
        total = torch.zeros((), dtype=self.dtype)
        for part in range(self.micro):
            x = self.inputs(rank, step, self.micro * block + part)
            total = total + self.loss(lambda x: torch.func.functional_call(model, named, (x,)), x) / self.micro
        found = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
        return flat(found)


def state_of(opt: IVON) -> dict[str, Any]:
    params = [param for group in opt.param_groups for param in group["params"]]
    state = {name: flat(opt.state[p][name] for p in params) for name in ("momentum", "hess")}
    return state | {"mean": flat(params), "bytes": opt.step_bytes, "steps": [opt.state[p]["step"] for p in params]}


CASES = {
    "plain": Case(),
    "two blocks, no_sync": Case(blocks=2, no_sync=True),
    "two blocks, synchronized": Case(blocks=2),
    "micro-batches, no_sync": Case(micro=2, no_sync=True),
    "micro-batches, synchronized": Case(micro=2),
    "micro-batches in modes": Case(micro=2, no_sync=True, modes=True),
    "modes that stay": Case(micro=2, no_sync=True, modes=True, stay=True),
    "bucket views": Case(gradient_as_bucket_view=True),
    "bucket views, two blocks": Case(blocks=2, gradient_as_bucket_view=True),
    "static graph": Case(static_graph=True),
    "unused parameters": Case(branches, find_unused_parameters=True),
    "float32": Case(dtype=torch.float32),
    "autocast": Case(dtype=torch.float32, autocast=True),
    "compiled": Case(compiled=True),
}
LONG = Case(dtype=torch.float32, steps=100)


def all_cases(rank: int, folder: Path) -> dict[str, Any]:
    results: dict[str, Any] = {name: case.run(rank) for name, case in CASES.items()}
    results["long"] = LONG.run(rank)
    return results | {"uneven": uneven(rank), "uneven, fewer": uneven(rank, divide_by_initial_world_size=False)}


def few_cases(rank: int, folder: Path) -> dict[str, Any]:
    names = ("plain", "two blocks, no_sync", "unused parameters")
    return {name: CASES[name].run(rank) for name in names} | {"refusals": refusals(rank)}


def uneven(rank: int, **options: Any) -> dict[str, Any]:
    """Rank r has 2 + r batches."""
    case = Case()
    model = case.model().double()
    params = list(model.parameters())
    net, opt = DistributedDataParallel(model), IVON(params, **SETTINGS)
    start, thetas, grads = flat(params), [], []
    joinables: list[Any] = [net, opt]
    with Join(joinables, **options):
        for step in range(2 + rank):
            with opt.sampled_params(train=True):
                opt.zero_grad()
                theta = [p.detach().clone() for p in params]
                case.loss(net, case.inputs(rank, step, 0)).backward()
            thetas.append(flat(theta))
            grads.append(case.own_gradient(model, theta, rank, step, 0))
            opt.step()
    draws = opt.param_groups[0]["draws"]
    return state_of(opt) | {"start": start, "thetas": thetas, "grads": grads, "draws": draws}


def refusals(rank: int) -> dict[str, str]:
    """What the guards say, and that nothing has changed."""
    case = Case()
    found = {}
    for name in ("averaged in a hook", "other numbers of samples", "not from backward"):
        model = case.model().double()
        params = list(model.parameters())
        start = flat(params)
        opt = IVON(params, **SETTINGS)
        if name == "averaged in a hook":
            for param in params:
                param.register_hook(averaged)
        with opt.sampled_params(train=True):
            loss = case.loss(model, case.inputs(rank, 0, 0))
            if name == "not from backward":
                for param in params:
                    param.grad = torch.ones_like(param)
            else:
                loss.backward()
        if name == "other numbers of samples" and rank == 0:
            with opt.sampled_params(train=True):
                case.loss(model, case.inputs(rank, 0, 0)).backward()
        try:
            opt.step()
        except RuntimeError as error:
            found[name] = str(error)
        assert torch.equal(flat(params), start), name
    return found | {"joined in the wrong order": wrong_order(rank)}


def wrong_order(rank: int) -> str:
    model = plain_model()
    net = DistributedDataParallel(model)
    opt = IVON(model.parameters(), **SETTINGS)
    try:
        joinables: list[Any] = [opt, net]
        with Join(joinables), opt.sampled_params(train=True):
            pass
    except RuntimeError as error:
        return str(error)
    return ""


def averaged(grad: Tensor) -> Tensor:
    grad = grad.clone()
    dist.all_reduce(grad)
    return grad / dist.get_world_size()


def lonely_step(rank: int, folder: Path) -> dict[str, Any]:
    """Rank 0 takes a step that the others do not take."""
    case = Case()
    model = case.model().double()
    opt = IVON(model.parameters(), **SETTINGS)
    with opt.sampled_params(train=True):
        case.loss(model, case.inputs(rank, 0, 0)).backward()
    given_up = folder / "given_up"
    if rank > 0:
        while not given_up.exists():  # a rank that leaves its group ends the wait at once
            time.sleep(0.01)
        return {}
    began = time.monotonic()
    try:
        opt.step()
    except RuntimeError as error:
        return {"error": str(error), "seconds": time.monotonic() - began}
    finally:
        given_up.touch()
    return {}
