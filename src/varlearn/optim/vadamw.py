"""Variational AdamW as a `torch.optim.Optimizer`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from torch import Tensor, nn

from varlearn.core import vadamw
from varlearn.optim import hyper
from varlearn.optim.annealing import Schedule, annealed_over_run
from varlearn.optim.diagnostics import GroupDiagnostics, diagnose
from varlearn.optim.engine.plan import Member, Noise, Noises
from varlearn.optim.engine.triton.capturing import is_capturing, refuse
from varlearn.optim.loader_facts import loader_facts
from varlearn.optim.prior_widths import is_due, measure, parameter_groups, passes_of, suggested_lr
from varlearn.optim.ranks import rank_agreement
from varlearn.optim.sampling.clip_watch import ClipWatch
from varlearn.optim.sampling.sample import Sample
from varlearn.optim.sampling.sample_average import SampleAverage
from varlearn.optim.variational import VariationalOptimizer


class VAdamW(VariationalOptimizer):
    r"""AdamW whose gradients are taken at samples, and whose second moment becomes a posterior over the weights.

    The mean takes AdamW's step. The posterior is N(m, sigma^2) with 1 / sigma^2 = lambda B vhat + 1 / s^2: B vhat,
    AdamW's debiased second moment times the batch size, estimates the Fisher diagonal, and s is the width of the prior.
    It needs no pass and no vector beyond AdamW's::

        opt = VAdamW.for_loader(model, loader, epochs=20)
        for inputs, targets in loader:
            with opt.sampled_params(train=True):
                opt.zero_grad()
                loss_fn(model(inputs), targets).backward()
            opt.step()

    Use a learning-rate schedule that ends near 0, as with AdamW.

    Args:
        params: parameters, named parameters, or groups of them. `VAdamW.for_model` and `for_loader` make the groups.
        lr: AdamW's learning rate.
        n: number of terms in the whole training loss: examples, or tokens for a language model.
        batch_size: B, the terms that the loss of one step is a mean over: times accumulation, times ranks.
        betas: AdamW's (beta1, beta2).
        eps: AdamW's eps.
        weight_decay: AdamW's decoupled decay. It is not the prior.
        steps: number of steps of the whole run. lambda is annealed over it, and short runs get less noise.
        ess: lambda, a number or a function of the passes over the data. None anneals it down to n, the evidence lower
            bound: from 1,000 n over the whole run, or from 100 n over ten passes where `steps` is not known. A function
            is not saved with the state.
        prior_width: w: s is w times the root mean square of a parameter's first weights or, if larger, of its present
            ones. None takes `width_by_depth`: deep networks bear less noise per layer.
        mc_samples: how many samples `step(closure)` draws.
        noise: "independent" samples on each rank of a process group, or one that they have in common ("shared").
        seed: of the noise. None takes `torch.initial_seed()`; nothing is consumed.
        nonfinite: what a NaN or infinite gradient does to `step()`: "skip" it, state untouched, or "raise".
        max_grad_norm: clip the gradient of the mean to this norm, and leave the second moment alone. `clip_grad_norm_`
            does so too, but with GradScaler or several ranks it shrinks both. `clip_grad_value_` always shrinks both.
        memory: "fast" copies the mean into a buffer that stays allocated between samples; "lean" has no such buffer
            and recovers the mean by subtracting the noise.
        foreach: True for the engine of few large tensor operations; None decides by device.
        fused: True for the engine with compiled kernels; None decides by device and compiler.
        maximize: ascend instead of descend.

    >>> import torch
    >>> weight = nn.Parameter(torch.tensor([2.0]))
    >>> opt = VAdamW([weight], lr=0.1, n=100, batch_size=10, weight_decay=0.0, seed=0)
    >>> for _ in range(200):
    ...     with opt.sampled_params(train=True):
    ...         opt.zero_grad()
    ...         (2.0 * (weight - 1.0) ** 2).sum().backward()
    ...     opt.step()
    >>> abs(weight.item() - 1.0) < 0.2
    True
    """

    rule = vadamw.RULE
    _step_supports_amp_scaling = True

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        *,
        n: float,
        batch_size: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        steps: int | None = None,
        ess: float | Schedule | None = None,
        prior_width: float | None = None,
        mc_samples: int = 1,
        noise: Literal["independent", "shared"] = "independent",
        seed: int | None = None,
        nonfinite: Literal["skip", "raise"] = "skip",
        max_grad_norm: float | None = None,
        memory: Literal["fast", "lean"] = "fast",
        foreach: bool | None = None,
        fused: bool | None = None,
        maximize: bool = False,
    ) -> None:
        defaults = hyper.arguments(locals(), "seed")
        defaults |= {"ess": 1.0 if ess is None else ess(0.0) if callable(ess) else ess, "anneal": ess is None}
        if seed is not None:
            defaults["seed"] = seed
        hyper.check(defaults)
        if ess is None:
            defaults["ess"] = annealed_over_run(defaults)(0.0)
        super().__init__(params, defaults)
        self._schedule = ess if callable(ess) else None

    @classmethod
    def for_model(
        cls,
        model: nn.Module,
        lr: float | Tensor | None = None,
        *,
        pretrained: bool = False,
        matrices_only: bool = False,
        prior_width: float | None = None,
        **settings: Any,
    ) -> VAdamW:
        """An optimizer for a model's trainable parameters, with prior widths by depth and embeddings apart.

        Args:
            model: the network, with its initial weights.
            lr: AdamW's learning rate. None takes `suggested_lr`, 0.15 times the size of the weights.
            pretrained: whether the weights come from another run. Then pass `lr`, e.g. 1e-4.
            matrices_only: decay parameters of two and more dimensions alone.
            prior_width: one for all parameters in place of those by depth.
            settings: of `VAdamW`. Pass `steps` where the length of the run is known.

        >>> opt = VAdamW.for_model(nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 2)), n=100, batch_size=10)
        >>> [group["prior_width"] for group in opt.param_groups]
        [1.0]
        """
        if not isinstance(model, nn.Module):
            raise TypeError(f"model is a {type(model).__name__}; pass the network, or its parameters to VAdamW itself")
        if lr is None:
            if pretrained:
                raise ValueError("lr=None must be a number for a pretrained model; use AdamW's, e.g. lr=1e-4")
            lr = suggested_lr(model)
        if "epochs" in settings:
            raise TypeError(
                "for_model() does not see the loader, so epochs tell no steps; pass steps, or use for_loader()"
            )
        facts = {name: settings.get(name) for name in ("n", "batch_size", "steps")}
        hyper.check({name: value for name, value in facts.items() if value is not None})
        passes = passes_of(facts) if None not in facts.values() else None
        return cls(parameter_groups(model, passes, pretrained, prior_width, matrices_only), lr, **settings)

    @classmethod
    def for_loader(
        cls,
        model: nn.Module,
        loader: Any,
        lr: float | Tensor | None = None,
        *,
        epochs: int | None = None,
        **settings: Any,
    ) -> VAdamW:
        """`for_model` with n, batch_size and, from `epochs`, steps of a data loader of examples, unless they are given.

        Pass `batch_size` yourself where gradients are accumulated or averaged over ranks, and both for language models,
        where they count tokens; the steps follow. A list of batches is a loader too.

        >>> from torch.utils.data import DataLoader
        >>> opt = VAdamW.for_loader(nn.Linear(1, 1), DataLoader(range(100), batch_size=10))
        >>> opt.param_groups[0]["n"], opt.param_groups[0]["batch_size"]
        (100, 10)
        """
        if not isinstance(model, nn.Module):
            raise TypeError(f"model is a {type(model).__name__}; pass the network first, then the loader")
        settings |= loader_facts(loader, epochs, settings)
        missing = {"n", "batch_size"} - set(settings)
        if missing:
            raise ValueError(f"the loader does not tell {sorted(missing)}; pass them as arguments")
        return cls.for_model(model, lr, **settings)

    def _start(self) -> None:
        super()._start()
        self._clipping = ClipWatch()
        self._measured: Sequence[Member] = ()  # whose prior widths are known, and whose gradients are watched
        self._schedule: Schedule | None = None

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_schedule": self._schedule}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a saved state; of `torch.optim.AdamW` too, whose second moment becomes the posterior."""
        super().load_state_dict(state_dict)
        self._anneal()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with their own hyperparameters; they join at the next sample."""
        has_ess = isinstance(param_group, dict) and "ess" in param_group
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        if has_ess:
            group["anneal"] = False
        elif group["anneal"]:
            group["ess"] = annealed_over_run(group)(0.0)

    def _hyper(self, group: dict[str, Any], step: int) -> vadamw.Hyper:
        beta1, beta2 = (float(beta) for beta in group["betas"])
        return vadamw.Hyper(float(group["lr"]), beta1, beta2, float(group["eps"]), float(group["weight_decay"]), step)

    def _noises(self, members: Sequence[Member], train: bool) -> Noises:
        if self._schedule is not None:
            refuse(self._members.device, "lambda follows a function of yours")
        noises = dict(super()._noises(members, train))
        if members is not self._measured:
            measure(members)
            if rank_agreement.world_size() == 1:
                self._clipping.watch([member.param for member in members])
            self._measured = members
        known: tuple[dict[str, Any] | None, int] = (None, 0)  # group and step that the next five names are of
        key, factor, _, sign, parts = Noise(0, 1.0, 1.0)
        for param, state, group, _ in members:  # most of the parameters of a group are at the same step
            if state["step"] != known[1] or group is not known[0]:
                known = group, state["step"]
                key, _, _, sign, parts = noises[id(group)]
                factor = vadamw.fisher_scale(
                    float(group["ess"]), float(group["batch_size"]), float(group["betas"][1]), known[1]
                )
            noises[id(param)] = Noise(key, factor, vadamw.prior_term(factor, state["prior_std"]), sign, parts)
        return noises

    def _take_step(self, average: SampleAverage) -> None:
        skipped = self._stepper.skipped
        super()._take_step(average)
        if self._stepper.skipped == skipped and self._following is None:  # else the weights may be a sample
            self._anneal()
            if is_due(members := average.samples[-1].members) and not is_capturing(self._members.device):
                measure(members, again=True)

    def _next_sample(self, last: Sample) -> Sample | None:
        self._anneal()
        return None if is_due(last.members) else super()._next_sample(last)

    def _anneal(self) -> None:
        """Set "ess" of each group to lambda after the steps taken."""
        # Looking a tensor up takes ten times as long as its id.
        done = {id(param): int(its.get("step", 0)) for param, its in self.state.items()}
        for group in self.param_groups:
            schedule = self._schedule or (annealed_over_run(group) if group["anneal"] else None)
            if schedule is not None:
                steps = max([done.get(id(param), 0) for param in group["params"]], default=0)
                group["ess"] = schedule(steps * float(group["batch_size"]) / float(group["n"]))

    def posterior_terms(self, param: Tensor) -> tuple[Tensor, float, float]:
        """(B vhat, lambda, delta) of a parameter, in IVON's form: 1 / sigma^2 = lambda (B vhat + delta)."""
        if "prior_std" not in self.state.get(param, {}):
            measure(self._members.find(self.param_groups, self.state))
        self._settle()
        group, state = self._group_of(param), self.state[param]
        ess, width = float(group["ess"]), float(state["prior_std"])
        debias = 1.0 - float(group["betas"][1]) ** int(state["step"]) or 1.0
        return state["exp_avg_sq"] * (float(group["batch_size"]) / debias), ess, 1.0 / (ess * width * width)

    def _refuse_gradients_without_sample(self) -> None:
        super()._refuse_gradients_without_sample()
        if self.state:  # torch.distributed.checkpoint asks for a complete state
            measure(self._members.find(self.param_groups, self.state))

    @contextmanager
    def _training_block(self, until_step: bool = False) -> Iterator[None]:
        with super()._training_block(until_step):
            yield
        if len(self._average.samples) > 1:
            self._clipping.note_all()

    @property
    def notices_clipping(self) -> bool:
        """Whether `clip_grad_norm_` between backward and `step()` leaves the second moment alone: in one process.

        Averaging over ranks after backward is no clipping, and cannot be told from it; nor can GradScaler's unscaling.
        """
        return rank_agreement.world_size() == 1 and not hasattr(self, "found_inf")

    def _unclip_factor(self) -> float | Tensor:
        factor = self._clipping.factor()  # forgets what it has seen
        return factor if self.notices_clipping else 1.0

    def hand_in_hess(self, estimates: Mapping[Tensor, Tensor]) -> None:
        """Refused: the curvature of this optimizer is AdamW's second moment of the gradient."""
        raise RuntimeError("hand_in_hess() has no meaning for VAdamW, whose curvature is B v; use IVON with it")

    def diagnostics(self) -> list[GroupDiagnostics]:
        """Statistics of B v, sigma and the prior, one entry per group."""
        self._settle()
        return diagnose(self, self._members)
