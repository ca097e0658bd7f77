"""GPT-2 against its equations in NumPy, and what makes it a language model."""

import math

import numpy as np
import pytest
import torch
from scipy.special import erf, softmax
from torch.nn.functional import cross_entropy

from varlearn.models import GPT2, gpt2_3m, gpt2_10m, gpt2_125m, gpt2_355m, gpt2_773m, gpt2_tiny


def normalize(x, weight):
    centred = x - x.mean(-1, keepdims=True)
    return weight * centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def equations(model, tokens, heads):
    """The logits (T, V) of one sequence, head by head and position by position."""
    weights = {name: value.detach().double().numpy() for name, value in model.state_dict().items()}
    x = weights["tokens.weight"][tokens] + weights["positions.weight"][: len(tokens)]
    width = x.shape[1] // heads
    for layer in range(len(model.blocks)):
        get = {name.split(".", 2)[2]: w for name, w in weights.items() if name.startswith(f"blocks.{layer}.")}
        q, k, v = np.split(normalize(x, get["attention_norm.weight"]) @ get["attention.qkv.weight"].T, 3, axis=1)
        mixed = np.zeros_like(x)
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            for t in range(len(tokens)):
                share = softmax(k[: t + 1, part] @ q[t, part] / math.sqrt(width))
                mixed[t, part] = share @ v[: t + 1, part]
        x = x + mixed @ get["attention.out.weight"].T
        inner = normalize(x, get["feedforward_norm.weight"]) @ get["feedforward.inner.weight"].T
        x = x + (inner * (1 + erf(inner / math.sqrt(2))) / 2) @ get["feedforward.out.weight"].T
    return normalize(x, weights["norm.weight"]) @ weights["tokens.weight"].T


@pytest.mark.parametrize(
    ("build", "layers", "heads", "width"),
    [
        (gpt2_125m, 12, 12, 768),
        (gpt2_355m, 24, 16, 1024),
        (gpt2_773m, 36, 20, 1280),
        (gpt2_10m, 8, 5, 320),
        (gpt2_3m, 4, 4, 256),
        (gpt2_tiny, 2, 2, 32),
    ],
)
def test_sizes(build, layers, heads, width):
    with torch.device("meta"):
        model = build(vocab=10, context=7)
    assert len(model.blocks) == layers
    assert model.blocks[0].attention.heads == heads
    assert (model.tokens.weight.shape, model.positions.weight.shape) == ((10, width), (7, width))


def test_equals_the_equations():
    model = GPT2(layers=2, heads=3, width=12, vocab=11, context=8).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    tokens = torch.randint(0, 11, (2, 7))
    for logits, row in zip(model(tokens), tokens, strict=True):
        np.testing.assert_allclose(
            logits.detach().numpy(), equations(model, row.numpy(), heads=3), rtol=1e-9, atol=1e-9
        )


@torch.no_grad()
def test_the_future_is_unseen_and_the_past_is_seen():
    model = gpt2_tiny()
    tokens = torch.randint(0, 255, (1, 10))
    changed = tokens.clone()
    changed[0, 6] += 1
    before, after = model(tokens)[0], model(changed)[0]
    torch.testing.assert_close(before[:6], after[:6])
    assert ((before - after)[6:].abs().amax(dim=1) > 1e-3).all()


def test_first_weights():
    model = gpt2_10m()
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            assert (weight == 1).all(), name
            continue
        std = 0.02 / math.sqrt(16) if name.endswith("out.weight") else 0.02
        error = std / math.sqrt(weight.numel())  # of the mean; that of the standard deviation is smaller by sqrt(2)
        assert abs(weight.mean().item()) < 5 * error, name
        assert abs(weight.std().item() - std) < 5 * error, name


@torch.no_grad()
def test_first_loss_is_that_of_guessing():
    tokens = torch.randint(0, 256, (4, 33))
    logits = gpt2_tiny()(tokens[:, :-1])
    assert cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).item() == pytest.approx(math.log(256), abs=0.05)


def test_no_bias_and_the_embedding_is_stored_once():
    model = gpt2_tiny()
    assert not [name for name in model.state_dict() if "bias" in name]
    assert len(model.state_dict()) == len(list(model.parameters()))
    model(torch.tensor([[1, 2, 3]])).logsumexp(-1).sum().backward()
    assert model.tokens.weight.grad is not None
    assert model.tokens.weight.grad[200].any(), "a token that was not read gets its gradient as an output"


@torch.no_grad()
def test_shorter_sequences_are_prefixes():
    model = gpt2_tiny()
    tokens = torch.randint(0, 256, (2, 20))
    torch.testing.assert_close(model(tokens)[:, :5], model(tokens[:, :5]))


def test_errors_name_value_rule_and_cure():
    with pytest.raises(ValueError, match="width=10 must be a multiple of heads=3; choose heads that divide it"):
        GPT2(layers=1, heads=3, width=10, vocab=5, context=4)
    with pytest.raises(ValueError, match="length 65 must be <= context=64; shorten the text or enlarge context"):
        gpt2_tiny()(torch.zeros(1, 65, dtype=torch.long))
