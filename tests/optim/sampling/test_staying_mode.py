"""`train(stay=True)`: the step leaves the next training sample in the weights, and changes nothing else."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from varlearn import IVON, VAdamW
from varlearn.optim.engine.plan import Member, Plan

ENGINES: dict[str, dict[str, Any]] = {
    "native": {},
    "foreach": {"foreach": True},
    "loop": {"foreach": False, "fused": False},
    "lean": {"memory": "lean"},
}
STEPS = 135  # past the steps that look at h (every 64th) and at the size of the weights (every 10th)
generator = torch.Generator().manual_seed(0)
INPUTS, TARGETS = torch.randn(10, 70, generator=generator), torch.randn(10, 3, generator=generator)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(70, 50), nn.Tanh(), nn.Linear(50, 3))


def ivon(net: nn.Module, **settings: Any) -> IVON:
    return IVON(net.parameters(), lr=0.1, ess=100.0, hess_init=0.5, seed=1, **settings)


def vadamw(net: nn.Module, **settings: Any) -> VAdamW:
    return VAdamW.for_model(net, 1e-2, n=100, batch_size=10, seed=1, **settings)


def loss(net: nn.Module) -> Tensor:
    return (net(INPUTS) - TARGETS).square().mean()


def backward(net: nn.Module, opt: Any) -> Tensor:
    opt.zero_grad()
    value = loss(net)
    value.backward()
    return value


def means(net: nn.Module, opt: Any) -> list[Tensor]:
    opt.eval()
    return [param.detach().clone() for param in net.parameters()]


def in_blocks(net: nn.Module, opt: Any, steps: int) -> None:
    for _ in range(steps):
        with opt.sampled_params(train=True):
            backward(net, opt)
        opt.step()


def in_mode(net: nn.Module, opt: Any, steps: int) -> None:
    opt.train(stay=True)
    for _ in range(steps):
        backward(net, opt)
        opt.step()


def with_closures(net: nn.Module, opt: Any, steps: int) -> None:
    opt.train(stay=True)
    for _ in range(steps):
        opt.step(lambda: backward(net, opt))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("make", [ivon, vadamw])
@pytest.mark.parametrize("train", [in_mode, with_closures])
def test_the_mean_is_that_of_blocks(train: Callable[..., None], make: Callable[..., Any], engine: str) -> None:
    found = []
    for way in (in_blocks, train):
        net = network()
        opt = make(net, **ENGINES[engine])
        way(net, opt, STEPS)
        found.append(means(net, opt))
    for expected, actual in zip(*found, strict=True):
        if engine == "lean":  # the last sample was added and subtracted once more
            torch.testing.assert_close(actual, expected, rtol=0.0, atol=1e-6)
        else:
            assert torch.equal(actual, expected)


@pytest.mark.parametrize("make", [ivon, vadamw])
def test_the_weights_after_a_step_are_the_next_sample(make: Callable[..., Any]) -> None:
    net, other = network(), network()
    opt, plain = make(net), make(other)
    in_mode(net, opt, 3)
    in_blocks(other, plain, 3)
    assert opt.is_sampled
    with plain.sampled_params(train=True):
        for param, expected in zip(net.parameters(), other.parameters(), strict=True):
            assert torch.equal(param, expected)


def test_several_threads_compute_the_same() -> None:
    found, before = [], torch.get_num_threads()
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            net = nn.Linear(70, 600)
            opt = ivon(net)
            opt.train(stay=True)
            for _ in range(5):
                opt.zero_grad()
                net.weight.square().sum().backward()
                opt.step()
            found.append(means(net, opt))
    finally:
        torch.set_num_threads(before)
    assert all(map(torch.equal, *found))


def test_a_parameter_without_a_gradient_shows_its_next_sample_too() -> None:
    used, unused = nn.Parameter(torch.ones(300)), nn.Parameter(torch.ones(5000))
    opt = IVON([used, unused], lr=0.1, ess=100.0, seed=0)
    opt.train(stay=True)
    samples = []
    for _ in range(3):
        opt.zero_grad()
        used.square().sum().backward()
        samples.append(unused.detach().clone())
        opt.step()
    assert not any(torch.equal(samples[-1], each) for each in (samples[0], unused.detach()))
    opt.eval()
    assert torch.equal(unused, torch.ones(5000))
    assert opt.state[unused]["step"] == 0


def test_a_dropped_step_is_followed_by_a_new_sample_of_the_same_mean() -> None:
    net = network()
    opt = ivon(net)
    before = [param.detach().clone() for param in net.parameters()]
    opt.train(stay=True)
    first = [param.detach().clone() for param in net.parameters()]
    (loss(net) * float("nan")).backward()
    opt.step()
    assert opt.skipped_steps == 1
    assert not any(map(torch.equal, net.parameters(), first))
    assert all(map(torch.equal, means(net, opt), before))


def test_a_parameter_that_joins_is_in_the_next_sample() -> None:
    net, late = network(), nn.Parameter(torch.ones(4))
    opt = ivon(net)
    in_mode(net, opt, 2)
    opt.add_param_group({"params": [late]})
    backward(net, opt)
    opt.step()
    assert not torch.equal(late.detach(), torch.ones(4))
    opt.zero_grad()
    (loss(net) + late.square().sum()).backward()
    opt.step()
    opt.eval()
    assert opt.state[late]["step"] == 1


def test_eval_ends_the_mode_and_train_goes_on_with_the_same_sample() -> None:
    net = network()
    opt = ivon(net)
    in_mode(net, opt, 2)
    sample = [param.detach().clone() for param in net.parameters()]
    opt.eval()
    assert not opt.is_sampled
    opt.train()
    assert all(map(torch.equal, net.parameters(), sample))
    backward(net, opt)
    opt.step()
    assert not opt.is_sampled  # without stay the mode ends with a step


def test_a_step_after_eval_leaves_the_mean() -> None:
    net = network()
    opt = ivon(net)
    opt.train(stay=True)
    backward(net, opt)
    opt.eval()
    opt.step()
    assert not opt.is_sampled


def test_a_closure_that_fails_leaves_the_mean() -> None:
    net = network()
    opt = ivon(net)
    in_mode(net, opt, 2)

    def closure() -> Tensor:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        opt.step(closure)
    assert not opt.is_sampled


def test_a_run_resumes_with_the_sample_it_had() -> None:
    net, whole, resumed = network(), network(), network()
    opt, all_along = ivon(net), ivon(whole)
    in_mode(net, opt, 3)
    in_mode(whole, all_along, 6)
    opt.eval()
    again = ivon(resumed)
    resumed.load_state_dict(net.state_dict())
    again.load_state_dict(opt.state_dict())
    in_mode(resumed, again, 3)
    assert all(map(torch.equal, means(resumed, again), means(whole, all_along)))


def test_eval_again_leaves_the_sample_of_another_thread_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = nn.Parameter(torch.ones(5))
    opt = IVON([weight], lr=0.1, ess=10.0, seed=0, foreach=False, fused=False)
    opt.train(stay=True)
    weight.square().sum().backward()
    opt.step()
    opt.eval()
    mean, begun, go_on = weight.detach().clone(), threading.Event(), threading.Event()
    plans = opt._members.plans

    def slowly(members: Sequence[Member]) -> list[Plan]:
        if threading.current_thread() is evaluating:
            begun.set()
            assert go_on.wait(60.0)
        return plans(members)

    def evaluate() -> None:
        with opt.sampled_params():
            pass

    evaluating = threading.Thread(target=evaluate)
    monkeypatch.setattr(opt._members, "plans", slowly)
    evaluating.start()
    assert begun.wait(60.0)
    opt.eval()  # the other thread is about to write its sample
    go_on.set()
    evaluating.join()
    assert torch.equal(weight, mean)
