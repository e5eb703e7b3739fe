"""Make the atlas in reports/atlas: one sweep of its suite.

    python -m tests.make_atlas [--store FOLDER] [--limit N]

By default it has as many models as before, the first ones of the suite. What the store has is not
counted again. `crossflops render reports/atlas/atlas.json.gz -o
atlas.html` shows it.
"""

import argparse
from pathlib import Path

import crossflops
from crossflops.files import read_file_bytes
from crossflops.report.sweep import Sweep

FOLDER = Path(__file__).parent.parent / "reports" / "atlas"
FILE = FOLDER / "atlas.json.gz"


def count_of_models():
    """The number of models in the committed atlas: by default it is made again as it is."""
    return len(Sweep.from_json(read_file_bytes(FILE)).cases)


def main():
    """Count what is not in the store, and write the atlas."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", default="build/atlas")
    parser.add_argument("--limit", type=int, default=count_of_models())
    options = parser.parse_args()
    result = crossflops.sweep(
        FOLDER / "suite.toml", store=options.store, limit=options.limit, on_progress=print
    )
    result.save(FILE)
    print(result)


if __name__ == "__main__":
    main()
