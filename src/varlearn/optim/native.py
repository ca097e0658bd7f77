"""The fused CPU path: `native.c` applied to lists of float32 tensors, one pass over memory for each call.

Same noise and same rule as `loop`, to float32's rounding. What is not a plain float32 CPU tensor in dense memory is not
for this path (`supports`), and without a C compiler there is no such path (`available`).
"""

from __future__ import annotations

import ctypes
import functools
import warnings
from array import array
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.torch_version import TorchVersion

from varlearn.core import update
from varlearn.core.noise import derive_key, normal_
from varlearn.core.shards import PLAIN
from varlearn.optim import loop, native_build, native_scalars
from varlearn.optim.tasks import Draw, Fold, Noise, Step, is_dense

_FLOAT32, _STRIDED = torch.float32, torch.strided
_INCREMENT_TAKES_LISTS = TorchVersion(torch.__version__) >= "2.5"


def load() -> ctypes.CDLL:
    """The compiled kernels, made on first use.

    Raises:
        native_build.BuildError: there is no C compiler, it fails, or the result does not agree with the plain path.
    """
    kernels = _attempt()
    if isinstance(kernels, native_build.BuildError):
        raise kernels
    return kernels


def available() -> bool:
    """Whether there is a fused path on this machine; compiles it if need be."""
    return not isinstance(_attempt(), native_build.BuildError)


def load_or_warn() -> bool:
    """`available`, and one warning in the life of the process where it is not."""
    problem = _attempt()
    if isinstance(problem, native_build.BuildError):
        _warn(str(problem))
        return False
    return True


@functools.cache
def _warn(problem: str) -> None:
    warnings.warn(
        f"the fused CPU path could not be compiled ({problem}); the packed path is used, which computes the same, "
        "more slowly. Install a C compiler (gcc or clang) or set CC to one; fused=False silences this",
        stacklevel=3,
    )


@functools.cache
def _attempt() -> ctypes.CDLL | native_build.BuildError:
    try:
        kernels = native_build.load(Path(__file__).with_name("native.c"))
    except native_build.BuildError as error:
        return error
    for name in ("draw", "restore", "step", "fold", "check"):
        kernel = getattr(kernels, f"varlearn_{name}")
        kernel.restype = None
        kernel.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_void_p]
    return kernels if _agrees(kernels) else native_build.BuildError("the compiled code is wrong on a small example")


def supports(task: Draw | Step | Fold) -> bool:
    """Whether this path can carry out a task: plain float32 CPU tensors, dense, with equal strides.

    >>> from varlearn.optim.tasks import Draw, Noise
    >>> weight, half = torch.zeros(3), torch.zeros(3, dtype=torch.bfloat16)
    >>> supports(Draw(weight, weight, torch.ones(3), Noise(0, 1.0, 0.0)))
    True
    >>> supports(Draw(half, weight, torch.ones(3), Noise(0, 1.0, 0.0)))
    False
    """
    param = task.hess if isinstance(task, Fold) else task.param
    if type(param) not in PLAIN:
        return False
    if isinstance(task, Fold):
        tensors = (task.hess, task.estimate_mean, task.grad)
        if not is_written_out(task.grad):
            return False
        tensors += tuple(tensor for tensor in (task.grad_mean, task.captured) if tensor is not None)
    elif isinstance(task, Draw):
        tensors = (param, task.hess) if task.mean is param else (param, task.mean, task.hess)
    else:
        grad = task.grad
        if task.mean is not param or not is_written_out(grad):
            return False
        tensors = (param, task.momentum, task.hess, grad)
        if task.estimate is not None:
            tensors += (task.estimate,)
        if isinstance(task.prior_mean, Tensor):
            tensors += (task.prior_mean,)
    size = param.numel()
    strides = None if param.is_contiguous() else param.stride()
    for tensor in tensors:
        if (
            type(tensor) not in PLAIN
            or tensor.dtype is not _FLOAT32
            or not tensor.is_cpu
            or tensor.numel() != size
            or not (tensor.is_contiguous() if strides is None else tensor.stride() == strides)
        ):
            return False
    return strides is None or is_dense(param)


def is_written_out(grad: Tensor) -> bool:
    """Not sparse, not to be negated when it is read, not a zero without memory: all of these autograd may leave.

    >>> is_written_out(torch.zeros(3)), is_written_out(torch.zeros(3).to_sparse())
    (True, False)
    """
    return grad.layout is _STRIDED and not grad.is_neg() and (grad.data_ptr() != 0 or grad.numel() == 0)


def draw(tasks: Sequence[Draw]) -> None:
    """Perturb each parameter (line 2).

    >>> from varlearn.optim.tasks import Draw, Noise
    >>> mean, sample = torch.ones(3), torch.empty(3)
    >>> draw([Draw(sample, mean, torch.full((3,), 4e30), Noise(7, 1.0, 0.0))])
    >>> sample
    tensor([1., 1., 1.])
    """
    _draw(load(), tasks)
    changed([task.param for task in tasks])


def _draw(kernels: ctypes.CDLL, tasks: Sequence[Draw]) -> None:
    words: list[int] = []
    scales: list[native_scalars.Scale] = []
    address, last = 0, None
    for param, mean, hess, noise, sign, _ in tasks:
        facts = (noise.ess, noise.weight_decay, sign)
        if facts != last:
            scales.append(native_scalars.of_draw(noise, sign))
            address, last = ctypes.addressof(scales[-1]), facts
        words += (param.numel(), param.data_ptr(), mean.data_ptr(), 0, hess.data_ptr(), noise.key, 0, address)
    call(kernels.varlearn_draw, words, 8)


