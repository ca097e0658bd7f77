import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.func import functional_call

from varlearn.posterior import Mixture
from varlearn.prediction import language_model, predict_tokens

VOCABULARY = 7
TEXT = torch.randint(0, VOCABULARY, (5, 6), generator=torch.Generator().manual_seed(0))
LOADER = [(TEXT[:3, :-1], TEXT[:3, 1:]), (TEXT[3:, :-1], TEXT[3:, 1:])]


class Bigram(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, 4), nn.Linear(4, VOCABULARY)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(input_ids))


@pytest.fixture
def net() -> Bigram:
    return Bigram().double()


def token_log_probs(net: nn.Module, q, indices: range) -> torch.Tensor:
    """log p_s of each next token of TEXT, shape (S, 5, 5)."""
    outputs = [functional_call(net, q.sample(0, index), TEXT[:, :-1]).log_softmax(-1) for index in indices]
    return torch.stack([output.gather(-1, TEXT[:, 1:, None]).squeeze(-1) for output in outputs]).detach()


@pytest.mark.parametrize("vectorize", [False, True])
def test_tokens_of_the_averaged_predictive(net: Bigram, around, vectorize: bool) -> None:
    q = around(net, 0.5)
    result = predict_tokens(net, q, LOADER, samples=9, vectorize=vectorize)
    expected = (token_log_probs(net, q, range(9)).logsumexp(0) - math.log(9)).flatten()
    torch.testing.assert_close(result.log_probs, expected)
    assert torch.equal(result.targets, TEXT[:, 1:].flatten())
    assert result.sequences.tolist() == [row for row in range(5) for _ in range(5)]
    assert result.perplexity == pytest.approx(math.exp(-expected.mean().item()))


def test_shifted_labels_and_padding(net: Bigram, around) -> None:
    q = around(net, 0.5)
    labels = TEXT.clone()
    labels[1, 3:] = -100
    labels[4] = -100
    loader = [{"input_ids": TEXT, "labels": labels}]
    result = predict_tokens(net, q, loader, samples=4, shift=True)
    plain = (token_log_probs(net, q, range(4)).logsumexp(0) - math.log(4))[labels[:, 1:] != -100]
    torch.testing.assert_close(result.log_probs, plain)
    assert result.sequences.tolist() == [0] * 5 + [1] * 2 + [2] * 5 + [3] * 5


def test_batches_of_different_lengths(net: Bigram, around) -> None:
    q = around(net)
    loader = [(TEXT[:2, :3], TEXT[:2, 1:4]), (TEXT[2:, :-1], TEXT[2:, 1:])]
    result = predict_tokens(net, q, loader, samples=2)
    assert len(result.log_probs) == 2 * 3 + 3 * 5
    assert result.sequences[-1].item() == 4


def test_a_batch_without_scored_tokens(net: Bigram, around) -> None:
    ignored = torch.full((2, 5), -100)
    result = predict_tokens(net, around(net), [(TEXT[:2, :-1], ignored), LOADER[0]], samples=2)
    assert len(result.log_probs) == 15
    assert result.sequences.min().item() == 2


def test_few_rows_at_a_time_give_the_same(net: Bigram, around, monkeypatch: pytest.MonkeyPatch) -> None:
    q = around(net)
    whole = predict_tokens(net, q, LOADER, samples=3)
    monkeypatch.setattr(language_model, "_CHUNK", 2 * VOCABULARY)
    torch.testing.assert_close(predict_tokens(net, q, LOADER, samples=3).log_probs, whole.log_probs)


def test_logits_of_hugging_face_and_mixtures(net: Bigram, around) -> None:
    class Wrapped(Bigram):
        def forward(self, input_ids: torch.Tensor) -> SimpleNamespace:
            return SimpleNamespace(logits=super().forward(input_ids))

    model = Wrapped().double()
    q = around(model)
    result = predict_tokens(model, Mixture([q, q]), [{"input_ids": TEXT, "labels": TEXT}], samples=2, shift=True)
    assert len(result.sample_weights) == 4
    assert math.isfinite(result.perplexity)


def test_averaging_beats_the_mean_of_log_probabilities(net: Bigram, around) -> None:
    q = around(net, 2.0)
    result = predict_tokens(net, q, LOADER, samples=8)
    assert (result.log_probs >= token_log_probs(net, q, range(8)).mean(0).flatten() - 1e-12).all()  # Jensen


def test_refusals(net: Bigram, around) -> None:
    q = around(net)
    with pytest.raises(ValueError, match="batch 0 has no targets"):
        predict_tokens(net, q, [TEXT], samples=1)
    with pytest.raises(ValueError, match=r"targets of shape \(3, 4\) for logits of shape \(3, 5, 7\)"):
        predict_tokens(net, q, [(TEXT[:3, :-1], TEXT[:3, 2:])], samples=1)
    with pytest.raises(ValueError, match=r"must be logits of shape \(B, T, V\)"):
        predict_tokens(net, q, [(TEXT[:3, 0], TEXT[:3, 1])], samples=1)
