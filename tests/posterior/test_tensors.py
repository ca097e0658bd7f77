import pytest
import torch

from varlearn.posterior.tensors import cast, check_means, check_names


def test_names_must_be_the_same() -> None:
    with pytest.raises(ValueError, match=r"hess lacks \['b'\] and has \['c'\] besides"):
        check_names("hess", {"a": 1.0, "c": 1.0}, {"a": torch.zeros(1), "b": torch.zeros(1)})


def test_names_may_be_fewer_where_allowed() -> None:
    check_names("prior_mean", {"a": torch.zeros(1)}, {"a": torch.zeros(1), "b": torch.zeros(1)}, partial=True)
    with pytest.raises(ValueError, match="besides"):
        check_names("prior_mean", {"c": torch.zeros(1)}, {"a": torch.zeros(1)}, partial=True)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_means_must_be_finite(bad: float) -> None:
    with pytest.raises(ValueError, match=r"mean\['w'\] has NaN or infinite"):
        check_means({"w": torch.tensor([0.0, bad])})


def test_means_must_be_there_and_real() -> None:
    with pytest.raises(ValueError, match="names no tensor"):
        check_means({})
    with pytest.raises(ValueError, match="complex64"):
        check_means({"w": torch.zeros(1, dtype=torch.complex64)})


def test_cast_leaves_integers_and_refuses_integer_types() -> None:
    moved = cast({"w": torch.ones(1), "n": torch.tensor(2)}, "cpu", torch.bfloat16)
    assert (moved["w"].dtype, moved["n"].dtype) == (torch.bfloat16, torch.int64)
    with pytest.raises(ValueError, match="must be a float type"):
        cast({}, None, torch.int64)
