"""The interface of an engine: it makes a plan for a list of parameters and a rule, and the plan has five verbs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeGuard

from torch import Tensor

from varlearn.core.noise import fold_in

Approximation = Literal["reparam", "squared_gradient"] | None


class Member(NamedTuple):
    """A trainable parameter.

    Attributes:
        param: the parameter.
        state: its state, with the tensors that the rule names.
        group: its parameter group.
        index: its number among all parameters of the optimizer; folded into the key of the noise.
    """

    param: Tensor
    state: dict[str, Any]
    group: dict[str, Any]
    index: int


class KeyParts(NamedTuple):
    """What the key of a training sample is made of, so that a device can make the key of a later one by itself.

    Attributes:
        base: key of the seed and of the stream.
        draw: number of the sample.
        replica: which of several processes that draw independent samples.
    """

    base: int
    draw: int
    replica: int

    @property
    def key(self) -> int:
        """As `core.noise.derive_key` makes it.

        >>> from varlearn.core.noise import derive_key
        >>> KeyParts(derive_key(3, 0), 0, 0).key == derive_key(3, 0)
        False
        >>> KeyParts(fold_in(fold_in(0, 3), 1), 5, 2).key == derive_key(3, draw=5, replica=2, stream=1)
        True
        """
        return fold_in(fold_in(fold_in(self.base, self.draw), self.replica), 0)


class Noise(NamedTuple):
    """The noise of one draw: what decides it, not the numbers.

    Attributes:
        key: of `core.noise`. Elements are numbered in the memory order of the parameter.
        ess: lambda at the draw.
        weight_decay: delta at the draw.
        sign: -1 for the mirror image of a sample.
        key_parts: what the key of a training sample is made of.
    """

    key: int
    ess: float
    weight_decay: float
    sign: float = 1.0
    key_parts: KeyParts | None = None

    @property
    def scale(self) -> tuple[float, float]:
        """(lambda, delta), from which sigma is made."""
        return self.ess, self.weight_decay

    @property
    def signed_scale(self) -> tuple[float, float, float]:
        """(lambda, delta, sign): draws with equal ones differ in the key alone."""
        return self.ess, self.weight_decay, self.sign

    def of(self, member: Member) -> Noise:
        """From the noise of a parameter group to that of one of its parameters."""
        return self._replace(key=fold_in(self.key, member.index))


# Id of a parameter group -> its noise. Id of a parameter -> its noise, where its scale is not that of its group.
Noises = Mapping[int, Noise]


class StepSettings(NamedTuple):
    """What the parameters of one group that are at the same step have in common.

    Attributes:
        hyper: the scalars of the rule.
        approximation: how hhat is made of one sample.
        noise: of the group, in the sample at which the gradient was taken.
        prior_mean: m0 as a number. A tensor "prior_mean" in a parameter's state replaces it.
        grad_factor: multiplies the gradient before anything else (loss scale, sign).
        clip_factor: multiplies the gradient in the momentum only, not in hhat.
        estimate_factor: multiplies the gradient in hhat only: it undoes what the user has clipped.
        device_lr: the learning rate as a tensor on the device, which the host does not read. `hyper.lr` multiplies it.
        max_norm: to which the device clips the gradient of the momentum, by `Guard.norm`.
    """

    hyper: Any
    approximation: Approximation
    noise: Noise
    prior_mean: float = 0.0
    grad_factor: float = 1.0
    clip_factor: float = 1.0
    estimate_factor: float = 1.0
    device_lr: Tensor | None = None
    max_norm: float = math.inf


class Guard(NamedTuple):
    """What decides on the device, and not on the host, whether a step is taken. The host waits for nothing.

    Attributes:
        scale: GradScaler's loss scale; gradients are divided by it.
        overflow: GradScaler's flag; above 0 the step is dropped.
        norm: of all gradients, before they are divided by the scale.
        unclip: factor that undoes the user's clipping, for the second moment.
    """

    scale: Tensor | None = None
    overflow: Tensor | None = None
    norm: Tensor | None = None
    unclip: Tensor | None = None


# Position among the plan's members, gradient, and hhat where it is already known.
Row = tuple[int, Tensor, Tensor | None]


class Fold(NamedTuple):
    """Take one more sample of a step into the running means of ghat and hhat.

    Attributes:
        grad: of this sample, of any float dtype.
        grad_mean: over the earlier samples, updated in place. None if only hhat is wanted.
        estimate_mean: of hhat over the earlier samples, updated in place, in the state's dtype.
        approximation: how hhat is made.
        noise: of the group, in this sample.
        count: number of earlier samples.
        captured: receives a copy of the new `grad_mean`, if given.
    """

    grad: Tensor
    grad_mean: Tensor | None
    estimate_mean: Tensor
    approximation: Approximation
    noise: Noise
    count: int
    captured: Tensor | None = None


class Plan(Protocol):
    """How an engine computes a rule on a list of parameters; valid until one of them changes (`holds`).

    Attributes:
        engine: name of the engine, for diagnostics.
    """

    engine: str

    @property
    def converted(self) -> int:
        """How many gradients of the last step were copied first, into another memory order or dtype."""
        ...

    @property
    def members(self) -> Sequence[Member]:
        """The parameters."""
        ...

    def holds(self) -> bool:
        """Whether parameters and state are still of the kind, and in the memory, that the plan was made for."""
        ...

    def draw(self, noises: Noises) -> None:
        """Line 2: keep the mean and write m + sigma * epsilon into every parameter."""
        ...

    def restore(self) -> None:
        """Put the mean back, bit for bit. It does nothing without a sample, and may be called again if interrupted."""
        ...

    def fold(self, folds: Sequence[tuple[int, Fold]]) -> None:
        """Average the gradient and hhat of some parameters, by position, with those of earlier samples."""
        ...

    def all_finite(self, rows: Sequence[Row]) -> bool:
        """Whether no gradient and no hhat is NaN or infinite."""
        ...

    def step(self, rows: Sequence[Row], settings: Sequence[StepSettings], then: Noises | None = None) -> None:
        """Lines 3 to 7 for some parameters. A sample that is still in the weights is taken out.

        `then`: noise of the next sample, which every parameter of the plan is to show after the step.
        """
        ...


class GuardedPlan(Plan, Protocol):
    """A plan on an accelerator that can drop a step by itself, so that the host need not wait for the look for NaN."""

    def step(
        self,
        rows: Sequence[Row],
        settings: Sequence[StepSettings],
        then: Noises | None = None,
        guard: Guard | None = None,
    ) -> None:
        """As `Plan.step`. With a guard, the step is dropped on the device if a number is NaN or infinite."""
        ...

    def settle(self) -> int:
        """Bring `state["step"]` up to date and return how many steps were dropped since the last call; it waits."""
        ...

    @property
    def is_captured(self) -> bool:
        """Whether a CUDA graph has captured a sample or a step: replays take steps that the host does not see."""
        ...

    def last_draws(self) -> dict[int, int]:
        """Id of a group -> the number of its last training sample on the device; it waits."""
        ...


def is_guarded(plan: Plan) -> TypeGuard[GuardedPlan]:
    """Whether a plan can drop a step by itself."""
    return hasattr(plan, "settle")
