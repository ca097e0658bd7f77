"""The benchmark of GPUs on a machine without one: it says so, its model is the kernels' traffic, its loop runs."""

import pytest
import torch
from torch import nn

from benchmarks import gpu
from tests.optim.engine.test_triton_compilation import BYTES


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
