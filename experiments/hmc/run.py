"""Is IVON's predictive close to Hamiltonian Monte Carlo's? Regressions against NUTS draws, CIFAR-10 against HMC.

    python experiments/hmc/run.py --data DIR        # DIR holds the data pack with load.py; about 5 minutes on one core

Writes results.json beside this file. See README.md for the question and the verdict.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import math
import platform
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from varlearn import IVON
from varlearn.metrics import accuracy, agreement, from_probs, nll, total_variation, w2_competition
from varlearn.posterior import DiagGaussian, Mixture, Point
from varlearn.prediction import predict, predict_regression
from varlearn.types import Posterior

SEEDS = (0, 1, 2)
SAMPLES = 32
TEST_IMAGES = 2000
Summary = dict[str, float]


# Regressions: y = X beta + sigma * noise, the posterior over beta is known to Monte-Carlo error


def design(name: str, data: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """X of shape (N, D) and y of shape (N,) of a model of posteriordb."""

    def column(key: str) -> Tensor:
        return torch.tensor(data[key], dtype=torch.float64)

    if name.startswith("sblr"):
        return column("X"), column("y")
    if name == "kidiq-kidscore_interaction":
        school, iq = column("mom_hs"), column("mom_iq")
        return torch.stack([torch.ones_like(iq), school, iq, school * iq], 1), column("kid_score")
    age = column("age_discrete")
    columns = [torch.ones_like(age), column("real_ideo"), column("race_adj")]
    columns += [(age == group).double() for group in (2, 3, 4)]
    return torch.stack([*columns, column("educ1"), column("gender"), column("income")], 1), column("partyid7")


def regression(name: str, data: dict[str, Any], draws: Tensor, steps: int = 3000) -> Summary:
    """IVON on standardized features against NUTS, in the fitted values f = X beta at the training inputs.

    It starts at the least-squares fit: the question is which Gaussian it settles on, not how it gets there.
    """
    inputs, targets = design(name, data)
    reference = draws[:, :-1] @ inputs.T  # (S, N)
    noise = draws[:, -1].mean().item()
    scale = inputs.square().mean(0).sqrt()
    features = inputs / scale
    net = nn.Linear(inputs.shape[1], 1, bias=False).double()
    with torch.no_grad():
        net.weight.copy_(torch.linalg.lstsq(features, targets[:, None]).solution.T)
    curvature = 1.0 / noise**2  # of the mean loss along every standardized feature
    opt = IVON(
        net.parameters(),
        lr=0.02,
        ess=len(targets),
        hess_init=2 * curvature,  # twice the answer, so that what is learned shows
        betas=(0.9, 0.998),
        weight_decay=1e-9,
        rescale_lr=False,
        seed=0,
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    for _ in range(steps):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            ((net(features)[:, 0] - targets).square().mean() / (2 * noise**2)).backward()
        opt.step()
        schedule.step()
    posterior = DiagGaussian.from_optimizer(net, opt)
    fitted = predict_regression(
        net, posterior, [features], samples=1000, noise_variance=0.0, vectorize=True, keep_samples=True
    )
    assert fitted.sample_means is not None
    spread = reference.std(0)
    # the best factorized Gaussian has the diagonal of the precision, here N / sigma^2 along every standardized feature
    exact = features.square().sum(1).mul(noise**2 / len(targets)).sqrt()
    return {
        "examples": len(targets),
        "mean_error_in_std": ((fitted.mean[:, 0] - reference.mean(0)).abs() / spread).mean().item(),
        "mean_field_std_ratio": (exact / spread).mean().item(),
        "std_ratio": (fitted.epistemic[:, 0].sqrt() / spread).mean().item(),
        "w2_competition_in_std": w2_competition(fitted.sample_means[:, :, 0] / spread, reference[::10] / spread),
    }


# CIFAR-10


def network(seed: int, width: int = 24) -> nn.Module:
    """Three convolutions with group normalization and Swish, 56,842 parameters."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    channels = (3, width, 2 * width, 4 * width)
    for before, after in itertools.pairwise(channels):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.SiLU(), nn.GroupNorm(4, after)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels[-1], 10))


