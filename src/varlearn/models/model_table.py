"""The table of all models: the function that builds each, the data that it reads, and the numbers that it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import nn

from varlearn.models.alexnet import alexnet
from varlearn.models.densenet121 import densenet121
from varlearn.models.frn_cnn import frn_cnn
from varlearn.models.gpt2 import gpt2_3m, gpt2_10m, gpt2_125m, gpt2_355m, gpt2_773m, gpt2_tiny
from varlearn.models.gru import gru
from varlearn.models.lenet import lenet
from varlearn.models.mlp import mlp
from varlearn.models.preresnet110 import preresnet110
from varlearn.models.pretrained import pretrained
from varlearn.models.resnet18 import resnet18
from varlearn.models.resnet20 import resnet20, resnet20_swish
from varlearn.models.resnet50 import resnet50
from varlearn.models.small_cnn import small_cnn


class ModelRow(NamedTuple):
    """A row of the table.

    Attributes:
        function: builds the network.
        reads: kinds of examples, of "image", "table", "text" (one class per text) and "tokens" (a text to continue).
        takes: the arguments that data and configuration decide, of "channels", "classes", "context",
            "head_dropout", "hidden", "inputs", "outputs", "path" and "vocab". A model that takes "outputs" is also one
            for regression.
    """

    function: Callable[..., nn.Module]
    reads: tuple[str, ...] = ("image",)
    takes: tuple[str, ...] = ("classes",)

    def build(self, known: Mapping[str, Any]) -> nn.Module:
        """The network, with what it takes of the numbers that are known.

        >>> net = MODELS["mlp"].build({"inputs": 3, "outputs": 2, "hidden": (), "vocab": 256})
        >>> sum(p.numel() for p in net.parameters())  # 3 * 2 + 2
        8
        """
        return self.function(**{name: known[name] for name in self.takes})


_LANGUAGE = {"reads": ("tokens",), "takes": ("vocab", "context")}

MODELS: dict[str, ModelRow] = {
    "alexnet": ModelRow(alexnet),
    "densenet121": ModelRow(densenet121),
    "frn_cnn": ModelRow(frn_cnn),
    "gpt2_3m": ModelRow(gpt2_3m, **_LANGUAGE),
    "gpt2_10m": ModelRow(gpt2_10m, **_LANGUAGE),
    "gpt2_125m": ModelRow(gpt2_125m, **_LANGUAGE),
    "gpt2_355m": ModelRow(gpt2_355m, **_LANGUAGE),
    "gpt2_773m": ModelRow(gpt2_773m, **_LANGUAGE),
    "gpt2_tiny": ModelRow(gpt2_tiny, **_LANGUAGE),
    "gru": ModelRow(gru, reads=("text",), takes=("classes", "vocab")),
    "lenet": ModelRow(lenet, takes=("classes", "channels")),
    "mlp": ModelRow(mlp, reads=("image", "table"), takes=("inputs", "outputs", "hidden")),
    "preresnet110": ModelRow(preresnet110),
    "pretrained": ModelRow(pretrained, reads=("text",), takes=("path", "outputs", "head_dropout")),
    "resnet18": ModelRow(resnet18),
    "resnet20": ModelRow(resnet20),
    "resnet20_swish": ModelRow(resnet20_swish),
    "resnet50": ModelRow(resnet50),
    "small_cnn": ModelRow(small_cnn, takes=("classes", "channels")),
}
