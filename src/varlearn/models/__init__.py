"""Models of the paper's experiments, one file each, from functions that build them: `resnet20(classes=10)`.

Image models take images (B, C, H, W) of any memory format, hold their weights in channels_last and return logits; text
models take tokens (B, T). None keeps a buffer or draws a random number when called, so the weights are all there is to
a model's function. All build on the meta device (`with torch.device("meta")`). To compile a deep one, compile its
blocks, of which few differ: `for block in model.blocks: block.compile(dynamic=False)`.
"""

from varlearn.models.alexnet import alexnet
from varlearn.models.densenet121 import densenet121
from varlearn.models.frn import FilterResponseNorm
from varlearn.models.frn_cnn import frn_cnn
from varlearn.models.gpt2 import GPT2, gpt2_3m, gpt2_10m, gpt2_125m, gpt2_355m, gpt2_773m, gpt2_tiny
from varlearn.models.gru import gru
from varlearn.models.lenet import lenet
from varlearn.models.mlp import mlp
from varlearn.models.model_table import MODELS
from varlearn.models.preresnet110 import preresnet110
from varlearn.models.pretrained import pretrained
from varlearn.models.resnet18 import resnet18
from varlearn.models.resnet20 import resnet20, resnet20_swish
from varlearn.models.resnet50 import resnet50
from varlearn.models.small_cnn import small_cnn

__all__ = [
    "GPT2",
    "MODELS",
    "FilterResponseNorm",
    "alexnet",
    "densenet121",
    "frn_cnn",
    "gpt2_3m",
    "gpt2_10m",
    "gpt2_125m",
    "gpt2_355m",
    "gpt2_773m",
    "gpt2_tiny",
    "gru",
    "lenet",
    "mlp",
    "preresnet110",
    "pretrained",
    "resnet18",
    "resnet20",
    "resnet20_swish",
    "resnet50",
    "small_cnn",
]
