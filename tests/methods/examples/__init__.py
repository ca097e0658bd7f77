"""Methods written as a newcomer would add them: a file of its own and one row of the table."""

from typing import Any

from tests.methods.examples.variational_sgd import VariationalSGDMethod
from varlearn.methods import Method

EXAMPLES: dict[str, type[Method[Any]]] = {"vsgd": VariationalSGDMethod}
