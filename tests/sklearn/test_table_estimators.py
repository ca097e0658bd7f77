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


def test_a_wrong_share_is_refused() -> None:
    with pytest.raises(ValueError, match="validation_fraction=1.5 must be >= 0 and < 1"):
        VariationalRegressor(validation_fraction=1.5).fit([[0.0], [1.0]], [0.0, 1.0])
