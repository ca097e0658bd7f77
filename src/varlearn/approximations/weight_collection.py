"""SWAG: the Gaussian that fits the weights which SGD visits."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from varlearn.batchnorm import recalibrate_batchnorm
from varlearn.core.dtypes import state_dtype
from varlearn.posterior import DiagGaussian, LowRankGaussian, Origin
from varlearn.posterior.binding import model_tensors, write_into
from varlearn.types import Params

Covariance = Literal["low_rank", "diagonal"]


class SWAG:
    """Collects snapshots of a network's weights in any training loop (Maddox et al., 2019).

    Call `collect` once an epoch, with a constant learning rate towards the end::

        swag = SWAG()
        for epoch in range(epochs):
            train_one_epoch(model)
            if epoch >= 0.8 * epochs:
                swag.collect(model)
        posterior = swag.posterior(model, loader)

    It keeps the mean and the variance of all snapshots and, for the `rank` latest ones, their deviation from the mean
    of the snapshots until then: rank + 2 copies of the weights.

    Args:
        rank: K, the deviations that are kept, at least 2.

    Attributes:
        count: snapshots collected.

    >>> net = nn.Linear(1, 1, bias=False)
    >>> swag = SWAG(rank=2)
    >>> for value in (1.0, 3.0, 5.0):
    ...     _ = nn.init.constant_(net.weight, value)
    ...     swag.collect(net)
    >>> q = swag.posterior(net)
    >>> q.mean["weight"].item(), q.var["weight"].item(), q.deviations["weight"].flatten()  # 3 - 2, 5 - 3
    (3.0, 2.6666667461395264, tensor([1., 2.]))
    """

    def __init__(self, rank: int = 20) -> None:
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 2:
            raise ValueError(f"rank={rank!r} must be a whole number >= 2; 20 is the paper's")
        self.rank, self.count = rank, 0
        self._mean: Params = {}
        self._squares: Params = {}  # sums of squared deviations from the mean
        self._ring: Params = {}  # (rank, ...): the deviation of snapshot number i is in row i % rank

    @torch.no_grad()
    def collect(self, model: nn.Module) -> None:
        """Take the weights as they are now for one snapshot; parameters that are not trained are left out.

        Raises:
            ValueError: if the weights are not those of the network that was collected before.
        """
        params = {name: param for name, param in model_tensors(model).params.items() if param.requires_grad}
        if not params:
            raise ValueError("the network has no trainable parameter to collect; collect before you freeze it")
        if self.count == 0:
            for name, param in params.items():
                like = {"dtype": state_dtype(param), "device": param.device}
                self._mean[name] = torch.zeros(param.shape, **like)
                self._squares[name] = torch.zeros(param.shape, **like)
                self._ring[name] = torch.zeros(self.rank, *param.shape, **like)
        self._check_same(params)
        row = self.count % self.rank
        self.count += 1
        for name, param in params.items():
            mean = self._mean[name]
            value = param.detach().to(mean)
            before = value - mean
            mean.add_(before, alpha=1.0 / self.count)
            after = torch.sub(value, mean, out=self._ring[name][row])
            self._squares[name].addcmul_(before, after)

    def posterior(
        self,
        model: nn.Module,
        batches: Iterable[Any] | None = None,
        *,
        covariance: Covariance = "low_rank",
        forward: Callable[[Any], Any] | None = None,
    ) -> LowRankGaussian | DiagGaussian:
        """The Gaussian of the snapshots; the model is as before afterwards.

        Args:
            model: the network that was collected; gives buffers and frozen parameters.
            batches: training inputs, from which BatchNorm's statistics are computed anew at the mean. A network without
                BatchNorm needs none; for one with it, None warns and keeps the statistics as they are.
            covariance: "low_rank" for 1/2 (diag(var) + D D^T / (K - 1)), "diagonal" for diag(var).
            forward: how the model is called with inputs; see `recalibrate_batchnorm`.

        Raises:
            ValueError: if fewer than 2 snapshots were collected, or those of another network.
        """
        if covariance not in ("low_rank", "diagonal"):
            raise ValueError(f"covariance={covariance!r} must be 'low_rank' or 'diagonal'; 'low_rank' is the paper's")
        if self.count < 2:
            raise ValueError(
                f"{self.count} snapshot(s) collected, at least 2 are needed; call collect(model) once an epoch"
            )
        tensors = model_tensors(model)
        self._check_same({name: param for name, param in tensors.params.items() if name in self._mean})
        fixed = self._fixed(model, batches, forward)
        mean = {name: value.clone() for name, value in self._mean.items()}
        var = {name: squares.div(self.count).clamp_min_(0.0) for name, squares in self._squares.items()}
        origin = Origin(method="swag")
        if covariance == "diagonal":
            hess = {name: 1.0 / value for name, value in var.items()}  # infinite where nothing has moved
            return DiagGaussian(mean, hess, 1.0, 0.0, fixed=fixed, tied=tensors.tied, origin=origin)
        kept = min(self.count, self.rank)
        order = [(self.count - kept + place) % self.rank for place in range(kept)]
        deviations = {name: ring[order] for name, ring in self._ring.items()}
        return LowRankGaussian(mean, var, deviations, fixed, tensors.tied, origin=origin)

    def _fixed(
        self, model: nn.Module, batches: Iterable[Any] | None, forward: Callable[[Any], Any] | None
    ) -> dict[str, Tensor]:
        tensors = model_tensors(model)
        before = {name: value.detach().clone() for name, value in {**tensors.params, **tensors.buffers}.items()}
        try:
            if batches is None:
                _warn_of_batchnorm(model)
            else:
                write_into(model, self._mean)
                recalibrate_batchnorm(model, batches, forward=forward)
            found = {name: value.detach().clone() for name, value in tensors.buffers.items()}
        finally:
            write_into(model, before)
        return found | {name: before[name] for name in tensors.params if name not in self._mean}

    def _check_same(self, params: Mapping[str, Tensor]) -> None:
        here, there = _shapes(params), _shapes(self._mean)
        if here != there:
            name = min(set(here.items()) ^ set(there.items()))[0]
            raise ValueError(
                f"parameter {name!r} has shape {here.get(name)} here and {there.get(name)} in the snapshots; "
                "collect one network, and use another SWAG() for another one"
            )

    def state_dict(self) -> dict[str, Any]:
        """All that was collected, for a checkpoint."""
        tensors = {"mean": self._mean, "squares": self._squares, "ring": self._ring}
        return {"rank": self.rank, "count": self.count, **tensors}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave."""
        if state["rank"] != self.rank:
            raise ValueError(
                f"rank={self.rank} must be that of the saved collection, {state['rank']}; use SWAG({state['rank']})"
            )
        self.count = state["count"]
        self._mean, self._squares, self._ring = (dict(state[name]) for name in ("mean", "squares", "ring"))


def _warn_of_batchnorm(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            warnings.warn(
                f"{type(module).__name__} ({name}) keeps the statistics of the last weights, which are not those of "
                "the mean of the snapshots; pass training batches to posterior(model, batches)",
                stacklevel=4,
            )
            return


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in tensors.items()}
