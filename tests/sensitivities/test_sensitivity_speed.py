"""The cost of a pass: a few times a forward and backward pass, whatever the number of classes."""

import time
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import varlearn
from varlearn.models import resnet20
from varlearn.posterior import DiagGaussian

BATCH = 50


def fastest(call: Callable[[], object], times: int = 5) -> float:
    """Seconds of the fastest call, after one that is not counted."""
    call()
    seconds: list[float] = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


@pytest.mark.bench
def test_a_pass_costs_four_forward_and_backward_passes_for_10_and_for_1000_classes() -> None:
    torch.manual_seed(0)
    images = torch.randn(BATCH, 3, 32, 32)
    seconds: dict[int, float] = {}
    for classes in (10, 1000):
        model, labels = resnet20(classes=classes).eval(), torch.randint(0, classes, (BATCH,))
        mean = {name: value.detach().clone() for name, value in model.named_parameters()}
        hess = {name: torch.ones_like(value) for name, value in mean.items()}
        posterior = DiagGaussian(mean, hess, ess=1e4)
        plain = fastest(lambda: F.cross_entropy(model(images), labels).backward())  # noqa: B023
        seconds[classes] = fastest(lambda: varlearn.sensitivity(model, posterior, [(images, labels)]))  # noqa: B023
        print(f"{classes} classes: {seconds[classes]:.3f} s, {seconds[classes] / plain:.2f} x forward and backward")
        assert seconds[classes] < 4 * plain
    assert seconds[1000] < 1.2 * seconds[10]
