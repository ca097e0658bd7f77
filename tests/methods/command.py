"""The command line with the example methods in the table: `python -m tests.methods.command train digits-swag`."""

import sys

from tests.methods.examples import EXAMPLES
from varlearn.methods import METHODS

if __name__ == "__main__":
    METHODS.update(EXAMPLES)
    from varlearn.cli import main

    sys.exit(main())
