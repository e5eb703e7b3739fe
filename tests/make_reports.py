"""Make the consistency reports in reports/: JSON, and the Markdown that it renders to.

    python -m tests.make_reports [NAME ...] [--python TOOL=INTERPRETER ...]

Without names all of them. Tools are whatever is installed, and what `--python` names elsewhere.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from tests.zoo import REPORTS

FOLDER = Path(__file__).parent.parent / "reports"
LIMIT = 900  # seconds for one model


def crossflops(*arguments):
    """Run the command line. Raises CalledProcessError."""
    line = [sys.executable, "-m", "crossflops", *arguments]
    subprocess.run(line, check=True, cwd=FOLDER.parent, timeout=LIMIT)


def make(name, *options):
    """One report."""
    row, began = REPORTS[name], time.monotonic()
    written = FOLDER / f"{name}.json"
    crossflops("compare", row.target, *row.arguments, *options, "-o", str(written))
    crossflops("render", str(written), "-o", str(written.with_suffix(".md")))
    print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


def main():
    """Make those that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(REPORTS))
    parser.add_argument("--python", action="append", default=[], metavar="TOOL=INTERPRETER")
    asked = parser.parse_args()
    unknown = set(asked.names) - set(REPORTS)
    if unknown:
        parser.error(f"no report is called {', '.join(sorted(unknown))}")
    options = [part for one in asked.python for part in ("--python", one)]
    for name in asked.names or REPORTS:
        make(name, *options)


if __name__ == "__main__":
    main()
