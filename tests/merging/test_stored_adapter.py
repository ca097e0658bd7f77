"""LoRA adapters merge as the weights that they add, with the exact variance of the product."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch import nn

from varlearn import VAdamW
from varlearn.merging.file_merge import merge_files
from varlearn.merging.lora_product import product_delta, product_variance
from varlearn.merging.merge_recipe import MergeRecipe, Source
from varlearn.posterior import DiagGaussian, save


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).tanh())


def base_folder(path: Path) -> tuple[Path, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    values = Network().state_dict()
    path.mkdir()
    save_file(values, path / "model.safetensors", metadata={"format": "pt"})
    return path, values


def adapter(path: Path, values: dict[str, torch.Tensor], seed: int, **config: Any) -> tuple[Path, nn.Module]:
    """Trained for a few steps with variational AdamW; its posterior beside it."""
    torch.manual_seed(seed)
    network = Network()
    network.load_state_dict(values)
    model = get_peft_model(network, LoraConfig(r=2, lora_alpha=6, target_modules=["first", "second"], **config))
    opt = VAdamW.for_model(model, lr=0.05, n=40, batch_size=20, steps=8, seed=seed)
    x, y = torch.randn(20, 5), torch.randint(3, (20,))
    for _ in range(8):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
        opt.step()
    model.save_pretrained(str(path))
    save(DiagGaussian.from_optimizer(model, opt), path / "posterior.safetensors")
    return path, model


def merged(base: Path, adapters: list[Path], out: Path, **settings: Any) -> dict[str, torch.Tensor]:
    recipe = MergeRecipe(Source(base), tuple(map(Source, adapters))).changed(**settings)
    merge_files(recipe.plan(), out)
    return load_file(out / "model.safetensors")


@pytest.mark.parametrize("method", ["hessian", "task_arithmetic", "fisher", "average"])
def test_one_adapter_with_weight_1_is_what_peft_merges_into_the_base(tmp_path: Path, method: str) -> None:
    base, values = base_folder(tmp_path / "base")
    path, model = adapter(tmp_path / "a", values, 1)
    found = merged(base, [path], tmp_path / "out", method=method)
    wanted = model.merge_and_unload().state_dict()  # type: ignore[operator]
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=1e-6, atol=1e-6)
    assert not torch.equal(found["first.weight"], values["first.weight"])
    assert torch.equal(found["first.bias"], values["first.bias"])


def test_two_adapters_are_weighted_by_the_precision_of_their_products(tmp_path: Path) -> None:
    base, values = base_folder(tmp_path / "base")
    pairs = [adapter(tmp_path / str(seed), values, seed) for seed in (1, 2)]
    found = merged(base, [path for path, _ in pairs], tmp_path / "out")["first.weight"]
    total = torch.zeros(6, 5, dtype=torch.float64)
    weighted = torch.zeros_like(total)
    for path, model in pairs:
        posterior = load_posterior(path)
        key = "base_model.model.first.lora_{}.default.weight".format
        a, b = (dict(model.named_parameters())[key(which)].detach().double() for which in "AB")
        n = posterior.origin.n
        variances = [
            1 / (n * (posterior.hess[key(which)].double() + posterior.weight_decay[key(which)])) for which in "AB"
        ]
        precision = 1 / product_variance(a, variances[0], b, variances[1], 3.0)
        total += precision
        weighted += precision * product_delta(a, b, 3.0)
    torch.testing.assert_close(found.double(), values["first.weight"].double() + weighted / total, rtol=1e-5, atol=1e-6)


def load_posterior(path: Path) -> Any:
    from varlearn.posterior import load

    return load(path / "posterior.safetensors")


def test_the_variance_of_a_product_is_that_of_its_samples() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 3, generator=generator), torch.randn(4, 2, generator=generator)
    var_a, var_b = torch.rand(2, 3, generator=generator), torch.rand(4, 2, generator=generator)
    draws = 200_000
    sampled_a = a + var_a.sqrt() * torch.randn(draws, 2, 3, generator=generator)
    sampled_b = b + var_b.sqrt() * torch.randn(draws, 4, 2, generator=generator)
    products = 1.5 * torch.bmm(sampled_b, sampled_a)
    exact = product_variance(a, var_a, b, var_b, 1.5)
    squares = (products - 1.5 * (b @ a)).square()
    assert ((squares.mean(0) - exact).abs() < 5 * squares.std(0) / draws**0.5).all()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"use_rslora": True}, "use_rslora=true, rank-stabilized LoRA"),
        ({"use_dora": True}, "use_dora=true, DoRA"),
        ({"lora_bias": True, "bias": "none"}, "lora_bias=true, trained biases"),
        ({"rank_pattern": {"first": 4}}, "has a rank_pattern"),
        ({"modules_to_save": ["second"]}, "also trains biases or whole modules"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights='pissa', which changed the base's weights"),
        ({"init_lora_weights": "olora"}, "init_lora_weights='olora', which changed"),
        ({"layer_replication": [(0, 1)]}, "has layer_replication, a variant"),
    ],
)
def test_adapters_that_are_no_plain_product_are_refused(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    base, _ = base_folder(tmp_path / "base")
    plain = LoraConfig(r=2, lora_alpha=6, target_modules=["first"])
    get_peft_model(Network(), plain).save_pretrained(str(tmp_path / "a"))
    wanted = LoraConfig(r=2, lora_alpha=6, target_modules=["first"], **config)
    wanted.save_pretrained(str(tmp_path / "a"))
    with pytest.raises(ValueError, match=message):
        MergeRecipe(Source(base), (Source(tmp_path / "a"),), method="average").plan()


def test_adapters_of_another_base_are_refused(tmp_path: Path) -> None:
    base, values = base_folder(tmp_path / "base")
    path, _ = adapter(tmp_path / "a", values, 1)
    small = {name: value for name, value in values.items() if not name.startswith("second")}
    (tmp_path / "small").mkdir()
    save_file(small, tmp_path / "small" / "model.safetensors")
    with pytest.raises(ValueError, match=r"a adapts 'second.weight', which .*small does not have"):
        MergeRecipe(Source(tmp_path / "small"), (Source(path),)).plan()
    save_file(values | {"first.weight": torch.ones(6, 4)}, tmp_path / "small" / "model.safetensors")
    with pytest.raises(ValueError, match=r"B A for 'first.weight' has shape \(6, 5\), and the base has \(6, 4\)"):
        MergeRecipe(Source(tmp_path / "small"), (Source(path),)).plan()
    with pytest.raises(ValueError, match="is a LoRA adapter, which needs its base"):
        MergeRecipe(Source(path), (Source(base),)).plan()
    config = json.loads((path / "adapter_config.json").read_text())
    (path / "adapter_config.json").write_text(json.dumps(config | {"peft_type": "IA3"}))
    with pytest.raises(ValueError, match="type 'IA3'; only LORA"):
        MergeRecipe(Source(base), (Source(path),)).plan()


def test_damaged_adapters_are_refused_by_name(tmp_path: Path) -> None:
    base, values = base_folder(tmp_path / "base")
    path, _ = adapter(tmp_path / "a", values, 1)
    good = load_file(path / "adapter_model.safetensors")
    factor = "base_model.model.first.lora_B.weight"
    save_file(good | {factor: good[factor] * torch.nan}, path / "adapter_model.safetensors")
    for method in ("average", "hessian"):
        with pytest.raises(
            ValueError, match=f"adapter_model.safetensors: '{factor}' has NaN or infinite entries; they"
        ):
            merged(base, [path], tmp_path / "out", method=method)
    assert not (tmp_path / "out").exists()
    (path / "adapter_model.safetensors").unlink()
    (path / "adapter_model.bin").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=r"a has no adapter_model.safetensors; save the adapter again"):
        MergeRecipe(Source(base), (Source(path),)).plan()
