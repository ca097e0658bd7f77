"""The weights that a LoRA adapter adds, s B A, and their variance under a Gaussian over A and B."""

from __future__ import annotations

from torch import Tensor


def product_delta(a: Tensor, b: Tensor, scale: float) -> Tensor:
    """Delta W = s B A.

    Args:
        a: A, shape (r, in).
        b: B, shape (out, r).
        scale: s = alpha / r.

    >>> import torch
    >>> product_delta(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0]]), scale=2.0)
    tensor([[ 6., 12.]])
    """
    return scale * (b @ a)


def product_variance(a: Tensor, var_a: Tensor, b: Tensor, var_b: Tensor, scale: float) -> Tensor:
    """The variance of each entry of s B A for independent entries of A and B, exactly.

    Var(b a) = E[b]^2 Var(a) + Var(b) E[a]^2 + Var(b) Var(a), and the r terms of an entry are independent. Entries of
    one row or column of B A are correlated; this is the marginal variance.

    Args:
        a: mean of A, shape (r, in).
        var_a: its variance.
        b: mean of B, shape (out, r).
        var_b: its variance.
        scale: s.

    >>> import torch
    >>> one = torch.ones(1, 1)
    >>> product_variance(2 * one, 0.5 * one, 3 * one, 0.25 * one, scale=1.0)  # 9 * 0.5 + 0.25 * 4 + 0.25 * 0.5
    tensor([[5.6250]])
    """
    return scale**2 * (b.square() @ var_a + var_b @ (a.square() + var_a))


def product_curvature(a: Tensor, var_a: Tensor, b: Tensor, var_b: Tensor, scale: float) -> Tensor:
    """1 / variance of s B A: what takes the place of the curvature when adapters are merged as weights.

    >>> import torch
    >>> one = torch.ones(1, 1)
    >>> product_curvature(0 * one, one, 0 * one, one, scale=2.0)
    tensor([[0.2500]])
    """
    return 1.0 / product_variance(a, var_a, b, var_b, scale)
