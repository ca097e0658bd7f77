"""Time the optimizers on a GPU beside what its memory allows: `python -m benchmarks.gpu`.

This file needs torch and varlearn only. It prints a table and writes nothing. No figure of it is in the repository: the
project has no GPU so far. Please send what it prints, with the lines of `varlearn doctor`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

import varlearn

GB = 1e9
COPIED = 1 << 28  # numbers whose copy shows the bandwidth
PEAKS = {"A100 80GB": 2039 * GB, "H100 SXM": 3350 * GB, "MI300X": 5300 * GB}  # bytes per second, by the data sheets

# Bytes for each weight of the draw, the restore, the look for NaN and the step: (float32, bfloat16 weights with float32
# state). tests/optim/engine/triton/test_triton_compilation.py counts them in the kernels.
_DRAW, _RESTORE, _LOOK, _STEP = (16, 16), (8, 6), (4, 2), (28, 30)
_LEAN = (12, 16)  # of float32 weights without a copy: the noise is added, and later subtracted


def _sum(*passes: tuple[int, int]) -> tuple[int, int]:
    return sum(one for one, _ in passes), sum(two for _, two in passes)


class Contender(NamedTuple):
    """An optimizer, how a step is driven, and the bytes that it moves for each weight, or None where nobody counted.

    Attributes:
        name: in the table.
        build: from parameters to the optimizer.
        way: "plain", "block" (the sample goes in and comes out) or "modes" (it stays until the step).
        traffic: bytes for float32 and for bfloat16 weights.
    """

    name: str
    build: Callable[[list[nn.Parameter]], Any]
    way: str
    traffic: tuple[int, int] | None


def _adamw(**kwargs: Any) -> Callable[[list[nn.Parameter]], Any]:
    return lambda params: torch.optim.AdamW(params, lr=1e-4, **kwargs)


def _ivon(**kwargs: Any) -> Callable[[list[nn.Parameter]], Any]:
    return lambda params: varlearn.IVON(params, lr=1e-3, ess=1e6, hess_init=0.1, seed=0, **kwargs)


def _vadamw(**kwargs: Any) -> Callable[[list[nn.Parameter]], Any]:
    return lambda params: varlearn.VAdamW(params, lr=1e-4, n=1_000_000, batch_size=100, seed=0, **kwargs)


CONTENDERS = (
    Contender("AdamW fused", _adamw(fused=True), "plain", (28, 14)),  # its state has the dtype of the weights
    Contender("AdamW foreach", _adamw(foreach=True), "plain", None),
    Contender("IVON triton", _ivon(fused=True), "block", _sum(_DRAW, _RESTORE, _LOOK, _STEP)),
    Contender("IVON triton, modes", _ivon(fused=True), "modes", _sum(_DRAW, _LOOK, _STEP)),
    Contender("IVON triton, lean", _ivon(fused=True, memory="lean"), "block", _sum(_LEAN, (12, 6), _LOOK, _STEP)),
    Contender("IVON foreach", _ivon(foreach=True), "block", None),
    Contender("VAdamW triton", _vadamw(fused=True), "block", _sum(_DRAW, _RESTORE, _LOOK, _STEP)),
    Contender("VAdamW foreach", _vadamw(foreach=True), "block", None),
)


def shapes(layers: int, width: int) -> list[tuple[int, ...]]:
    """The tensors of a GPT-2 with so many layers.

    >>> sum(torch.Size(shape).numel() for shape in shapes(12, 768))
    124439808
    """
    block = [(width,)] * 4 + [(3 * width, width), (3 * width,), (width, width), (width,)]
    block += [(4 * width, width), (4 * width,), (width, 4 * width), (width,)]
    return [(50257, width), (1024, width), *(block * layers), (width,), (width,)]


def limit_ms(traffic: tuple[int, int], count: int, dtype: torch.dtype, bandwidth: float) -> float:
    """Milliseconds that the traffic takes at a bandwidth: no kernel can be faster.

    >>> limit_ms((28, 14), 1_000_000, torch.float32, 28e9)
    1.0
    """
    return 1e3 * traffic[dtype != torch.float32] * count / bandwidth


def drive(opt: Any, params: Sequence[nn.Parameter], grads: Sequence[torch.Tensor], way: str) -> None:
    """One step with gradients that are there already: forward and backward are not timed."""

    def give() -> None:
        for param, grad in zip(params, grads, strict=True):
            param.grad = grad

    if way == "plain":
        give()
    elif way == "modes":
        opt.train()
        give()
    else:
        with opt.sampled_params(train=True):
            give()
    opt.step()


def milliseconds(step: Callable[[], None], rounds: int) -> float:
    """The median time of a step on the device, by its own clock."""
    for _ in range(5):
        step()
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        step()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def bandwidth_of(device: torch.device) -> float:
    """Bytes per second of a large copy, read and written."""
    source = torch.empty(COPIED, dtype=torch.float32, device=device)
    target = torch.empty_like(source)

    def copy() -> None:
        target.copy_(source)

    return 2 * source.nbytes / (1e-3 * milliseconds(copy, 20))


def row(name: str, taken: float, reference: float, engine: str, limit: float | None) -> str:
    """A line of the table."""
    bound = "       –      –" if limit is None else f"{limit:8.3f} {100 * limit / taken:5.0f}%"
    return f"{name:<20} {engine:<9} {taken:8.3f} {taken / reference:7.2f}  {bound}"


def model_lines(count: int, dtype: torch.dtype) -> list[str]:
    """The least milliseconds of a step by the data sheets, and the ratio to AdamW fused."""
    head = f"{'least ms by data sheet':<22}" + "".join(f"{name:>12}" for name in PEAKS) + f"{'x AdamW':>9}"
    lines = [head]
    reference = CONTENDERS[0].traffic
    assert reference is not None
    for each in CONTENDERS:
        if each.traffic is not None:
            times = "".join(f"{limit_ms(each.traffic, count, dtype, peak):12.3f}" for peak in PEAKS.values())
            which = dtype != torch.float32
            lines.append(f"{each.name:<22}{times}{each.traffic[which] / reference[which]:9.2f}")
    return lines


def measure(device: torch.device, dtype: torch.dtype, tensors: list[tuple[int, ...]], rounds: int) -> None:
    """Print the table of one dtype."""
    bandwidth = bandwidth_of(device)
    count = sum(torch.Size(shape).numel() for shape in tensors)
    print(f"\n{count:,} weights of {dtype} in {len(tensors)} tensors; a copy reaches {bandwidth / GB:,.0f} GB/s")
    print(f"{'optimizer':<20} {'engine':<9} {'ms':>8} {'x AdamW':>8} {'limit ms':>9} {'of limit':>6}")
    reference = 0.0
    for each in CONTENDERS:
        params = [nn.Parameter(0.02 * torch.randn(shape, device=device, dtype=dtype)) for shape in tensors]
        grads = [1e-3 * torch.randn_like(param, requires_grad=False) for param in params]
        opt = each.build(params)
        taken = milliseconds(lambda opt=opt, p=params, g=grads, way=each.way: drive(opt, p, g, way), rounds)
        reference = reference or taken
        engine = "torch" if each.way == "plain" else engine_of(opt)
        limit = None if each.traffic is None else limit_ms(each.traffic, count, dtype, bandwidth)
        print(row(each.name, taken, reference, engine, limit), flush=True)
        del opt, params, grads
        torch.cuda.empty_cache()
    print("\n".join(["", *model_lines(count, dtype)]))


def engine_of(opt: Any) -> str:
    """The engine that most of the parameters had, whatever was asked for."""
    (report,) = opt.diagnostics()
    counts = {name: getattr(report, f"by_{name}") for name in ("triton", "foreach", "loop", "native")}
    return max(counts, key=lambda name: counts[name])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or say why that is not possible."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=12, help="of the GPT-2 whose tensors are used")
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--rounds", type=int, default=50)
    given = parser.parse_args(arguments)
    tensors = shapes(given.layers, given.width)
    if not torch.cuda.is_available():
        print(
            "there is no GPU that PyTorch can use, so nothing was measured; `varlearn doctor` says what to do. "
            "What the memory of some GPUs would allow:",
            file=sys.stderr,
        )
        count = sum(torch.Size(shape).numel() for shape in tensors)
        for dtype in (torch.float32, torch.bfloat16):
            print("\n".join(["", f"{count:,} weights of {dtype}", *model_lines(count, dtype)]))
        return 1
    device = torch.device("cuda", torch.cuda.current_device())
    print(f"{torch.cuda.get_device_name(device)}; torch {torch.__version__}; varlearn {varlearn.__version__}")
    for dtype in (torch.float32, torch.bfloat16):
        measure(device, dtype, tensors, given.rounds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
