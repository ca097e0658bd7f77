"""The demo, small and whole."""

import statistics

import pytest
import torch
from torch.optim import AdamW

from varlearn import demo

LEARNING_RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)


def test_the_network_has_the_stated_size() -> None:
    assert sum(param.numel() for param in demo.network().parameters()) == 15_338


def test_a_small_run_prints_a_row_for_each_method(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--steps", "30", "--seeds", "1", "--samples", "4"]) == 0
    out = capsys.readouterr().out
    assert [row in out for row in ("AdamW", "IVON at the mean", "IVON, 4 samples")] == [True] * 3


@pytest.mark.parametrize("name", ["steps", "seeds", "samples"])
def test_wrong_numbers_are_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        demo.main([f"--{name}", "0"])
    assert "must be at least 1" in capsys.readouterr().err


@pytest.mark.slow
def test_auto_beats_adamw_at_its_best_learning_rate() -> None:
    """Untuned, over 5 seeds: lower NLL, and no lower accuracy, averaged over samples and at the mean."""
    torch.set_num_threads(2)
    train, test = demo.load_digits()
    seeds = 5
    adamw = {
        lr: [
            demo.at_mean(demo.fit(lambda model, lr=lr: AdamW(model.parameters(), lr=lr), train, 1_200, seed)[0], test)
            for seed in range(seeds)
        ]
        for lr in LEARNING_RATES
    }

    def mean(runs: list[demo.Scores], metric: str) -> float:
        return statistics.fmean(run[metric] for run in runs)

    best_lr = min(adamw, key=lambda lr: mean(adamw[lr], "nll"))
    assert best_lr == demo.ADAMW_LR
    rows = demo.compare(steps=1_200, seeds=seeds, samples=64)
    for name, runs in rows.items():
        if name.startswith("IVON"):
            assert mean(runs, "nll") < mean(adamw[best_lr], "nll"), name
            assert mean(runs, "accuracy") >= max(mean(runs, "accuracy") for runs in adamw.values()), name
