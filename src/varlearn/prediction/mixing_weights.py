"""Weights of a mixture that are learned from held-out data, by its likelihood."""

from __future__ import annotations

import torch
from torch import Tensor

from varlearn.prediction.predictions_file import AnyPredictions
from varlearn.prediction.regressor import RegressionPredictions


def mixing_weights(log_probs: Tensor, steps: int = 2_000, tolerance: float = 1e-12) -> Tensor:
    r"""The weights that maximize the likelihood of a mixture, $\max_w \frac1N \sum_i \log \sum_k w_k p_{ki}$.

    The objective is concave, and each step of expectation maximization, $w_k \leftarrow \frac1N \sum_i w_k p_{ki} /
    \sum_j w_j p_{ji}$, raises it (stacking of predictive distributions, Yao et al., 2018).

    Args:
        log_probs: log p_ki that member k gives to held-out target i, shape (K, N).
        steps: at most this many.
        tolerance: stop where a step gains less per example.

    Returns:
        w, shape (K,), float64, summing to 1. Members that do not help tend to 0.

    Two members, the first right with .8 and .2, the second with .2 and .8, on three examples of the first kind and one
    of the second: the best first weight solves 3 * .6 / (.2 + .6 w) = .6 / (.8 - .6 w), w = 11/12.

    >>> p = torch.tensor([[0.8, 0.8, 0.8, 0.2], [0.2, 0.2, 0.2, 0.8]])
    >>> mixing_weights(p.log())
    tensor([0.9167, 0.0833], dtype=torch.float64)
    """
    if log_probs.dim() != 2 or not log_probs.numel():
        raise ValueError(f"log_probs of shape {tuple(log_probs.shape)} must be (members, examples), with some of both")
    log_p = log_probs.double()
    if bool((log_p.isnan() | (log_p == torch.inf)).any()):
        raise ValueError("log_probs has NaN or infinity; leave out the member that gives it")
    if bool((log_p.max(0).values == -torch.inf).any()):
        raise ValueError("all members give an example the probability 0, and no weights change that; leave it out")
    log_w = torch.full((len(log_p),), 1.0 / len(log_p), dtype=torch.float64).log()
    before = -torch.inf
    for _ in range(steps):
        joint = log_p + log_w[:, None]
        total = joint.logsumexp(0)
        now = total.mean().item()
        if now - before < tolerance:
            break
        before = now
        log_w = (joint - total).logsumexp(1) - torch.tensor(float(log_p.shape[1])).double().log()
    return log_w.softmax(0)


def target_log_probs(found: AnyPredictions) -> Tensor:
    """log p of each target, shape (N,), of a classification, a regression or a text.

    >>> from varlearn.prediction.classifier import Predictions
    >>> p = Predictions(torch.tensor([[0.25, 0.75]]).log(), torch.tensor([1]), torch.zeros(1), torch.ones(1))
    >>> target_log_probs(p).exp()
    tensor([0.7500])
    """
    if found.targets is None:
        raise ValueError("predictions without targets cannot be judged; predict examples with targets")
    if isinstance(found, RegressionPredictions):
        if found.log_density is None:
            raise ValueError("predictions without log_density cannot be judged; the model must return a variance")
        return found.log_density.flatten()
    if found.log_probs.dim() == 1:
        return found.log_probs  # of a text, of its tokens
    return found.log_probs.gather(1, found.targets.long()[:, None])[:, 0]
