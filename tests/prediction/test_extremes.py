"""Examples to look at, chosen by numbers known by hand."""

import torch

from varlearn.prediction import Predictions, RegressionPredictions, TokenPredictions
from varlearn.prediction.extremes import loss_per_example, most_uncertain, worst


def test_classes() -> None:
    right = torch.tensor([0.9, 0.5, 0.1, 0.6])
    found = Predictions(torch.stack([right, 1 - right], 1).log(), torch.zeros(4).long(), torch.zeros(4), torch.ones(1))
    assert most_uncertain(found, 2) == [1, 3]
    assert worst(found, 2) == [2, 1]
    assert len(worst(found, 100)) == 4


def test_numbers() -> None:
    one = torch.tensor([1.0, 3.0, 2.0])
    found = RegressionPredictions(one, one, one, one, -one.flip(0), torch.ones(1))
    assert most_uncertain(found, 2) == [1, 2]
    assert worst(found, 1) == [1]
    unknown = RegressionPredictions(one, one, one, None, None, torch.ones(1))
    assert worst(unknown) == []


def test_texts_are_ranked_by_their_loss_per_token() -> None:
    log_probs, sequences = torch.tensor([-1.0, -1.0, -1.5]), torch.tensor([0, 0, 1])
    found = TokenPredictions(log_probs, torch.zeros(3), sequences, torch.ones(1))
    losses = loss_per_example(found)
    assert losses is not None
    assert losses.tolist() == [1.0, 1.5]
    assert worst(found) == [1, 0]
    assert most_uncertain(found) == []


def test_several_predictions_per_example_have_no_order() -> None:
    halves = torch.full((2, 3, 2), 0.5).log()
    found = Predictions(halves, torch.zeros(2, 3).long(), torch.zeros(2, 3), torch.ones(1))
    assert most_uncertain(found) == worst(found) == []
