"""The paper's figures, a few compared with the paper by eye, all of them for what any figure must satisfy."""

import pytest

from varlearn.recipes import paper
from varlearn.recipes.paper import Published


def test_figures_read_off_the_paper() -> None:
    images = paper.images()
    assert images["imagenet", "resnet50", "ivon"]["accuracy"] == Published(77.46, 0.07)
    assert images["imagenet", "resnet50", "adamw"]["ece"] == Published(0.066, 0.002)
    assert images["cifar10", "resnet20", "ivon"]["nll"] == Published(0.219, 0.002)
    assert images["cifar10", "densenet121", "sgd"]["brier"] == Published(0.123, 0.003)
    assert images["cifar100", "resnet18", "ivon@mean"]["accuracy"] == Published(74.51, 0.24)
    assert images["tinyimagenet", "preresnet110", "adamw"]["top5_accuracy"] == Published(74.94, 0.0)
    assert images["tinyimagenet", "densenet121", "adahessian"]["accuracy"] == Published(43.66, 10.76)
    assert paper.ood()["cifar10", "resnet20", "sgd", "flowers102"]["auroc"] == Published(86.3, 0.3)
    assert paper.ood()["cifar10", "resnet20", "ivon", "flowers102"]["fpr95_paper"] == Published(17.8, 0.5)
    assert paper.hess_init()["cifar10", "resnet20", "ivon", "0.002"]["accuracy"] == Published(43.95, 31.24)
    assert paper.gru()["imdb", "gru", "ivon"]["nll"] == Published(0.568, 0.119)
    assert paper.gru()["cola", "gru", "adamw"]["auroc"] == Published(0.579, 0.019)
    assert paper.gpt2()["openwebtext", "gpt2-125m", "adamw"]["perplexity"] == Published(18.1, None)


@pytest.mark.parametrize(
    ("figures", "lines"),
    [(paper.images(), 64), (paper.ood(), 14), (paper.hess_init(), 12), (paper.gru(), 12), (paper.gpt2(), 6)],
)
def test_every_line_is_there_and_within_bounds(figures: paper.Figures, lines: int) -> None:
    assert len(figures) == lines
    for names, row in figures.items():
        for metric, figure in row.items():
            top = {"nll": 7, "ece": 0.5, "brier": 1, "auroc": 100, "perplexity": 20}.get(metric, 100)
            assert 0 < figure.mean <= top, (names, metric)


def test_top5_is_at_least_top1() -> None:
    assert all(row["top5_accuracy"].mean > row["accuracy"].mean for row in paper.images().values())
