"""GPT-2 recipes against Appendix C.1."""

import pytest

from varlearn.recipes.pretraining import language


@pytest.mark.parametrize(("size", "lr", "samples"), [("125m", 0.3, 24), ("355m", 0.2, 48), ("773m", 0.15, 120)])
def test_the_papers_scale(size: str, lr: float, samples: int) -> None:
    run = language(size, "ivon", "paper")  # type: ignore[arg-type]
    optim, train = run.optim, run.train
    assert (optim.lr, optim.hess_init, optim.beta1, optim.beta2) == (lr, 1e-3, 0.9, 1 - 1e-5)
    assert (optim.weight_decay, optim.matrices_only, optim.clip_radius, optim.rescale_lr) == (1e-6, True, 1e-3, False)
    assert optim.ess == 1e10
    assert (train.steps, train.warmup, train.schedule, train.final) == (100_000, 2_000, "cosine", 0.0)
    assert (train.max_grad_norm, train.precision, train.eval_every) == (1.0, "bf16", 1_000)
    assert (run.model.name, run.data.context, run.data.tokens) == (f"gpt2_{size}", 1_024, "gpt2")
    assert 8 * run.data.batch_size * train.accumulate == 480
    assert 8 * train.accumulate == samples  # one fresh sample per micro-batch and device


def test_adamw_at_the_papers_scale() -> None:
    run = language("125m", "adamw", "paper")
    assert (run.optim.lr, run.optim.beta1, run.optim.beta2, run.optim.weight_decay) == (6e-4, 0.9, 0.95, 0.1)
    assert run.optim.matrices_only


def test_small_runs_differ_in_the_optimizer_alone() -> None:
    ivon, adamw = language("125m", "ivon"), language("125m", "adamw")
    assert (ivon.model, ivon.data, ivon.train, ivon.evaluate) == (adamw.model, adamw.data, adamw.train, adamw.evaluate)
    assert (ivon.optim.lr, ivon.optim.beta2) == (0.3, 1 - 1e-5)  # the paper's


def test_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="size='1b' is not one of the paper's; choose one of 125m, 355m, 773m"):
        language("1b", "ivon")  # type: ignore[arg-type]
