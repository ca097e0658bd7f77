"""Merging files gives what merging in memory gives; it resumes, and leaves nothing behind when it fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from safetensors.torch import load_file, save_file

import varlearn
from tests.merging.stored import SHAPES, contents, folder, learned, sharded, weights
from varlearn.files.checked_json import read_json
from varlearn.files.formats import CorruptFileError
from varlearn.files.locking import BusyError
from varlearn.files.tensor_file import file_sha256
from varlearn.merging import Method
from varlearn.merging.file_merge import _locked, merge_files
from varlearn.merging.merge_recipe import MergeRecipe, Source
from varlearn.merging.stored_model import open_model
from varlearn.posterior import Point, save, weights_sha256


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("varlearn.merging.tensor_merge.PIECE", 7)
    monkeypatch.setattr("varlearn.merging.plan_pieces.PIECE", 7)
    monkeypatch.setattr("varlearn.merging.merge_plan.PIECE", 7)


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """A base and two models."""
    return [folder(tmp_path / name, seed) for seed, name in enumerate(("base", "first", "second"))]


def recipe(paths: list[Path], **settings: Any) -> MergeRecipe:
    sources = [Source(path) for path in paths]
    return MergeRecipe(base=sources[0], models=tuple(sources[1:])).changed(**settings)


def in_memory(method: Method, **settings: Any) -> dict[str, torch.Tensor]:
    base, *models = (weights(seed) for seed in range(3))
    trained = {name: base[name] for name in SHAPES}
    posteriors = [learned(values, seed + 1) for seed, values in enumerate(models)]
    if method == "hessian" and "base_hess" not in settings:
        start = learned(base, 0)
        settings["base_hess"] = {name: 50.0 * start.hess[name].double() for name in SHAPES}
    if method == "regmean":
        settings["inputs"] = [grams(1), grams(2)]
    return varlearn.merge(trained, posteriors, method=method, **settings)


def grams(seed: int) -> dict[str, torch.Tensor]:
    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(seed)).double()
    return {"layer.weight": x.T @ x}


@pytest.mark.parametrize("method", get_args(Method))
def test_files_give_what_memory_gives(paths: list[Path], tmp_path: Path, method: Method) -> None:
    for seed in (1, 2):
        save_file(grams(seed), paths[seed] / "input_grams.safetensors")
    merge_files(recipe(paths, method=method, alpha=0.7).plan(), tmp_path / "out")
    found, wanted = load_file(tmp_path / "out" / "model.safetensors"), in_memory(method, alpha=0.7)
    for name, value in wanted.items():
        assert torch.equal(found[name], value), name
    for name in ("layer.position_ids", "norm.running_mean"):  # buffers are the base's
        assert torch.equal(found[name], weights(0)[name])


def test_shards_an_index_checksums_and_the_bases_other_files(paths: list[Path], tmp_path: Path) -> None:
    (paths[0] / "tokenizer.json").write_text("words")
    (paths[0] / "pytorch_model.bin").write_bytes(b"old")
    one, many = tmp_path / "one", tmp_path / "many"
    merge_files(recipe(paths).plan(), one)
    seen: list[tuple[int, int]] = []
    record = merge_files(recipe(paths).plan(), many, shard_bytes=150, progress=lambda *done: seen.append(done))
    index = json.loads((many / "model.safetensors.index.json").read_text())
    wanted = load_file(one / "model.safetensors")
    assert index["metadata"]["total_size"] == sum(value.nbytes for value in wanted.values())
    for name, value in wanted.items():
        assert torch.equal(load_file(many / index["weight_map"][name])[name], value)
    assert len(set(index["weight_map"].values())) > 2
    assert record["files"] == {name: file_sha256(many / name) for name in set(index["weight_map"].values())}
    stored = read_json(many / "merge.json")
    assert stored["files"] == record["files"]
    assert stored["method"] == "hessian"
    assert seen[-1] == (index["metadata"]["total_size"],) * 2
    assert seen == sorted(seen)
    assert {file.name for file in one.iterdir()} == {
        "README.md", "config.json", "merge.json", "model.safetensors", "tokenizer.json"
    }  # fmt: skip
    card = (one / "README.md").read_text()
    assert "method `hessian`" in card
    assert "| 1 | ivon per mean, n 100 |" in card
    assert "`layer.position_ids`: int64 is not merged" in card
    assert not list(tmp_path.glob(".*"))


def test_shards_and_posterior_files_are_read_alike(paths: list[Path], tmp_path: Path) -> None:
    merge_files(recipe(paths).plan(), tmp_path / "plain")
    again = [sharded(tmp_path / "s0", 0), sharded(tmp_path / "s1", 1), tmp_path / "run" / "posterior.safetensors"]
    again[2].parent.mkdir()
    save(learned(weights(2), 2), again[2])
    merge_files(recipe(again).plan(), tmp_path / "mixed")
    merge_files(recipe([*again[:2], again[2].parent]).plan(), tmp_path / "run_folder")
    wanted = (tmp_path / "plain" / "model.safetensors").read_bytes()
    assert (tmp_path / "mixed" / "model.safetensors").read_bytes() == wanted
    assert (tmp_path / "run_folder" / "model.safetensors").read_bytes() == wanted


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_dtype_stays_or_is_the_one_asked_for(tmp_path: Path, dtype: torch.dtype) -> None:
    kinds = [dtype, dtype, dtype]
    paths = [folder(tmp_path / str(seed), seed, kind) for seed, kind in enumerate(kinds)]
    merge_files(recipe(paths, method="average").plan(), tmp_path / "kept")
    kept = load_file(tmp_path / "kept" / "model.safetensors")
    assert kept["layer.weight"].dtype == dtype
    assert kept["layer.position_ids"].dtype == torch.int64
    mixed = [paths[0], folder(tmp_path / "wide", 1), paths[2]]
    merge_files(recipe(mixed, method="average", dtype="float32").plan(), tmp_path / "wider")
    wide = load_file(tmp_path / "wider" / "model.safetensors")["layer.weight"]
    wanted = (weights(1)["layer.weight"].double() + weights(2, dtype)["layer.weight"].double()) / 2
    torch.testing.assert_close(wide, wanted.float(), rtol=0, atol=0)


def test_what_tells_of_the_bases_training_is_not_copied(paths: list[Path], tmp_path: Path) -> None:
    for name in ("trainer_state.json", ".lock", "tokenizer.json"):
        (paths[0] / name).write_text("{}")
    merge_files(recipe(paths).plan(), tmp_path / "out")
    wanted = {"README.md", "config.json", "merge.json", "model.safetensors"}
    assert {file.name for file in (tmp_path / "out").iterdir()} == wanted | {"tokenizer.json"}
    (paths[0] / "log.jsonl").write_text("{}\n")  # a run
    merge_files(recipe(paths).plan(), tmp_path / "of_a_run")
    assert {file.name for file in (tmp_path / "of_a_run").iterdir()} == wanted - {"config.json"}


def test_the_configuration_has_the_dtype_of_the_weights(paths: list[Path], tmp_path: Path) -> None:
    text = '{"model_type": "test", "dtype": "float32", "inner": {"torch_dtype": "float16"}, "size": 3}'
    (paths[0] / "config.json").write_text(text)
    merge_files(recipe(paths).plan(), tmp_path / "kept")
    merge_files(recipe(paths, dtype="bfloat16").plan(), tmp_path / "cast")
    assert json.loads((tmp_path / "cast" / "config.json").read_text()) == {
        "model_type": "test", "dtype": "bfloat16", "inner": {"torch_dtype": "bfloat16"}, "size": 3
    }  # fmt: skip
    assert (tmp_path / "kept" / "config.json").read_text() == text


def test_a_killed_merge_goes_on(paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, out, whole = recipe(paths).plan(), tmp_path / "out", tmp_path / "whole"
    merge_files(plan, whole, shard_bytes=150)

    def stop(done: int, total: int) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        merge_files(plan, out, shard_bytes=150, progress=stop)
    assert not out.exists()
    work = tmp_path / ".out.merging"
    before = {path.name: path.stat().st_mtime_ns for path in work.glob("model-*")}
    assert before
    merge_files(plan, out, shard_bytes=150)
    assert contents(out) == contents(whole)
    after = {path.name: path.stat().st_mtime_ns for path in out.glob("model-*")}
    assert {name: after[name] for name in before} == before
    assert not list(tmp_path.glob(".*"))


def test_another_merge_or_a_damaged_shard_starts_anew(paths: list[Path], tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done > total / 2:
            raise KeyboardInterrupt

    out, work = tmp_path / "out", tmp_path / ".out.merging"
    for settings, harm in (({"alpha": 0.5}, False), ({}, True)):
        with pytest.raises(KeyboardInterrupt):
            merge_files(recipe(paths).plan(), out, shard_bytes=150, progress=stop)
        if harm:
            first = sorted(work.glob("model-*"))[0]
            first.write_bytes(first.read_bytes()[:-1] + b"!")
        merge_files(recipe(paths, **settings).plan(), out, shard_bytes=150)
        wanted = in_memory("hessian", **settings)
        index = json.loads((out / "model.safetensors.index.json").read_text())["weight_map"]
        assert all(torch.equal(load_file(out / index[name])[name], value) for name, value in wanted.items())
        for file in out.iterdir():
            file.unlink()


def test_an_error_leaves_nothing(paths: list[Path], tmp_path: Path) -> None:
    values = weights(2)
    values["table.weight"][-1, -1] = float("nan")
    save_file(values, paths[2] / "model.safetensors")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match=r"second/model.safetensors: 'table.weight' has NaN .* use a good checkpoint"):
        merge_files(recipe(paths, method="average").plan(), tmp_path / "out")
    assert contents(tmp_path) == before
    with pytest.raises(ValueError, match="too large for torch.float32; use a smaller alpha"):
        merge_files(recipe(paths[:2], method="task_arithmetic", alpha=1e39).plan(), tmp_path / "out")
    assert contents(tmp_path) == before


def test_a_folder_in_use_is_refused_and_untouched(paths: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    merge_files(recipe(paths).plan(), out)  # an empty one is fine
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="out is in use: it exists and is not empty; give --out a new folder"):
        merge_files(recipe(paths).plan(), out)
    with pytest.raises(ValueError, match="is no folder; make it first"):
        merge_files(recipe(paths).plan(), tmp_path / "no" / "out")
    with _locked(tmp_path / ".new.merging"), pytest.raises(BusyError, match="another process is merging"):
        merge_files(recipe(paths).plan(), tmp_path / "new")
    assert contents(tmp_path) == before


def test_the_folder_of_the_process_may_be_the_result(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    merge_files(recipe(paths).plan(), Path())
    assert (tmp_path / "here" / "model.safetensors").is_file()


def test_the_recorded_base_is_checked(tmp_path: Path) -> None:
    base = folder(tmp_path / "base", 0)
    mark = weights_sha256(weights(0))
    good = folder(tmp_path / "good", 1, base_sha256=mark)
    merge_files(recipe([base, good]).plan(), tmp_path / "out")
    bad = folder(tmp_path / "bad", 1, base_sha256="1" * 64)
    with pytest.raises(ValueError, match=f"bad was finetuned from weights with SHA-256 111.*has {mark}; give the base"):
        recipe([base, bad]).plan()


def test_tied_weights_keep_one_copy(paths: list[Path], tmp_path: Path) -> None:
    """A name that safetensors keeps as another name of a tensor is found; the result has it once."""
    for seed, path in enumerate(paths[1:], 1):
        values = {name: value for name, value in weights(seed).items() if name != "head.weight"}
        values["layer.weight"] = weights(seed)["layer.weight"]
        save_file(values, path / "model.safetensors", metadata={"format": "pt", "tied.weight": "layer.weight"})
    base = {name: value for name, value in weights(0).items() if name != "head.weight"}
    base["tied.weight"] = base.pop("layer.weight")
    save_file(base, paths[0] / "model.safetensors", metadata={"format": "pt", "layer.weight": "tied.weight"})
    merge_files(recipe(paths, method="average").plan(), tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    wanted = (weights(1)["layer.weight"].double() + weights(2)["layer.weight"].double()) / 2
    assert torch.equal(found["tied.weight"], wanted.float())
    assert "layer.weight" not in found
    again = open_model(tmp_path / "out").tensors
    assert torch.equal(again.read("layer.weight"), wanted.float().flatten())
    merge_files(recipe(paths, method="average").plan(), tmp_path / "shards", shard_bytes=150)
    assert torch.equal(open_model(tmp_path / "shards").tensors.read("layer.weight"), wanted.float().flatten())


def test_a_damaged_result_is_refused_as_the_next_base(paths: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    merge_files(recipe(paths).plan(), out, shard_bytes=150)
    open_model(out)
    shard = sorted(out.glob("model-*"))[0]
    good = shard.read_bytes()
    shard.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(CorruptFileError, match=rf"{shard.name} does not have the SHA-256 in .*merge.json: it is dam"):
        open_model(out)
    (out / "merge.json").unlink()
    open_model(out)


def test_points_need_no_curvature(tmp_path: Path) -> None:
    paths = []
    for seed in range(2):
        values = weights(seed)
        save(Point({name: values[name] for name in SHAPES}), tmp_path / f"{seed}.safetensors")
        paths.append(tmp_path / f"{seed}.safetensors")
    merge_files(recipe(paths, method="average").plan(), tmp_path / "out")
    assert torch.equal(load_file(tmp_path / "out" / "model.safetensors")["layer.bias"], weights(1)["layer.bias"])
    with pytest.raises(ValueError, match="1.safetensors has no curvature: .* or take a method without"):
        recipe(paths).plan()
