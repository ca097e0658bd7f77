"""Classification: log-probabilities of the averaged predictive, and where its uncertainty comes from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from varlearn.prediction.average import entropy, log_average
from varlearn.prediction.gather import Batches, SampleBatches, as_floats, check_numbers, joined_targets
from varlearn.prediction.loader_batches import Unpack
from varlearn.prediction.sample_curve import SampleCurve
from varlearn.prediction.sample_loop import Request, run
from varlearn.prediction.short_text import ShortText
from varlearn.types import Posterior, Sampler


@dataclass(frozen=True, eq=False, repr=False)
class Predictions(ShortText):
    """The averaged predictive p(y | x) = sum_s w_s p_s(y | x) of N examples over C classes, on the CPU.

    Attributes:
        log_probs: log p(y | x), shape (N, C).
        targets: as the loader gave them, shape (N,), or None.
        expected_entropy: sum_s w_s H[p_s], shape (N,), in nats.
        sample_weights: w_s, shape (S,), summing to 1.
        sample_log_probs: log p_s(y | x) of every sample, shape (S, N, C), if they were asked for.
        seed: of the samples.
        nll_by_samples: NLL of the average over the first s samples, s = 1 .. S, shape (S,); None without targets.

    >>> sure = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]).log()  # two samples that are sure, and disagree
    >>> p = Predictions(torch.tensor([[0.5, 0.5]]).log(), None, torch.zeros(1), torch.tensor([0.5, 0.5]), sure)
    >>> p.predictive_entropy, p.mutual_information  # log 2, all of it from the weights
    (tensor([0.6931]), tensor([0.6931]))
    """

    log_probs: Tensor
    targets: Tensor | None
    expected_entropy: Tensor
    sample_weights: Tensor
    sample_log_probs: Tensor | None = None
    seed: int = 0
    nll_by_samples: Tensor | None = None

    @property
    def predictive_entropy(self) -> Tensor:
        """H[p], the whole uncertainty of the averaged predictive, shape (N,), in nats."""
        return entropy(self.log_probs)

    @property
    def mutual_information(self) -> Tensor:
        """H[p] - sum_s w_s H[p_s] >= 0: how much the samples disagree, i.e. what the weights do not know, in nats."""
        return (self.predictive_entropy - self.expected_entropy).clamp_min(0.0)


def predict(
    model: nn.Module,
    posterior: Posterior | Sampler,
    loader: Iterable[Any],
    samples: int = 64,
    seed: int = 0,
    *,
    keep_samples: bool = False,
    vectorize: bool = False,
    unpack: Unpack | None = None,
    progress: bool | None = None,
) -> Predictions:
    """Average the class probabilities of a model over posterior samples.

    Each sample is written into the model once and runs over the whole loader; memory does not grow with the number of
    samples. Dropout and BatchNorm are in eval mode. Weights, buffers, train flags and the global random state are
    bitwise as before afterwards, also after an exception or Ctrl-C.

    Args:
        model: returns logits (B, ..., C), or an object with `logits`.
        posterior: a posterior; a mixture is averaged component by component, `samples` each. Or a sampler: `Dropout()`,
            `Linearized(posterior)`.
        loader: gives the same batches in every pass: pairs (inputs, targets), mappings with "labels", or inputs alone.
        samples: S, how many samples of each component; a `Point` needs and gets one.
        seed: names the samples: (seed, number) decides each, and more samples extend what fewer would have drawn.
        keep_samples: keep each sample's log-probabilities too, S times the memory.
        vectorize: run several samples at once by vmap; the same numbers to round-off, faster for small models.
        unpack: from a batch to (inputs, targets), for loaders of another form.
        progress: show a bar; None: in a terminal with rich.

    Returns:
        `Predictions`, in the order of the loader.

    >>> from varlearn.posterior import Mixture, Point
    >>> net = nn.Linear(1, 2, bias=False)
    >>> point = Point({"weight": torch.tensor([[0.0], [0.0]])})
    >>> predict(net, Mixture((point, point)), [(torch.ones(1, 1), torch.tensor([0]))]).log_probs.exp()
    tensor([[0.5000, 0.5000]])
    """
    request = Request(samples, seed, vectorize, unpack, progress)
    average = _Average(keep_samples)
    targets, weights = run(model, posterior, loader, average.add, request)
    return Predictions(
        log_probs=average.log_probs.joined(),
        targets=joined_targets(targets),
        expected_entropy=average.entropy.joined(),
        sample_weights=weights,
        sample_log_probs=average.kept.joined() if keep_samples else None,
        seed=seed,
        nll_by_samples=average.curve.nll(),
    )


class _Average:
    """Running averages of each batch."""

    def __init__(self, keep_samples: bool):
        self.log_probs, self.entropy, self.kept = Batches(), Batches(), SampleBatches()
        self.curve = SampleCurve()
        self._keep_samples = keep_samples

    def add(self, batch: int, outputs: Any, targets: Tensor | None, log_weights: Tensor) -> None:
        logits = as_floats(outputs)  # (S, B, ..., C)
        if logits.dim() < 3 or logits.shape[-1] < 2:
            raise ValueError(
                f"outputs of shape {tuple(logits.shape[1:])} must be logits (B, C) with C >= 2 classes; "
                "for one logit z per example return torch.stack([0 * z, z], -1); give a single example as inputs[None]"
            )
        log_probs = torch.log_softmax(logits, -1)
        check_numbers(log_probs, batch)
        self.log_probs[batch] = log_average(log_probs, log_weights, self.log_probs.get(batch))
        entropies = entropy(log_probs)  # (S, B, ...)
        shares = log_weights.exp().to(entropies).view(-1, *[1] * (entropies.dim() - 1))
        expected = (shares * entropies).sum(0)
        self.entropy[batch] = expected if (before := self.entropy.get(batch)) is None else before + expected
        if self._keep_samples:
            self.kept.add(batch, log_probs)
        if targets is not None and _are_classes(targets, log_probs):
            chosen = targets.to(log_probs.device).long().expand(log_probs.shape[:-1]).unsqueeze(-1)
            self.curve.add(batch, log_probs.gather(-1, chosen).flatten(1), log_weights)


def _are_classes(targets: Tensor, log_probs: Tensor) -> bool:
    """Whether each row of log-probabilities (S, B, ..., C) has a target that is the number of a class."""
    if targets.is_floating_point() or targets.shape != log_probs.shape[1:-1]:
        return False
    return bool((targets >= 0).all()) and bool((targets < log_probs.shape[-1]).all())
