import math
from pathlib import Path
from typing import Any

import pytest
import torch

from varlearn.posterior import DiagGaussian, Origin, load, save, weights_sha256


def test_what_is_known_comes_back() -> None:
    origin = Origin("ivon", "ivon", n=10.0)
    assert Origin.read(origin.known()) == origin
    assert Origin.read({}) == Origin()


def test_unknown_words_are_refused() -> None:
    with pytest.raises(ValueError, match="curvature='hessian' must be one of ivon, fisher, squared_gradient"):
        Origin(curvature="hessian")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="per='batch' must be one of mean, sum"):
        Origin(per="batch")  # type: ignore[arg-type]


def test_the_base_is_recorded_and_found_again(tmp_path: Path) -> None:
    weights = {"b": torch.randn(3), "a": torch.randn(2, 2).bfloat16(), "n": torch.tensor(3)}
    mark = weights_sha256(weights)
    assert weights_sha256(dict(reversed(weights.items()))) == mark
    changes: list[dict[str, torch.Tensor]] = [
        {"b": weights["b"] + 1e-6}, {"b": weights["b"].double()}, {"b": weights["b"].view(3, 1)}, {"c": weights["b"]}
    ]  # fmt: skip
    assert len({mark, *(weights_sha256(weights | change) for change in changes)}) == 5
    known = Origin("ivon", "ivon", n=10, base_sha256=mark)
    ones = {"w": torch.ones(1)}
    save(DiagGaussian(ones, ones, ess=1.0, origin=known), tmp_path / "q.safetensors")
    assert load(tmp_path / "q.safetensors").origin == known  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n": 0}, "n=0 must be > 0"),
        ({"batch_size": math.inf}, "batch_size=inf must be > 0 and finite"),
        ({"n": "many"}, "n='many' must be"),
        (
            {"base_sha256": "abc"},
            "base_sha256=.abc. must be 64 hexadecimal digits; use varlearn.posterior",
        ),
    ],
)
def test_impossible_entries_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Origin(**wrong)
