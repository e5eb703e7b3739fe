"""`python -m crossflops` is the command `crossflops`."""

import sys

from crossflops.cli import main

if __name__ == "__main__":
    sys.exit(main())
