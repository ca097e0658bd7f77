"""The cost of a pass: a few times a forward and backward pass, whatever the number of classes; and its memory."""

import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap
from torch.nn import functional as F

import varlearn
from varlearn.models import frn_cnn, resnet20
from varlearn.posterior import DiagGaussian

BATCH = 50


def fastest(call: Callable[[], object], times: int = 5) -> float:
    """Seconds of the processor in the fastest call, after one that is not counted."""
    call()
    seconds: list[float] = []
    for _ in range(times):
        start = time.process_time()
        call()
        seconds.append(time.process_time() - start)
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


def by_jacobians(model: nn.Module, posterior: DiagGaussian, images: Tensor, labels: Tensor) -> Tensor:
    """V e with V from a Jacobian of all classes, as the authors of the equation compute it."""
    variance = {name: std.square() for name, std in posterior.std.items()}

    def row(image: Tensor, label: Tensor) -> Tensor:
        def outputs(params: dict[str, Tensor]) -> Tensor:
            return functional_call(model, params, (image[None],))[0]

        error = outputs(dict(posterior.mean)).softmax(0) - F.one_hot(label, classes).to(image)
        jacobian = jacrev(outputs)(dict(posterior.mean))
        parts = [rows.flatten(1) * variance[name].flatten() @ rows.flatten(1).T for name, rows in jacobian.items()]
        return torch.stack(parts).sum(0) @ error

    classes = model(images[:1]).shape[1]
    with torch.no_grad():
        return vmap(row)(images, labels)


@pytest.mark.bench
def test_jacobians_of_all_classes_are_slower_in_proportion_to_the_classes() -> None:
    torch.manual_seed(0)
    images, seconds = torch.randn(8, 3, 32, 32), dict[int, float]()
    for classes in (10, 100):
        model, labels = frn_cnn(classes).eval(), torch.randint(0, classes, (8,))
        mean = {name: value.detach().clone() for name, value in model.named_parameters()}
        posterior = DiagGaussian(mean, {name: torch.ones_like(value) for name, value in mean.items()}, ess=1e4)
        found = varlearn.sensitivity(model, posterior, [(images, labels)])
        expected = by_jacobians(model, posterior, images, labels)
        torch.testing.assert_close(found.deviation, expected, rtol=1e-3, atol=1e-6)
        ours = fastest(lambda: varlearn.sensitivity(model, posterior, [(images, labels)]))  # noqa: B023
        seconds[classes] = fastest(lambda: by_jacobians(model, posterior, images, labels)) / ours  # noqa: B023
        print(f"{classes} classes: Jacobians take {seconds[classes]:.1f} times as long")
    assert seconds[100] > 4 * seconds[10]


MEMORY = """
import resource, sys
import torch
import varlearn
from varlearn import models
from varlearn.data.batches import Batches
from varlearn.data.examples import Examples
from varlearn.posterior import DiagGaussian

name, count = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
images = torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8)
examples = Examples(images, torch.zeros(count, dtype=torch.long), tuple("abcdefghij"), "image", (0.5,) * 3, (0.25,) * 3)
model = getattr(models, name)().eval()
mean = {key: value.detach() for key, value in model.named_parameters()}
posterior = DiagGaussian(mean, {key: torch.ones_like(value) for key, value in mean.items()}, ess=1e4)
found = varlearn.sensitivity(model, posterior, Batches(examples, 500))
assert len(found.ids) == count
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


@pytest.mark.bench
@pytest.mark.parametrize(("name", "count"), [("resnet20", 256), ("frn_cnn", 50_000)])
def test_the_memory_of_a_pass_stays_below_two_gib(name: str, count: int) -> None:
    command = [sys.executable, "-c", MEMORY, name, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1_800)
    print(f"{count:,} images, {name}: {float(done.stdout):.2f} GiB at most")
    assert float(done.stdout) < 2
