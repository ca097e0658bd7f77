"""tiktoken against this package's own byte pair encoding."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.corpora import MERGES, write_merges
from varlearn.data import fast_tokens
from varlearn.data.bpe import BytePairs
from varlearn.data.fast_tokens import FastTokens

SLOW = BytePairs(MERGES)
CHARACTERS = "the an a\n\t  \u00a0\u3000é漢12½²'s't_-<|endoftext|>\r\x85\u2028\x1c\x1d\x0b\x0c"


@pytest.fixture(scope="module")
def fast(tmp_path_factory: pytest.TempPathFactory) -> FastTokens:
    return FastTokens(write_merges(tmp_path_factory.mktemp("merges") / "vocab.bpe"))


def test_numbers(fast: FastTokens) -> None:
    assert (fast.size, fast.end_of_text) == (SLOW.size, SLOW.end_of_text) == (262, 261)
    tokens = fast.encode("the an<|endoftext|>")
    assert tokens.dtype == np.dtype("<u2")
    assert tokens.tolist()[:2] == [257, 260]
    assert 261 not in tokens


def test_the_same_tokens_where_words_are_hard_to_tell(fast: FastTokens) -> None:
    source = random.Random(0)
    for _ in range(3_000):
        text = "".join(source.choice(CHARACTERS) for _ in range(source.randrange(30)))
        assert fast.encode(text).tolist() == SLOW.encode(text), repr(text)


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cn",))))
@settings(deadline=None)
def test_the_same_tokens_for_any_text(fast: FastTokens, text: str) -> None:
    assert fast.encode(text).tolist() == SLOW.encode(text)


def test_too_many_tokens_for_16_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_tokens, "read_merges", lambda path: [(b"a", bytes([k % 256])) for k in range(65_300)])
    with pytest.raises(ValueError, match="makes 65,557 tokens, more than the 65,536"):
        FastTokens(tmp_path / "vocab.bpe")
