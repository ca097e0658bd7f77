"""`python -m varlearn`, and so `torchrun -m varlearn train ...`."""

import sys

from varlearn.cli import main

if __name__ == "__main__":
    sys.exit(main())
