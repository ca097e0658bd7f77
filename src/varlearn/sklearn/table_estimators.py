"""Estimators with scikit-learn's interface: arrays or data frames in, calibrated predictions out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.compose import make_column_transformer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils import check_array, check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from varlearn.fitting import Fitted, fit
from varlearn.setting_checks import whole_number
from varlearn.sklearn.table_network import table_network

_STEPS = 2_000  # that `epochs=None` aims at
_LEAST, _MOST = 20, 200  # epochs
_HELD_OUT = 20  # rows; a classifier with fewer of them is not calibrated

Array = Any


class _TableEstimator(BaseEstimator):
    """What both estimators share."""

    def __init__(
        self,
        hidden: Sequence[int] = (50, 50),
        *,
        epochs: int | None = None,
        batch_size: int = 32,
        samples: int = 64,
        validation_fraction: float = 0.1,
        method: str = "auto",
        lr: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.samples = samples
        self.validation_fraction = validation_fraction
        self.method = method
        self.lr = lr
        self.random_state = random_state

    def _fit_rows(self, rows: Tensor, targets: Tensor, outputs: int, stratify: Array) -> Fitted:
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(f"validation_fraction={self.validation_fraction} must be >= 0 and < 1; 0.1 is usual")
        self._check_sizes()
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        train, held_out = _split(len(rows), self.validation_fraction, stratify, seed)
        network = table_network(rows[train], outputs, self.hidden, seed)
        loader = DataLoader(TensorDataset(rows[train], targets[train]), self.batch_size, shuffle=True)
        usual = min(_MOST, max(_LEAST, math.ceil(_STEPS / len(loader))))
        epochs = usual if self.epochs is None else self.epochs
        validation = [(rows[held_out], targets[held_out])] if len(held_out) else None
        task = "regression" if stratify is None else "classification"
        options = {"task": task, "lr": self.lr, "samples": self.samples, "seed": seed, "progress": False}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "no data could be held out")  # `fitted_.noise` says so
            fitted = fit(network, loader, epochs, validation, method=self.method, **options)
        # In float64 the prediction of a row does not depend on the rows beside it.
        return replace(fitted, model=network.double(), posterior=fitted.posterior.to(dtype=torch.float64))

    def _check_sizes(self) -> None:
        if isinstance(self.hidden, str) or not isinstance(self.hidden, Sequence):
            raise TypeError(f"hidden={self.hidden!r} must be the widths of the hidden layers; e.g. (50, 50)")
        for width in self.hidden:
            whole_number("hidden", width, 1, "(50, 50) is usual")
        whole_number("batch_size", self.batch_size, 1, "32 is usual")
        if self.epochs is not None:
            whole_number("epochs", self.epochs, 1, "None takes about 2,000 steps")

    def _rows(self, X: Array, *, reset: bool) -> Tensor:
        """The rows as numbers; columns of a data frame that hold no numbers become one column per category."""
        if hasattr(X, "dtypes") and hasattr(X, "columns"):
            validate_data(self, X, reset=reset, skip_check_array=True)
            if reset:
                words = [name for name, kind in zip(X.columns, X.dtypes, strict=True) if not _is_number(kind)]
                encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
                self.columns_ = make_column_transformer((encoder, words), remainder="passthrough") if words else None
                if self.columns_ is not None:
                    self.columns_.fit(X)
            values: Any = np.asarray(X if self.columns_ is None else self.columns_.transform(X), dtype=np.float64)
            checked = check_array(values, input_name="X", estimator=self, ensure_min_samples=1 + reset)
        else:
            if reset:
                self.columns_ = None
            checked = validate_data(self, X, reset=reset, dtype=np.float64, ensure_min_samples=1 + reset)
        return torch.from_numpy(np.array(checked, dtype=np.float64))


class VariationalClassifier(ClassifierMixin, _TableEstimator):
    """A classifier of rows whose probabilities are averaged over a posterior.

    Columns of a data frame that hold words or categories become one column per category.

    Args:
        hidden: widths of the hidden layers.
        epochs: passes over the rows; None for about 2,000 steps, between 20 and 200 passes.
        batch_size: rows per step.
        samples: posterior samples per prediction.
        validation_fraction: share of the rows that is held out to calibrate.
        method: of `varlearn.fit`.
        lr: peak learning rate; None for the rule's.
        random_state: of weights, order, split and samples.

    Attributes:
        fitted_: what `varlearn.fit` returned: its posterior, `report(path)` and more.
        classes_: the labels.

    >>> X = [[0.0], [1.0], [2.0], [3.0]] * 10
    >>> model = VariationalClassifier(epochs=20, samples=8, random_state=0).fit(X, ["no", "no", "yes", "yes"] * 10)
    >>> model.predict([[-1.0], [4.0]]).tolist()
    ['no', 'yes']
    """

    def fit(self, X: Array, y: Array) -> VariationalClassifier:
        """Train on rows and their labels."""
        rows = self._rows(X, reset=True)
        labels = _column(self, y, len(rows), numeric=False)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y has 1 class, {self.classes_.tolist()[0]!r}, and a classifier needs at least 2; add other rows"
            )
        self.fitted_ = self._fit_rows(rows, torch.tensor(numbers.reshape(-1)), len(self.classes_), numbers)
        return self

    def predict_proba(self, X: Array) -> Array:
        """Probabilities of the classes, shape (N, classes)."""
        check_is_fitted(self)
        found = self.fitted_.predict(self._rows(X, reset=False), progress=False)
        probabilities = found.log_probs.double().exp().numpy()
        return probabilities / probabilities.sum(1, keepdims=True)

    def predict(self, X: Array) -> Array:
        """The most probable label of each row."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]


