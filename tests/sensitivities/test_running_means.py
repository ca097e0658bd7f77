"""The tracker: means per id over updates in any order and selection."""

import pytest
import torch
from torch import Tensor

from varlearn import Sensitivity, SensitivityTracker, TokenSensitivity


def found(ids: list[int], logits: Tensor, labels: list[int] | None = None) -> Sensitivity:
    targets = torch.tensor(labels if labels is not None else [i % 3 for i in ids])
    deviation = logits / 10
    return Sensitivity(torch.tensor(ids), targets, logits, logits, deviation, deviation.abs().sum(1))


def test_means_are_those_of_each_examples_own_updates() -> None:
    tracker = SensitivityTracker()
    first, second, third = (torch.randn(n, 3) for n in (3, 2, 3))
    updates = [found([5, 1, 9], first), found([9, 2], second), found([1, 9, 5], third)]
    for one in updates:
        tracker.update(one)
    assert tracker.ids.tolist() == [1, 2, 5, 9]
    assert tracker.counts.tolist() == [2, 1, 2, 3]
    for name in ("score", "paper_score", "loss", "loo_loss", "loo_probs"):
        for row, example in enumerate(tracker.ids.tolist()):
            values = [
                getattr(one, name)[one.ids.tolist().index(example)] for one in updates if example in one.ids.tolist()
            ]
            mean = torch.stack(values).double().mean(0)
            torch.testing.assert_close(getattr(tracker, name)[row].double(), mean, rtol=1e-6, atol=1e-7)
    assert repr(tracker) == "SensitivityTracker of 4 examples, at most 3 updates each"


def test_a_saved_tracker_goes_on_as_if_nothing_had_happened() -> None:
    updates = [found([0, 1], torch.randn(2, 3)), found([1, 2], torch.randn(2, 3)), found([2, 0], torch.randn(2, 3))]
    whole, before, after = SensitivityTracker(), SensitivityTracker(), SensitivityTracker()
    for one in updates:
        whole.update(one)
    before.update(updates[0])
    after.load_state_dict(before.state_dict())
    before.update(updates[0])  # what is loaded is a copy
    for one in updates[1:]:
        after.update(one)
    for name in ("ids", "counts", "score", "loo_probs"):
        assert torch.equal(getattr(after, name), getattr(whole, name))


def test_sequences_are_tracked_by_their_means_over_tokens() -> None:
    values = torch.tensor([[1.0, 3.0]])
    tracker = SensitivityTracker()
    tracker.update(TokenSensitivity(torch.tensor([4]), torch.tensor([[0, 1]]), values, 2 * values, values, values))
    assert (tracker.loss.item(), tracker.loo_loss.item()) == (2.0, 4.0)
    with pytest.raises(ValueError, match="loo_probs is not known"):
        _ = tracker.loo_probs


def test_wrong_use_is_refused_and_changes_nothing() -> None:
    tracker = SensitivityTracker(probs=False)
    with pytest.raises(ValueError, match="score is not known: there was no update"):
        _ = tracker.score
    tracker.update(found([0, 1], torch.randn(2, 3)))
    before = tracker.score.clone()
    with pytest.raises(ValueError, match="id 1 comes twice"):
        tracker.update(found([1, 1], torch.randn(2, 3)))
    with pytest.raises(ValueError, match="label 2 of example 1 was 1 before"):
        tracker.update(found([0, 1], torch.randn(2, 3), [0, 2]))
    zero = torch.zeros(1, 2)
    with pytest.raises(ValueError, match="a tracker belongs to one task"):
        tracker.update(TokenSensitivity(torch.tensor([0]), torch.tensor([[0, 1]]), zero, zero, zero, zero))
    assert torch.equal(tracker.score, before)
    with pytest.raises(ValueError, match="probs=False"):
        _ = tracker.loo_probs
