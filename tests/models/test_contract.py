"""What holds for every model of `cases.py`."""

import inspect

import pytest
import torch
from safetensors.torch import load, save
from torch import nn

from tests.models.cases import CASES, FROM_FILES, IMAGES, RUNNABLE
from varlearn import models

BATCH = 3


@pytest.fixture(scope="module", params=RUNNABLE)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def model(name):
    """A posterior sample, so to speak: where tau = 0 = beta exactly, ReLUs stand on their kink."""
    model = CASES[name].build(**CASES[name].small)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.01)
    return model


@pytest.fixture
def inputs(name):
    return CASES[name].inputs(BATCH)


def test_every_public_function_has_a_row():
    functions = {name for name in models.__all__ if inspect.isfunction(getattr(models, name))}
    assert functions == set(CASES) | FROM_FILES


@pytest.mark.parametrize("name", CASES)
def test_parameter_count(name):
    with torch.device("meta"):
        model = CASES[name].build()
    assert sum(p.numel() for p in model.parameters()) == CASES[name].parameters
    assert {p.device.type for p in model.parameters()} == {"meta"}


def test_output_shape_and_every_weight_gets_a_gradient(name, model, inputs):
    outputs = model(inputs)
    assert outputs.shape == (BATCH, *CASES[name].outputs)
    assert outputs.isfinite().all()
    weighted = outputs * torch.linspace(-1, 1, outputs.numel()).view_as(outputs)
    gradients = torch.autograd.grad(weighted.sum(), list(model.parameters()))
    for (parameter, _), gradient in zip(model.named_parameters(), gradients, strict=True):
        assert gradient.isfinite().all(), parameter
        assert gradient.any(), f"{parameter} does not reach the output"


@torch.no_grad()
def test_an_output_depends_on_its_own_example_alone(model, inputs):
    torch.testing.assert_close(model(inputs)[1:2], model(inputs[1:2]), rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_function_of_weights_and_inputs_alone(model, inputs):
    assert not list(model.buffers())
    generator = torch.get_rng_state()
    trained = model.train()(inputs)
    evaluated = model.eval()(inputs)
    model.train()
    assert torch.equal(trained, evaluated)
    assert torch.equal(torch.get_rng_state(), generator)


@torch.no_grad()
def test_weights_travel_through_safetensors(name, model, inputs):
    other = CASES[name].build(**CASES[name].small)
    assert not torch.equal(other(inputs), model(inputs))
    other.load_state_dict(load(save({key: value.contiguous() for key, value in model.state_dict().items()})))
    torch.testing.assert_close(other(inputs), model(inputs))


def test_the_seed_decides_the_first_weights(name):
    builds = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        builds.append(list(CASES[name].build(**CASES[name].small).parameters()))
    one, same, other = builds
    assert all(torch.equal(a, b) for a, b in zip(one, same, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(one, other, strict=True) if a.std() > 0)


@torch.no_grad()
def test_bfloat16_autocast_stays_near_float32(model, inputs):
    exact = model(inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = model(inputs)
    assert rough.dtype == torch.bfloat16
    # 8 bits of mantissa: half a percent a layer, growing with the root of the depth
    assert (rough.float() - exact).norm() / exact.norm() < 0.1


@torch.no_grad()
@pytest.mark.parametrize("name", IMAGES, scope="module")
def test_images_of_either_memory_format(name, model, inputs):
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    for conv in convolutions:
        assert conv.weight.is_contiguous(memory_format=torch.channels_last)
    formats = []
    hook = convolutions[-1].register_forward_hook(
        lambda *call: formats.append(call[2].is_contiguous(memory_format=torch.channels_last))
    )
    outputs = model(inputs)
    hook.remove()
    assert formats == [True]
    torch.testing.assert_close(model(inputs.to(memory_format=torch.channels_last)), outputs, rtol=1e-3, atol=1e-4)


def test_the_gradient_predicts_the_fall_of_the_loss(name, inputs):
    """L(w - t g) = L(w) - t |g|^2 + O(t^2), with t such that the fall is 1e-6 of the loss."""
    case = CASES[name]
    model = case.build(**case.small).double()
    inputs = inputs if inputs.dtype == torch.long else inputs.double()
    targets = torch.randint(0, case.outputs[-1], (BATCH, *case.outputs[:-1])).flatten()

    def loss():
        return nn.functional.cross_entropy(model(inputs).flatten(0, -2), targets)

    before = loss()
    gradients = torch.autograd.grad(before, list(model.parameters()))
    fall = 1e-6 * before.item()
    step = fall / sum(gradient.square().sum().item() for gradient in gradients)
    with torch.no_grad():
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.sub_(gradient, alpha=step)
        assert before.item() - loss().item() == pytest.approx(fall, rel=0.02)
