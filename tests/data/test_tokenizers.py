from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from varlearn.data.errors import DownloadError
from varlearn.data.tokenizers import Bytes, Words, tokenizer


@given(st.text())
def test_bytes_go_there_and_back(text: str) -> None:
    tokens = Bytes().encode(text)
    assert Bytes().decode(tokens) == text
    assert all(0 <= token < Bytes().size for token in tokens)


def test_words_are_ranked_by_frequency_then_alphabet() -> None:
    words = Words.of(["b b a a c", "C c\nd!"], size=6)
    assert words.names == ("<unk>", "c", "a", "b", "\n", "!")
    assert words.encode("A d\n!") == [2, 0, 4, 5]
    assert words.decode([1, 0, 2]) == "c <unk> a"


def test_unknown_words_of_the_source_stay_unknown() -> None:
    words = Words.of(["<unk> <unk> it's"], size=9)
    assert words.names == ("<unk>", "it's")
    assert words.encode("<unk> it's") == [0, 1]


@given(st.text(), st.text(), st.integers(2, 20))
def test_numbers_stay_below_the_size(training: str, text: str, size: int) -> None:
    words = Words.of([training], size)
    assert words.size <= size
    assert all(0 <= token < words.size for token in words.encode(text))


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="vocab=1 must be at least 2"):
        Words.of(["a"], 1)
    with pytest.raises(ValueError, match="tokens='chars' must be bytes, words or gpt2"):
        tokenizer("chars", [], 10, tmp_path)  # type: ignore[arg-type]
    with pytest.raises(DownloadError, match=r"vocab.bpe could not be downloaded to .*gpt2/vocab.bpe"):
        tokenizer("gpt2", [], 10, tmp_path)
