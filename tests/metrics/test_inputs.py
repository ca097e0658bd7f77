"""Distributions pass in every dtype; what is not one is refused with its row, value, rule and cure."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from varlearn.metrics import chunks, from_probs, nll
from varlearn.metrics.inputs import (
    SUM_TOLERANCE,
    check_finite,
    check_same_length,
    check_targets,
    check_vector,
    checked_rows,
)

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
UNIFORM = torch.full((5, 4), 0.25).log()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("classes", [2, 10, 1000, 50_000])
def test_rounded_softmax_is_accepted_in_every_dtype(dtype: torch.dtype, classes: int) -> None:
    for scale in (0.0, 1.0, 10.0):
        log_probs = (scale * torch.randn(20, classes, dtype=torch.float64)).log_softmax(-1).to(dtype)
        assert sum(len(chunk) for _, chunk in checked_rows(log_probs)) == 20


@pytest.mark.parametrize(("dtype", "tolerance"), list(zip(DTYPES, (1e-5, 1e-4, 1e-2, 5e-2), strict=True)))
def test_the_tolerances_of_the_documentation(dtype: torch.dtype, tolerance: float) -> None:
    assert SUM_TOLERANCE[dtype] == tolerance
    for sign in (-1, 1):
        assert (
            from_probs(torch.tensor([[0.5, 0.5 + sign * 0.7 * tolerance]], dtype=torch.float64).to(dtype)).numel() == 2
        )
        with pytest.raises(ValueError, match="must be 1 within"):
            from_probs(torch.tensor([[0.5, 0.5 + sign * 1.4 * tolerance]], dtype=torch.float64).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_tolerance_is_the_stated_one(dtype: torch.dtype) -> None:
    tolerance = SUM_TOLERANCE[dtype]
    off = torch.log(torch.tensor([[0.5, 0.5 + 4 * tolerance]], dtype=torch.float64)).to(dtype)
    with pytest.raises(ValueError, match=r"row 0 has probabilities that sum to"):
        list(checked_rows(off))
    if dtype in (torch.float32, torch.float64):  # in half precision the rounding itself is of the tolerance's size
        near = torch.log(torch.tensor([[0.5, 0.5 + 0.5 * tolerance]], dtype=torch.float64)).to(dtype)
        assert len(list(checked_rows(near))) == 1


@given(row=st.integers(0, 4), column=st.integers(0, 3), limit=st.integers(1, 30))
def test_nan_names_row_and_column_in_any_chunk(row: int, column: int, limit: int) -> None:
    log_probs, probs = UNIFORM.clone(), UNIFORM.exp()
    log_probs[row, column] = probs[row, column] = float("nan")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_ELEMENTS", limit)
        with pytest.raises(
            ValueError, match=f"log_probs row {row} is nan in column {column}, must be a number; repair"
        ):
            nll(log_probs, torch.zeros(5, dtype=torch.long))
        with pytest.raises(ValueError, match=f"probs row {row} is nan in column {column}"):
            from_probs(probs)


@given(row=st.integers(0, 4), limit=st.integers(1, 30))
def test_wrong_sum_names_row_value_rule_and_cure(row: int, limit: int) -> None:
    log_probs, probs = UNIFORM.clone(), UNIFORM.exp()
    log_probs[row], probs[row] = torch.tensor(0.3).log(), 0.3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_ELEMENTS", limit)
        rule = r"sum to 1.2, must be 1 within 0.0001 \(float32\); normalise with log_softmax\(-1\)"
        with pytest.raises(ValueError, match=f"log_probs row {row} has probabilities that {rule}"):
            list(checked_rows(log_probs))
        with pytest.raises(ValueError, match=rf"probs row {row} sums to 1.2, .* divide each row by its sum"):
            from_probs(probs)


def test_logits_and_infinite_entries_are_refused() -> None:
    for bad in (torch.tensor([[2.0, 1.0]]), torch.tensor([[float("inf"), 0.0]]), torch.full((1, 2), -float("inf"))):
        with pytest.raises(ValueError, match="row 0 has probabilities that sum to"):
            list(checked_rows(bad))


def test_negative_probability_is_refused_with_its_value() -> None:
    with pytest.raises(ValueError, match=r"probs row 1 has the entry -0.5, must be >= 0"):
        from_probs(torch.tensor([[0.5, 0.5], [1.5, -0.5]]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_from_probs_normalises_what_it_accepts(dtype: torch.dtype) -> None:
    probs = torch.randn(50, 30, dtype=torch.float64).softmax(-1).to(dtype)
    log_probs = from_probs(probs)
    assert log_probs.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(log_probs.double().exp().sum(-1), torch.ones(50, dtype=torch.float64), rtol=0, atol=1e-6)
    expected = probs.double() / probs.double().sum(-1, keepdim=True)
    torch.testing.assert_close(log_probs.double().exp(), expected, rtol=1e-5, atol=0)


def test_zero_probability_becomes_minus_infinity_and_is_accepted() -> None:
    log_probs = from_probs(torch.tensor([[1.0, 0.0]]))
    assert log_probs.tolist() == [[0.0, -float("inf")]]
    assert nll(log_probs, torch.tensor([0])) == 0.0


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (3,), (2, 3, 4)])
def test_empty_or_misshapen_log_probs_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"log_probs has shape .* must be \(N, C\) with at least one row and column"):
        list(checked_rows(torch.zeros(shape)))


def test_integer_and_unsupported_dtypes_are_refused() -> None:
    with pytest.raises(TypeError, match=r"must be a floating dtype; convert with .float"):
        list(checked_rows(torch.zeros(2, 2, dtype=torch.long)))
    with pytest.raises(TypeError, match="must be float64, float32, float16 or bfloat16"):
        list(checked_rows(torch.zeros(2, 2).to(torch.float8_e5m2)))


@pytest.mark.parametrize("target", [-100, -1, 4])
def test_target_outside_the_classes_is_named(target: int) -> None:
    targets = torch.tensor([0, 1, target, 3, 0])
    with pytest.raises(ValueError, match=rf"targets row 2 is {target}, must be a class in 0 .. 3; drop masked"):
        check_targets(UNIFORM, targets)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_targets_must_be_integers(dtype: torch.dtype) -> None:
    with pytest.raises(TypeError, match=r"targets has dtype .* must be an integer dtype"):
        check_targets(UNIFORM, torch.zeros(5, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_every_integer_dtype_of_targets_scores_the_same(dtype: torch.dtype) -> None:
    log_probs = torch.randn(5, 4).log_softmax(-1)
    targets = torch.tensor([0, 1, 2, 3, 0])
    assert nll(log_probs, targets.to(dtype)) == nll(log_probs, targets)


def test_target_shapes() -> None:
    with pytest.raises(ValueError, match="targets has 3 rows and log_probs 5"):
        check_targets(UNIFORM, torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match=r"targets has shape \(5, 1\), must be \(N,\)"):
        check_targets(UNIFORM, torch.zeros(5, 1, dtype=torch.long))
    with pytest.raises(ValueError, match="targets is empty"):
        check_targets(UNIFORM, torch.zeros(0, dtype=torch.long))


def test_vectors() -> None:
    assert check_vector(torch.tensor([1.0, -float("inf")], dtype=torch.bfloat16), "s").dtype == torch.float32
    with pytest.raises(ValueError, match="mean row 1 is inf, must be finite"):
        check_finite(torch.tensor([1.0, float("inf")]), "mean")
    with pytest.raises(ValueError, match="s is empty"):
        check_vector(torch.zeros(0), "s")
    with pytest.raises(ValueError, match=r"s has shape \(1, 2\)"):
        check_vector(torch.zeros(1, 2), "s")
    with pytest.raises(ValueError, match="lengths differ: a 1, b 2"):
        check_same_length(a=torch.zeros(1), b=torch.zeros(2))


def test_inputs_that_require_grad_give_plain_results() -> None:
    log_probs = torch.randn(5, 4, requires_grad=True).log_softmax(-1)
    assert all(not chunk.requires_grad for _, chunk in checked_rows(log_probs))
