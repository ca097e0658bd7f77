"""`varlearn merge` from the command line, on folders that transformers wrote and reads again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoModelForSequenceClassification, BertConfig, BertForSequenceClassification

import varlearn
from tests.merging.stored import contents, folder
from varlearn.cli import main
from varlearn.posterior import DiagGaussian, load, save

CONFIG = BertConfig(
    vocab_size=30, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12,
    max_position_embeddings=10, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)  # fmt: skip
IDS = torch.arange(24).view(4, 6)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base, and two models finetuned from it with variational AdamW."""
    place = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    base = BertForSequenceClassification(CONFIG)
    base.save_pretrained(place / "base")
    for seed in (1, 2):
        model = AutoModelForSequenceClassification.from_pretrained(place / "base")
        opt = varlearn.VAdamW.for_model(model, lr=1e-2, n=40, batch_size=4, steps=10, seed=seed)
        labels = torch.randint(2, (4,), generator=torch.Generator().manual_seed(seed))
        for _ in range(10):
            with opt.sampled_params(train=True):
                opt.zero_grad()
                nn.functional.cross_entropy(model(input_ids=IDS).logits, labels).backward()
            opt.step()
        model.save_pretrained(place / str(seed))
        save(DiagGaussian.from_optimizer(model, opt), place / str(seed) / "posterior.safetensors")
    return place


def command(place: Path, *words: str) -> list[str]:
    return ["merge", "--base", str(place / "base"), "--model", str(place / "1"), "--model", str(place / "2"), *words]


