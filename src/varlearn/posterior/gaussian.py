"""The Gaussian with a diagonal covariance: what IVON learns."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from varlearn.core import update
from varlearn.core.shards import whole
from varlearn.posterior.around_mean import AroundMean
from varlearn.posterior.draw import normals_by_name
from varlearn.posterior.optimizers import read_optimizer
from varlearn.posterior.origin import Origin
from varlearn.posterior.tensors import LARGEST, cast, check_means, check_names, checked_temperature, size_of
from varlearn.types import Params, Seed


@dataclass(frozen=True, eq=False, init=False, repr=False)
class DiagGaussian(AroundMean):
    """q(theta) = N(m, diag(sigma^2)) with sigma = sqrt(T / (lambda (h + delta))).

    The scale is kept in the optimizer's terms, because what one does with a posterior needs them apart: merging reads
    h, the prior is N(prior_mean, 1 / (lambda delta)), and the temperature T changes neither. Tensors are not copied.

    Args:
        mean: m, one float tensor per random weight.
        hess: h, shapes as `mean`. It may be slightly negative; h + delta may not. An infinite entry makes its weight
            exactly its mean (see `prune`).
        ess: lambda > 0, the effective number of training examples; one number, or one per name.
        weight_decay: delta >= 0; one number, or one per name.
        prior_mean: mean of the prior, by name; zero where absent.
        fixed: frozen parameters and buffers that go with the weights. None leaves the model's own in place.
        tied: further names of weights that have several, with the name used here.
        temperature: T >= 0, the factor of every variance. 1 is the posterior as it was trained, 0 its mean.
        origin: the training that it comes from.

    >>> q = DiagGaussian({"w": torch.tensor([2.0])}, {"w": torch.tensor([0.75])}, ess=100.0, weight_decay=0.25)
    >>> q.std["w"].item()  # 1 / sqrt(100 * (0.75 + 0.25))
    0.10000000149011612
    """

    mean: Params
    hess: Params
    ess: Mapping[str, float]
    weight_decay: Mapping[str, float]
    prior_mean: Params
    fixed: Mapping[str, Tensor] | None
    tied: Mapping[str, str]
    temperature: float
    origin: Origin

    def __init__(
        self,
        mean: Params,
        hess: Params,
        ess: float | Mapping[str, float],
        weight_decay: float | Mapping[str, float] = 0.0,
        prior_mean: Params | None = None,
        fixed: Mapping[str, Tensor] | None = None,
        tied: Mapping[str, str] | None = None,
        temperature: float = 1.0,
        origin: Origin = Origin(),  # noqa: B008
    ):
        check_means(mean)
        check_names("hess", hess, mean)
        check_names("prior_mean", prior_mean or {}, mean, partial=True)
        values = {
            "mean": dict(mean),
            "hess": dict(hess),
            "ess": _per_name("ess", ess, mean),
            "weight_decay": _per_name("weight_decay", weight_decay, mean),
            "prior_mean": dict(prior_mean or {}),
            "fixed": None if fixed is None else dict(fixed),
            "tied": dict(tied or {}),
            "temperature": checked_temperature(temperature),
            "origin": origin,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._check_scale()

    def __repr__(self) -> str:
        ess = " and ".join(f"{value:g}" for value in sorted(set(self.ess.values())))
        temperature = "" if self.temperature == 1 else f", temperature {self.temperature:g}"
        return f"DiagGaussian over {size_of(self.mean)}, ess {ess}{temperature}"

    @classmethod
    def from_optimizer(
        cls,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        ess: float | None = None,
        weight_decay: float | None = None,
        n: float | None = None,
        batch_size: float | None = None,
    ) -> DiagGaussian:
        """The posterior that an optimizer has learned, or the one the paper makes up for AdamW and SGD.

        IVON knows its own: sigma^2 = 1 / (lambda (h + delta)). For AdamW sigma^2 = 1 / (N (sqrt(v) + delta)) and for
        SGD sigma^2 = 1 / (N (1 + delta)); N is `ess` and delta the groups' weight decay. v is the debiased average of
        squared gradients, the one AdamW's own step uses; the paper's plain average equals it after a few multiples of
        1 / (1 - beta2) steps. Parameters that are frozen or not in the optimizer, and buffers, become `fixed`. All
        tensors are copies. Those of a sharded model are sharded likewise; see `gathered`.

        Args:
            model: gives the names.
            optimizer: IVON (or another with its state), AdamW, Adam or SGD, with no sample in the weights.
            ess: N for AdamW and SGD, which do not know it; for IVON it is in the groups.
            weight_decay: delta in place of the groups'; for AdamW and SGD only.
            n: training examples, which `merge` needs and IVON, AdamW and SGD do not know.
            batch_size: examples of one step, which `merge` needs of AdamW.

        >>> net = nn.Linear(1, 1, bias=False)
        >>> sgd = torch.optim.SGD(net.parameters(), lr=0.1, weight_decay=0.0)
        >>> DiagGaussian.from_optimizer(net, sgd, ess=4.0).std["weight"].item()  # 1 / sqrt(4 * (1 + 0))
        0.5
        """
        known = read_optimizer(model, optimizer, ess=ess, weight_decay=weight_decay)
        sizes = {name: size for name, size in (("n", n), ("batch_size", batch_size)) if size is not None}
        return cls(**known | {"origin": replace(known["origin"], **sizes)})

    @property
    def precision(self) -> Params:
        """1 / sigma^2 = lambda (h + delta) / T, in float32 or better."""
        return {
            name: hess.add_(self.weight_decay[name]).mul_(self.ess[name]).div_(self.temperature)
            for name, hess in self._wide_hess().items()
        }

    @property
    def std(self) -> Params:
        """sigma = sqrt(T / (lambda (h + delta))), in float32 or better."""
        root = math.sqrt(self.temperature)
        return {
            name: update.std(hess, self.ess[name], self.weight_decay[name]).mul_(root)
            for name, hess in self._wide_hess().items()
        }

    def perturbation(self, seed: Seed = 0, index: int = 0) -> Params:
        """sigma * epsilon, the part of `sample` that is random, in float32 or better."""
        noise = normals_by_name(self.mean, seed, index)
        return {name: noise[name].mul_(std) for name, std in self.std.items()}

    def log_prob(self, params: Params) -> Tensor:
        """log q(theta), summed in float64 over all weights; weights of infinite precision must equal their mean.

        >>> q = DiagGaussian({"w": torch.zeros(1)}, {"w": torch.ones(1)}, ess=1.0)
        >>> round(q.log_prob({"w": torch.zeros(1)}).item(), 6)  # -log(2 pi) / 2
        -0.918939
        """
        check_names("params", params, self.mean)
        total = torch.zeros((), dtype=torch.float64)
        for name, precision in self.precision.items():
            precision = precision.double()
            offset = params[name].double() - self.mean[name].double()
            log_density = 0.5 * (precision.log() - math.log(2.0 * math.pi) - precision * offset.square())
            exact = torch.where(offset == 0, 0.0, -math.inf)
            total = total + whole(torch.where(precision.isinf(), exact, log_density).sum()).cpu()
        return total

    def prior(self) -> DiagGaussian:
        """The prior N(prior_mean, 1 / (lambda delta)), at any temperature; needs delta > 0.

        >>> q = DiagGaussian({"w": torch.ones(1)}, {"w": torch.ones(1)}, ess=100.0, weight_decay=0.01)
        >>> q.prior().std["w"].item()
        1.0
        """
        flat = [name for name, weight_decay in self.weight_decay.items() if weight_decay == 0]
        if flat:
            raise ValueError(f"weight_decay=0.0 of {flat[0]!r} is no proper prior; it must be > 0, as in training")
        mean = {name: self.prior_mean.get(name, torch.zeros_like(value)) for name, value in self.mean.items()}
        hess = {name: torch.zeros_like(hess) for name, hess in self.hess.items()}
        return replace(self, mean=mean, hess=hess, temperature=1.0)

    def tempered(self, factor: float) -> DiagGaussian:
        """q^(1/factor): the temperature, and so every variance, times `factor`. Below 1 is narrower; ess stays.

        >>> q = DiagGaussian({"w": torch.zeros(1)}, {"w": torch.ones(1)}, ess=100.0)
        >>> q.std["w"].item(), q.tempered(0.25).std["w"].item()
        (0.10000000149011612, 0.05000000074505806)
        """
        return self.at_temperature(self.temperature * checked_temperature(factor))

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> DiagGaussian:
        """The same posterior on another device or in another float dtype; integer buffers keep theirs.

        >>> q = DiagGaussian({"w": torch.ones(1)}, {"w": torch.ones(1)}, ess=1.0)
        >>> q.to(dtype=torch.float64).mean["w"].dtype
        torch.float64
        """
        return replace(
            self,
            mean=cast(self.mean, device, dtype),
            hess=cast(self.hess, device, dtype),
            prior_mean=cast(self.prior_mean, device, dtype),
            fixed=None if self.fixed is None else cast(self.fixed, device, dtype),
        )

    def gathered(self) -> DiagGaussian:
        """The same posterior with whole tensors on every rank, where they are sharded; to save it, say.

        >>> q = DiagGaussian({"w": torch.ones(1)}, {"w": torch.ones(1)}, ess=1.0)
        >>> q.gathered().mean["w"] is q.mean["w"]  # nothing to gather
        True
        """
        return replace(
            self,
            mean=_whole(self.mean),
            hess=_whole(self.hess),
            prior_mean=_whole(self.prior_mean),
            fixed=None if self.fixed is None else _whole(self.fixed),
        )

    def _wide_hess(self) -> Params:
        """h in float32 or better, as a copy: in float16, lambda (h + delta) overflows at 65,504."""
        return {
            name: hess.to(torch.promote_types(hess.dtype, torch.float32), copy=True) for name, hess in self.hess.items()
        }

    def _check_scale(self) -> None:
        for name, hess in self._wide_hess().items():
            bad = ~(hess.add_(self.weight_decay[name]) > 0)  # NaN fails every comparison
            if bad.any():
                value = self.hess[name][bad].flatten()[0].item()
                raise ValueError(
                    f"hess={value} of {name!r} with weight_decay={self.weight_decay[name]} gives no precision: "
                    f"hess + weight_decay must be > 0 ({int(bad.sum())} of {bad.numel()} entries are not); "
                    "use a larger weight_decay"
                )


def _whole(values: Mapping[str, Tensor]) -> Params:
    return {name: whole(value) for name, value in values.items()}


def _per_name(what: str, value: float | Mapping[str, float], mean: Params) -> dict[str, float]:
    """One float per name, checked: ess > 0, weight_decay >= 0, both finite in float32."""
    if isinstance(value, Mapping):
        check_names(what, value, mean)
        numbers = {name: float(value[name]) for name in mean}
    else:
        numbers = dict.fromkeys(mean, float(value))
    for name, number in numbers.items():
        if what == "ess" and not 0 < number <= LARGEST:
            raise ValueError(f"ess={number} of {name!r} must be > 0 and finite in float32; use the number of examples")
        if what == "weight_decay" and not 0 <= number <= LARGEST:
            raise ValueError(f"weight_decay={number} of {name!r} must be >= 0 and finite in float32; 1e-4 is usual")
    return numbers
