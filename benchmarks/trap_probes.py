"""What `benchmarks.traps` observes: one function per trap, which runs either package and returns what came out."""

from __future__ import annotations

import copy
import io
import math
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from benchmarks.contenders import REFERENCE, left_out, select
from benchmarks.memory import in_fresh_process
from benchmarks.step import nothing
from benchmarks.timing import Budget, take_turns
from benchmarks.trap_ranks import two_ranks
from benchmarks.workloads import GPT_3M
from varlearn.batchnorm import recalibrate_batchnorm

RATE = 1e-3  # 1 - beta2 where hhat is read off the change of h


class Package(NamedTuple):
    """One of the two optimizers, with what differs in how they are called and read."""

    name: str
    optimizer: type[torch.optim.Optimizer]

    @property
    def ours(self) -> bool:
        return self.name == "varlearn"

    def make(self, params: Any, **options: Any) -> Any:
        settings = {"lr": 0.1, "ess": 100.0, "beta1": 0.9, "beta2": 0.9, "weight_decay": 0.01, **options}
        return self.optimizer(params, **settings)

    def read(self, opt: Any, name: str) -> Tensor:
        """hess or momentum, of all parameters, flat."""
        if not self.ours:
            return torch.cat([group[name] for group in opt.param_groups])
        states = (opt.state[p] for group in opt.param_groups for p in group["params"])
        return torch.cat([state[name].reshape(-1) for state in states if name in state])


def block(opt: Any, loss: Callable[[], Tensor]) -> None:
    with opt.sampled_params(train=True):
        opt.zero_grad()
        loss().backward()


def short(error: Exception) -> str:
    """Type and beginning of an error."""
    message = str(error).splitlines()[0] if str(error) else ""
    return f"{type(error).__name__}: {message[:80]}"


def outcome(action: Callable[[], Any]) -> str:
    """The word works, or the error."""
    try:
        action()
    except Exception as error:
        return short(error)
    return "works"


def estimate_from(hess: Tensor, start: float = 1.0) -> float:
    """The mean hhat of one step, from what it did to h at the rate RATE."""
    return float((hess.double() - start).mean() / RATE + start)


def squared_gradient(package: Package) -> float:
    weight = nn.Parameter(torch.zeros(1))
    opt = package.make([weight], ess=1000.0, beta2=1.0 - RATE, weight_decay=0.0, hess_approx="gradsq")
    block(opt, lambda: 2.0 * weight.sum())
    opt.step()
    change = float(package.read(opt, "hess")[0]) - 1.0
    # x + x^2/2 = change with x = RATE (hhat - 1)
    return 1.0 + (math.sqrt(1.0 + 2.0 * change) - 1.0) / RATE


def exception(package: Package) -> float:
    weight = nn.Parameter(torch.zeros(100))
    opt = package.make([weight])
    try:
        with opt.sampled_params(train=True):
            raise ValueError
    except ValueError:
        return float(weight.detach().abs().max())


def resume(package: Package) -> float:
    def start() -> tuple[nn.Parameter, Any]:
        weight = nn.Parameter(torch.full((10,), 100.0, dtype=torch.float64))
        return weight, package.make([weight], ess=1e9, beta2=0.99999)

    def step(weight: nn.Parameter, opt: Any) -> Tensor:
        before = weight.detach().clone()
        block(opt, lambda: weight.square().sum())
        opt.step()
        return weight.detach() - before

    weight, opt = start()
    for _ in range(50):
        step(weight, opt)
    file = io.BytesIO()
    torch.save((weight.detach(), opt.state_dict()), file)
    file.seek(0)
    value, state = torch.load(file, weights_only=False)
    other, resumed = start()
    resumed.load_state_dict(state)
    other.data.copy_(value)
    return float((step(other, resumed) / step(weight, opt)).mean())


def copying(package: Package) -> str:
    model = nn.Linear(3, 2)
    opt = package.make(model.parameters())

    def go_on(both: tuple[nn.Module, Any]) -> None:
        net, optimizer = both
        block(optimizer, lambda: net(torch.ones(1, 3)).sum())
        optimizer.step()

    deep = outcome(lambda: go_on(copy.deepcopy((model, opt))))
    pickled = outcome(lambda: go_on(pickle.loads(pickle.dumps((model, opt)))))
    return "works" if deep == pickled == "works" else f"deepcopy: {deep}; pickle: {pickled}"


