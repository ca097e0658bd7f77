"""Dropout in a network that has none, without rewriting it and without renaming its weights."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

M = TypeVar("M", bound=nn.Module)

_NAME = "inserted_dropout"
_MARK = "dropped_at"  # attribute of a dropped tensor: the name of the module that made it
_NORMALIZING = (nn.Softmax, nn.Softmax2d, nn.Softmin, nn.LogSoftmax, nn.MultiheadAttention)
_HIDDEN = (nn.Linear, nn.modules.conv._ConvNd, nn.RNNBase, nn.Embedding)


def insert_dropout(model: M, rate: float = 0.05) -> M:
    """Let a network drop activations in train mode (Gal and Ghahramani, 2016); `Dropout()` then predicts by masks.

    A dropout module follows every activation: PyTorch's, and modules with a true attribute `is_activation`, such as the
    thresholded unit of `FilterResponseNorm`. A network whose activations are functions gets it after each hidden layer
    with weights instead. The last activation or layer of the network is left alone, because it makes the output; a
    network that makes its output with another one is refused in its first pass. A module that is used twice drops
    twice. The names and values of all weights stay, and so does what the network computes in eval mode. Dropout by
    function calls, `F.dropout`, is not seen: it stays, and is off in predictions.

    Args:
        model: is changed in place.
        rate: share of the activations that are dropped; 0.05 in the paper's comparison.

    Returns:
        The model.

    Raises:
        ValueError: if the network drops already, or has no place for it.

    >>> net = insert_dropout(nn.Sequential(nn.Linear(1, 9), nn.ReLU(), nn.Linear(9, 2)), rate=0.5)
    >>> sorted(net.state_dict())
    ['0.bias', '0.weight', '2.bias', '2.weight']
    >>> x = net[0].weight[:1]
    >>> bool((net(x) == net(x)).all()), bool((net.eval()(x) == net(x)).all())  # in train mode, in eval mode
    (False, True)
    """
    if not 0.0 < rate < 1.0:
        raise ValueError(f"rate={rate} must be > 0 and < 1; 0.05 is the paper's")
    if drops(model):
        raise ValueError("the network has active dropout already, and must have none; leave insert_dropout out")
    places = _named(model, _activations(model) or _hidden_layers(model))
    if not places:
        raise ValueError(
            f"{type(model).__name__} has no activation and no hidden layer to drop; insert nn.Dropout yourself"
        )
    for name, module in places.items():
        module.add_module(_NAME, nn.Dropout(rate).train(module.training))
        module.register_forward_hook(partial(_drop, name))
    model.register_forward_hook(_refuse_dropped_output)
    return model


def drops(model: nn.Module) -> bool:
    """Whether a network has dropout with a rate above 0.

    >>> drops(nn.Dropout(0.0)), drops(nn.GRU(2, 2, num_layers=2, dropout=0.1))
    (False, True)
    """
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            return True
        if isinstance(module, (nn.MultiheadAttention, nn.RNNBase)) and module.dropout > 0:
            return True
    return False


def _activations(model: nn.Module) -> list[nn.Module]:
    leaves = [module for module in model.modules() if not any(True for _ in module.children())]
    return [module for module in leaves[:-1] if _is_activation(module)]


def _is_activation(module: nn.Module) -> bool:
    if getattr(module, "is_activation", False):
        return True
    return type(module).__module__ == "torch.nn.modules.activation" and not isinstance(module, _NORMALIZING)


def _hidden_layers(model: nn.Module) -> list[nn.Module]:
    found: list[nn.Module] = [module for module in model.modules() if isinstance(module, _HIDDEN)]
    return found[:-1]


def _named(model: nn.Module, modules: list[nn.Module]) -> dict[str, nn.Module]:
    chosen = set(modules)
    return {name: module for name, module in model.named_modules() if module in chosen}


def _drop(name: str, module: nn.Module, _: Any, output: Any) -> Any:
    """The hook: drop the tensors of a module's output; recurrent layers have several."""
    dropout = getattr(module, _NAME)

    def dropped(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        value = dropout(value)
        if not torch.compiler.is_compiling():
            setattr(value, _MARK, name)
        return value

    return tree_map(dropped, output)


def _refuse_dropped_output(module: nn.Module, _: Any, output: Any) -> None:
    """The hook of the whole network."""
    for value in tree_leaves(output):
        if isinstance(value, Tensor) and (name := getattr(value, _MARK, None)) is not None:
            raise ValueError(
                f"the output of the network is that of {name!r}, which drops; define the module that makes the output "
                "last and use it once, or insert nn.Dropout yourself"
            )
