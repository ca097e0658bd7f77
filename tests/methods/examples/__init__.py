"""Four methods, each written as a newcomer would add it: a file of its own and one row of the table."""

from typing import Any

from tests.methods.examples.dropout import DropoutMethod
from tests.methods.examples.laplace import LaplaceMethod
from tests.methods.examples.swag import SWAGMethod
from tests.methods.examples.variational_sgd import VariationalSGDMethod
from varlearn.methods import Method

EXAMPLES: dict[str, type[Method[Any]]] = {
    "vsgd": VariationalSGDMethod,
    "swag": SWAGMethod,
    "laplace": LaplaceMethod,
    "dropout": DropoutMethod,
}
