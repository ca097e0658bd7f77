"""The Kullback-Leibler divergence between diagonal Gaussians."""

from __future__ import annotations

import torch
from torch import Tensor

from varlearn.core.shards import whole
from varlearn.posterior.gaussian import DiagGaussian
from varlearn.posterior.tensors import check_names


def kl(q: DiagGaussian, p: DiagGaussian) -> Tensor:
    """KL(q || p) = 1/2 sum [ s_p / s_q - 1 + log(s_q / s_p) + s_p (m_q - m_p)^2 ] with precisions s, in nats.

    `kl(q, q.prior())` is the KL term of the variational objective. Weights that both know exactly (`prune`) count 0
    where the means agree, and infinity where they do not.

    Args:
        q: the distribution that the expectation is over.
        p: over the same named tensors.

    Returns:
        A float64 scalar on the CPU, exact sum over all weights.

    >>> q = DiagGaussian({"w": torch.tensor([1.0])}, {"w": torch.tensor([1.0])}, ess=1.0)
    >>> p = DiagGaussian({"w": torch.tensor([0.0])}, {"w": torch.tensor([1.0])}, ess=1.0)
    >>> kl(q, p).item()  # same variance 1, means one apart
    0.5
    """
    for name, value in (("q", q), ("p", p)):
        if not isinstance(value, DiagGaussian):
            raise TypeError(
                f"{name} is a {type(value).__name__}; kl has a closed form for two DiagGaussians only, "
                "estimate it from samples and log_prob instead"
            )
    check_names("p", p.mean, q.mean)
    total = torch.zeros((), dtype=torch.float64)
    q_precision, p_precision = q.precision, p.precision
    for name in q.mean:
        s_q, s_p = q_precision[name].double(), p_precision[name].double()
        offset = q.mean[name].double() - p.mean[name].double()
        terms = 0.5 * (s_p / s_q - 1.0 + (s_q.log() - s_p.log()) + s_p * offset.square())
        both_exact = s_q.isinf() & s_p.isinf()
        terms = torch.where(both_exact, torch.where(offset == 0, 0.0, torch.inf).to(terms), terms)
        # A weight that only p knows exactly is infinitely far from every spread-out q.
        terms = torch.where(s_p.isinf() & ~both_exact, torch.inf, terms)
        total += whole(terms.sum()).cpu()
    return total
