"""scikit-learn estimators for tables: `VariationalClassifier` and `VariationalRegressor`."""

from varlearn.sklearn.table_estimators import VariationalClassifier, VariationalRegressor

__all__ = ["VariationalClassifier", "VariationalRegressor"]
