"""Sequential anchored ensembles: the walk of the anchors, the members, their rates."""

import pytest
import torch
from torch import nn

from varlearn.data.examples import Examples
from varlearn.methods import Facts
from varlearn.methods.sae import SAEMethod, SAESettings
from varlearn.posterior import Mixture, Point
from varlearn.train.build import build_parts
from varlearn.train.config import Data, Model, Run, Train
from varlearn.train.processes import Processes
from varlearn.train.training import Training

ALONE = Processes(0, 1, torch.device("cpu"))
EXAMPLES = Examples(torch.randn(8, 3), torch.tensor([0, 1] * 4), ("a", "b"), "table")


def trained(optim: SAESettings, upto: int | None = None, into: Training | None = None) -> Training:
    torch.manual_seed(0)
    run = Run(model=Model("mlp", 2, hidden=(4,)), data=Data(batch_size=4), optim=optim, train=Train(epochs=10))
    training = into or Training(build_parts(run, EXAMPLES, ALONE), ALONE)
    while training.step < (upto or training.facts.steps):
        training.gradients()
        training.update()
    return training


@pytest.mark.parametrize(
    ("members", "steps", "expected"), [(3, 500, [460, 480, 500]), (10, 30, [*range(3, 31, 3)]), (5, 3, [1, 2, 3])]
)
def test_members_end_every_two_epochs_and_short_runs_are_divided(members: int, steps: int, expected: list[int]) -> None:
    assert SAEMethod(SAESettings(members=members)).ends(Facts(100, 10, steps, "classification")) == expected


def test_the_rate_begins_again_for_each_member() -> None:
    method, facts = SAEMethod(SAESettings(members=3)), Facts(100, 10, 500, "classification")
    found = [method.lr(step, facts, 1.0, lambda step, total: 1.0 - step / total) for step in (0, 230, 460, 470, 480)]
    assert found == pytest.approx([1.0, 0.5, 1.0, 0.5, 1.0])


def test_the_walk_has_the_prior_as_its_stationary_distribution() -> None:
    method = SAEMethod(SAESettings(walk_step=1.5))
    method._place = {"w": torch.zeros(4_000)}
    method._direction = {"w": torch.ones(4_000)}
    for _ in range(60):
        method.walk(seed=3)
        method._members.append({})
    place = method._place["w"]
    assert place.mean().abs() < 0.08
    assert place.var().item() == pytest.approx(1.0, abs=0.1)
    assert (place.abs() < 0.6745).float().mean().item() == pytest.approx(0.5, abs=0.04)


def test_small_steps_go_on_in_their_direction() -> None:
    method = SAEMethod(SAESettings(walk_step=0.02))
    method._place, method._direction = {"w": torch.zeros(1_000)}, {"w": torch.ones(1_000)}
    for _ in range(20):
        method.walk(seed=3)
        method._members.append({})
    moved = method._place["w"]
    assert moved.mean().item() == pytest.approx(20 * 0.02 * (2 / torch.pi) ** 0.5, rel=0.1)


def test_a_member_of_a_linear_regression_is_the_minimum_around_its_anchor() -> None:
    torch.manual_seed(1)
    inputs, n, delta = torch.randn(20, 2), 20, 0.1
    targets = inputs @ torch.tensor([1.0, -1.0]) + 0.1 * torch.randn(20)
    net = nn.Linear(2, 1, bias=False)
    method = SAEMethod(SAESettings(lr=0.05, weight_decay=delta, beta1=0.9, beta2=0.99))
    optimizer = method.optimizer(net, Facts(n, n, 600, "regression", seed=3))
    for step in range(600):
        optimizer.param_groups[0]["lr"] = 0.05 * (1 - step / 600)
        optimizer.zero_grad()
        (0.5 * (net(inputs)[:, 0] - targets).square().mean()).backward()
        optimizer.step()
    anchor = method._place["weight"] / (n * delta) ** 0.5
    expected = torch.linalg.solve(
        inputs.T @ inputs / n + delta * torch.eye(2), inputs.T @ targets / n + delta * anchor[0]
    )
    torch.testing.assert_close(net.weight.detach()[0], expected, rtol=1e-3, atol=1e-4)


def test_the_result_is_a_mixture_of_points_and_resumes_bitwise() -> None:
    settings = SAESettings(members=4, member_epochs=1.0)
    straight = trained(settings).posterior()
    assert isinstance(straight, Mixture)
    assert [type(part) for part in straight.components] == [Point] * 4
    half, resumed = trained(settings, upto=17), trained(settings, upto=1)
    resumed.load_state_dict(half.state_dict())
    found = trained(settings, into=resumed).posterior()
    assert isinstance(found, Mixture)
    for one, other in zip(found.components, straight.components, strict=True):
        assert all(torch.equal(one.mean[name], other.mean[name]) for name in one.mean)


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match=r"optim.members=1 must be >= 2; one member is no ensemble"):
        SAESettings(members=1)
