from pathlib import Path

import numpy as np
import pytest
import torch

from tests.data.files import write_npz
from varlearn.data.cifar10_labels import hmc_probabilities, human_counts, noisy_labels
from varlearn.data.errors import CorruptDataError, MissingDataError


def labels(pack: Path, split: str) -> torch.Tensor:
    return torch.from_numpy(np.load(pack / "cifar10" / "labels.npz")[split]).long()


def test_people_agree_with_the_test_labels(pack: Path) -> None:
    counts = human_counts(pack)
    assert counts.sum(1).double().mean().item() == pytest.approx(51.1, abs=0.05)
    assert (counts.argmax(1) == labels(pack, "test")).double().mean().item() == pytest.approx(0.9921, abs=5e-5)


@pytest.mark.parametrize(
    ("which", "wrong"),
    [("aggre", 0.0903), ("random1", 0.1723), ("random2", 0.1812), ("random3", 0.1764), ("worse", 0.4021)],
)
def test_noise_rates_are_the_published_ones(pack: Path, which: str, wrong: float) -> None:
    rate = (noisy_labels(which, pack) != labels(pack, "train")).double().mean().item()  # type: ignore[arg-type]
    assert rate == pytest.approx(wrong, abs=2.5e-4)  # the majority vote of the file is wrong in 9.01 %, not 9.03


def test_hmc(pack: Path) -> None:
    probabilities, targets = hmc_probabilities(pack).double(), labels(pack, "test")
    assert probabilities.sum(1).sub(1).abs().max() < 1e-4
    assert (probabilities.argmax(1) == targets).double().mean().item() == pytest.approx(0.9144)
    assert -probabilities[torch.arange(10_000), targets].log().mean().item() == pytest.approx(0.2773, abs=5e-5)


def test_what_is_not_there_or_not_right(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"cifar10/human_labels.npz is in none of"):
        human_counts(tmp_path)
    write_npz(tmp_path / "cifar10" / "human_labels.npz", cifar10h_counts=np.zeros((3, 10)))
    with pytest.raises(CorruptDataError, match=r"shape \(3, 10\), not \(10000, 10\)"):
        human_counts(tmp_path)
    with pytest.raises(CorruptDataError, match="has no 'cifar10n_worse'"):
        noisy_labels("worse", tmp_path)
