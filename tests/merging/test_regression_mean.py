"""RegMean against the regression that it stands for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from varlearn.merging import input_grams, merge
from varlearn.posterior import Point


def weights(seed: int, dtype: torch.dtype = torch.float64) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    named = nn.Linear(3, 2).named_parameters()
    return {name: torch.randn(p.shape, generator=generator, dtype=torch.float64).to(dtype) for name, p in named}


DATA = [torch.randn(40, 3, dtype=torch.float64) * torch.tensor([1.0, 0.2, 3.0]), torch.randn(9, 3).double()]
GRAMS = [{"weight": x.T @ x} for x in DATA]
BASE, MODELS = weights(0), [Point(weights(1)), Point(weights(2))]


def test_without_shrinkage_it_is_least_squares_on_all_outputs() -> None:
    found = merge(BASE, MODELS, method="regmean", inputs=GRAMS, gram_shrinkage=1.0, weights=[1.0, 2.0])
    rows = [x.numpy() * np.sqrt(w) for x, w in zip(DATA, (1.0, 2.0), strict=True)]
    wanted = [x @ model.mean["weight"].numpy().T for x, model in zip(rows, MODELS, strict=True)]
    solution = np.linalg.lstsq(np.concatenate(rows), np.concatenate(wanted), rcond=None)[0].T
    np.testing.assert_allclose(found["weight"].numpy(), solution, rtol=1e-9)
    torch.testing.assert_close(found["bias"], (MODELS[0].mean["bias"] + 2 * MODELS[1].mean["bias"]) / 3)


def test_full_shrinkage_weighs_each_input_by_its_size() -> None:
    found = merge(BASE, MODELS, method="regmean", inputs=GRAMS, gram_shrinkage=0.0)["weight"]
    sizes = [gram["weight"].diagonal() for gram in GRAMS]
    wanted = sum(s * m.mean["weight"] for s, m in zip(sizes, MODELS, strict=True)) / sum(sizes)
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_one_model_is_itself_and_the_order_does_not_matter(dtype: torch.dtype) -> None:
    base, models = weights(0, dtype), [Point(weights(1, dtype)), Point(weights(2, dtype))]
    alone = merge(base, models[:1], method="regmean", inputs=GRAMS[:1])
    assert all(torch.equal(alone[name], value) for name, value in models[0].mean.items())
    forward = merge(base, models, method="regmean", inputs=GRAMS, weights=[1.0, 2.0], alpha=0.5)
    back = merge(base, models[::-1], method="regmean", inputs=GRAMS[::-1], weights=[2.0, 1.0], alpha=0.5)
    torch.testing.assert_close(forward, back)


def test_grams_are_those_of_the_layers_inputs() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2, bias=False)).double()
    found = input_grams(model, [(x.view(-1, 1, 3), None) for x in DATA])
    hidden = torch.cat([model[:2](x) for x in DATA])
    rows = torch.cat(DATA)
    torch.testing.assert_close(found, {"0.weight": rows.T @ rows, "2.weight": hidden.T @ hidden})


def test_tied_weights_are_left_out() -> None:
    """They are one tensor in the base, of which a linear layer is only one use."""
    table, head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
    head.weight = table.weight
    model = nn.Sequential(table, nn.Linear(3, 3), head)
    found = input_grams(model, [torch.tensor([1, 2])])
    assert set(found) == {"1.weight"}
    base = {name: value.detach() for name, value in model.named_parameters()}
    merge(base, [Point(base)], method="regmean", inputs=[found])


BAD: list[tuple[Any, str]] = [
    (GRAMS[:1], r"inputs has 1 entries for 2 posteriors"),
    ([GRAMS[0], {}], r"inputs\[1\] and inputs\[0\] differ in \['weight'\]"),
    ([{"x": GRAMS[0]["weight"]}] * 2, r"inputs\[0\]\['x'\] belongs to no tensor of the base"),
    ([{"bias": GRAMS[0]["weight"]}] * 2, r"inputs\[0\]\['bias'\] has shape \(3, 3\)"),
    ([{"weight": torch.eye(2)}] * 2, r"needs \(3, 3\); use varlearn.merging.input_grams"),
    ([{"weight": GRAMS[0]["weight"] / 0}] * 2, r"inputs\[0\]\['weight'\] has NaN or infinite"),
]


@pytest.mark.parametrize(("grams", "message"), BAD, ids=[message[:30] for _, message in BAD])
def test_unfitting_inputs_are_refused(grams: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        merge(BASE, MODELS, method="regmean", inputs=grams)


def test_models_and_loaders_without_inputs_are_refused() -> None:
    with pytest.raises(ValueError, match="no nn.Linear.*use another method"):
        input_grams(nn.LayerNorm(2), [torch.ones(1, 2)])
    with pytest.raises(ValueError, match="no batch"):
        input_grams(nn.Linear(2, 1), [])
