"""Models that do not fit together are refused by name, with the cure, before anything is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.merging.stored import contents, folder, sharded, weights
from varlearn.files.formats import CorruptFileError
from varlearn.merging.merge_recipe import MergeRecipe, Source, read_recipe
from varlearn.merging.stored_model import open_model


def rewrite(path: Path, **changes: torch.Tensor | None) -> None:
    values = weights(int(path.name)) | {name.replace("__", "."): one for name, one in changes.items()}
    kept = {name: one for name, one in values.items() if one is not None}
    save_file(kept, path / "model.safetensors", metadata={"format": "pt"})


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)


BAD: list[tuple[Callable[[Path], Any], dict[str, Any], str]] = [
    (lambda p: rewrite(p, head__weight=None), {}, r"1 lacks 'head.weight', unlike .*0; .* --skip 'head.weight'"),
    (lambda p: rewrite(p, extra__weight=torch.ones(2)), {}, r"1 also has 'extra.weight', unlike"),
    (
        lambda p: rewrite(p, table__weight=torch.ones(13, 4)),
        {},
        r"'table.weight' has shape \(13, 4\).*resize_token_emb",
    ),
    (lambda p: rewrite(p, layer__bias=torch.ones(5)), {}, r"'layer.bias' has shape \(5,\).* merge models of one arch"),
    (lambda p: rewrite(p, layer__bias=torch.ones(4).half()), {}, r"'layer.bias' is float16, .* float32; .*--dtype"),
    (lambda p: rewrite(p, layer__bias=torch.ones(4).to(torch.float8_e4m3fn)), {}, "quantized to 8 bits"),
    (lambda p: rewrite(p, layer__bias=torch.ones(4).long()), {}, r"'layer.bias' is int64, and in"),
    (lambda p: truncate(p / "model.safetensors"), {}, r"1/model.safetensors is no whole .* its header describes"),
    (lambda p: truncate(p / "posterior.safetensors"), {}, r"1/posterior.safetensors is no whole"),
    (lambda p: flip(p / "posterior.safetensors"), {}, r"1/posterior.safetensors has SHA-256 .* it is damaged"),
    (lambda p: (p / "model.safetensors").write_bytes(b""), {}, r"no whole safetensors file"),
    (lambda p: (p / "model.safetensors").write_bytes(b"\xff" * 100), {}, r"no whole safetensors file: a header of"),
    (lambda p: (p / "posterior.safetensors").unlink(), {}, r"1 has no curvature: it must have posterior.safetensors"),
    (lambda p: [(p / n).unlink() for n in ("model.safetensors", "posterior.safetensors")], {}, r"1 has no model.safe"),
    (lambda p: None, {"alpha": -1.0}, "alpha=-1.0 must be >= 0"),
    (lambda p: None, {"method": "regmean"}, r"1 has no input_grams.safetensors, which regmean needs"),
    (lambda p: None, {"dtype": "int8"}, r"dtype='int8' must be one of float64"),
    (lambda p: None, {"method": "best"}, r"method='best' must be one of hessian"),
    (lambda p: None, {"base_hess": -1.0}, r"base_hess=-1.0 must be >= 0"),
    (lambda p: None, {"skip": ("*",)}, r"no tensor of .*0 would be merged"),
]


@pytest.mark.parametrize(("harm", "settings", "message"), BAD, ids=[message[:40] for *_, message in BAD])
def test_bad_input_is_refused(tmp_path: Path, harm: Callable, settings: dict[str, Any], message: str) -> None:
    paths = [folder(tmp_path / str(seed), seed) for seed in range(2)]
    harm(paths[1])
    before = contents(tmp_path)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        MergeRecipe(Source(paths[0]), (Source(paths[1]),)).changed(**settings).plan()
    assert contents(tmp_path) == before


BAD_INPUTS: list[tuple[dict[str, torch.Tensor], str]] = [
    ({"layer.weight": torch.eye(3)}, r"'layer.weight' has shape \(3, 3\), .* weight of shape \(4, 4\); save"),
    ({"layer.bias": torch.eye(4)}, r"'layer.bias' has shape \(4, 4\), .* weight of shape \(4,\); save"),
    ({"other.weight": torch.eye(4)}, r"'other.weight' is no tensor of .*0; save"),
    ({}, r"differ in 'layer.weight'; save"),
]


@pytest.mark.parametrize(("grams", "message"), BAD_INPUTS, ids=[message[:20] for _, message in BAD_INPUTS])
def test_inputs_that_do_not_fit_are_refused(tmp_path: Path, grams: dict[str, torch.Tensor], message: str) -> None:
    """They would be ignored, or fail in the middle of the merge."""
    paths = [folder(tmp_path / str(seed), seed) for seed in range(3)]
    save_file({"layer.weight": torch.eye(4)}, paths[1] / "input_grams.safetensors")
    save_file(grams, paths[2] / "input_grams.safetensors")
    with pytest.raises(ValueError, match=rf"2/input_grams.safetensors.*{message}"):
        MergeRecipe(Source(paths[0]), tuple(map(Source, paths[1:])), method="regmean").plan()


UNITS: list[tuple[dict[str, Any], str]] = [
    ({"curvature": None}, r"origin.curvature=None is no known estimate"),
    ({"curvature": "constant"}, r"origin.curvature='constant' is no known estimate"),
    ({"n": None}, r"1/posterior.safetensors.origin.n=None"),
    ({"curvature": "sqrt_v"}, r"origin.batch_size=None"),
]


@pytest.mark.parametrize(("origin", "message"), UNITS)
def test_curvature_of_unknown_units_is_refused_and_a_recipe_may_say_them(
    tmp_path: Path, origin: dict[str, Any], message: str
) -> None:
    base, model = folder(tmp_path / "0", 0), folder(tmp_path / "1", 1, **origin)
    with pytest.raises(ValueError, match=message):
        MergeRecipe(Source(base), (Source(model),)).plan()
    units = {"curvature": "ivon", "n": 10.0}
    plan = MergeRecipe(Source(base), (Source(model, units=units),)).plan()
    assert plan.models[0].units().factor == 10.0


def test_a_plain_file_of_curvature_needs_its_units(tmp_path: Path) -> None:
    """A preconditioner that somebody published: names and numbers, no units."""
    base, model = folder(tmp_path / "0", 0), folder(tmp_path / "1", 1, posterior=False)
    squares = {name: torch.rand(value.shape) for name, value in weights(1).items() if value.is_floating_point()}
    save_file(squares, tmp_path / "exp_avg_sq.safetensors")
    text = f'base = "{base}"\n[[models]]\npath = "{model}"\ncurvature = "exp_avg_sq.safetensors"\n'
    (tmp_path / "m.toml").write_text(text)
    with pytest.raises(ValueError, match=r"exp_avg_sq.safetensors.origin.curvature=None is no known"):
        read_recipe(tmp_path / "m.toml").plan()
    (tmp_path / "m.toml").write_text(text + 'kind = "squared_gradient"\nper = "sum"\n')
    assert read_recipe(tmp_path / "m.toml").plan().models[0].units().factor == 1.0
    (tmp_path / "m.toml").write_text(text + 'kind = "second_moment"\nn = 100\nbatch_size = 8\n')
    units = read_recipe(tmp_path / "m.toml").plan().models[0].units()
    assert (units.factor, units.squared) == (800.0, False)


def test_skipped_names_are_kept_and_frozen_ones_too(tmp_path: Path) -> None:
    paths = [folder(tmp_path / str(seed), seed) for seed in range(2)]
    rewrite(paths[1], head__weight=None, other=torch.ones(1))
    plan = MergeRecipe(Source(paths[0]), (Source(paths[1]),), skip=("head.*", "other")).plan()
    kept = {step.name: step.reason for step in plan.steps if not step.merged}
    assert kept == {
        "head.weight": "skipped",
        "layer.position_ids": "int64 is not merged",
        "norm.running_mean": "a buffer",
    }


def test_damaged_indexes_are_refused(tmp_path: Path) -> None:
    path = sharded(tmp_path / "0", 0)
    index = path / "model.safetensors.index.json"
    good = json.loads(index.read_text())
    shard = next(iter(good["weight_map"].values()))
    for places, message in (
        ({"table.weight": "gone.safetensors"}, "gone.safetensors, which is not there"),
        ({"nothing": shard}, r"says that 'nothing' is in model-00001"),
    ):
        index.write_text(json.dumps({"weight_map": places}))
        with pytest.raises(CorruptFileError, match=message):
            open_model(path)
    for text in ("[]", "{", '{"weight_map": 3}', '{"weight_map": {"a": "../x.safetensors"}}'):
        index.write_text(text)
        with pytest.raises(CorruptFileError, match="is no index of shards"):
            open_model(path)
    index.unlink()
    (path / "pytorch_model.bin").write_bytes(b"")
    (path / "posterior.safetensors").unlink()
    with pytest.raises(ValueError, match=r"as pickle.*save_pretrained"):
        open_model(path)
    with pytest.raises(FileNotFoundError, match="nowhere does not exist"):
        open_model(tmp_path / "nowhere")


TOML: list[tuple[str, str]] = [
    ("base = ", "is no TOML"),
    ("basis = 'x'", "'basis' is no setting of a merge"),
    ("alpha = 'x'", "alpha = 'x' must be of type int or float"),
    ("[[models]]\nweight = 1", r"models\[0\] = .* must have a path"),
    ("[[models]]\npath = 'a'\nwieght = 1", r"models\[0\] has 'wieght'"),
    ("[[models]]\npath = 'a'\nweight = true", r"models\[0\].weight = True must be a number"),
]


@pytest.mark.parametrize(("text", "message"), TOML)
def test_bad_recipes_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "m.toml").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_recipe(tmp_path / "m.toml")


def test_a_recipe_without_base_or_models_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no base is given; give --base"):
        MergeRecipe(models=(Source(tmp_path),)).plan()
    with pytest.raises(ValueError, match="no model is given; give --model"):
        MergeRecipe(base=Source(tmp_path)).plan()
    with pytest.raises(FileNotFoundError, match="does not exist; give a TOML file"):
        read_recipe(tmp_path / "no.toml")
