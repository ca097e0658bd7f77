"""Dropout in a network that has none, without rewriting it and without renaming its weights."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import Tensor, nn
from torch.utils._pytree import tree_map

M = TypeVar("M", bound=nn.Module)

_NAME = "inserted_dropout"
_NORMALIZING = (nn.Softmax, nn.Softmax2d, nn.Softmin, nn.LogSoftmax, nn.MultiheadAttention)
_HIDDEN = (nn.Linear, nn.modules.conv._ConvNd, nn.RNNBase, nn.Embedding)


def insert_dropout(model: M, rate: float = 0.05) -> M:
    """Let a network drop activations in train mode (Gal and Ghahramani, 2016); `Dropout()` then predicts by masks.

    A dropout module follows every activation: PyTorch's, and modules with a true attribute `is_activation`, such as the
    thresholded unit of `FilterResponseNorm`. A network whose activations are functions gets it after each hidden layer
    with weights instead. The last activation or layer of the network is left alone, because it makes the output.
    The names and values of all weights stay, and so does what the network computes in eval mode.

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
    places = _activations(model) or _hidden_layers(model)
    if not places:
        raise ValueError(
            f"{type(model).__name__} has no activation and no hidden layer to drop; insert nn.Dropout yourself"
        )
    for module in places:
        module.add_module(_NAME, nn.Dropout(rate).train(module.training))
        module.register_forward_hook(_drop)
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


def _drop(module: nn.Module, _: Any, output: Any) -> Any:
    """The hook: drop the tensors of a module's output; recurrent layers have several."""
    dropout = getattr(module, _NAME)
    return tree_map(lambda value: dropout(value) if isinstance(value, Tensor) else value, output)
