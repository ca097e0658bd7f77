"""scikit-learn's own checks, data frames, clones and grid search."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import check_estimator

from varlearn.sklearn import VariationalClassifier, VariationalRegressor

SMALL = {"hidden": (16,), "epochs": 30, "samples": 4, "random_state": 0}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the checks: skipped ones, casts of strange values
@pytest.mark.parametrize("kind", [VariationalClassifier, VariationalRegressor])
def test_scikit_learns_own_checks_pass(kind: type) -> None:
    check_estimator(kind(**SMALL))


def test_a_classifier_in_a_grid_search() -> None:
    X, y = load_iris(return_X_y=True)
    search = GridSearchCV(VariationalClassifier(**SMALL), {"hidden": [(8,), (16,)]}, scoring="neg_log_loss", cv=2)
    search.fit(X, load_iris().target_names[y])
    assert search.best_score_ > -0.35
    assert search.predict_proba(X).sum(1) == pytest.approx(1.0)
    assert set(search.predict(X)) <= {"setosa", "versicolor", "virginica"}


def test_intervals_of_a_regressor_and_its_clone() -> None:
    X, y = load_diabetes(return_X_y=True)
    model = VariationalRegressor(hidden=(32,), epochs=30, samples=16, random_state=0).fit(X[:300], y[:300])
    mean, std = model.predict(X[300:], return_std=True)
    covered = np.mean(np.abs(y[300:] - mean) < 1.645 * std)
    assert 0.8 < covered < 0.98
    assert model.score(X[300:], y[300:]) > 0.35
    again = clone(model).fit(X[:300], y[:300])
    assert np.array_equal(again.predict(X[300:]), mean)


def test_a_data_frame_with_words() -> None:
    chance = np.random.default_rng(0)
    frame = pd.DataFrame({
        "size": chance.normal(1000, 100, 200),
        "color": pd.Categorical(chance.choice(["red", "blue"], 200)),
        "open": chance.random(200) < 0.5,
    })  # fmt: skip
    y = frame["size"] / 100 + 5 * (frame["color"] == "red") + chance.normal(0, 0.1, 200)
    model = VariationalRegressor(hidden=(16,), epochs=60, samples=8, random_state=0).fit(frame, y)
    assert model.score(frame, y) > 0.9
    assert list(model.feature_names_in_) == ["size", "color", "open"]
    strange = frame.assign(color="green").head(3)  # a category that training had not
    assert np.isfinite(model.predict(strange)).all()
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"size": "width"}))


def test_scores_over_folds() -> None:
    X, y = load_iris(return_X_y=True)
    assert cross_val_score(VariationalClassifier(**SMALL), X, y, cv=2).mean() > 0.8


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epochs": 0}, "epochs=0 must be a whole number >= 1"),
        ({"batch_size": 2.5}, "batch_size=2.5 must be a whole number >= 1"),
        ({"samples": 0}, "samples=0 must be a whole number >= 1"),
        ({"hidden": (8, 0)}, r"hidden=0 must be a whole number >= 1; \(50, 50\) is usual"),
        ({"hidden": 32}, r"hidden=32 must be the widths of the hidden layers; e.g. \(50, 50\)"),
        ({"hidden": "wide"}, "hidden='wide' must be the widths"),
    ],
)
def test_a_wrong_size_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        VariationalClassifier(**options).fit([[0.0], [1.0]] * 10, [0, 1] * 10)


def test_missing_values_and_a_single_class_are_named() -> None:
    frame = pd.DataFrame({"size": [1.0, float("nan")], "color": ["red", "blue"]})
    with pytest.raises(ValueError, match=r"(?s)X contains NaN.*VariationalClassifier does not accept missing"):
        VariationalClassifier().fit(frame, [0, 1])
    with pytest.raises(ValueError, match="y has 1 class, 0, and"):
        VariationalClassifier().fit([[0.0], [1.0]], np.array([0, 0]))


def test_a_regressor_takes_targets_of_0_and_1() -> None:
    X = np.linspace(-1, 1, 40)[:, None]
    found = VariationalRegressor(**SMALL).fit(X, (X[:, 0] > 0).astype(float)).predict(X)
    assert found[0] < 0.4 < 0.6 < found[-1]


def test_a_wrong_share_is_refused() -> None:
    with pytest.raises(ValueError, match="validation_fraction=1.5 must be >= 0 and < 1"):
        VariationalRegressor(validation_fraction=1.5).fit([[0.0], [1.0]], [0.0, 1.0])
