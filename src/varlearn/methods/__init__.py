"""Methods of training: one file each, and one table that lists them.

Nothing here imports torch before a run begins, so that settings and labels can be read without it.
"""

from varlearn.methods.method import Batch, Facts, Method, Task, Training
from varlearn.methods.method_table import AUTO, METHODS, named
from varlearn.methods.shared_settings import Optim, settings_for
from varlearn.methods.variational_method import VariationalMethod

__all__ = [
    "AUTO",
    "METHODS",
    "Batch",
    "Facts",
    "Method",
    "Optim",
    "Task",
    "Training",
    "VariationalMethod",
    "named",
    "settings_for",
]
