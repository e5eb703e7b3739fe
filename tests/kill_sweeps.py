"""Kill a sweep of 60 models at ten random moments; compare its store with one that ran through.

    python -m tests.kill_sweeps

The models are ONNX files, the numbers are predicted. Raises AssertionError where a row differs, is
lost, or was computed twice.
"""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from crossflops.verbs.sweep.store import SweepStore
from tests.onnx_files import saved, with_weights

MODELS, KILLS = 60, 10
TEXT = "m (float[2,%d] x, float[%d,5] w) => (float[2,5] y) { y = MatMul(x, w) }"


def command(store):
    """The command of the sweep into a store."""
    return [sys.executable, "-m", "crossflops", "sweep", "suite.toml", "--store", store]


def rows_of(store):
    """The contents of a store by key."""
    return store.read_contents(store.row_keys())


def main():
    """Kill, resume, compare."""
    moments = random.Random(60)
    with TemporaryDirectory() as name:
        folder = Path(name)
        names = [f"m{k}.onnx" for k in range(1, MODELS + 1)]
        for k, file in enumerate(names, 1):
            saved(folder, with_weights(TEXT % (k, k), "w"), file)
        targets = ", ".join(f'"{file}"' for file in names)
        suite = f'tools = []\nas = ["exact-2k-1"]\n[[model]]\ntarget = [{targets}]\n'
        (folder / "suite.toml").write_text(suite)
        subprocess.run(command("through"), cwd=folder, check=True, capture_output=True)
        store, through = SweepStore(folder / "killed"), SweepStore(folder / "through")
        for number in range(KILLS):
            before = len(store.row_keys())
            process = subprocess.Popen(
                command("killed"), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            while number and len(store.row_keys()) == before and process.poll() is None:
                time.sleep(0.005)  # until it writes; the first one is killed as it begins
            time.sleep(moments.random() / 5)
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert rows_of(store).items() <= rows_of(through).items()
            print(f"killed with {len(store.row_keys())} of {2 * MODELS} rows")
        subprocess.run(command("killed"), cwd=folder, check=True, capture_output=True)
        assert rows_of(store) == rows_of(through)
        assert len(rows_of(store)) == 2 * MODELS
        assert set(store.computation_counts().values()) == {1}
    print("the stores are equal, and no row was computed twice")


if __name__ == "__main__":
    main()
