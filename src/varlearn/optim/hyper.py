"""Hyperparameters of a parameter group: their names, their aliases, and what values they may take."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from torch import Tensor

# ivon-opt's words for the two estimators, and ours.
_APPROXIMATIONS = {
    "reparam": "reparam",
    "price": "reparam",
    "squared_gradient": "squared_gradient",
    "gradsq": "squared_gradient",
}

_POSITIVE = "> 0 and finite", lambda value: 0.0 < value < math.inf
_NON_NEGATIVE = ">= 0 and finite", lambda value: 0.0 <= value < math.inf
_MOMENTUM = ">= 0 and < 1", lambda value: 0.0 <= value < 1.0

_NUMBERS: dict[str, tuple[tuple[str, Callable[[float], bool]], str]] = {
    "lr": (_NON_NEGATIVE, "ResNets take the learning rate that works for SGD, or a little more"),
    "ess": (_POSITIVE, "use the number of training examples"),
    "hess_init": (_POSITIVE, "0.01 to 1 is typical"),
    "weight_decay": (_NON_NEGATIVE, "use the value that works for SGD, or 1e-6 to 1e-5 for transformers"),
    "eps": (_NON_NEGATIVE, "1e-8 is usual"),
    "n": (_POSITIVE, "use the number of training examples, or of tokens for a language model"),
    "batch_size": (_POSITIVE, "use the number of examples (or tokens) that the loss of a step is a mean over"),
    "hessian_power": (_NON_NEGATIVE, "1 is usual"),
    "rho": (_NON_NEGATIVE, "0.05 is usual for SAM, 0.01 for BSAM"),
    "damping": (_NON_NEGATIVE, "0 leaves it out; 1e-3 is usual for VOGN"),
    "kl_weight": (_NON_NEGATIVE, "1 is the evidence lower bound"),
    "decay": (_NON_NEGATIVE, "0 leaves the pull to the prior"),
    "clip_radius": (("> 0", lambda value: value > 0.0), "use math.inf for no clipping, or 1e-3 for transformers"),
}
_ADAMW_CURES = {  # of optimizers with AdamW's settings
    "lr": "AdamW's default is 1e-3",
    "weight_decay": "AdamW's default is 0.01",
    "beta2": "0.999 is usual",
}
_INTEGERS = {"mc_samples": 1, "seed": 0, "draws": 0}  # the least that each may be
_FLAGS = ("rescale_lr", "debias", "maximize")
_CHOICES = {
    "hess_approx": ("reparam", "squared_gradient"),
    "momentum": ("sum", "average"),
    "noise": ("independent", "shared"),
    "nonfinite": ("skip", "raise"),
    "memory": ("fast", "lean"),
    "foreach": (None, True, False),
    "fused": (None, True, False),
}


def stays_on_device(value: Any) -> bool:
    """Whether a hyperparameter is a tensor on an accelerator, which the host does not read: it would have to wait.

    >>> stays_on_device(0.1)
    False
    """
    return isinstance(value, Tensor) and value.device.type != "cpu"


def arguments(given: Mapping[str, Any], *without: str) -> dict[str, Any]:
    """The defaults of an optimizer's groups: the arguments of its constructor, from `locals()` in the first line.

    Args:
        given: names and values.
        without: names of arguments that are no hyperparameters, or not in this form.

    >>> arguments({"self": None, "params": [], "lr": 0.1, "seed": None}, "seed")
    {'lr': 0.1}
    """
    left_out = {"self", "params", "__class__", *without}
    return {name: value for name, value in given.items() if name not in left_out}


def normalize(group: dict[str, Any]) -> None:
    """Replace ivon-opt's names by ours in a group that is about to be added: beta1, beta2, price, gradsq.

    >>> group = {"betas": (0.9, 0.99999), "beta2": 0.999, "hess_approx": "price"}
    >>> normalize(group)
    >>> group
    {'betas': (0.9, 0.999), 'hess_approx': 'reparam'}
    """
    if "betas" in group:
        beta1, beta2 = _pair(group["betas"])
        group["betas"] = (group.pop("beta1", beta1), group.pop("beta2", beta2))
    approximation = group.get("hess_approx")
    if approximation is None and "hess_init" not in group:
        return
    if not isinstance(approximation, str) or approximation not in _APPROXIMATIONS:
        raise ValueError(_message("hess_approx", approximation, f"one of {sorted(_APPROXIMATIONS)}", "use 'reparam'"))
    group["hess_approx"] = _APPROXIMATIONS[approximation]


def check(group: dict[str, Any]) -> None:
    """Raise TypeError or ValueError, with value, rule and cure, at the first bad hyperparameter of `group`.

    Only the names that a group has are checked: an optimizer declares them by its defaults.

    >>> check({"lr": 0.1, "ess": 0.0})
    Traceback (most recent call last):
        ...
    ValueError: ess=0.0 must be > 0 and finite; use the number of training examples
    """
    cures = _ADAMW_CURES if "prior_width" in group else {}
    for name, ((rule, holds), cure) in _NUMBERS.items():
        if name in group:
            _check_number(name, group[name], rule, holds, cures.get(name, cure))
    if "betas" in group:
        for name, beta in zip(("beta1", "beta2"), _pair(group["betas"]), strict=True):
            cure = "0.9 is usual" if name == "beta1" else "1 - 1e-5 is the paper's; shorter runs need a smaller one"
            _check_number(name, beta, *_MOMENTUM, cures.get(name, cure))
    for name, lowest in _INTEGERS.items():
        if name in group:
            _check_integer(name, group[name], lowest)
    for name in _FLAGS:
        if name in group and not isinstance(group[name], bool):
            raise TypeError(_message(name, group[name], "True or False", "pass a bool"))
    for name, choices in _CHOICES.items():
        has_none = name == "hess_approx" and "hess_init" not in group  # the rule has no estimate to choose
        if name in group and group[name] not in choices and not has_none:
            raise ValueError(_message(name, group[name], f"one of {choices}", f"the default is {choices[0]!r}"))
    if group.get("foreach") and group.get("fused"):
        raise ValueError("foreach=True and fused=True name two engines; pass one of them")
    prior_mean = group.get("prior_mean")
    if prior_mean not in (None, "init"):
        _check_number("prior_mean", prior_mean, "finite", math.isfinite, "use None, a number, 'init' or tensors")
    if group.get("steps") is not None:
        _check_integer("steps", group["steps"], 1)
    if group.get("prior_width") is not None:
        _check_number("prior_width", group["prior_width"], *_POSITIVE, "use 1 for shallow networks and embeddings")
    if group.get("prior_std") is not None:
        _check_number("prior_std", group["prior_std"], *_POSITIVE, "use None for a prior by weight_decay")
    if group.get("std_init") is not None:
        _check_number("std_init", group["std_init"], *_NON_NEGATIVE, "use None for IVON's first sigma")
    if group.get("max_grad_norm") is not None:
        _check_number("max_grad_norm", group["max_grad_norm"], *_POSITIVE, "use None for no clipping, or 1.0")


def check_params(group: dict[str, Any]) -> None:
    """Refuse what cannot be sampled: complex tensors. Integer ones, of quantized layers, are frozen and left alone."""
    params = group.get("params") if isinstance(group, dict) else None
    if params is None or isinstance(params, set):
        return
    group["params"] = params = [params] if isinstance(params, Tensor) else list(params)
    for param in params:
        tensor = param[1] if isinstance(param, tuple) else param
        if isinstance(tensor, Tensor) and tensor.is_complex():
            raise ValueError(
                f"a parameter has dtype {tensor.dtype}; it must be a real floating-point one, pass others to another "
                "optimizer"
            )


def drop_duplicates(group: dict[str, Any]) -> None:
    """Keep one of parameters that a group lists several times: noise goes into it once. PyTorch has warned of them.

    >>> weight = Tensor([1.0])
    >>> group = {"params": [weight, weight], "param_names": ["weight", "tied"]}
    >>> drop_duplicates(group)
    >>> group
    {'params': [tensor([1.])], 'param_names': ['weight']}
    """
    first = {id(param): place for place, param in reversed(list(enumerate(group["params"])))}
    for name in ("params", "param_names"):
        if name in group:
            group[name] = [group[name][place] for place in sorted(first.values())]


def _check_number(name: str, value: Any, rule: str, holds: Callable[[float], bool], cure: str) -> None:
    if isinstance(value, Tensor):
        if value.numel() != 1:
            raise ValueError(_message(name, value, f"one number: Tensor {name} must be 1-element", "pass a float"))
        if value.is_complex():
            raise TypeError(_message(name, value, "one real number", "pass a float or a one-element tensor"))
        if stays_on_device(value):
            return
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(_message(name, value, f"a number {rule}", cure))
    if not holds(float(value)):
        raise ValueError(_message(name, value, rule, cure))


def _check_integer(name: str, value: Any, lowest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(_message(name, value, f"an integer >= {lowest}", f"pass int({value!r})"))
    if value < lowest:
        raise ValueError(_message(name, value, f">= {lowest}", f"{lowest} is the least"))


def _pair(betas: Any) -> tuple[Any, Any]:
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise TypeError(
            _message("betas", betas, "a pair (beta1, beta2)", "use (0.9, 0.99999) for IVON, (0.9, 0.999) for VAdamW")
        )
    return betas[0], betas[1]


def _message(name: str, value: object, rule: str, cure: str) -> str:
    return f"{name}={value!r} must be {rule}; {cure}"
