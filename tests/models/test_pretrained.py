"""A pretrained classifier reads our tokens as the tokenizer and the model of transformers would have it."""

from pathlib import Path

import pytest
import torch

from tests.train.tiny_pretrained import write_tiny_bert
from varlearn.data.pretrained_tokens import pretrained_tokens
from varlearn.data.text_sets import Texts
from varlearn.models import pretrained

PAIRS = Texts(
    ("a good film", "it is bad", "the plot"),
    torch.tensor([1, 0, 1]),
    ("no", "yes"),
    ("very good", "not a very good film it is", "a"),
)
SINGLES = Texts(PAIRS.texts, PAIRS.targets, PAIRS.classes)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny_bert(tmp_path_factory.mktemp("bert")))


@pytest.mark.parametrize("texts", [PAIRS, SINGLES], ids=["pairs", "singles"])
@torch.no_grad()
def test_logits_are_those_of_transformers_own_inputs(bert: str, texts: Texts) -> None:
    from transformers import AutoTokenizer

    torch.manual_seed(3)
    model = pretrained(bert, outputs=3).eval()
    rows = pretrained_tokens(texts, bert, context=20).inputs
    second = (list(texts.seconds),) if texts.seconds else ()
    given = AutoTokenizer.from_pretrained(bert)(list(texts.texts), *second, padding=True, return_tensors="pt")
    assert given["token_type_ids"].any() == bool(texts.seconds)
    expected = model(**given).logits
    torch.testing.assert_close(model(rows).logits, expected)
    torch.testing.assert_close(model(torch.nn.functional.pad(rows, (0, 13))).logits, expected)  # more padding
    for row in range(len(rows)):  # what stands in the other rows makes no difference
        torch.testing.assert_close(model(rows[row : row + 1]).logits[0], expected[row])


@torch.no_grad()
def test_a_number_for_padding_that_is_not_zero(tmp_path: Path) -> None:
    folder = str(write_tiny_bert(tmp_path, "roberta"))
    model = pretrained(folder).eval()
    assert model.config.pad_token_id == 1
    rows = pretrained_tokens(SINGLES, folder, context=20).inputs
    ids, mask = rows - 1, (rows > 0).long()
    expected = model(input_ids=ids.masked_fill(mask == 0, 1), attention_mask=mask).logits
    torch.testing.assert_close(model(rows).logits, expected)


def test_names_are_those_of_the_folder_and_the_weights_too(bert: str) -> None:
    from transformers import AutoModel

    inner = {f"bert.{name}": value for name, value in AutoModel.from_pretrained(bert).state_dict().items()}
    ours = pretrained(bert).state_dict()
    assert ours.keys() == inner.keys() | {"classifier.weight", "classifier.bias"}
    assert all(torch.equal(ours[name], value) for name, value in inner.items())


def test_the_last_layer_comes_from_the_global_generator(bert: str) -> None:
    weights = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        weights.append(pretrained(bert).classifier.weight)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@torch.no_grad()
def test_a_regression_has_the_squared_error_as_its_loss(bert: str) -> None:
    from varlearn.train.tasks import mean_loss

    model = pretrained(bert, outputs=1, regression=True).eval()
    rows = pretrained_tokens(SINGLES, bert, context=20).inputs
    mean, variance = model(rows)
    assert mean.shape == variance.shape == (3, 1)
    y = torch.tensor([1.0, 2.0, 5.0])
    constant = mean_loss("regression", (mean, variance), mean.flatten())
    found = mean_loss("regression", (mean, variance), y) - constant
    torch.testing.assert_close(found, (y - mean.flatten()).square().mean())


def test_dropout_before_the_last_layer(bert: str) -> None:
    assert pretrained(bert, head_dropout=0.3).dropout.p == 0.3
    assert pretrained(bert, head_dropout=0.0).dropout.p == 0.0
    assert pretrained(bert).dropout.p == 0.1  # BERT's own


def test_rows_are_cut_to_the_context(bert: str) -> None:
    rows = pretrained_tokens(PAIRS, bert, context=8).inputs
    assert rows.shape[1] == 8
    assert (rows[1] > 0).all()  # a long pair still ends with the separator
    assert rows[1, -1] == rows[0][rows[0] > 0][-1]
    with pytest.raises(ValueError, match="context=3 must be more than the 3 special tokens"):
        pretrained_tokens(PAIRS, bert, context=3)
    with pytest.raises(ValueError, match="pretrained=None must be the folder of a model"):
        pretrained_tokens(PAIRS, None, context=8)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="holds no tokenizer that can be loaded"):
        pretrained_tokens(SINGLES, str(tmp_path), context=8)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="holds no text model that can be loaded"):
        pretrained(str(tmp_path))
