"""``python -m cp_matrix`` is ``cp-matrix``."""

import sys

from cp_matrix.cli import main

if __name__ == "__main__":
    sys.exit(main())
