"""Tables of tiny runs: what is run, skipped, resumed and gathered."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from varlearn.recipes import digits
from varlearn.recipes.jobs import Job, chosen, collect, finish, jobs, run_all
from varlearn.recipes.paper import Published
from varlearn.recipes.tables import ACCURACY, Line, Metric, Table, table
from varlearn.train import RunFolder, RunFolderError


def tiny() -> Table:
    lines = []
    for method in ("sgd", "ivon@mean", "ivon"):
        run = digits(method.removesuffix("@mean"))  # type: ignore[arg-type]
        run = replace(
            run,
            train=replace(run.train, steps=4, eval_every=0, checkpoint_every=2),
            evaluate=replace(run.evaluate, samples=2),
        )
        path = ("averaged" if method == "ivon" else "mean",)
        lines.append(Line("digits", "mlp", method, "", run, {}, path, {"accuracy": Published(90.0, 1.0)}))
    return Table("tiny", "Tiny", (ACCURACY, Metric("nll", "NLL")), tuple(lines))


def run(todo: list[Job]) -> tuple[list[str], list[str]]:
    """Words said, and words of failures."""
    said: list[str] = []
    failed = [words for _, words in run_all(todo, progress=False, device=None, say=said.append)]
    return said, failed


def test_a_table_is_run_and_gathered_with_mean_and_deviation(tmp_path: Path) -> None:
    todo = jobs(tiny(), 2, tmp_path)
    assert [job.out.name for job in todo] == [f"digits-{m}-small-seed{s}" for m in ("sgd", "ivon") for s in (0, 1)]
    assert run(todo)[1] == []
    results = collect(tiny(), 2, tmp_path)
    assert json.loads((tmp_path / "results.json").read_text()) == results
    metrics = [json.loads((tmp_path / f"digits-ivon-small-seed{s}" / "metrics.json").read_text()) for s in (0, 1)]
    for line, kind in ((results["lines"][1], "mean"), (results["lines"][2], "averaged")):
        a, b = (100.0 * m[kind]["accuracy"] for m in metrics)
        got = line["metrics"]["accuracy"]
        assert got["mean"] == pytest.approx((a + b) / 2)
        assert got["std"] == pytest.approx(abs(a - b) / 2**0.5)
        assert line["paper"]["accuracy"] == {"mean": 90.0, "std": 1.0}
    assert results["lines"][2]["metrics"]["nll"]["values"] == [m["averaged"]["nll"] for m in metrics]


def test_finished_runs_are_kept_and_an_unfinished_one_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    todo = jobs(tiny(), 1, tmp_path)
    run(todo[:1])
    interrupted = todo[1]
    whole = replace(interrupted, out=tmp_path / "whole")
    finish(whole, progress=False)
    _stop_after(monkeypatch, 2, lambda: finish(interrupted, progress=False))
    assert not interrupted.finished
    before = (todo[0].out / "metrics.json").stat().st_mtime_ns
    said, failed = run(todo)
    assert failed == []
    assert "is finished already" in said[0]
    assert (todo[0].out / "metrics.json").stat().st_mtime_ns == before
    for name in ("posterior.safetensors", "metrics.json", "log.jsonl"):
        assert (interrupted.out / name).read_bytes() == (whole.out / name).read_bytes(), name


def _stop_after(monkeypatch: pytest.MonkeyPatch, steps: int, call: Callable[[], None]) -> None:
    from varlearn.train.training import Training

    update = Training.update

    def stopping(self: Training) -> None:
        if self.step >= steps:
            raise KeyboardInterrupt
        update(self)

    with monkeypatch.context() as patched:
        patched.setattr(Training, "update", stopping)
        with pytest.raises(KeyboardInterrupt):
            call()


def test_a_stage_that_is_missing_is_made_up_for(tmp_path: Path) -> None:
    job = jobs(tiny(), 1, tmp_path)[0]
    finish(job, progress=False)
    folder = RunFolder(job.out)
    metrics = folder.metrics.read_bytes()
    folder.metrics.unlink()
    folder.predictions.unlink()
    finish(job, progress=False)
    assert folder.metrics.read_bytes() == metrics


def test_a_failure_does_not_stop_the_others(tmp_path: Path) -> None:
    good = jobs(tiny(), 1, tmp_path)
    bad = replace(
        good[0], run=replace(good[0].run, data=replace(good[0].run.data, name="nowhere.txt")), out=tmp_path / "bad"
    )
    said, failed = run([bad, good[0]])
    assert len(failed) == 1
    assert "nowhere.txt" in failed[0]
    assert any("bad failed" in words for words in said)
    assert good[0].finished


def test_a_folder_with_another_run_is_neither_used_nor_counted(tmp_path: Path) -> None:
    job = jobs(tiny(), 1, tmp_path)[0]
    finish(job, progress=False)
    changed = replace(job, run=replace(job.run, optim=replace(job.run.optim, lr=0.05)))
    assert not changed.finished
    with pytest.raises(RunFolderError, match=r"optim\.lr was 0\.1, is now 0\.05"):
        finish(changed, progress=False)


def test_lines_without_runs_are_empty(tmp_path: Path) -> None:
    results = collect(tiny(), 3, tmp_path / "new")
    assert [line["seeds"] for line in results["lines"]] == [0, 0, 0]
    assert results["lines"][0]["metrics"]["accuracy"] == {"mean": None, "std": None, "values": []}


def test_variants_of_one_recipe_have_folders_of_their_own(tmp_path: Path) -> None:
    todo = jobs(table("table8"), 1, tmp_path)
    assert len({job.out for job in todo}) == 12
    assert todo[0].out.name == "cifar10-resnet20-ivon-hess_init=0.001-small-seed0"


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        ({"models": ["resnet21"]}, "--models resnet21 is not in table1; it has resnet20"),
        ({"data": ["mnist"]}, "--data mnist is not in table1; it has cifar10"),
        ({"methods": ["swag"]}, "--methods swag is not in table1; it has adamw, adahessian, sgd, ivon"),
        ({"models": ["resnet50"], "data": ["cifar10"]}, "no line of table1 passes all the filters"),
    ],
)
def test_filters_that_fit_nothing_are_refused(filters: dict[str, list[str]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        chosen(table("table1"), **filters)


def test_at_least_one_seed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="seeds=0 must be at least 1"):
        jobs(tiny(), 0, tmp_path)


def test_an_ensemble_is_gathered_from_its_members_runs(tmp_path: Path) -> None:
    single = tiny().lines[0]
    wanted = replace(
        tiny(),
        metrics=(*tiny().metrics, Metric("dee", "DEE"), Metric("cost", "cost")),
        lines=(replace(single, path=("averaged",)), replace(single, method="2*sgd", path=("averaged",), members=2)),
    )
    todo = jobs(wanted, 2, tmp_path)
    assert [job.run.seed for job in todo] == [0, 1, 2, 3]  # the single runs are among the members
    assert run(todo)[1] == []
    results = collect(wanted, 2, tmp_path)
    alone, both = results["lines"]
    assert both["seeds"] == 2
    assert both["metrics"]["nll"]["mean"] <= alone["metrics"]["nll"]["mean"] + 1e-9  # by convexity
    assert both["metrics"]["cost"]["mean"] == 2 * alone["metrics"]["cost"]["mean"]
    assert [row["members"] for row in results["curves"]["sgd"]] == [1, 2, 3, 4]
    assert len(both["metrics"]["dee"]["values"]) == 2
    assert json.loads((tmp_path / "results.json").read_text()) == results
