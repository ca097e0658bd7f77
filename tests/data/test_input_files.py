"""Inputs from files that the test writes."""

from pathlib import Path

import pytest
import torch

from varlearn.data.errors import CorruptDataError, MissingDataError
from varlearn.data.examples import Examples
from varlearn.data.input_files import read_inputs
from varlearn.data.text_sets import Texts

TABLE = Examples(torch.zeros(3, 2), torch.zeros(3), (), "table", (1.0, 2.0), (3.0, 4.0))


@pytest.mark.parametrize(
    ("name", "text"), [("a.csv", "x,y\n1,2\n3,4\n"), ("a.csv", "1,2\n3,4"), ("a.tsv", "1\t2\n3\t4\n")]
)
def test_a_table_with_and_without_a_heading(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    found, names = read_inputs(tmp_path / name, TABLE)
    assert found.inputs.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert (found.mean, found.std, names) == (TABLE.mean, TABLE.std, ["1", "2"])


@pytest.mark.parametrize(
    ("text", "message"), [("1,2\n3,x\n", "line 2"), ("1,2\n3\n", "equally many numbers"), ("", "at least one")]
)
def test_a_damaged_table_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(CorruptDataError, match=message):
        read_inputs(tmp_path / "a.csv", TABLE)


def test_texts_are_tokenized_line_by_line(tmp_path: Path) -> None:
    like = Examples(
        torch.zeros(1, 4, dtype=torch.long), torch.zeros(1, dtype=torch.long), ("no", "yes"), "text", vocab=9
    )
    (tmp_path / "a.txt").write_text("good film\n\nbad\n")
    seen: list[Texts] = []

    def tokenize(texts: Texts) -> Examples:
        seen.append(texts)
        return like

    found, names = read_inputs(tmp_path / "a.txt", like, tokenize)
    assert found is like
    assert (seen[0].texts, seen[0].classes, names) == (("good film", "bad"), ("no", "yes"), ["1", "2"])


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match="does not exist"):
        read_inputs(tmp_path / "a.csv", TABLE)
    image = Examples(torch.zeros(1, 1, 2, 2, dtype=torch.uint8), torch.zeros(1, dtype=torch.long), ("a",), "image")
    with pytest.raises(MissingDataError, match="holds no pictures"):
        read_inputs(tmp_path, image)
    tokens = Examples(torch.zeros(9, dtype=torch.uint8), torch.empty(0), (), "tokens", vocab=3)
    with pytest.raises(ValueError, match="a language model has no inputs"):
        read_inputs(tmp_path, tokens)
