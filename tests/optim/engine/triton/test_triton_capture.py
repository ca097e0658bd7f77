"""Whole steps in a CUDA graph: replays are what the loop of steps would have been, with fresh noise each.

The graph is recorded on CPU tensors, whose kernels run in Triton's interpreter; see `recorded_graph`.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.optim.engine.problems import needs_triton
from tests.optim.engine.triton.recorded_graph import WAITS, RecordedGraph, captured
from varlearn import IVON, VAdamW
from varlearn.optim import hyper, lr_history, stepping
from varlearn.optim.engine.triton.launching import Launcher

pytestmark = [needs_triton, pytest.mark.usefixtures("_triton_on_cpu")]

SHAPES = ((3, 5), (1030,), (7,))


def ivon(params: list[nn.Parameter], **settings: Any) -> IVON:
    return IVON(params, **{"lr": 0.1, "ess": 50.0, "betas": (0.9, 0.99), "hess_init": 0.5, "seed": 3, **settings})


def vadamw(params: list[nn.Parameter], **settings: Any) -> VAdamW:
    return VAdamW(params, **{"lr": 0.05, "n": 100, "batch_size": 10, "steps": 40, "seed": 3, **settings})


def in_block(opt: Any, backward: Callable[[], None]) -> None:
    with opt.sampled_params(train=True):
        opt.zero_grad()
        backward()
    opt.step()


def in_modes(opt: Any, backward: Callable[[], None]) -> None:
    opt.train()
    opt.zero_grad()
    backward()
    opt.step()


class Training:
    """Quadratic losses around targets that change from step to step; the first target has its own memory."""

    def __init__(self, build: Any, way: Any, dtype: torch.dtype = torch.float32, **settings: Any) -> None:
        source = torch.Generator().manual_seed(0)
        draw = lambda shape: torch.randn(shape, generator=source)  # noqa: E731
        self.params = [nn.Parameter(draw(shape).to(dtype)) for shape in SHAPES]
        self.targets = [[draw(shape) for shape in SHAPES] for _ in range(20)]
        self.now = [target.clone() for target in self.targets[0]]
        self.opt, self.way, self.taken = build(self.params, **settings), way, 0

    def backward(self) -> None:
        pairs = zip(self.params, self.now, strict=True)
        sum(((param.float() - target) ** 2).sum() for param, target in pairs).backward()  # type: ignore[union-attr]

    def feed(self) -> None:
        for now, target in zip(self.now, self.targets[self.taken], strict=True):
            now.copy_(target)
        self.taken += 1

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.feed()
            self.way(self.opt, self.backward)

    def capture(self) -> RecordedGraph:
        graph, (plan,) = RecordedGraph(), self.opt._members._plans
        state = [value for each in self.opt.state.values() for value in each.values() if isinstance(value, Tensor)]
        found = [value for part in (plan, plan._samples, plan._count) for value in vars(part).values()]
        own = [getattr(value, "tensor", value) for value in found]
        with captured(graph, [*self.params, *state, *(value for value in own if isinstance(value, Tensor))]):
            self.way(self.opt, self.backward)
        return graph

    def replay(self, graph: RecordedGraph, count: int) -> None:
        for _ in range(count):
            self.feed()
            graph.replay()

    def outcome(self) -> dict[str, Any]:
        self.opt.eval()
        return {"params": [param.detach().clone() for param in self.params], **self.opt.state_dict()}


def assert_same(ours: dict[str, Any], plain: dict[str, Any]) -> None:
    for new, old in zip(ours["params"], plain["params"], strict=True):
        torch.testing.assert_close(new, old, rtol=1e-6, atol=1e-7)
    for k, state in plain["state"].items():
        for name, value in state.items():
            torch.testing.assert_close(ours["state"][k][name], value, rtol=1e-6, atol=1e-7)
    for new, old in zip(ours["param_groups"], plain["param_groups"], strict=True):
        assert (new["draws"], new["ess"]) == (old["draws"], pytest.approx(old["ess"]))


def named(value: Any) -> str:
    """The same name in every process: a function's own, and the settings in words."""
    return getattr(value, "__name__", str(value))


@pytest.mark.parametrize("way", [in_block, in_modes])
@pytest.mark.parametrize(
    ("build", "settings"),
    [
        (ivon, {}),
        (ivon, {"memory": "lean"}),
        (ivon, {"max_grad_norm": 3.0}),
        (ivon, {"dtype": torch.bfloat16}),
        (vadamw, {}),
        (vadamw, {"max_grad_norm": 3.0}),
    ],
    ids=named,
)
def test_replays_are_the_steps_of_a_loop(build: Any, settings: dict[str, Any], way: Any) -> None:
    plain, graphed = Training(build, way, **settings), Training(build, way, **settings)
    plain.steps(8)
    graphed.steps(3)
    graph = graphed.capture()
    graphed.replay(graph, 5)
    assert {"make_keys", "draw", "look_for_nonfinite", "prepare", "step"} <= set(graph.kernels)
    assert_same(graphed.outcome(), plain.outcome())
    plain.steps(2)  # the loop goes on, without the graph
    graphed.steps(2)
    assert_same(graphed.outcome(), plain.outcome())
    graphed.replay(graph, 2)  # and with it again
    plain.steps(2)
    if build is ivon:  # variational AdamW's prior widths were measured anew after step 10
        assert_same(graphed.outcome(), plain.outcome())
    assert [state["step"] for state in graphed.opt.state_dict()["state"].values()] == [12] * 3


