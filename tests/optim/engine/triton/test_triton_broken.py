"""The tests of the Triton kernels can fail: each line that matters is broken once, and a test must notice."""

import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.optim.engine import test_fused_engines as both
from tests.optim.engine.problems import Quadratics, few_layouts, needs_triton
from tests.optim.engine.triton import test_triton_capture as captures
from tests.optim.engine.triton import test_triton_numbers as numbers
from tests.optim.engine.triton import test_triton_plan as plans
from varlearn.optim.engine import choice
from varlearn.optim.engine import triton as package
from varlearn.optim.engine.native import native_engine
from varlearn.optim.engine.triton import triton_engine

pytestmark = [needs_triton, numbers.overflows]

NAME = package.__name__


@contextmanager
def broken(folder: Path, module: str, line: str, instead: str) -> Iterator[None]:
    """The Triton engine of a copy of its package in which one line is another."""
    copy = folder / "package"
    shutil.copytree(Path(package.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    source = copy / f"{module}.py"
    text = source.read_text(encoding="utf-8")
    assert text.count(line) == 1, "the line has changed; break the new one"
    source.write_text(text.replace(line, instead), encoding="utf-8")
    with _forgotten(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(package, "__path__", [str(copy)])
        plan = importlib.import_module(f"{NAME}.triton_plan").TritonPlan
        patch.setitem(choice.ENGINES, "triton", plan)
        yield


@contextmanager
def _forgotten() -> Iterator[None]:
    """The package as if none of its modules had been imported; afterwards as it was."""

    def forget() -> dict[str, Any]:
        found = {name: module for name, module in sys.modules.items() if name.startswith(f"{NAME}.")}
        for name in found:
            del sys.modules[name]
            delattr(package, name.rpartition(".")[2])
        return found

    before = forget()
    try:
        yield
    finally:
        forget()
        sys.modules.update(before)
        for name, module in before.items():
            setattr(package, name.rpartition(".")[2], module)


def noise() -> None:
    numbers.test_every_bit_of_the_noise_is_that_of_the_transcription(7)


def ivon() -> None:
    torch.manual_seed(0)
    Quadratics("reparam", "tensor", 0.05, (-0.25, 0.5), few_layouts()).compare("triton", steps=2, tolerance=2e-6)


def saturation() -> None:
    numbers.test_adversarial_numbers_saturate_as_in_the_loop("reparam", 0.0, 1.0, float("inf"), 1.0)


def given() -> None:
    both.test_an_estimate_saturates_before_it_is_averaged("triton", float("inf"))


def nan() -> None:
    both.test_nan_is_not_hidden_by_the_bounds("triton")


def fold() -> None:
    both.test_running_means_are_the_loop_s("triton", "reparam", True)


def vadamw() -> None:
    numbers.test_variational_adamw_is_the_loop_s(True, 0.1, (-0.25, 0.5, 2.0))


def lean() -> None:
    plans.test_a_sample_goes_in_and_comes_out(torch.float32, "lean")


def fast() -> None:
    plans.test_a_sample_goes_in_and_comes_out(torch.float32, "fast")


def half() -> None:
    plans.test_a_sample_goes_in_and_comes_out(torch.bfloat16, "fast")
    plans.test_what_is_written_into_a_low_precision_weight_becomes_its_mean()


def steps_in_sample() -> None:
    plans.test_a_step_while_a_sample_is_in_is_one_after_it([0, 1, 2], "fast", torch.float32)


def finite() -> None:
    plans.test_all_finite_finds_one_bad_number_anywhere(0, 1029, torch.float32, float("-inf"))


def dropped() -> None:
    plans.test_a_dropped_step_is_as_if_it_had_never_been("a NaN")


def overflow() -> None:
    plans.test_a_dropped_step_is_as_if_it_had_never_been("GradScaler")


def replays(build: Any, **settings: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton_engine, "DEVICES", ("cpu",))
        patch.setattr(triton_engine, "problem_on", lambda device, rule, dtype: None)
        patch.setattr(native_engine, "load_or_warn", lambda: False)
        captures.compare_replays(build, **settings)


def captured() -> None:
    replays(captures.ivon)


def captured_vadamw() -> None:
    replays(captures.vadamw)


def clipped() -> None:
    replays(captures.ivon, max_grad_norm=3.0)


def self_check() -> None:
    """What a user's machine does on first use."""
    engine = importlib.import_module(f"{NAME}.triton_engine")
    for rule in engine.RULES.values():
        assert engine.difference_from_loop(torch.device("cpu"), rule) < 1e-5


BREAKS: list[tuple[Callable[[], None], str, str, str]] = [
    (noise, "normal_kernels", "word ^ (word >> 27)", "word ^ (word >> 26)"),
    (noise, "normal_kernels", "(pair + 1) * GOLDEN", "pair * GOLDEN"),
    (noise, "normal_kernels", "0.00121366454", "0.00121366454 + 1e-6"),
    (noise, "block_kernels", "fold_in(key, index)", "fold_in(index, key + 1)"),
    (ivon, "block_kernels", "start = number.to(tl.int64) * BLOCK", "start = number.to(tl.int64) * (BLOCK - 2)"),
    (ivon, "sample_kernels", "std * noise", "std * std * noise"),
    (ivon, "ivon_kernels", "1.0 + 0.5 * relative", "1.0 + relative"),
    (ivon, "ivon_kernels", "momentum * tl.load(clock + UNBIAS)", "momentum"),
    (ivon, "ivon_kernels", "bounded(direction, -radius, radius)", "direction"),
    (ivon, "ivon_kernels", "if prior_at != 0:", "if prior_at == 0:"),
    (ivon, "ivon_kernels", "tl.load(s + NOISE_SCALE) * grad", "tl.load(s + NOISE_SCALE)"),
    (saturation, "ivon_kernels", "tl.load(s + LOWEST_HESS), tl.load(s + LARGEST))", "-tl.load(s + LARGEST), 3e38)"),
    (given, "ivon_kernels", "return bounded(estimate, -tl.load(s + LARGEST), tl.load(s + LARGEST))", "return estimate"),
    (nan, "block_kernels", "values = tl.where(values < low,", "values = tl.where((values < low) | (values != values),"),
    (fold, "ivon_kernels", "old * read(mean_at, left, BLOCK, IS_WHOLE)", "new * read(mean_at, left, BLOCK, IS_WHOLE)"),
    (fold, "ivon_kernels", "if captured != 0:", "if captured == 1:"),
    (vadamw, "vadamw_kernels", "grad * tl.load(s + RAW_FACTOR)", "grad * tl.load(s + GRAD_FACTOR)"),
    (vadamw, "vadamw_kernels", "tl.sqrt_rn(square)", "square"),
    (lean, "sample_kernels", "scale, -1.0, DTYPE, LEAN, BLOCK, True", "scale, 1.0, DTYPE, LEAN, BLOCK, True"),
    (fast, "sample_kernels", "if KEEP != LEAN:", "if KEEP == STATE:"),
    (half, "sample_kernels", "== shown, mean, shown)", "== shown, shown, shown)"),
    (steps_in_sample, "step_kernels", "tl.where(is_in, kept_at, shown_at)", "tl.where(is_in, shown_at, shown_at)"),
    (finite, "step_kernels", "== 0x7F800000", "== 0x7F000000"),
    (dropped, "step_kernels", "before - (takes_part & is_dropped).to(tl.int32)", "before"),
    (dropped, "step_kernels", "other=0.0), steps)\n        debias", "other=0.0), steps + 1)\n        debias"),
    (dropped, "step_kernels", "tl.div_rn(1.0, tl.load(scale))", "1.0"),
    (overflow, "step_kernels", "| (tl.load(overflow) > 0.0)", ""),
    (captured, "sample_kernels", "number += is_captured * tl.load(draws + group, mask=exists, other=0)", ""),
    (captured, "sample_kernels", "fold_in(key, number.to(tl.uint64, bitcast=True))", "fold_in(key, key)"),
    (captured, "step_kernels", " + is_captured * takes_part.to(tl.int32)", ""),
    (captured_vadamw, "sample_kernels", "ess = start * power(ratio, taken)", "ess = start"),
    (captured_vadamw, "sample_kernels", "debias = 1.0 - power(", "debias = 1.0 + power("),
    (captured_vadamw, "step_kernels", "second = 1.0 - power(", "second = 1.0 + power("),
    (clipped, "step_kernels", "tl.where(clip < 1.0, clip, 1.0)", "tl.where(clip < 1.0, 1.0, clip)"),
    (self_check, "sample_kernels", "std * noise", "1.001 * std * noise"),
    (self_check, "sample_kernels", "scale, -1.0, DTYPE, LEAN, BLOCK, False", "scale, 1.0, DTYPE, LEAN, BLOCK, False"),
    (self_check, "sample_kernels", "if tl.load(marks + mark) == number:", "if tl.load(marks + mark) != number:"),
    (self_check, "ivon_kernels", "old * read(at, left, BLOCK, IS_WHOLE)", "new * read(at, left, BLOCK, IS_WHOLE)"),
    (self_check, "step_kernels", "== 0x7F800000", "== 0x7F000000"),
    (self_check, "step_kernels", "is_dropped = (tl.load(found) != 0)", "is_dropped = (tl.load(found) > 1)"),
    (self_check, "vadamw_kernels", "tl.sqrt_rn(square)", "tl.sqrt_rn(square + 1e-3)"),
]


@pytest.mark.parametrize(
    ("check", "module", "line", "instead"), BREAKS, ids=lambda part: getattr(part, "__name__", part)
)
def test_a_broken_kernel_is_noticed(
    check: Callable[[], None], module: str, line: str, instead: str, tmp_path: Path
) -> None:
    with broken(tmp_path, module, line, instead), pytest.raises(AssertionError):
        check()


def test_an_unbroken_copy_passes_all_of_them(tmp_path: Path) -> None:
    with broken(tmp_path, "normal_kernels", "import triton\n", "import triton \n"):
        for check in dict.fromkeys(check for check, *_ in BREAKS):
            check()
