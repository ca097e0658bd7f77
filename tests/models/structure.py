"""Questions that the tests of the image models ask of a model's structure."""

import torch
from torch import Tensor, nn

from varlearn.models import FilterResponseNorm


def depth(model: nn.Module) -> int:
    """Layers with a matrix of weights, the projections of shortcuts aside: the number in a model's name."""
    layers = [name for name, module in model.named_modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    return sum("shortcut" not in name for name in layers)


@torch.no_grad()
def features(model: nn.Module, images: Tensor, tau: float | None = None) -> Tensor:
    """What the last layer gets, with every TLU's threshold set to `tau`."""
    caught = []
    head = next(module for module in reversed(list(model.modules())) if isinstance(module, nn.Linear))
    hook = head.register_forward_hook(lambda _module, inputs, _output: caught.append(inputs[0]))
    for module in model.modules():
        if tau is not None and isinstance(module, FilterResponseNorm):
            module.tau.fill_(tau)
    model(images)
    hook.remove()
    return caught[0]


@torch.no_grad()
def side(model: nn.Module, size: int) -> int:
    """Height of the images that leave the blocks, for images of a given height."""
    shapes = []
    hook = model.blocks.register_forward_hook(lambda _module, _inputs, output: shapes.append(output.shape))  # type: ignore
    with torch.device("meta"):
        images = torch.empty(1, 3, size, size)
    model.to("meta")(images)
    hook.remove()
    (shape,) = shapes
    assert shape[2] == shape[3]
    return shape[2]
