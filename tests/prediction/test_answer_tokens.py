"""A language model as a classifier over the tokens of the answers."""

import pytest
import torch
from torch import nn

from varlearn.posterior import DiagGaussian, Point
from varlearn.prediction import AnswerTokens, answer_logits, predict

ANSWERS = (4, 1)


@pytest.fixture
def gaussian() -> DiagGaussian:
    return DiagGaussian({"weight": torch.randn(5, 5)}, {"weight": torch.full((5, 5), 1.0)}, ess=4.0)


def test_the_average_is_that_of_a_loop_by_hand(gaussian: DiagGaussian) -> None:
    net, questions = nn.Embedding(5, 5), torch.tensor([[0, 1, 2], [3, 3, 3]])
    found = predict(net, AnswerTokens(gaussian, ANSWERS), [(questions, torch.tensor([0, 1]))], samples=6, seed=3)
    by_hand = []
    for index in range(6):
        weight = gaussian.sample(3, index)["weight"]
        by_hand.append(torch.softmax(weight[questions[:, -1]][:, list(ANSWERS)], -1))
    torch.testing.assert_close(found.log_probs.exp(), torch.stack(by_hand).mean(0))
    assert found.mutual_information.min() > 0


def test_the_last_token_is_found_on_either_side_and_in_short_logits() -> None:
    logits = torch.arange(24.0).view(2, 4, 3)
    right = {"attention_mask": torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])}
    left = {"attention_mask": torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])}
    assert answer_logits(logits, right, (0, 2)).tolist() == [[3.0, 5.0], [21.0, 23.0]]
    assert answer_logits(logits, left, (0, 2)).tolist() == [[9.0, 11.0], [21.0, 23.0]]
    assert answer_logits(logits[:, -1:], left, (2, 0)).tolist() == [[11.0, 9.0], [23.0, 21.0]]
    with pytest.raises(ValueError, match="pad them on the left"):
        answer_logits(logits[:, -1:], right, (0, 2))


@pytest.mark.parametrize("answers", [(1,), (), (2, 2)])
def test_answers_that_cannot_be_told_apart_are_refused(answers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="must be two or more different tokens"):
        AnswerTokens(Point({"weight": torch.zeros(5, 5)}), answers)
