"""Image recipes against the paper's text: Appendix C.2 and the protocols."""

import pytest

from varlearn import presets
from varlearn.recipes.images import PAIRS, image


@pytest.mark.parametrize("data", ["cifar10", "cifar100", "tinyimagenet"])
@pytest.mark.parametrize("model", ["resnet20", "densenet121", "preresnet110", "resnet18"])
def test_cifar_and_tinyimagenet_at_the_papers_scale(data: str, model: str) -> None:
    runs = {name: image(data, model, name, "paper") for name in ("ivon", "sgd", "adamw")}
    examples, classes = {"cifar10": (50_000, 10), "cifar100": (50_000, 100), "tinyimagenet": (100_000, 200)}[data]
    for name, run in runs.items():
        assert (run.scale, run.optim.name, run.model.name, run.model.classes) == ("paper", name, model, classes)
        assert (run.train.epochs, run.train.steps, run.data.batch_size, run.data.subset) == (200, None, 50, None)
        assert run.train.warmup == 5 * examples / 50
        assert (run.train.warmup_from, run.train.schedule, run.train.final) == (0.2, "cosine", 0.0)
        assert (run.optim.weight_decay, run.optim.beta1, run.evaluate.samples) == (2e-4, 0.9, 64)
    ivon = runs["ivon"].optim
    assert (ivon.lr, ivon.hess_init, ivon.beta2, ivon.ess) == (0.2, 0.5, 1 - 1e-5, None)  # None: lambda = N
    assert (ivon.rescale_lr, ivon.clip_radius) == (True, float("inf"))
    assert runs["sgd"].optim.lr == 0.1
    exception = (data, model) == ("tinyimagenet", "preresnet110")
    assert (runs["adamw"].optim.lr, runs["adamw"].optim.beta2) == (0.0005 if exception else 0.002, 0.999)


def test_a_method_that_the_table_does_not_have_is_refused() -> None:
    with pytest.raises(
        ValueError, match="adahessian is not in the paper's table of imagenet; choose one of adamw, sgd"
    ):
        image("imagenet", "resnet50", "adahessian")


def test_imagenet_at_the_papers_scale() -> None:
    runs = {name: image("imagenet", "resnet50", name, "paper") for name in ("ivon", "sgd", "adamw")}
    ivon, sgd, adamw = (runs[name].optim for name in ("ivon", "sgd", "adamw"))
    assert (ivon.lr, ivon.hess_init, ivon.weight_decay, ivon.beta2, ivon.ess) == (2.5, 0.05, 5e-5, 1 - 5e-6, None)
    assert (sgd.lr, sgd.beta1, sgd.weight_decay) == (0.5, 0.9, 5e-5)
    assert (adamw.lr, adamw.beta2, adamw.weight_decay) == (0.001, 0.999, 0.1)
    assert all(run.data.batch_size * 8 == 1_024 for run in runs.values())
    assert all(run.train.warmup == 5 * 1_251 for run in runs.values())


def test_small_runs_take_the_settings_for_their_length() -> None:
    run = image("cifar10", "resnet20", "ivon", "small")
    assert (run.data.subset, run.train.epochs, run.train.warmup) == (10_000, 20, 200)
    auto = presets.short_run(n=10_000, steps=4_000)
    assert (run.optim.lr, run.optim.ess, run.optim.hess_init) == (2 * auto["lr"], auto["ess"], auto["hess_init"])
    assert (run.optim.beta1, run.optim.beta2) == auto["betas"]
    assert image("cifar10", "resnet20", "sgd", "small").optim == image("cifar10", "resnet20", "sgd", "paper").optim


def test_every_pair_has_a_small_setting() -> None:
    assert len(PAIRS) == 13
    for data, model in PAIRS:
        run = image(data, model, "ivon", "small")
        assert run.data.subset is not None
        assert run.data.subset % run.data.batch_size == 0


def test_a_pair_that_the_paper_does_not_have_is_refused() -> None:
    with pytest.raises(
        ValueError, match="imagenet-resnet20 is not in the paper's image tables; choose one of cifar10-"
    ):
        image("imagenet", "resnet20", "ivon")
