"""The result of a fit: printed, saved, loaded, and as a page."""

from pathlib import Path

import pytest
import torch

import varlearn
from tests.fitting.small_data import classes, loader, network, numbers


@pytest.fixture(scope="module")
def fitted() -> varlearn.Fitted:
    held_out = loader(classes(20, seed=1), shuffle=False)
    return varlearn.fit(network(), loader(classes()), 5, held_out, samples=4, progress=False)


@pytest.fixture(scope="module")
def regression() -> varlearn.Fitted:
    return varlearn.fit(network(1, 1), loader(numbers(120)), 5, samples=4, progress=False)


def test_a_saved_fit_predicts_the_same_bits(fitted, regression, tmp_path: Path) -> None:
    for one, net, x in ((fitted, network(seed=1), classes(5)[0]), (regression, network(1, 1, seed=1), numbers(5)[0])):
        folder = one.save(tmp_path / one.task)
        again = varlearn.load(folder, net)
        first, second = one.predict(x), again.predict(x)
        key = "log_probs" if one is fitted else "std"
        assert torch.equal(getattr(first, key), getattr(second, key))
        assert again.validation.keys() == one.validation.keys()
        assert all(torch.equal(a, b) for a, b in zip(net.parameters(), one.model.parameters(), strict=True))


def test_a_folder_without_a_fit_and_another_network_are_refused(fitted, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no finished fit in .*; save or resume it first"):
        varlearn.load(tmp_path, network())
    with pytest.raises(ValueError, match="0.weight"):
        varlearn.load(fitted.save(tmp_path), network(7))


def test_inputs_pairs_and_loaders_give_the_same(fitted) -> None:
    x, y = classes(40, seed=3)
    alone, pair, batches = fitted.predict(x), fitted.predict((x, y)), fitted.predict(loader((x, y), shuffle=False))
    torch.testing.assert_close(alone.log_probs, pair.log_probs)
    torch.testing.assert_close(alone.log_probs, batches.log_probs)
    assert alone.targets is None
    assert torch.equal(pair.targets, y)
    assert torch.equal(fitted.predict(x.numpy()).log_probs, alone.log_probs)


def test_the_page_is_one_file(fitted, regression, tmp_path: Path) -> None:
    page = fitted.report(tmp_path / "new" / "page.html", classes(30, seed=4))
    assert page.read_text().lstrip().lower().startswith("<!doctype html")
    own = regression.report(tmp_path / "numbers.html").read_text(encoding="utf-8")
    assert len(own) < 1_000_000
    assert "held-out examples" in own  # they fitted temperature and noise, and are no test set
    assert "Scores on held-out data" in own
    assert "test examples at" not in own


def test_what_is_printed_is_short_and_says_what_matters(fitted, regression) -> None:
    words = repr(fitted)
    assert words.startswith("Fitted Sequential: task classification, method vadamw, training terms 60, epochs 5")
    assert "DiagGaussian over 50 weights in 4 tensors" in words
    assert "accuracy" in words
    assert len(words) < 500
    assert "noise from a held-out tenth of the training data" in repr(regression)
    found = regression.predict(numbers(9))
    assert repr(found).startswith("RegressionPredictions of 9 examples: samples 4, std from the weights ")
    assert "coverage of 90% intervals" in repr(found)
    assert "NLL" not in repr(regression.predict(numbers(9)[0]))
    for one in (fitted, fitted.posterior, found, fitted.predict(classes(3)[0]), fitted.posterior.at_mean()):
        html = one._repr_html_()
        assert html.startswith("<table>")
        assert len(html) < 3_000


def test_a_sick_fit_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    healthy = varlearn.fit(network(), loader(classes(200)), 20, samples=4, progress=False)
    assert healthy.advice == ()
    caplog.clear()
    sick = varlearn.fit(network(), loader(classes(200)), 20, lr=10.0, samples=4, progress=False)
    assert sick.advice
    assert sick.advice[0].sentence in caplog.text
    assert sick.advice[0].sentence in repr(sick)
