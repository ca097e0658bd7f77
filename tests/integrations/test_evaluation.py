"""Averages of passes, against formulas written out by hand."""

import math

import pytest
import torch

from varlearn.integrations.evaluation import Average, kind_of, summary


def test_kinds() -> None:
    tokens = torch.zeros(2, 5, dtype=torch.long)
    assert kind_of(torch.zeros(2, 5, 9), tokens, vocabulary=9) == "tokens"
    assert kind_of(torch.zeros(2, 5, 9), tokens, vocabulary=30) == "classes"  # say, named entities
    assert kind_of(torch.zeros(2, 5, 9), None, vocabulary=9) == "classes"
    assert kind_of(torch.zeros(2, 1), None, vocabulary=9) == "values"
    assert kind_of(torch.zeros(2, 1), torch.zeros(2, 1), vocabulary=9) == "values"
    with pytest.raises(ValueError, match=r"labels of shape \(2, 3\).*several labels per example.*posterior_samples=0"):
        kind_of(torch.zeros(2, 3), torch.zeros(2, 3), vocabulary=None)


@pytest.mark.parametrize("shift", [False, True])
def test_tokens(shift: bool) -> None:
    logits = torch.randn(3, 4, 5, dtype=torch.bfloat16)
    labels = torch.tensor([[1, 2, -100, 4], [0, 0, 0, 0], [-100, -100, -100, -100]])
    got = summary(logits, labels, "tokens", shift)
    assert got.dtype == torch.float32
    for row in range(3):
        for column in range(got.shape[1]):
            label = int(labels[row, column + shift])
            probabilities = torch.softmax(logits[row, column].float(), -1)
            expected = 0.0 if label == -100 else math.log(probabilities[label])
            assert got[row, column].item() == pytest.approx(expected, abs=1e-5)


def test_the_loss_of_tokens_is_a_mean_over_those_scored() -> None:
    labels = torch.tensor([[7, 1, -100], [7, 2, 3]])
    average = Average("tokens", shift=True)
    for probability in (0.5, 0.25):
        average.add(torch.full((2, 2), probability).log(), labels, weight=0.5)
    assert average.loss() == pytest.approx(-math.log(0.375))
    average.predictions[0, 1] = 1000.0  # what is not scored does not count
    assert average.loss() == pytest.approx(-math.log(0.375))


def test_weights_of_a_mixture() -> None:
    average = Average("classes", shift=False)
    average.add(torch.tensor([[0.8, 0.2]]).log(), torch.tensor([1]), weight=0.75)
    average.add(torch.tensor([[0.4, 0.6]]).log(), torch.tensor([1]), weight=0.25)
    assert average.loss() == pytest.approx(-math.log(0.3))
    torch.testing.assert_close(average.predictions.exp(), torch.tensor([[0.7, 0.3]]))


def test_classes_of_tokens_with_ignored_labels() -> None:
    average = Average("classes", shift=False)
    probs = torch.tensor([[[0.5, 0.5], [0.1, 0.9]]])
    average.add(probs.log(), torch.tensor([[0, -100]]), weight=1.0)
    assert average.loss() == pytest.approx(math.log(2.0))


def test_values_and_no_labels() -> None:
    average = Average("values", shift=False)
    average.add(torch.tensor([[1.0], [2.0]]), torch.tensor([2.0, 2.0]), weight=0.5)
    average.add(torch.tensor([[3.0], [4.0]]), torch.tensor([2.0, 2.0]), weight=0.5)
    assert average.predictions.tolist() == [[2.0], [3.0]]
    assert average.loss() == pytest.approx(0.5)
    average.add(torch.zeros(2, 1), None, weight=0.0)
    assert average.loss() is None


def test_passes_in_different_orders_are_refused() -> None:
    average = Average("classes", shift=False, labels=[0, 1])
    average.add(torch.zeros(2, 2), [0, 1], weight=0.5)
    with pytest.raises(ValueError, match="two passes .* in different orders.*posterior_samples=0"):
        average.add(torch.zeros(2, 2), [1, 0], weight=0.5)
