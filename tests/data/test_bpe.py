"""Against Hugging Face's implementation, with merges that it learned itself."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.files import write
from varlearn.data import bpe
from varlearn.data.bpe import BytePairs, read_merges
from varlearn.data.errors import CorruptDataError

TEXT = (
    """It's a test: we'll see what they've got, don't we? I'm sure you'd say 'tis 1234 or 56.78 things...
    Indented   lines, tabs\tand trailing spaces   \n\nNaïve café, Ελληνικά, русский, 中文字符 一二三, ½ ² Ⅷ ٣,
emoji 🙂👍🏽, snake_case_names __init__ <|endoftext|> "quotes" — dashes – and\xa0no-break\u2003spaces.\x1c
"""
    * 3
)


@pytest.fixture(scope="module")
def merges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A list of merges in the published format, learned from a text by the other implementation."""
    tokenizers = pytest.importorskip("tokenizers")
    learner = tokenizers.ByteLevelBPETokenizer()
    learner.train_from_iterator([TEXT], vocab_size=400, min_frequency=2, show_progress=False)
    folder = tmp_path_factory.mktemp("bpe")
    learner.save_model(str(folder))
    return folder / "merges.txt"


@pytest.fixture(scope="module")
def other(merges: Path) -> Callable[[str], list[bytes]]:
    """The other implementation: from a text to the pieces, as bytes."""
    import tokenizers

    pairs = read_merges(merges)
    names = {byte: character for character, byte in bpe._BYTE_OF.items()}
    lines = [tuple(line.split(" ")) for line in merges.read_text("utf-8").splitlines()[1:]]
    vocabulary = {name: k for k, name in enumerate([names[b] for b in range(256)] + [a + b for a, b in lines])}
    coder = tokenizers.ByteLevelBPETokenizer(vocabulary, lines)
    assert len(pairs) == len(lines)

    def pieces(text: str) -> list[bytes]:
        return [bytes(bpe._BYTE_OF[character] for character in token) for token in coder.encode(text).tokens]

    return pieces


def test_the_same_pieces_as_hugging_face(merges: Path, other: Callable[[str], list[bytes]]) -> None:
    ours = BytePairs(read_merges(merges))
    pieces = [ours.pieces[token] for token in ours.encode(TEXT)]
    assert pieces == other(TEXT)
    assert max(map(len, pieces)) > 3
    assert b"".join(pieces) == TEXT.encode()


def test_the_same_pieces_of_any_text(merges: Path, other: Callable[[str], list[bytes]]) -> None:
    ours = BytePairs(read_merges(merges))

    @given(
        st.text(st.characters(exclude_categories=["Cs", "Cn"]), max_size=40) | st.text("ab '_1½\n\t it's", max_size=40)
    )
    def check(text: str) -> None:
        assert [ours.pieces[token] for token in ours.encode(text)] == other(text)

    check()


def test_a_text_is_cut_as_the_published_expression_does() -> None:
    regex = pytest.importorskip("regex")  # knows Unicode categories
    published = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
    assert bpe._words().findall("a½b Ⅷx²  ٣_y") == ["a", "½", "b", " Ⅷ", "x", "²", " ", " ٣", "_", "y"]

    @given(st.text(st.characters(exclude_categories=["Cs", "Cn"])) | st.text("aé½²Ⅷ٣1_' \t\n\x1c\x85\xa0\u3000-s"))
    def check(text: str) -> None:
        assert bpe._words().findall(text) == published.findall(text)

    check()


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_there_and_back(text: str) -> None:
    pairs = BytePairs([(b"t", b"h"), (b"th", b"e"), (b" ", b"the")])
    assert pairs.decode(pairs.encode(text)) == text


def test_the_numbers_are_gpt2s() -> None:
    pairs = BytePairs([])
    assert pairs.encode("!") == [0]
    assert pairs.encode("A") == [32]
    assert pairs.encode(" ") == [220]
    assert pairs.encode("\n") == [198]
    assert (pairs.size, pairs.end_of_text, pairs.decode([256])) == (257, 256, "<|endoftext|>")


def test_merges_in_their_order() -> None:
    assert BytePairs([(b"b", b"c"), (b"a", b"b")]).encode("abc") == [64, 256]
    assert BytePairs([(b"a", b"b"), (b"b", b"c")]).encode("abc") == [256, 66]
    assert BytePairs([(b"a", b"a")]).encode("aaa") == [256, 64]


def test_a_damaged_list(tmp_path: Path) -> None:
    path = write(tmp_path / "vocab.bpe", "#version: 0.2\nĠ t\nno merge here\n".encode())
    with pytest.raises(CorruptDataError, match=r"vocab.bpe line 3 is 'no merge here', not two pieces"):
        read_merges(path)
    write(path, "#version: 0.2\nĠ t\nĠt h\n".encode())
    assert read_merges(path) == [(b" ", b"t"), (b" t", b"h")]


def test_the_published_list(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write(tmp_path / "gpt2" / "vocab.bpe", b"#version: 0.2\n")
    with pytest.raises(CorruptDataError, match="has sha256"):
        bpe.gpt2(tmp_path)
    monkeypatch.setattr(bpe, "MERGES", bpe.Published("gpt2/vocab.bpe", None))
    assert bpe.gpt2(tmp_path).size == 257