class VariationalRegressor(RegressorMixin, _TableEstimator):
    """A regression of rows with a standard deviation for each prediction.

    Columns of a data frame that hold words or categories become one column per category.

    Args:
        hidden: widths of the hidden layers.
        epochs: passes over the rows; None for about 2,000 steps, between 20 and 200 passes.
        batch_size: rows per step.
        samples: posterior samples per prediction.
        validation_fraction: share of the rows that is held out to calibrate.
        method: of `varlearn.fit`.
        lr: peak learning rate; None for the rule's.
        random_state: of weights, order, split and samples.

    Attributes:
        fitted_: what `varlearn.fit` returned: its posterior, its noise, `report(path)` and more.

    >>> X = np.linspace(-1, 1, 100)[:, None]
    >>> model = VariationalRegressor(epochs=20, samples=8, random_state=0).fit(X, 100 + 10 * X[:, 0])
    >>> mean, std = model.predict([[0.5]], return_std=True)
    >>> bool(100 < mean[0] < 110), bool(std[0] > 0)
    (True, True)
    """

    def fit(self, X: Array, y: Array) -> VariationalRegressor:
        """Train on rows and their targets."""
        rows = self._rows(X, reset=True)
        targets = _column(self, y, len(rows), numeric=True)
        self.fitted_ = self._fit_rows(rows, torch.tensor(targets, dtype=torch.float32), 1, None)
        return self

    def predict(self, X: Array, return_std: bool = False) -> Array:
        """The mean of each row and, if asked for, the standard deviation of its target: weights and noise together."""
        check_is_fitted(self)
        found = self.fitted_.predict(self._rows(X, reset=False), progress=False)
        mean = found.mean.flatten().double().numpy()
        return (mean, found.std.flatten().double().numpy()) if return_std else mean


def _column(estimator: BaseEstimator, y: Array, rows: int, *, numeric: bool) -> Any:
    """Targets as one column of finite numbers, or of labels."""
    if y is None:
        raise ValueError(
            f"This {type(estimator).__name__} estimator requires y to be passed, but the target y is None; give targets"
        )
    if not numeric:
        labels = column_or_1d(y, warn=True)
        check_consistent_length(np.empty(rows), labels)
        return labels
    values = check_array(y, ensure_2d=False, dtype="float64", input_name="y")
    values = column_or_1d(values, warn=True)
    check_consistent_length(np.empty(rows), values)
    return values


def _split(rows: int, fraction: float, stratify: Array, seed: int) -> tuple[Array, Array]:
    """Numbers of the rows to train on and of those held out."""
    numbers = np.arange(rows)
    held_out = round(fraction * rows)
    if held_out < _HELD_OUT and (stratify is not None or held_out < _HELD_OUT // 2):
        return numbers, numbers[:0]
    if stratify is not None and (np.bincount(stratify.reshape(-1)).min() < 2 or held_out < stratify.max() + 1):
        stratify = None
    train, test = train_test_split(numbers, test_size=held_out, random_state=seed, stratify=stratify)
    return np.sort(train), np.sort(test)


def _is_number(kind: Any) -> bool:
    return getattr(kind, "kind", "O") in "biuf" or str(kind).lower().startswith(("int", "uint", "float", "bool"))
