"""Table 5 from end to end, with networks of a few thousand weights and sentences made of ten words."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.train.tiny_pretrained import WORDS, write_tiny_bert
from varlearn.cli import main
from varlearn.data import loading
from varlearn.data.text_sets import Texts
from varlearn.recipes import merging_table, sentiment
from varlearn.recipes.merging_table import base_folder, merged_table, merging_jobs
from varlearn.recipes.paper_comparisons import MERGED_TASKS
from varlearn.recipes.sentiment_finetuning import SETS
from varlearn.train import Optim, Run, Train


def sentences(split: str, root: Path | None) -> Texts:
    texts = [f"{first} {a} {b}" for a in WORDS[2:7] for b in WORDS[4:8] for first in WORDS[:2]]
    return Texts(tuple(texts), torch.tensor([1, 0] * 20), ("bad", "good"))


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = str(write_tiny_bert(tmp_path / "model"))

    def small(data: str, optim: str, scale: str, seed: int) -> Run:
        run = sentiment(data, optim, "small", seed)
        return replace(
            run,
            model=replace(run.model, path=folder),
            data=replace(run.data, batch_size=8, context=12),
            optim=Optim("ivon", lr=0.02, ess=1e6, hess_init=1e-3, beta2=0.999, clip_radius=1.0, rescale_lr=False),
            train=Train(steps=6, warmup=0, eval_every=0),
            evaluate=replace(run.evaluate, samples=1),
        )

    for facts in SETS.values():
        monkeypatch.setitem(loading.TEXTS, facts.small, sentences)
    monkeypatch.setattr(merging_table, "sentiment", small)
    return tmp_path / "runs"


def test_four_networks_start_from_the_base_and_all_methods_are_scored(tiny: Path) -> None:
    said: list[str] = []
    results = merged_table("small", 1, tiny, progress=False, say=said.append)
    assert [line["method"] for line in results["lines"]] == list(merging_table.LABELS)
    for line in results["lines"]:
        assert line["metrics"].keys() == {*MERGED_TASKS, "average"}
        values = [line["metrics"][task]["mean"] for task in MERGED_TASKS]
        assert line["metrics"]["average"]["mean"] == pytest.approx(sum(values) / 5)
        assert all(0 <= value <= 100 for value in values)
    assert results["lines"][1]["paper"]["average"]["mean"] == 94.0
    assert results["lines"][3]["paper"] == {}  # the paper has no average
    base = base_folder(tiny, "small", 0)
    assert {path.name for path in base.iterdir()} >= {"config.json", "model.safetensors", "posterior.safetensors"}
    runs = [json.loads((job.out / "config.json").read_text()) for job in merging_jobs("small", 1, tiny)]
    assert [run["model"]["path"] == str(base) for run in runs] == [False, True, True, True, True]
    said.clear()
    assert merged_table("small", 1, tiny, progress=False, say=said.append) == results
    assert said == []  # nothing is made twice
    assert merged_table("small", 2, tiny, train=False)["seeds"] == 1


def test_the_command_prints_the_papers_figures(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "table5", "--seeds", "1", "--out", str(tiny), "--collect"]) == 0
    shown = capsys.readouterr().out
    assert "93.9" in shown
    assert "task arithmetic" in shown
    assert main(["reproduce", "table5", "--seeds", "1", "--out", str(tiny), "--jobs", "-"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines[0].endswith(
        f"&& varlearn export {tiny / 'imdb-roberta-ivon-small-seed0'} --out {tiny / 'base-small-seed0'}"
    )
    assert all(f"--model.path {tiny / 'base-small-seed0'}" in line for line in lines[1:])
    assert main(["reproduce", "table5", "--data", "sst2"]) == 2
