"""Sequential anchored ensembles (Delaunoy and Louppe, 2021): each member is trained from the one before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from varlearn.methods.method import Batch, Facts, Method, Training
from varlearn.methods.parameter_groups import parameter_groups
from varlearn.methods.shared_settings import Optim
from varlearn.setting_checks import Rule, at_least, positive

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from varlearn.posterior import Mixture

_START, _MOVE, _ACCEPT = 111, 112, 113  # streams of the noise


@dataclass(frozen=True)
class SAESettings(Optim):
    """Settings of sequential anchored ensembles: `weight_decay` is delta, the prior's precision over the examples.

    Attributes:
        lr: peak learning rate of Adam; the rates and momenta are the published ones for CIFAR-10.
        beta1: Adam's average of gradients.
        beta2: Adam's average of squared gradients.
        members: networks in the ensemble.
        member_epochs: passes over the data for each member after the first, which gets the rest of the run.
        walk_step: length of a step of the anchors' random walk, relative to the prior's width.
    """

    RULES: ClassVar[dict[str, Rule]] = Optim.RULES | {
        "members": at_least(2, "one member is no ensemble"),
        "member_epochs": positive("2 is the published one"),
        "walk_step": positive("0.02 is the published one"),
    }

    name: str = "sae"
    lr: float = 2.145e-3
    beta1: float = 0.8547
    beta2: float = 0.9997
    members: int = 10
    member_epochs: float = 2.0
    walk_step: float = 0.02


class SAEMethod(Method[SAESettings]):
    """Members at the minimum of the loss plus delta / 2 |theta - anchor|^2; the anchors are a walk over the prior.

    The walk is a guided one (Gustafson, 1998), for each weight alone: it goes on in its direction until a step is
    rejected. The first anchor is a draw of the prior.

    >>> facts = Facts(n=100, batch_size=10, steps=500, task="classification")
    >>> SAEMethod(SAESettings(members=4)).ends(facts)  # two epochs of 10 steps for each further member
    [440, 460, 480, 500]
    """

    name = "sae"
    label = "SAE"
    cost = "forward and backward pass per step; three copies of the weights, and one per member"
    Settings = SAESettings

    def __init__(self, settings: SAESettings) -> None:
        super().__init__(settings)
        self._members: list[dict[str, dict[str, Tensor]]] = []
        self._place: dict[str, Tensor] = {}  # of the walk, in widths of the prior
        self._direction: dict[str, Tensor] = {}

    def ends(self, facts: Facts) -> list[int]:
        """The steps after which a member is finished. A run that is too short is divided evenly."""
        count = max(1, min(self.settings.members, facts.steps))
        epoch = facts.n / facts.batch_size
        each = max(1, min(round(self.settings.member_epochs * epoch), facts.steps // count))
        return [facts.steps - each * (count - 1 - member) for member in range(count)]

    def optimizer(self, model: nn.Module, facts: Facts) -> torch.optim.Adam:
        """Adam, whose L2 decay of delta theta becomes delta (theta - anchor) before each step."""
        import torch

        settings = self.settings
        betas = (settings.beta1, settings.beta2)
        optimizer = torch.optim.Adam(parameter_groups(model, settings), lr=settings.lr, betas=betas)
        ess = float(facts.n) if settings.ess is None else settings.ess
        from varlearn.posterior.binding import model_tensors

        names: dict[Tensor, str] = {param: name for name, param in model_tensors(model).params.items()}

        def pull(*_: Any) -> None:
            self._begin(names, facts)
            with torch.no_grad():
                for group in optimizer.param_groups:
                    delta = float(group["weight_decay"])
                    width = 1.0 / math.sqrt(ess * delta) if delta else 0.0
                    for param in group["params"]:
                        if param.grad is not None and delta:
                            param.grad.sub_(self._place[names[param]].to(param), alpha=delta * width)

        optimizer.register_step_pre_hook(pull)
        return optimizer

    def lr(self, step: int, facts: Facts, peak: float, schedule: Callable[[int, int], float]) -> float:
        """The run's schedule for the first member; for each further one a cosine from the peak to 0."""
        ends = self.ends(facts)
        if step < ends[0]:
            return peak * schedule(step, ends[0])
        after = next((place for place, end in enumerate(ends) if step < end), len(ends) - 1)
        begin, end = ends[after - 1], ends[after]
        return 0.5 * peak * (1.0 + math.cos(math.pi * (step - begin) / (end - begin)))

    def after_step(self, training: Training) -> None:
        """At the end of a member: keep it, and move the anchor."""
        from varlearn.posterior.binding import model_tensors

        if training.step not in self.ends(training.facts):
            return
        params, buffers, _ = model_tensors(training.model)
        random = {name: param for name, param in params.items() if param.requires_grad}
        rest = {name: param for name, param in params.items() if name not in random} | buffers
        kept = {"mean": random, "fixed": rest}
        self._members.append(
            {part: {k: v.detach().to("cpu", copy=True) for k, v in values.items()} for part, values in kept.items()}
        )
        self.walk(training.facts.seed)

    def walk(self, seed: int) -> None:
        """One step of the anchors' Markov chain, whose stationary distribution is a standard normal."""
        import torch

        from varlearn.posterior.draw import normals, positions

        number = len(self._members)
        for name, rank in positions(self._place).items():
            place, direction = self._place[name], self._direction[name]
            length = normals(place, seed, number, rank, _MOVE).abs_().mul_(self.settings.walk_step)
            proposed = place + direction * length
            accept = torch.special.ndtr(normals(place, seed, number, rank, _ACCEPT))  # uniform
            taken = accept.log() < 0.5 * (place.square() - proposed.square())
            self._place[name] = torch.where(taken, proposed, place)
            self._direction[name] = torch.where(taken, direction, -direction)

    def finish(self, training: Training, batches: Iterable[Batch]) -> Mixture:
        """The members, with equal weights."""
        from varlearn.posterior import Mixture, Point
        from varlearn.posterior.binding import model_tensors

        tied = model_tensors(training.model).tied
        return Mixture([Point(member["mean"], member["fixed"], tied) for member in self._members])

    def diagnostics(self, training: Training) -> dict[str, Any]:
        """How many members are finished."""
        return {"members": len(self._members)}

    def state_dict(self) -> dict[str, Any]:
        """Finished members and the walk."""
        return {"members": self._members, "place": self._place, "direction": self._direction}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with a walk."""
        self._members = list(state["members"])
        self._place, self._direction = dict(state["place"]), dict(state["direction"])

    def _begin(self, names: Mapping[Tensor, str], facts: Facts) -> None:
        """Draw the first anchor."""
        import torch

        from varlearn.posterior.draw import normals, positions

        if self._place:
            return
        params = {name: param.detach().cpu() for param, name in names.items() if param.requires_grad}
        for name, rank in positions(params).items():
            self._place[name] = normals(params[name], facts.seed, 0, rank, _START)
            signs = normals(params[name], facts.seed, 1, rank, _START)
            self._direction[name] = torch.where(signs > 0, 1.0, -1.0).to(signs)
