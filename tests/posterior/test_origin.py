import pytest

from varlearn.posterior import Origin


def test_what_is_known_comes_back() -> None:
    origin = Origin("ivon", "ivon", n=10.0)
    assert Origin.read(origin.known()) == origin
    assert Origin.read({}) == Origin()


def test_unknown_words_are_refused() -> None:
    with pytest.raises(ValueError, match="curvature='hessian' must be one of ivon, fisher, squared_gradient"):
        Origin(curvature="hessian")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="per='batch' must be one of mean, sum"):
        Origin(per="batch")  # type: ignore[arg-type]
