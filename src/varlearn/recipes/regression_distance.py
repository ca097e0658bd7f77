"""The competition's distance on regressions: 1,000 draws of IVON's predictive against draws of NUTS."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from varlearn.data.posteriordb import NAMES, reference_regression
from varlearn.metrics import w2, w2_competition
from varlearn.optim import IVON
from varlearn.posterior import DiagGaussian
from varlearn.prediction import predict_regression
from varlearn.recipes.study_sheet import Sheet

DRAWS = 1_000  # of the paper's UCI part
STEPS = 3_000


def regression_distance(name: str, seed: int = 0, steps: int = STEPS) -> dict[str, Any]:
    """Distances of the fitted values X beta, in standard deviations of the reference, mean over the examples.

    IVON starts at the least-squares fit, with twice the curvature of the answer: the question is which Gaussian it
    settles on. Beside it stand its mean alone, and the best Gaussian with a diagonal precision.

    Args:
        name: of `varlearn.data.posteriordb`.
        seed: of the noise.
        steps: of training.
    """
    inputs, targets, draws = reference_regression(name)
    reference = draws[:, :-1] @ inputs.T
    noise = draws[:, -1].mean().item()
    features = inputs / inputs.square().mean(0).sqrt()
    fit = torch.linalg.lstsq(features, targets[:, None]).solution.T
    with torch.random.fork_rng(devices=[]):
        net = nn.Linear(inputs.shape[1], 1, bias=False).double()
    with torch.no_grad():
        net.weight.copy_(fit)
    opt = IVON(
        net.parameters(),
        lr=0.02,
        ess=float(len(targets)),
        hess_init=2.0 / noise**2,
        betas=(0.9, 0.998),
        weight_decay=1e-9,
        rescale_lr=False,
        seed=seed,
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    for _ in range(steps):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            ((net(features)[:, 0] - targets).square().mean() / (2 * noise**2)).backward()
        opt.step()
        schedule.step()
    learned = DiagGaussian.from_optimizer(net, opt)
    exact = DiagGaussian(
        {"weight": fit}, {"weight": torch.full_like(fit, 1.0 / noise**2)}, ess=float(len(targets)), weight_decay=0.0
    )
    spread = reference.std(0)
    values: dict[str, Any] = {"examples": len(targets), "draws": DRAWS}
    for label, posterior in (("ivon", learned), ("ivon@mean", learned.at_mean()), ("diagonal", exact)):
        found = predict_regression(
            net, posterior, [features], samples=DRAWS, seed=seed, noise_variance=0.0, keep_samples=True, progress=False
        )
        assert found.sample_means is not None
        mine, theirs = found.sample_means[:, :, 0] / spread, reference[::10] / spread
        values[label] = {"w2_competition": w2_competition(mine, theirs), "w2": w2(mine, theirs)}
    assert all(math.isfinite(values["ivon"][key]) for key in ("w2_competition", "w2"))
    return values


def regression_sheet() -> Sheet:
    """A row for each regression that is at hand."""
    rows = []
    for name in NAMES:
        found = regression_distance(name)
        for label in ("ivon", "ivon@mean", "diagonal"):
            title = {"ivon": "IVON", "ivon@mean": "IVON@mean", "diagonal": "best diagonal precision"}[label]
            passes = "1 draw" if label == "ivon@mean" else f"{found['draws']:,} draws"
            cells = [f"{found[label][key]:.3f}" for key in ("w2_competition", "w2")]
            rows.append([name if label == "ivon" else "", title, passes, *cells])
    columns = ["regression", "", "", "the competition's W2 (a W1)", "W2"]
    return Sheet("posteriordb: distance to NUTS, in standard deviations", columns, rows, 2)
