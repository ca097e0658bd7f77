"""The page of a fit: layers, temperatures, examples and advice."""

import base64
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import varlearn
from varlearn.files.png import png
from varlearn.fitting.page_analysis import _content


def test_the_page_of_a_fit_shows_posterior_examples_and_advice(tmp_path: Path) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(120, 1, 4, 4)
    targets = (inputs.mean((1, 2, 3)) > 0).long()
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    train = DataLoader(TensorDataset(inputs[:100], targets[:100]), 20)
    fitted = varlearn.fit(net, train, epochs=3, progress=False)
    page = fitted.report(tmp_path / "page.html", (inputs[100:], targets[100:])).read_text(encoding="utf-8")
    for heading in ("Width of the posterior", "NLL and the temperature", "NLL and the number of samples"):
        assert f"<h3>{heading}</h3>" in page
    assert page.count("<img") >= 8
    assert "Sequential on your data" in page
    assert "No check found a problem" in page or "Next: " in page


def test_contents_of_examples() -> None:
    assert _content(torch.tensor([0.5, 2.0])) == {"row": [0.5, 2.0]}
    assert _content(torch.tensor([1, 2])) == {}  # tokens: nobody reads their numbers
    assert _content(torch.zeros(2, 4, 4)) == {}
    image = torch.tensor([[[-1.0, 1.0]]])
    assert base64.b64decode(_content(image)["png"]) == png(torch.tensor([[[0, 255]]], dtype=torch.uint8))