def no_gradient(package: Package) -> str:
    used, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    opt = package.make([used, unused])

    def go() -> None:
        block(opt, lambda: used.sum())
        opt.step()
        if not torch.equal(unused, torch.ones(2)):
            raise AssertionError("it was changed")

    return outcome(go)


def frozen(package: Package) -> float:
    free, fixed = nn.Parameter(torch.ones(100)), nn.Parameter(torch.ones(100), requires_grad=False)
    opt = package.make([free, fixed], weight_decay=0.5)
    moved = 0.0
    for _ in range(3):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            moved = max(moved, float((fixed - 1.0).abs().max()))
            (free * 2.0).sum().backward()
        opt.step()
    return max(moved, float((fixed - 1.0).abs().max()))


def step_without_sample(package: Package) -> str:
    weight = nn.Parameter(torch.ones(2))
    opt = package.make([weight])
    weight.sum().backward()
    return outcome(opt.step)


def accumulation(package: Package) -> str:
    """ghat over the true mean gradient in two idioms: blocks that do not clear, and the loss divided by 4."""
    ratios = []
    for divided in (False, True):
        weight = nn.Parameter(torch.zeros(2))
        opt = package.make([weight], beta1=0.0)
        opt.zero_grad()
        for _ in range(4):
            if divided and package.ours:
                opt.train()  # the mode for loops that divide the loss
                (weight.sum() / 4.0).backward()
            else:
                with opt.sampled_params(train=True):
                    (weight.sum() / (4.0 if divided else 1.0)).backward()
        opt.step()
        ratios.append(float(package.read(opt, "momentum")[0]))
    return f"{ratios[0]:.3f}, {ratios[1]:.3f}"


def clip_after_block(package: Package) -> float:
    weight = nn.Parameter(torch.zeros(10))
    opt = package.make([weight], beta1=0.0)
    block(opt, lambda: 100.0 * weight.sum())
    nn.utils.clip_grad_norm_([weight], 1.0)
    opt.step()
    return float(package.read(opt, "momentum").norm())


def clip_and_hessian(package: Package) -> float:
    weight = nn.Parameter(torch.zeros(1000))
    opt = package.make([weight], beta2=1.0 - RATE, weight_decay=0.0, **({"max_grad_norm": 0.1} if package.ours else {}))
    with opt.sampled_params(train=True):
        opt.zero_grad()
        weight.square().sum().backward()  # curvature 2
        if not package.ours:
            nn.utils.clip_grad_norm_([weight], 0.1)
    opt.step()
    return estimate_from(package.read(opt, "hess"))