def compare_replays(build: Any, **settings: Any) -> None:
    """Three replays, the plain loop computed by tensor operations: a wrong kernel cannot be wrong in both."""
    plain, graphed = Training(build, in_block, fused=False, **settings), Training(build, in_block, **settings)
    plain.steps(6)
    graphed.steps(3)
    graphed.replay(graphed.capture(), 3)
    ours, expected = graphed.outcome(), plain.outcome()
    assert [group["draws"] for group in ours["param_groups"]] == [6]
    for new, old in zip(ours["params"], expected["params"], strict=True):
        torch.testing.assert_close(new, old, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("build", "settings"), [(ivon, {}), (ivon, {"max_grad_norm": 3.0}), (vadamw, {})], ids=named)
def test_replays_are_the_steps_of_tensor_operations(build: Any, settings: dict[str, Any]) -> None:
    compare_replays(build, **settings)


@pytest.mark.parametrize("settings", [{}, {"memory": "lean"}, {"max_grad_norm": 3.0}], ids=named)
@pytest.mark.parametrize("build", [ivon, vadamw])
def test_a_capture_needs_no_kernel_that_was_not_loaded_before(
    build: Any, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each set of constants is a kernel of its own, which Triton compiles and loads when it is launched first."""
    launched = set[tuple[Any, ...]]()

    def noting(launch: Any) -> Any:
        def note(self: Any, kernel: Any, *args: Any, **constants: Any) -> None:
            launched.add((kernel.__name__, *(f"{name}={value}" for name, value in sorted(constants.items()))))
            launch(self, kernel, *args, **constants)

        return note

    for name in ("run", "run_once"):
        monkeypatch.setattr(Launcher, name, noting(getattr(Launcher, name)))
    training = Training(build, in_block, **settings)
    training.steps(3)
    before = set(launched)
    training.capture()
    assert launched == before


def test_the_noise_of_each_replay_is_fresh() -> None:
    training, seen = Training(ivon, in_modes, lr=0.0), list[Tensor]()
    training.steps(3)
    (plan,) = training.opt._members._plans
    graph = training.capture()
    for _ in range(4):
        graph.replay()
        seen.append(plan._samples._made_keys.clone())
    assert len({int(keys) for keys in seen}) == 4


@pytest.mark.parametrize("build", [ivon, vadamw])
def test_a_replay_with_a_bad_gradient_is_dropped(build: Any) -> None:
    plain, graphed = Training(build, in_block), Training(build, in_block)
    for training in (plain, graphed):
        training.targets[4][1][1029] = torch.nan
    plain.steps(7)
    graphed.steps(3)
    graph = graphed.capture()
    graphed.replay(graph, 4)
    assert plain.opt.skipped_steps == graphed.opt.skipped_steps == 1
    assert_same(graphed.outcome(), plain.outcome())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_the_learning_rate_may_be_on_the_device(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (hyper, lr_history, stepping):
        monkeypatch.setattr(module, "stays_on_device", lambda value: isinstance(value, Tensor))
    for build in (ivon, vadamw):
        rate = torch.tensor(0.125, dtype=dtype)
        plain, graphed = Training(build, in_block, lr=0.125), Training(build, in_block, lr=rate)
        graphed.steps(3)
        graph = graphed.capture()
        plain.steps(3)
        for value in (0.0625, 0.25, 0.015625):  # which bfloat16 has exactly
            rate.fill_(value)
            plain.opt.param_groups[0]["lr"] = value
            plain.steps(1)
            graphed.replay(graph, 1)
        for new, old in zip(graphed.params, plain.params, strict=True):
            torch.testing.assert_close(new, old, rtol=1e-6, atol=1e-7)


def test_who_waits_is_noticed() -> None:
    with pytest.raises(RuntimeError, match=WAITS), captured(RecordedGraph(), []):
        float(torch.ones(1))


def test_what_needs_the_host_is_refused() -> None:
    def two_blocks(opt: Any, backward: Any) -> None:
        for _ in range(2):
            with opt.sampled_params(train=True):
                opt.zero_grad()
                backward()
        opt.step()

    def evaluated(opt: Any, backward: Any) -> None:
        in_block(opt, backward)
        with opt.sampled_params():
            pass

    for way, settings, why in (
        (two_blocks, {}, "several samples"),
        (in_block, {"nonfinite": "raise"}, "nonfinite='raise'"),
        (evaluated, {}, "its sample is for evaluation"),
    ):
        training = Training(ivon, way, **settings)
        training.steps(3)
        with pytest.raises(RuntimeError, match=f"cannot be captured in a CUDA graph: .*{why}"):
            training.capture()
    training = Training(vadamw, in_block, ess=lambda passes: 100.0)
    training.steps(3)
    with pytest.raises(RuntimeError, match="lambda follows a function of yours"):
        training.capture()


def test_a_first_step_cannot_be_captured() -> None:
    training = Training(ivon, in_block)
    with pytest.raises(RuntimeError, match="Take three steps"), captured(RecordedGraph(), training.params):
        training.way(training.opt, training.backward)
