"""Fails when a model needs more MACs than its budget allows: a step of continuous integration.

    python examples/budget.py budget.toml

The file has a line for each model, whose path is that from its own folder:

    "model.onnx" = 1_900_000_000
"""

import sys
import tomllib
from pathlib import Path

import crossflops


def main(file: str) -> int:
    """Print a line for each model; 1 where one exceeds its budget, or has uncounted nodes."""
    exceeded = False
    for name, limit in tomllib.loads(Path(file).read_text(encoding="utf-8")).items():
        report = crossflops.count(str(Path(file).parent / name))
        over = report.macs > limit or bool(report.uncounted)
        note = f", {len(report.uncounted)} nodes uncounted" if report.uncounted else ""
        print(f"{'OVER' if over else 'ok':4} {name}: {report.macs:,} of {limit:,} MACs{note}")
        exceeded |= over
    return int(exceeded)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