def grad_scaler(package: Package) -> str:
    weight = nn.Parameter(torch.zeros(10))
    opt = package.make([weight], beta1=0.0, lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    seen = []
    for factor in (1.0, 1e38, 1.0):
        block(opt, lambda factor=factor: scaler.scale(factor * weight.sum()))
        scaler.unscale_(opt)
        scaler.step(opt)
        scaler.update()
        seen.append(float(package.read(opt, "momentum")[0]))
    lost = int((~weight.isfinite()).sum())
    return f"{seen[0]:g}x; {lost} of 10 weights non-finite"


def nan_gradient(package: Package) -> float:
    weight = nn.Parameter(torch.ones(10))
    opt = package.make([weight])
    for factor in (math.nan, 1.0):
        block(opt, lambda factor=factor: (factor * weight).sum())
        opt.step()
    return float((~package.read(opt, "hess").isfinite()).sum())


def bfloat16(package: Package) -> float:
    weight = nn.Parameter(torch.ones(1000, dtype=torch.bfloat16))
    opt = package.make([weight], beta2=0.99999)
    for _ in range(30):
        block(opt, lambda: weight.square().sum())
        opt.step()
    return float((package.read(opt, "hess") != 1.0).float().mean())


def mixed_dtypes(package: Package) -> str:
    params = [nn.Parameter(torch.ones(2, dtype=dtype)) for dtype in (torch.float32, torch.bfloat16)]

    def go() -> None:
        opt = package.make(params)
        block(opt, lambda: params[0].sum() + params[1].float().sum())
        opt.step()

    return outcome(go)


def add_group(package: Package) -> str:
    first, second = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    opt = package.make([first])

    def go() -> None:
        opt.add_param_group({"params": [second]})
        block(opt, lambda: first.sum() + second.sum())
        opt.step()

    return outcome(go)


def storage(package: Package) -> str:
    conv = nn.Conv2d(3, 4, 3, bias=False).to(memory_format=torch.channels_last)
    address = conv.weight.data_ptr()
    opt = package.make(conv.parameters())
    block(opt, lambda: conv(torch.ones(1, 3, 4, 4)).sum())
    opt.step()
    kept = conv.weight.is_contiguous(memory_format=torch.channels_last)
    words = ("kept" if conv.weight.data_ptr() == address else "lost", "kept" if kept else "lost")
    return "storage {}, channels_last {}".format(*words)


def backward_outside(package: Package) -> str:
    weight = nn.Parameter(torch.ones(2))
    opt = package.make([weight])
    block(opt, lambda: weight.sum())
    opt.step()
    with opt.sampled_params(train=True):
        opt.zero_grad(set_to_none=False)
        loss = weight.square().sum()
    weight.square().sum().backward()
    del loss
    return outcome(opt.step)


def global_rng(package: Package) -> str:
    weight = nn.Parameter(torch.zeros(1000))
    opt = package.make([weight])
    before = torch.get_rng_state()
    with opt.sampled_params():
        pass
    touched = not torch.equal(torch.get_rng_state(), before)
    ranks = two_ranks(package.name, equal_seeds=True)
    first, second = (rank["theta"] for rank in ranks)
    correlation = float(torch.corrcoef(torch.stack([first, second]))[0, 1])
    return f"global RNG {'consumed' if touched else 'untouched'}; correlation of two ranks {correlation:.2f}"


def ddp(package: Package) -> float:
    ranks = two_ranks(package.name, equal_seeds=False)
    truth = sum(float((rank["grad"] * rank["theta"]).mean()) * rank["precision"] for rank in ranks) / len(ranks)
    return estimate_from(ranks[0]["hess"]) / truth


def batchnorm(package: Package) -> float:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=None))
    inputs = torch.randn(64, 3)
    opt = package.make(model.parameters(), ess=1.0)
    for _ in range(3):
        block(opt, lambda: model(inputs).square().sum())
        opt.step()
    if package.ours:
        recalibrate_batchnorm(model, [inputs])
    hidden = model[0](inputs).detach()
    return float(((model[1].running_mean - hidden.mean(0)) / hidden.std(0)).abs().max())


def own_samples(package: Package) -> float:
    weight = nn.Parameter(torch.zeros(2))
    opt = package.make([weight], beta1=0.0)
    for factor in (1.0, 5.0):
        block(opt, lambda factor=factor: factor * weight.sum())
        opt.step()
    return float(package.read(opt, "momentum")[0])


def drift(package: Package) -> float:
    weight = nn.Parameter(torch.randn(1000, generator=torch.Generator().manual_seed(0)).bfloat16())
    opt = package.make([weight], ess=10.0)
    before = weight.detach().clone()
    for _ in range(100):
        with opt.sampled_params():
            pass
    return float((weight - before).abs().max())


def cost(package: Package) -> str:
    """Time in turns with AdamW fused, memory each in a fresh process; both on 3 million parameters."""
    fused = "varlearn fused" not in left_out()
    name = ("varlearn fused" if fused else "varlearn foreach") if package.ours else package.name
    grads = GPT_3M.grads()
    contenders = select(REFERENCE, name)
    turns = {each.name: partial(each.drive, each.build(GPT_3M.params(grads)), nothing) for each in contenders}
    ratio = take_turns(turns, Budget(rounds=15, seconds=30.0)).ratio(name, REFERENCE)
    vectors, reference = (in_fresh_process(each, GPT_3M.name) for each in (name, REFERENCE))
    return f"{ratio:.1f}x the time, {vectors:.1f} vectors ({REFERENCE} {reference:.1f})"


def validation(package: Package) -> str:
    weight = nn.Parameter(torch.zeros(1))
    beta = outcome(lambda: package.make([weight], beta1=1.0))
    name = outcome(lambda: package.make([weight], hess_approx="hutchinson"))
    return f"beta1=1 {'accepted' if beta == 'works' else 'refused'}; {name}"
