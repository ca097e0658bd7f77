"""mergekit runs the merge method on folders of transformers, and gets what `varlearn merge` gives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

pytest.importorskip("mergekit", reason="needs mergekit")

from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from varlearn.integrations.mergekit import NAME, merged_group, register
from varlearn.merging.file_merge import merge_files
from varlearn.merging.merge_recipe import MergeRecipe, Source
from varlearn.posterior import DiagGaussian, Origin, save

CONFIG = LlamaConfig(
    vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=2, max_position_embeddings=16, tie_word_embeddings=False,
)  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("llama")
    for seed, name in enumerate(("base", "a", "c")):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(CONFIG)
        model.save_pretrained(place / name)
        if name != "base":
            mean = {key: value.detach() for key, value in model.named_parameters()}
            hess = {key: torch.rand_like(value) + 0.01 for key, value in mean.items()}
            origin = Origin("ivon", "ivon", n=100.0 * seed)
            save(DiagGaussian(mean, hess, ess=100.0, origin=origin), place / name / "posterior.safetensors")
    return place


def test_mergekit_gives_what_varlearn_merge_gives(models: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yml").write_text(
        f"merge_method: {NAME}\nbase_model: {models}/base\nmodels:\n"
        f"  - model: {models}/a\n    parameters: {{weight: 0.5}}\n  - model: {models}/c\n"
        "parameters: {alpha: 0.8, base_hess: 3.0}\ndtype: float32\n"
    )
    command = [
        sys.executable,
        "-m",
        "varlearn.integrations.mergekit",
        str(tmp_path / "config.yml"),
        str(tmp_path / "out"),
    ]
    done = subprocess.run(
        command, env={**os.environ, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    sources = (Source(models / "a", 0.5), Source(models / "c"))
    recipe = MergeRecipe(Source(models / "base"), sources, alpha=0.8, base_hess=3.0)
    merge_files(recipe.plan(), tmp_path / "ours")
    ours = load_file(tmp_path / "ours" / "model.safetensors")
    theirs: dict[str, torch.Tensor] = {}
    for shard in (tmp_path / "out").glob("*.safetensors"):
        theirs |= load_file(shard)
    assert theirs.keys() == ours.keys()
    for name, value in ours.items():
        assert torch.equal(theirs[name], value), name
    AutoModelForCausalLM.from_pretrained(tmp_path / "out")


def test_it_registers_once() -> None:
    assert register() is register()
    assert register().spec.name == NAME


class Reference:
    def __init__(self, path: Path):
        self.model = type("Model", (), {"path": str(path)})()


def test_bad_input_is_refused(models: Path, tmp_path: Path) -> None:
    base, name = torch.zeros(40, 16), "model.embed_tokens.weight"
    far, near, bare = Reference(tmp_path / "no"), Reference(models / "a"), Reference(models / "base")
    for reference, tensor, key, message in (
        (far, base, name, "is no local folder"),
        (bare, base, name, "has no curvature: it must have posterior.safetensors"),
        (near, base, None, "needs the name of each tensor"),
        (near, torch.zeros(41, 16), name, "they must be the same, as with one vocabulary"),
    ):
        with pytest.raises(ValueError, match=message):
            merged_group(key, base, [(reference, tensor)], {reference: 1.0}, 1.0, 0.0)
    with pytest.raises(ValueError, match="base_hess=nan must be >= 0 and finite"):
        merged_group(name, base, [(near, base)], {near: 1.0}, 1.0, float("nan"))
    kept = merged_group("unknown", base, [(near, base)], {near: 1.0}, 1.0, 0.0)
    assert kept is base
