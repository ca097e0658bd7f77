"""Hessian estimates that a caller may hand in instead of the optimizer's own: `opt.hand_in_hess(estimate)`.

Both return a dict from parameter to the diagonal, of the parameter's shape, of the mean loss's curvature::

    with opt.sampled_params(train=True):
        opt.zero_grad()
        loss_fn(model(inputs), targets).backward()
        opt.hand_in_hess(per_example_gauss_newton(model, loss_fn, inputs, targets))
    opt.step()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from varlearn.core.noise import derive_key, normal_
from varlearn.optim.per_example import example_gradients


def per_example_gauss_newton(
    model: nn.Module,
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    inputs: Tensor,
    targets: Tensor,
    chunk_size: int | None = None,
) -> dict[Tensor, Tensor]:
    """VOGN's estimate hhat = (1/B) sum_i (grad loss_i)^2, from per-example gradients.

    Args:
        model: called on batches of one example; layers that mix examples (BatchNorm in training) are not supported.
        loss_fn: (outputs, targets) -> scalar, a mean over the batch.
        inputs: (B, ...).
        targets: (B, ...).
        chunk_size: how many examples at a time; fewer need less memory.

    Returns:
        Trainable parameter -> hhat. Never negative.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.ones_(model.weight)
    >>> halves = lambda out, target: 0.5 * (out - target).square().mean()
    >>> hhat = per_example_gauss_newton(model, halves, torch.tensor([[1.0], [2.0]]), torch.tensor([[0.0], [1.0]]))
    >>> hhat[model.weight]  # gradients 1 and 2
    tensor([[2.5000]])
    """
    found = example_gradients(model, lambda network, x, y: loss_fn(network(x), y), inputs, targets, chunk_size)
    return found.squares


def hutchinson(
    loss: Tensor,
    params: Iterable[Tensor],
    seed: int = 0,
    probes: int = 1,
    gradients: dict[Tensor, Tensor] | None = None,
) -> dict[Tensor, Tensor]:
    """Hutchinson's estimate hhat = mean over probes of z * (H z), with random signs z; one more backward per probe.

    Args:
        loss: a scalar whose graph is still there; call this before `loss.backward()`, or pass that `retain_graph=True`.
        params: trainable parameters; those that the loss does not reach are left out.
        seed: of the signs; pass the step number. The global generator is not consumed.
        probes: how many sign vectors to average over.
        gradients: receives the gradients, which are made on the way; then `loss.backward()` is not needed, and the
            graph is freed.

    Returns:
        Parameter -> hhat, unbiased for the diagonal of the Hessian; exact where the Hessian is diagonal.

    >>> weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    >>> hutchinson((weight**3).sum(), [weight])[weight]  # second derivative 6 w
    tensor([ 6., 12.])
    """
    reached = [param for param in params if param.requires_grad]
    found = torch.autograd.grad(loss, reached, create_graph=True, allow_unused=True)
    if gradients is not None:
        gradients.update({p: g.detach() for p, g in zip(reached, found, strict=True) if g is not None})
    pairs = [(p, g) for p, g in zip(reached, found, strict=True) if g is not None and g.requires_grad]
    estimates = {param: torch.zeros_like(param, requires_grad=False) for param, _ in pairs}
    for probe in range(probes if pairs else 0):
        signs = [_signs(param, derive_key(seed, probe, index=index)) for index, (param, _) in enumerate(pairs)]
        try:
            products = torch.autograd.grad(
                [g for _, g in pairs],
                [p for p, _ in pairs],
                grad_outputs=signs,
                retain_graph=gradients is None or probe + 1 < probes,
                materialize_grads=True,
            )
        except RuntimeError as error:
            if "is not implemented" not in str(error):
                raise
            raise RuntimeError(
                f"the loss cannot be differentiated twice: {error}; of attention take the elementary kernel, "
                "`with torch.nn.attention.sdpa_kernel(SDPBackend.MATH):` around the forward pass"
            ) from error
        for (param, _), sign, product in zip(pairs, signs, products, strict=True):
            estimates[param] += sign * product / probes
    return estimates


def _signs(like: Tensor, key: int) -> Tensor:
    normal = normal_(torch.empty(like.shape, dtype=torch.float32, device=like.device), key)
    return torch.where(normal < 0, -1.0, 1.0).to(like.dtype)
