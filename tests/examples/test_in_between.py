"""The example runs, and shows what it says: IVON is less sure between the clusters than on them."""

import runpy
from pathlib import Path

import pytest
import torch

EXAMPLE = Path(__file__).parents[2] / "examples" / "in_between.py"


@pytest.fixture(scope="module")
def example() -> dict:
    return runpy.run_path(str(EXAMPLE))


def test_the_std_rises_between_the_clusters(example: dict) -> None:
    x, y = example["observations"]()
    posterior = example["train_ivon"](x, y, steps=2500, seed=0)
    on_data, in_gap = (example["spread"](posterior, *where) for where in (example["CLUSTERS"], [example["GAP"]]))
    # over 6 seeds the ratio is 2.8 to 5.8
    assert in_gap / on_data > 1.8
    assert on_data < 0.15  # about the noise of 0.1 on the data
    fit = example["look"](posterior, x).mean - y
    assert fit.square().mean().sqrt().item() < 0.12
    gap = torch.linspace(*example["GAP"], 20)[:, None]
    assert example["look"](posterior, gap).mean.abs().max() < 2.0  # unsure, not wild


def test_one_adamw_network_is_sure_everywhere_and_an_ensemble_is_not(example: dict) -> None:
    x, y = example["observations"]()
    points = [example["train_adamw"](x, y, 200, seed) for seed in (0, 1)]
    assert example["spread"](points[0], example["GAP"]) == 0.0
    assert example["spread"](example["Mixture"](points), example["GAP"]) > 0.0


def test_the_script_draws_a_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "figure.png"
    monkeypatch.setattr("sys.argv", [str(EXAMPLE), "--steps", "3", "--out", str(out)])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert out.read_bytes().startswith(b"\x89PNG")
    lines = capsys.readouterr().out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == ["AdamW", "5", "IVON", "figure:"]


def test_the_data_lie_in_the_clusters(example: dict) -> None:
    x, _ = example["observations"]()
    inside = torch.zeros_like(x, dtype=torch.bool)
    for low, high in example["CLUSTERS"]:
        inside |= (x >= low) & (x <= high)
    assert inside.all()
    assert x.shape == (100, 1)
