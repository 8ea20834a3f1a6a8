"""`python -m collbench` is `collbench`."""

import sys

from collbench.cli import main

if __name__ == "__main__":
    sys.exit(main())
