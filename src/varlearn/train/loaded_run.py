"""A finished run, ready to predict: network, posterior, and what predictions are averaged over."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from varlearn import posterior
from varlearn.data.examples import Examples
from varlearn.prediction import predict
from varlearn.train.build import build_batches, build_examples, build_model
from varlearn.train.config import Run
from varlearn.train.evaluate import AVERAGED, Saved, predict_task, sources_of
from varlearn.train.run_errors import RunFolderError
from varlearn.train.run_folder import RunFolder
from varlearn.train.tasks import task_of
from varlearn.types import Posterior, Sampler


@dataclass(frozen=True, eq=False)
class LoadedRun:
    """A run after training.

    Attributes:
        run: its settings.
        model: the network, at the posterior's mean.
        learned: the posterior.
        sources: "mean" and "averaged", see `sources_of`.
        test: its test examples.
    """

    run: Run
    model: nn.Module
    learned: Saved
    sources: dict[str, Posterior | Sampler]
    test: Examples

    def predict(self, examples: Examples, samples: int | None = None, source: str = AVERAGED) -> Any:
        """Predictions for examples of the run's kind.

        Args:
            examples: to predict.
            samples: of the posterior; None for the run's own number.
            source: "averaged" or "mean".
        """
        batches = build_batches(self.run, examples, train=False)
        count = samples or self.run.evaluate.samples
        return predict_task(
            task_of(self.test), self.model, self.sources[source], batches, count, self.run.seed, progress=False
        )

    def each_sample(self, examples: Examples, samples: int) -> torch.Tensor:
        """Log-probabilities of every sample, shape (S, N, C), of a classifier."""
        batches = build_batches(self.run, examples, train=False)
        found = predict(
            self.model, self.sources[AVERAGED], batches, samples, self.run.seed, keep_samples=True, progress=False
        )
        assert found.sample_log_probs is not None
        return found.sample_log_probs


def load_run(out: str | Path, device: torch.device | str | None = None, root: Path | None = None) -> LoadedRun:
    """Load a finished run.

    Args:
        out: its folder.
        device: where to compute; None for a GPU if there is one.
        root: where the data are; None for the usual places.
    """
    folder = RunFolder(Path(out))
    run = folder.read_run()
    if not folder.posterior.exists():
        raise RunFolderError(f"{folder.posterior} is missing: the run is not finished; train or resume it first")
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    test = build_examples(run, "test", root)
    with torch.random.fork_rng(devices=[]):  # the weights drawn here are all replaced
        model = build_model(run, test).to(device)
    learned = posterior.load(folder.posterior, model, device)
    return LoadedRun(run, model, learned, sources_of(run, model, learned, folder.members), test)
