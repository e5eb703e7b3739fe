"""Counts ONNX files at several sizes of one dimension, and prints a line of CSV for each count.

python examples/sweep.py batch=1,8,64 first.onnx second.onnx
"""

import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import crossflops

COLUMNS = ("model", "size", "macs", "flops", "params", "peak_activation_bytes")


def rows(
    dimension: str, sizes: Sequence[int], models: Sequence[str]
) -> Iterator[tuple[object, ...]]:
    """A row for each model and size, the models in the order in which they were given."""
    for model in models:
        for size in sizes:
            report = crossflops.count(model, dims={dimension: size})
            memory = report.to_dict()["memory"]
            counts = (report.macs, report.flops, report.params, memory["peak_activation_bytes"])
            yield Path(model).stem, size, *counts


def main(sweep: str, *models: str) -> None:
    """Print the table."""
    dimension, _, sizes = sweep.partition("=")
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows(rows(dimension, [int(size) for size in sizes.split(",")], models))


if __name__ == "__main__":
    main(*sys.argv[1:])
