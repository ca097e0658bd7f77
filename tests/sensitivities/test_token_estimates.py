"""Language models: each token or each sequence left out, against dense Jacobians in float64."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import varlearn
from varlearn.models import GPT2
from varlearn.posterior import DiagGaussian

VOCAB, LENGTH = 7, 5


class Recurrent(nn.Module):
    """Predicts the next token with an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.lstm = nn.Embedding(VOCAB, 3), nn.LSTM(3, 4, batch_first=True)
        self.head = nn.Linear(4, VOCAB)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.lstm(self.tokens(tokens))[0])


def language_model(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name == "lstm":
        return Recurrent().double().eval()
    return GPT2(layers=1, heads=2, width=4, vocab=VOCAB, context=LENGTH).double().eval()


def posterior_of(model: nn.Module) -> DiagGaussian:
    generator = torch.Generator().manual_seed(1)
    mean = {name: value.detach().clone() for name, value in model.named_parameters()}
    hess = {name: 0.5 + torch.rand(value.shape, generator=generator).to(value) for name, value in mean.items()}
    return DiagGaussian(mean, hess, ess=20.0)


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(VOCAB, (3, LENGTH + 1), generator=generator)
    targets = tokens[:, 1:].clone()
    targets[1, 3:] = -100  # padding
    return tokens[:, :-1], targets


def dense(model: nn.Module, q: DiagGaussian, inputs: Tensor, targets: Tensor, per: str) -> tuple[Tensor, Tensor]:
    """f and V e of one sequence, (T, V) each."""
    params = [dict(model.named_parameters())[name] for name in q.mean]
    f = model(inputs[None])[0]
    rows = [torch.autograd.grad(value, params, retain_graph=True) for value in f.flatten()]
    jacobian = torch.stack([torch.cat([part.flatten() for part in row]) for row in rows])  # (T V, P)
    variance = torch.cat([q.std[name].flatten() for name in q.mean]).square()
    kept = targets != -100
    e = (f.detach().softmax(-1) - F.one_hot(targets.clamp(min=0), VOCAB)) * kept[:, None]
    v = (jacobian * variance) @ jacobian.T
    if per == "sequence":
        return f.detach(), (v @ e.flatten()).view_as(f)
    blocks = v.view(LENGTH, VOCAB, LENGTH, VOCAB)
    return f.detach(), torch.stack([blocks[t, :, t, :] @ e[t] for t in range(LENGTH)])


@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("per", ["sequence", "token"])
@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_tokens_and_sequences_are_left_out_as_the_dense_jacobian_says(name: str, per: Any, chunk: int | None) -> None:
    model, (inputs, targets) = language_model(name), batch()
    q = posterior_of(model)
    found = varlearn.sensitivity(model, q, [(inputs, targets)], per=per, chunk=chunk)
    for i in range(len(inputs)):
        f, deviation = dense(model, q, inputs[i], targets[i], per)
        kept = targets[i] != -100
        loo = F.cross_entropy(f + deviation, targets[i], reduction="none")
        torch.testing.assert_close(found.token_loo_loss[i], loo, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(found.token_loss[i], F.cross_entropy(f, targets[i], reduction="none"))
        torch.testing.assert_close(found.token_paper_score[i], deviation.abs().sum(1) * kept, rtol=1e-9, atol=1e-10)
        p = f.softmax(-1)
        shift = p * (deviation - (p * deviation).sum(-1, keepdim=True))
        torch.testing.assert_close(found.token_score[i], shift.abs().sum(1) * kept, rtol=1e-9, atol=1e-10)
        assert found.loo_loss[i] == pytest.approx(float(loo.sum() / kept.sum()))
    assert found.tokens.tolist() == [5, 3, 5]
    assert found.ids.tolist() == [0, 1, 2]
    assert f"leave-one-{per}-out" in repr(found)


def test_the_loss_of_a_token_rises_when_it_is_left_out() -> None:
    model = language_model("gpt")
    found = varlearn.sensitivity(model, posterior_of(model), [batch()], per="token")
    assert (found.token_loo_loss >= found.token_loss).all()  # its own block of V is positive definite


def test_labels_that_are_the_inputs_are_shifted() -> None:
    model = language_model("gpt")
    q, (inputs, _) = posterior_of(model), batch()
    shifted = varlearn.sensitivity(model, q, [{"tokens": inputs, "labels": inputs}], per="sequence", shift=True)
    targets = torch.cat([inputs[:, 1:], torch.full((3, 1), -100)], 1)
    plain = varlearn.sensitivity(model, q, [(inputs, targets)], per="sequence")
    torch.testing.assert_close(shifted.token_loo_loss, plain.token_loo_loss)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "outputs of shape .1, 5, 7. for one example must be"),
        ({"per": "word"}, "per='word' must be"),
        ({"per": "token", "diagonal": True}, "diagonal=True has one backward pass per logit"),
    ],
)
def test_wrong_use_is_refused(settings: dict[str, Any], message: str) -> None:
    model = language_model("gpt")
    with pytest.raises(ValueError, match=message):
        varlearn.sensitivity(model, posterior_of(model), [batch()], **settings)


def test_targets_that_do_not_fit_are_refused() -> None:
    model = language_model("gpt")
    q, (inputs, targets) = posterior_of(model), batch()
    with pytest.raises(ValueError, match="must be .B, T."):
        varlearn.sensitivity(model, q, [(inputs, targets[:, 0])], per="sequence")
    with pytest.raises(ValueError, match="label 9 of example 0"):
        varlearn.sensitivity(model, q, [(inputs, torch.full_like(targets, 9))], per="sequence")
