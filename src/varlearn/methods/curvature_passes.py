"""Passes over a micro-batch that hand the optimizer a Hessian estimate: of single examples' gradients, or Hutchinson's.

They are taken inside a training block. In several processes gradients and estimates are averaged, so that all processes
take the same step; their optimizers must share the noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from varlearn.methods.method import Batch, Training

if TYPE_CHECKING:
    from torch import Tensor

Labels = Literal["true", "sampled"]
_LABELS, _PROBES = 7, 8  # streams of noise


def gauss_newton_pass(training: Training, batch: Batch, draw: int, labels: Labels = "true", more: bool = False) -> Any:
    """Gradients with the mean of the examples' squared gradients as hhat; returns the mean loss.

    Args:
        training: the run, inside a training block of its optimizer.
        batch: inputs and targets.
        draw: number of this pass in the run; decides the sampled labels.
        labels: "true" squares the gradients of the loss itself, the empirical Fisher of one pass. "sampled" squares
            those of labels that are drawn from the model, the Gauss-Newton diagonal in expectation; that is a further
            forward pass and a further backward pass.
        more: whether another backward pass of this micro-batch follows.
    """
    from varlearn.optim.per_example import add_gradients, example_gradients

    inputs, targets = batch

    def loss(network: Any, examples: Any, labels: Tensor) -> Tensor:
        return training.loss((examples, labels), network)

    if labels == "true":
        found = example_gradients(training.model, loss, inputs, targets)
        scale = training.grad_scale
        mean = averaged(found.mean)
        add_gradients({param: grad * scale for param, grad in mean.items()} if scale != 1.0 else mean)
        value = found.loss
    else:
        value = training.backward(batch, share=1.0, more=more)
        found = example_gradients(training.model, loss, inputs, drawn_labels(training, batch, draw))
    # The squared gradient of a sequence's mean over T tokens is 1/T of the mean of the tokens' squares, in expectation.
    terms = targets[0].numel() if training.facts.task == "language" else 1
    squares = {param: terms * square for param, square in found.squares.items()} if terms > 1 else found.squares
    training.optimizer.hand_in_hess(averaged(squares))  # type: ignore[attr-defined]
    return value


def hutchinson_pass(training: Training, batch: Batch, draw: int, more: bool = False, share: float | None = 1.0) -> Any:
    """Gradients, with Hutchinson's z * (H z) as hhat; returns the mean loss.

    Args:
        training: the run; where its optimizer draws samples, inside a training block.
        batch: inputs and targets.
        draw: number of this pass in the run; decides the signs z.
        more: whether another backward pass of this micro-batch follows.
        share: factor of the loss, as in `Training.backward`. The estimate has it too.
    """
    from varlearn.core.elementary_attention import plain_attention
    from varlearn.core.noise import derive_key
    from varlearn.optim.curvature import hutchinson

    params = [param for group in training.optimizer.param_groups for param in group["params"]]
    found: dict[Tensor, Tensor] = {}

    def estimate(loss: Tensor) -> None:
        found.update(hutchinson(loss, params, derive_key(training.facts.seed, draw, stream=_PROBES)))

    with plain_attention():  # the other kernels cannot be differentiated twice
        value = training.backward(batch, share=share, more=more, on_loss=estimate)
    factor = 1.0 / training.micro_batches if share is None else share
    if factor != 1.0:
        found = {param: factor * diagonal for param, diagonal in found.items()}
    training.optimizer.hand_in_hess(averaged(found))  # type: ignore[attr-defined]
    return value


def averaged(values: dict[Tensor, Tensor]) -> dict[Tensor, Tensor]:
    """The mean over all processes, in place.

    >>> averaged({})
    {}
    """
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        for value in values.values():
            distributed.all_reduce(value)
            value /= distributed.get_world_size()
    return values


def drawn_labels(training: Training, batch: Batch, draw: int) -> Tensor:
    """Targets drawn from the predictive distribution of the network at the weights as they are now."""
    import torch

    from varlearn.core.noise import derive_key
    from varlearn.prediction.language_model import IGNORE

    inputs, targets = batch
    with torch.no_grad():
        outputs = training.forward(inputs)
    first = outputs[0] if isinstance(outputs, tuple) else outputs
    rank = 0 if not torch.distributed.is_initialized() else torch.distributed.get_rank()
    key = derive_key(training.facts.seed, draw, replica=rank, stream=_LABELS)
    generator = torch.Generator(first.device).manual_seed(key)
    if training.facts.task == "regression":
        mean, variance = outputs
        noise = torch.randn(mean.shape, generator=generator, device=mean.device)
        return (mean.float() + variance.float().sqrt() * noise).view_as(targets)
    probabilities = first.float().softmax(-1)
    found = torch.multinomial(probabilities.flatten(0, -2), 1, generator=generator).view(targets.shape)
    return torch.where(targets == IGNORE, targets, found)