def test_the_result_loads_with_from_pretrained(bert: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(command(bert, "--method", "hessian", "--out", str(out), "--shard_size", "2KB", "--quiet")) == 0
    merged = AutoModelForSequenceClassification.from_pretrained(out).eval()
    base = BertForSequenceClassification.from_pretrained(bert / "base")
    posteriors = [load(bert / name / "posterior.safetensors") for name in "12"]
    wanted = varlearn.merge(dict(base.named_parameters()), posteriors)
    for name, value in merged.named_parameters():
        assert torch.equal(value, wanted[name]), name
    assert len(list(out.glob("model-*.safetensors"))) > 1


def test_one_model_is_itself(bert: Path, tmp_path: Path) -> None:
    words = ["merge", "--base", str(bert / "base"), "--model", str(bert / "1"), "--out", str(tmp_path / "out")]
    assert main(words) == 0
    merged = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    model = AutoModelForSequenceClassification.from_pretrained(bert / "1").eval()
    assert torch.equal(merged(input_ids=IDS).logits, model(input_ids=IDS).logits)


def test_a_dry_run_says_everything_and_writes_nothing(
    bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    before = contents(tmp_path)
    assert main(command(bert, "--weight", "1", "--weight", "0.5", "--dry-run", "--out", str(tmp_path / "out"))) == 0
    assert contents(tmp_path) == before
    out, err = capsys.readouterr()
    assert "squared_gradient per mean, n 40, batch_size 4" in out
    assert "0.5" in out
    assert "nothing was written" in err
    assert "weights are merged, 0 are kept from the base" in err


def test_a_recipe_and_flags_that_replace_its_entries(bert: Path, tmp_path: Path) -> None:
    text = f'base = "{bert}/base"\nmethod = "ties"\nalpha = 0.5\n'
    text += "".join(f'[[models]]\npath = "{bert}/{name}"\nweight = {name}\n' for name in "12")
    (tmp_path / "m.toml").write_text(text)
    assert main(["merge", str(tmp_path / "m.toml"), "--alpha", "0.25", "--out", str(tmp_path / "out"), "--quiet"]) == 0
    record = json.loads((tmp_path / "out" / "merge.json").read_text())
    assert (record["method"], record["alpha"]) == ("ties", 0.25)
    assert [model["weight"] for model in record["models"]] == [1.0, 2.0]


WRONG = [
    (["--out", "{new}", "--model", "nowhere"], "nowhere does not exist"),
    (["--weight", "1", "--out", "{new}"], "weights=[1.0] has 1 entries for 2"),
    (["--weight", "1", "--weight", "-1", "--out", "{new}"], "must be >= 0"),
    (["--shard_size", "many", "--out", "{new}"], "--shard_size many must be a size"),
    (["--dtype", "int8", "--out", "{new}"], "dtype='int8' must be one of"),
    (["--method", "magic", "--out", "{new}"], "magic"),
    ([], "no folder for the result is given; give --out"),
    (["--out", "{used}"], "is in use: it exists and is not empty"),
]


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[message[:30] for _, message in WRONG])
def test_wrong_use_writes_nothing(
    bert: Path, tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine").write_text("kept")
    before = contents(tmp_path)
    filled = [word.format(new=tmp_path / "new", used=tmp_path / "used") for word in words]
    assert main(command(bert, *filled)) == 2
    assert message in capsys.readouterr().err
    assert contents(tmp_path) == before


def test_no_base_or_a_damaged_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder(tmp_path / "1", 1)
    assert main(["merge", "--model", str(path), "--out", str(tmp_path / "out")]) == 2
    assert "no base is given; give --base" in capsys.readouterr().err
    raw = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(raw[:-1])
    assert main(["merge", "--base", str(path), "--model", str(path), "--out", str(tmp_path / "out")]) == 1
    assert "is no whole safetensors file" in capsys.readouterr().err


def test_preview_scores_a_grid_with_one_model_in_memory(
    bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "score.py").write_text(
        "import torch\n"
        "from transformers import AutoModelForSequenceClassification\n"
        f"model = AutoModelForSequenceClassification.from_pretrained({str(bert / 'base')!r}).eval()\n"
        "def rate(weights):\n"
        "    model.load_state_dict(weights)\n"
        "    with torch.no_grad():\n"
        "        logits = model(input_ids=torch.arange(24).view(4, 6)).logits\n"
        "    return {'first': logits[:, 0].mean(), 'second': logits[:, 1].mean()}\n"
    )
    out = tmp_path / "preview"
    words = ["merge", "preview", *command(bert)[1:], "--score", f"{tmp_path / 'score.py'}:rate", "--out", str(out)]
    assert main([*words, "--steps", "2"]) == 0
    found = json.loads((out / "preview.json").read_text())
    assert [point["weights"] for point in found["points"]] == [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]
    for place, name in ((0, "2"), (2, "1")):  # all the weight on one model is that model
        with torch.no_grad():
            logits = AutoModelForSequenceClassification.from_pretrained(bert / name).eval()(input_ids=IDS).logits
        assert found["points"][place]["scores"]["first"] == pytest.approx(logits[:, 0].mean().item(), abs=1e-6)
    assert (out / "preview.png").stat().st_size > 1000
    assert "first" in (out / "preview.svg").read_text()
    assert "scores by weight" in capsys.readouterr().out
    for score, message in (("score.py", "must be FILE.py:FUNCTION"), ("no.py:rate", "no.py does not exist"),
                           (f"{tmp_path / 'score.py'}:no", "has no function 'no'")):  # fmt: skip
        words[words.index("--score") + 1] = score
        words[words.index("--out") + 1] = str(tmp_path / "other")
        assert main(words) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


SCORES = [
    ("{}", "returned {}; it must return a dictionary"),
    ("3.0", "returned 3.0; it must return a dictionary"),
    ("{'a': float('nan')}", "the score of 'a' is nan with weights (0.0, 1.0); it must be finite"),
    ("weights['head']", "failed with KeyError: 'head'; --debug shows where"),
]


@pytest.mark.parametrize(("returned", "message"), SCORES, ids=[message[:30] for _, message in SCORES])
def test_a_scoring_function_that_fails_is_named(
    tmp_path: Path, returned: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "score.py").write_text(f"def rate(weights):\n    return {returned}\n")
    models = [str(folder(tmp_path / str(seed), seed)) for seed in range(3)]
    words = ["merge", "preview", "--base", models[0], "--model", models[1], "--model", models[2], "--method", "average"]
    assert main([*words, "--score", f"{tmp_path / 'score.py'}:rate", "--out", str(tmp_path / "out")]) in (1, 2)
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()
