"""The command `crossflops`, and `python -m crossflops`."""

import gc
import sys

# A count makes hundreds of thousands of values and throws none of them away: looking for cycles
# after every 700, as Python does, takes a sixth of the time, and while modules are imported a
# twentieth of that of a small file.
_ALLOCATIONS = 100_000


def main() -> int:
    """Run the command line of this process, and return its exit status."""
    gc.set_threshold(_ALLOCATIONS, 50, 100)
    from crossflops.cli import main as cli_main

    return cli_main()


if __name__ == "__main__":
    sys.exit(main())
