"""Layers of every kind against dense Jacobians in float64, also those that vmap or forward mode does not know."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint

import varlearn
from varlearn.posterior import DiagGaussian

CLASSES = 3
LABELS = torch.tensor([0, 2, 1, 1, 0])
WORDS = torch.tensor([[1, 2, 3, 4], [5, 1, 0, 0], [2, 2, 6, 0], [7, 0, 0, 0], [3, 8, 1, 0]])


class Square(torch.autograd.Function):
    """In the old style, without rules for functional transforms."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * grads[0]


class SquareOnce(Square):
    """The same without a second derivative."""

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return 2 * ctx.saved_tensors[0] * grads[0]


class Identity(torch.autograd.Function):
    """The identity, in the old style."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0].clone()


class Calls(nn.Module):
    """Layers, and a function that calls them."""

    def __init__(self, call: Callable[..., Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self.call, self.layer = call, nn.ModuleDict(layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.call(self.layer, x)


def packed(layer: Any, words: Tensor) -> Tensor:
    lengths = (words > 0).sum(1).cpu()
    rows = pack_padded_sequence(layer["table"](words), lengths, batch_first=True, enforce_sorted=False)
    return layer["head"](layer["gru"](rows)[1][-1])


def recomputed(layer: Any, x: Tensor) -> Tensor:
    return layer["head"](checkpoint(lambda values: torch.tanh(layer["first"](values)), x, use_reentrant=False))


def branching(layer: Any, x: Tensor) -> Tensor:
    return layer["head"](torch.tanh(x) if x.sum() > 0 else x)


def custom(layer: Any, x: Tensor, square: Any = Square) -> Tensor:
    return layer["head"](square.apply(layer["first"](x)))


def bag(mode: str) -> nn.Module:
    return nn.Sequential(nn.EmbeddingBag(9, 4, mode=mode, padding_idx=0), nn.Linear(4, CLASSES))


def two_layers(call: Callable[..., Tensor]) -> nn.Module:
    return Calls(call, first=nn.Linear(4, 5), head=nn.Linear(5, CLASSES))


def case(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(5, 4).double()
    match name:
        case "packed sequences":
            return Calls(
                packed,
                table=nn.Embedding(9, 4),
                gru=nn.GRU(4, 5, batch_first=True),
                head=nn.Linear(5, CLASSES),
            ), WORDS
        case "checkpointed":
            return two_layers(recomputed), x
        case "branch":
            return Calls(branching, head=nn.Linear(4, CLASSES)), x
        case "custom function":
            return two_layers(custom), x
        case "weight norm":
            normed = nn.utils.parametrizations.weight_norm(nn.Linear(4, 6))
            return nn.Sequential(normed, nn.Tanh(), nn.Linear(6, CLASSES)), x
        case "layer norm":
            return nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.GELU(), nn.Linear(6, CLASSES)), x
        case _:
            return bag(name.removesuffix(" bag")), WORDS


def posterior_of(model: nn.Module) -> DiagGaussian:
    generator = torch.Generator().manual_seed(1)
    mean = {name: value.detach().clone() for name, value in model.named_parameters()}
    hess = {name: 0.2 + torch.rand(value.shape, generator=generator).to(value) for name, value in mean.items()}
    return DiagGaussian(mean, hess, ess=20.0, weight_decay=0.1)


def dense(model: nn.Module, q: DiagGaussian, inputs: Tensor) -> tuple[Tensor, Tensor]:
    """f, shape (N, C), and V, (N, C, C), by a backward pass per output."""
    params = [dict(model.named_parameters())[name] for name in q.mean]
    variance = torch.cat([q.std[name].flatten() for name in q.mean]).square()
    outputs, v = [], []
    for i in range(len(inputs)):
        f = model(inputs[i : i + 1])[0]
        grads = [torch.autograd.grad(value, params, retain_graph=True) for value in f]
        jacobian = torch.stack([torch.cat([part.flatten() for part in grad]) for grad in grads])
        outputs.append(f.detach())
        v.append((jacobian * variance) @ jacobian.T)
    return torch.stack(outputs), torch.stack(v)


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "packed sequences",
        "checkpointed",
        "branch",
        "custom function",
        "weight norm",
        "layer norm",
        "sum bag",
        "mean bag",
        "max bag",
    ],
)
def test_any_layer_has_the_deviation_of_the_dense_jacobian(name: str, diagonal: bool) -> None:
    model, inputs = case(name)
    model = model.double().eval()
    q = posterior_of(model)
    f, v = dense(model, q, inputs)
    e = f.softmax(-1) - F.one_hot(LABELS, CLASSES)
    expected = v.diagonal(dim1=1, dim2=2) * e if diagonal else (v @ e.unsqueeze(-1)).squeeze(-1)
    found = varlearn.sensitivity(model, q, [(inputs, LABELS)], diagonal=diagonal)
    torch.testing.assert_close(found.deviation, expected, rtol=1e-10, atol=1e-10)
    assert expected.abs().max() > 1e-2


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
@pytest.mark.parametrize("per", ["sequence", "token"])
def test_language_models_may_have_such_layers_too(per: Any) -> None:
    tokens = torch.randint(7, (2, 5))
    plain = nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 5), nn.Linear(5, 7)).double()
    same = Calls(lambda layer, x: layer["head"](Identity.apply(layer["first"](layer["table"](x)))))
    same.layer.update({"table": plain[0], "first": plain[1], "head": plain[2]})
    names = dict(zip(dict(same.named_parameters()), dict(plain.named_parameters()), strict=True))
    q = posterior_of(plain)
    renamed = DiagGaussian(*({new: part[old] for new, old in names.items()} for part in (q.mean, q.hess)), ess=20.0)
    q = DiagGaussian(q.mean, q.hess, ess=20.0)
    expected = varlearn.sensitivity(plain, q, [(tokens, tokens)], per=per)
    found = varlearn.sensitivity(same, renamed, [(tokens, tokens)], per=per)
    torch.testing.assert_close(found.token_loo_loss, expected.token_loo_loss, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found.token_score, expected.token_score, rtol=1e-10, atol=1e-10)


def test_a_layer_without_second_derivative_is_refused_not_left_out() -> None:
    model = two_layers(lambda layer, x: custom(layer, x, SquareOnce)).double()
    with pytest.raises(ValueError, match="neither a forward-mode nor a second derivative"):
        varlearn.sensitivity(model, posterior_of(model), [(torch.randn(5, 4).double(), LABELS)])


def test_random_layers_are_noticed_where_vmap_does_not_name_them() -> None:
    model = two_layers(lambda layer, x: custom(layer, F.dropout(x, 0.5)))
    branches = Calls(lambda layer, x: F.dropout(branching(layer, x), 0.5), head=nn.Linear(4, CLASSES))
    for random in (model.double(), branches.double()):
        with pytest.raises(ValueError, match="draws random numbers"):
            varlearn.sensitivity(random, posterior_of(random), [(torch.randn(5, 4).double(), LABELS)])
