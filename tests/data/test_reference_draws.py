"""References of the competition, read from files that the test writes."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.files import write_npz
from varlearn.data.errors import MissingDataError
from varlearn.data.hmc_predictives import hmc_predictive
from varlearn.data.posteriordb import reference_regression


def test_a_predictive_is_normalised_and_a_zero_has_a_logarithm(tmp_path: Path) -> None:
    probs = np.array([[2.0, 1.0, 1.0], [0.0, 0.5, 0.5]], dtype=np.float32)
    write_npz(tmp_path / "hmc" / "cifar10_hmc_probs.npz", probs=probs)
    found = hmc_predictive("cifar10", tmp_path)
    assert torch.allclose(found.exp(), torch.tensor([[0.5, 0.25, 0.25], [0.0, 0.5, 0.5]]), atol=1e-6)
    assert found.isfinite().all()
    with pytest.raises(MissingDataError, match="imdb_hmc_probs"):
        hmc_predictive("imdb", tmp_path)
    with pytest.raises(ValueError, match="choose one of cifar10"):
        hmc_predictive("mnist", tmp_path)


def test_regressions_have_their_designs(tmp_path: Path) -> None:
    draws = np.arange(2 * 3 * 5, dtype=np.float64).reshape(2, 3, 5)
    content = {"mom_hs": [1, 0], "mom_iq": [100, 90], "kid_score": [80, 70]}
    write_npz(
        tmp_path / "hmc" / "posteriordb" / "kidiq-kidscore_interaction.npz",
        draws=draws,
        params=np.array(["a"]),
        data_json=np.array(json.dumps(content)),
    )
    inputs, targets, flat = reference_regression("kidiq-kidscore_interaction", tmp_path)
    assert inputs.tolist() == [[1, 1, 100, 100], [1, 0, 90, 0]]
    assert targets.tolist() == [80, 70]
    assert flat.shape == (6, 5)
    with pytest.raises(ValueError, match="choose one of sblrc-blr"):
        reference_regression("eight-schools", tmp_path)
