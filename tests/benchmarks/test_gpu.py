"""The benchmark of GPUs on a machine without one: it says so, its model is the kernels' traffic, its loop runs."""

import pytest
import torch
from torch import nn

from benchmarks import gpu
from tests.optim.engine.triton.test_triton_compilation import BYTES


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_refuses_with_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.main(["--layers", "1", "--width", "64"]) == 1
    said = capsys.readouterr()
    assert "there is no GPU" in said.err
    assert "varlearn doctor" in said.err
    assert "H100" in said.out


def test_the_model_is_the_traffic_of_the_kernels() -> None:
    """A step reads m0 only where it is a tensor; the model leaves it out."""
    by_name = {each.name: each.traffic for each in gpu.CONTENDERS}
    full = (BYTES["draw"] + BYTES["restore"] + BYTES["look"] + BYTES["step"] - 4,
            BYTES["bfloat16 draw"] + 6 + 2 + BYTES["bfloat16 step"] - 4)  # fmt: skip
    assert by_name["IVON triton"] == full == (56, 54)
    vadamw = BYTES["draw"] + BYTES["restore"] + BYTES["look"] + BYTES["vadamw"]
    lean = BYTES["lean draw"] + BYTES["lean restore"] + BYTES["look"] + BYTES["step"] - 4
    assert by_name["VAdamW triton"] == (vadamw, BYTES["bfloat16 draw"] + 6 + 2 + BYTES["bfloat16 vadamw"])
    assert by_name["IVON triton, lean"] == (lean, full[1])
    assert by_name["IVON triton, modes"] == (full[0] - BYTES["restore"], full[1] - 6)


def test_every_contender_takes_steps() -> None:
    for each in gpu.CONTENDERS:
        params = [nn.Parameter(torch.randn(shape)) for shape in ((3, 4), (5,))]
        grads = [torch.randn_like(param, requires_grad=False) for param in params]
        opt, before = each.build(params), [param.detach().clone() for param in params]
        for _ in range(2):
            gpu.drive(opt, params, grads, each.way)
        assert not any(map(torch.equal, params, before))
        if each.way != "plain":
            assert gpu.engine_of(opt) in ("native", "foreach")


class Clock:
    """A `torch.cuda.Event` of a device without a clock: every step takes two milliseconds."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end: object) -> float:
        return 2.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_whole_table_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], dtype: torch.dtype
) -> None:
    """All that a GPU would run, on the CPU."""
    monkeypatch.setattr(torch.cuda, "Event", Clock)
    monkeypatch.setattr(gpu, "COPIED", 1000)
    gpu.measure(torch.device("cpu"), dtype, [(3, 4), (5,)], rounds=2)
    said = capsys.readouterr().out
    assert "17 weights of torch.float32" in said or dtype != torch.float32
    assert "a copy reaches 0 GB/s" in said  # 8,000 bytes in 2 ms
    for each in gpu.CONTENDERS:
        assert f"{each.name} " in said
    assert "nan" not in said


def test_the_table_has_ratios_and_shares() -> None:
    assert gpu.row("IVON triton", 2.0, 1.0, "triton", 1.5).split() == [
        "IVON",
        "triton",
        "triton",
        "2.000",
        "2.00",
        "1.500",
        "75%",
    ]
    assert gpu.row("IVON foreach", 8.0, 2.0, "foreach", None).split()[-4:] == ["8.000", "4.00", "–", "–"]
