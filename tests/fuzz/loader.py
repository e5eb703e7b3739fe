"""Mutants of one file, with no more than Python: `python -m tests.fuzz.loader 10000`.

A mutant ends in a count or in a CrossflopsError; anything else is a traceback, and the mutant
stays in a file. Slow ones are errors, too: each has five seconds of this process.
"""

import sys
import tempfile
import time
import warnings
from pathlib import Path

from crossflops.errors import CrossflopsError
from crossflops.frontends.onnx import OnnxFile
from crossflops.frontends.onnx.reading import normalize_onnx_file
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from tests.fuzz.mutator import SEED, mutants
from tests.onnx_files import parsed

SECONDS = 5


def counted(path: str) -> bool:
    """Whether the file could be counted. Raises what is no CrossflopsError, or TimeoutError."""
    begin = time.process_time()
    try:
        count(normalize_onnx_file(OnnxFile(path=path, dims={"batch": 2}), Setting())[0])
    except CrossflopsError:
        return False
    finally:
        if (spent := time.process_time() - begin) > SECONDS:
            raise TimeoutError(f"{path} takes {spent:.1f} s")
    return True


def run(number: int, folder: Path, seed: int = 0) -> dict[str, int]:
    """So many mutants, and how many of them were counted or refused. What breaks stays there."""
    outcomes = {"counted": 0, "refused": 0}
    file = folder / "mutant.onnx"
    for mutant in mutants(parsed(SEED).SerializeToString(), number, seed):
        file.write_bytes(mutant)
        outcomes["counted" if counted(str(file)) else "refused"] += 1
    file.unlink()
    return outcomes


def main(arguments: list[str]) -> int:
    """Exit status 0 when nothing broke."""
    warnings.simplefilter("ignore")
    folder = Path(tempfile.mkdtemp(prefix="crossflops-fuzz-"))
    try:
        outcomes = run(int(arguments[0]) if arguments else 10_000, folder)
    except BaseException:
        print(f"it is in {folder}", file=sys.stderr)
        raise
    folder.rmdir()
    print(", ".join(f"{count} {word}" for word, count in outcomes.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
