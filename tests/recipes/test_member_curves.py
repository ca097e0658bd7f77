"""Ensembles from saved predictions, their curves, and deep-ensemble equivalents."""

from __future__ import annotations

import math

import pytest
import torch

from varlearn.metrics import nll
from varlearn.prediction import Predictions
from varlearn.recipes.member_curves import ensemble_equivalent, member_curve, mixed, scores_of


def predictions(logits: torch.Tensor, targets: torch.Tensor | None) -> Predictions:
    log_probs = logits.log_softmax(1)
    entropy = -(log_probs.exp() * log_probs).sum(1)
    return Predictions(log_probs, targets, entropy, torch.ones(1, dtype=torch.float64))


def members(count: int) -> list[dict[str, Predictions]]:
    targets = torch.randint(4, (200,))
    signal = 2.0 * torch.nn.functional.one_hot(targets, 4)
    return [
        {
            "test": predictions(signal + 1.5 * torch.randn(200, 4), targets),
            "away": predictions(torch.randn(150, 4), None),
        }
        for _ in range(count)
    ]


def test_the_mixture_is_the_mean_of_probabilities() -> None:
    made = members(3)
    whole = mixed(made)
    mean = torch.stack([one["test"].log_probs.exp() for one in made]).mean(0)
    assert torch.allclose(whole["test"].log_probs.exp(), mean, atol=1e-6)
    assert whole["test"].sample_weights.sum().item() == pytest.approx(1.0)
    assert (whole["test"].mutual_information > 0).all()
    assert scores_of(whole)["nll"] == pytest.approx(nll(mean.log(), made[0]["test"].targets), abs=1e-6)  # type: ignore[arg-type]


def test_a_curve_averages_over_subsets_and_falls() -> None:
    curve = member_curve(members(4))
    assert [(row["members"], row["subsets"]) for row in curve] == [(1, 4), (2, 6), (3, 4), (4, 1)]
    assert [row["nll"] for row in curve] == sorted((row["nll"] for row in curve), reverse=True)
    assert set(curve[0]["auroc"]) == {"away"}


def test_equivalents_are_members_of_the_curve_itself() -> None:
    curve = [0.9, 0.7, 0.6, 0.55]
    assert [ensemble_equivalent(value, curve) for value in curve] == [1.0, 2.0, 3.0, 4.0]
    assert ensemble_equivalent(0.8, curve) == pytest.approx(1.5)
    assert ensemble_equivalent(2.0, curve) == 1.0
    assert ensemble_equivalent(0.5, curve) == math.inf
    assert ensemble_equivalent(0.65, [0.9, 0.7, 0.75, 0.6]) == math.inf  # a curve that rises is not read further