def step(tasks: Sequence[Step]) -> None:
    """Update each parameter (lines 3 to 7).

    >>> from varlearn.core.update import Hyper
    >>> mean, momentum, hess = torch.tensor([2.0]), torch.zeros(1), torch.ones(1)
    >>> hyper = Hyper(lr=0.5, ess=1.0, weight_decay=1.0, beta1=0.0, beta2=0.5, clip_radius=9.0, debias=1.0)
    >>> grad, noise = torch.tensor([1.0]), Noise(7, 1.0, 1.0)
    >>> step([Step(mean, mean, momentum, hess, grad, "squared_gradient", None, noise, 0.0, 1.0, 1.0, hyper)])
    >>> mean, momentum, hess
    (tensor([1.2500]), tensor([1.]), tensor([1.]))
    """
    _step(load(), tasks)
    changed([task.param for task in tasks])


def _step(kernels: ctypes.CDLL, tasks: Sequence[Step]) -> None:
    words: list[int] = []
    hypers: list[native_scalars.Hyper] = []
    address, last = 0, None
    for task in tasks:
        param, grad, estimate, prior, noise = task.param, task.grad, task.estimate, task.prior_mean, task.noise
        number, there = (0.0, prior.data_ptr()) if isinstance(prior, Tensor) else (prior, 0)
        kind = task.approximation if estimate is None else "given"
        facts = (kind, task.hyper, noise.ess, noise.weight_decay, task.grad_factor, task.clip_factor, number)
        if facts != last:
            hypers.append(native_scalars.of_step(task, number))
            address, last = ctypes.addressof(hypers[-1]), facts
        words += (
            param.numel(),
            param.data_ptr(),
            task.momentum.data_ptr(),
            task.hess.data_ptr(),
            grad.data_ptr(),
            0 if estimate is None else estimate.data_ptr(),
            there,
            noise.key,
            0,
            address,
        )
    call(kernels.varlearn_step, words, 10)


def fold(tasks: Sequence[Fold]) -> None:
    """Average each parameter's gradient and hhat with those of the earlier samples.

    >>> grad_mean, estimate_mean = torch.tensor([1.0]), torch.tensor([1.0])
    >>> task = Fold(
    ...     torch.tensor([3.0]),
    ...     grad_mean,
    ...     estimate_mean,
    ...     torch.ones(1),
    ...     "squared_gradient",
    ...     Noise(7, 1.0, 1.0),
    ...     count=1,
    ... )
    >>> fold([task])
    >>> grad_mean, estimate_mean
    (tensor([2.]), tensor([5.]))
    """
    words: list[int] = []
    hypers: list[native_scalars.Hyper] = []
    address, last = 0, None
    for task in tasks:
        facts = (task.noise.ess, task.noise.weight_decay, task.approximation, task.count)
        if facts != last:
            hypers.append(native_scalars.of_fold(task))
            address, last = ctypes.addressof(hypers[-1]), facts
        words += (
            task.hess.numel(),
            task.grad.data_ptr(),
            0 if task.grad_mean is None else task.grad_mean.data_ptr(),
            0 if task.captured is None else task.captured.data_ptr(),
            task.estimate_mean.data_ptr(),
            task.hess.data_ptr(),
            task.noise.key,
            address,
        )
    call(load().varlearn_fold, words, 8)
    changed([task.grad_mean for task in tasks if task.grad_mean is not None])


def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether there is no inf and no NaN in dense float32 CPU tensors.

    >>> all_finite([torch.zeros(3)]), all_finite([torch.zeros(3), torch.tensor([1.0, torch.nan])])
    (True, False)
    """
    words: list[int] = []
    for tensor in tensors:
        words += (tensor.numel(), tensor.data_ptr())
    return check(words)


def check(words: list[int]) -> bool:
    """`all_finite` of float32 tensors given by size and address, in turns."""
    finite = ctypes.c_int()
    call(load().varlearn_check, words, 2, finite)
    return bool(finite.value)


def call(kernel: Callable[..., None], words: list[int], width: int, flag: ctypes.c_int | None = None) -> None:
    """Pass structures of `width` 64-bit words, the number of threads that PyTorch uses, and where to answer."""
    tasks = array("Q", words)
    answer = None if flag is None else ctypes.addressof(flag)
    kernel(tasks.buffer_info()[0], len(words) // width, torch.get_num_threads(), answer)


def changed(params: Sequence[Tensor]) -> None:
    """Tell autograd, which sees no writes through addresses: a graph that saved the old weights must not be used."""
    if _INCREMENT_TAKES_LISTS:
        increment_version(params)
    else:
        for param in params:
            increment_version(param)


def _agrees(kernels: ctypes.CDLL) -> bool:
    """Whether the kernels do to a few numbers what the plain path does: compilers have bugs, too."""
    noise = Noise(derive_key(seed=1, draw=1), 2.0, 0.5)
    hyper = update.Hyper(0.1, 2.0, 0.5, beta1=0.9, beta2=0.9, clip_radius=1.0, debias=0.5)
    outcomes = []
    for plain in (True, False):
        mean, momentum, hess, grad, sample = normal_(torch.empty(5, 300), key=1)
        hess.exp_()
        task = Step(mean, mean, momentum, hess, grad, "reparam", None, noise, 0.1, 1.0, 1.0, hyper)
        if plain:
            loop.draw([Draw(sample, mean, hess, noise)])
            loop.step([task])
        else:
            _draw(kernels, [Draw(sample, mean, hess, noise)])
            _step(kernels, [task])
        outcomes.append(torch.stack((sample, mean, momentum, hess)))
    return torch.allclose(*outcomes, rtol=1e-4, atol=1e-4)