def train(
    make: Callable[[nn.Module], torch.optim.Optimizer], images: Tensor, labels: Tensor, steps: int, seed: int
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Batches of 50 with random flips, cosine schedule; an IVON step takes its gradient at a sample."""
    net = network(seed)
    opt = make(net)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    order = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        chosen = torch.randint(len(images), (50,), generator=order)
        batch = images[chosen]
        if torch.rand((), generator=order) < 0.5:
            batch = batch.flip(3)

        def closure(batch: Tensor = batch, chosen: Tensor = chosen) -> Tensor:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(net(batch), labels[chosen])
            loss.backward()
            return loss

        opt.step(closure)
        schedule.step()
    return net, opt


def ivon(examples: int, steps: int, seed: int) -> Callable[[nn.Module], torch.optim.Optimizer]:
    """The paper's CIFAR-10 setting (lr 0.2, h0 0.5, ess N) with beta2 for a short run."""
    return lambda net: IVON(
        net.parameters(),
        lr=0.2,
        ess=examples,
        hess_init=0.5,
        betas=(0.9, 1 - 2 / steps),
        weight_decay=2e-4,
        seed=seed,
    )


def adamw(net: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(net.parameters(), lr=0.002, weight_decay=0.01)


def score(net: nn.Module, posterior: Posterior, test: list[tuple[Tensor, Tensor]], hmc: Tensor) -> Summary:
    predictions = predict(net, posterior, test, samples=SAMPLES)
    assert predictions.targets is not None
    return {
        "accuracy": accuracy(predictions.log_probs, predictions.targets),
        "nll": nll(predictions.log_probs, predictions.targets),
        "agreement": agreement(predictions.log_probs, hmc),
        "total_variation": total_variation(predictions.log_probs, hmc),
    }


def cifar10(pack: ModuleType, steps: int, test_images: int = TEST_IMAGES) -> dict[str, Any]:
    mean, std = torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.2470, 0.2435, 0.2616])

    def prepared(split: str) -> tuple[Tensor, Tensor]:
        images, labels = pack.cifar10(split)
        scaled = (torch.from_numpy(images).float() / 255 - mean) / std
        return scaled.permute(0, 3, 1, 2).contiguous(), torch.from_numpy(labels).long()

    images, labels = prepared("train")
    test_x, test_y = (part[:test_images] for part in prepared("test"))
    test = list(zip(test_x.split(100), test_y.split(100), strict=True))
    hmc = from_probs(torch.from_numpy(pack.hmc_cifar10()[:test_images]))
    learned: list[Posterior] = []
    points: list[Posterior] = []
    singles: dict[str, list[Summary]] = {"IVON": [], "IVON@mean": [], "AdamW": []}
    for seed in SEEDS:
        net, opt = train(ivon(len(images), steps, seed), images, labels, steps, seed)
        posterior = DiagGaussian.from_optimizer(net, opt)
        learned.append(posterior)
        singles["IVON"].append(score(net, posterior, test, hmc))
        singles["IVON@mean"].append(score(net, posterior.at_mean(), test, hmc))
        net, _ = train(adamw, images, labels, steps, seed)
        points.append(Point({name: value.detach() for name, value in net.named_parameters()}))
        singles["AdamW"].append(score(net, points[-1], test, hmc))
    net = network(0)
    return {
        "steps": steps,
        "test_images": test_images,
        "runs": singles,
        "mixtures": {
            f"{len(SEEDS)} x IVON": score(net, Mixture(learned), test, hmc),
            f"{len(SEEDS)} x AdamW": score(net, Mixture(points), test, hmc),
        },
        "hmc": {"accuracy": accuracy(hmc, test_y), "nll": nll(hmc, test_y)},
    }


def spread_of(runs: list[Summary], key: str) -> str:
    values = torch.tensor([run[key] for run in runs], dtype=torch.float64)
    return f"{values.mean():.3f} +- {values.std():.3f}"


def load_pack(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("load", folder / "load.py")
    assert spec is not None
    assert spec.loader is not None
    pack = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pack)
    return pack


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the data pack")
    parser.add_argument("--steps", type=int, default=2000, help="training steps of each CIFAR-10 run")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    pack = load_pack(arguments.data)
    began = time.process_time()
    regressions = {}
    for name in ("sblrc-blr", "sblri-blr", "kidiq-kidscore_interaction", "nes2000-nes"):
        draws, _, data = pack.posteriordb(name)
        flat = torch.from_numpy(draws.reshape(-1, draws.shape[-1])).double()
        regressions[name] = regression(name, data, flat)
        print(name, {key: round(value, 3) for key, value in regressions[name].items()}, flush=True)
    images = cifar10(pack, arguments.steps)
    for name, runs in images["runs"].items():
        print(name, {key: spread_of(runs, key) for key in runs[0]})
    for name, values in images["mixtures"].items():
        print(name, {key: round(value, 3) for key, value in values.items()})
    result = {
        "command": f"python experiments/hmc/run.py --data DIR --steps {arguments.steps}",
        "cpu_seconds": round(time.process_time() - began, 1),
        "environment": {"torch": torch.__version__, "python": platform.python_version(), "machine": platform.machine()},
        "seeds": list(SEEDS),
        "samples": SAMPLES,
        "regressions": regressions,
        "cifar10": images,
    }
    assert all(math.isfinite(value) for row in regressions.values() for value in row.values())
    arguments.out.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
