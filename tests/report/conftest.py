"""A run's folder, written by hand."""

import json
from pathlib import Path

import pytest
import torch

from varlearn.prediction import Predictions, save_predictions


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four test examples of two classes and three out of the domain, by IVON; the log ends in half a line."""
    out = tmp_path / "ivon & co"
    out.mkdir()
    config = {"recipe": "hand", "scale": "small", "seed": 7, "optim": {"name": "ivon"}, "model": {"name": "mlp"}}
    config["data"] = {"name": "digits", "ood": ["noise"]}
    (out / "config.json").write_text(json.dumps(config))
    (out / "env.json").write_text(json.dumps({"python": "3.11"}))
    records = [
        {"step": 1, "loss": 2.0, "ivon": {"std_mean": 0.1}},
        {"step": 1, "eval": {"nll": 1.5, "accuracy": 0.5}},
        {"step": 2, "loss": "nan", "ivon": {"std_mean": 0.2}},
        {"step": 2, "eval": {"nll": 1.25, "accuracy": 0.75}},
    ]
    (out / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records) + '{"step": 3, "lo')
    scores = {"accuracy": 0.75, "nll": 0.5, "ece": 0.1, "brier": 0.2, "auroc": None, "examples": 4}
    ood = {"auroc": 0.875, "fpr95": 0.5, "detection_error": 0.25, "aupr_in": 0.9, "aupr_out": 0.9, "examples": 3}
    metrics = {kind: {**scores, "ood": {"noise": ood}} for kind in ("mean", "averaged")}
    metrics["averaged"]["nll"] = 0.4375
    (out / "metrics.json").write_text(json.dumps(metrics))
    right, strange = torch.tensor([0.9, 0.8, 0.7, 0.4]), torch.tensor([0.5, 0.6, 0.5])
    test, noise = (torch.stack([one, 1 - one], 1).log() for one in (right, strange))
    predictions = {}
    for kind in ("mean", "averaged"):
        entropy, weights = torch.zeros(4), torch.ones(1)
        predictions[f"test/{kind}"] = Predictions(test, torch.zeros(4, dtype=torch.long), entropy, weights)
        predictions[f"noise/{kind}"] = Predictions(noise, None, entropy[:3], weights)
    save_predictions(predictions, out / "predictions.safetensors")
    return out
