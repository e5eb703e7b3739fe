"""Loops that keep nothing busy but the registers, or the memory: compiled on the spot, and run."""

import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from crossflops.errors import CrossflopsError

Kind: TypeAlias = Literal["fma32", "fma64", "dot16", "dot8", "clock", "triad"]
_COMPILERS = ("cc", "gcc", "clang")
# what a compiler calls "the processor on which you run": -march on x86, -mcpu elsewhere
_NATIVE: tuple[list[str], ...] = (["-march=native"], ["-mcpu=native"], [])
_COMPILING = 60.0  # seconds
_BEYOND = 30.0  # seconds that a loop may take longer than it was asked to


class NoLoopError(CrossflopsError):
    """The loops cannot be compiled or run here."""


class Loop(msgspec.Struct, frozen=True, kw_only=True):
    """What a loop did: `work` (FLOPs, additions or bytes) in each of `rounds`.

    `best` are the seconds of the fastest round, `total` those of all; `width` the bits of the
    registers, `fused` whether multiply and add are one instruction. `dot16` and `dot8` say whether
    there are loops of dot products of BF16 and of bytes.
    """

    work: float
    best: float
    total: float
    rounds: int
    width: int
    fused: bool
    dot16: bool = False
    dot8: bool = False

    @property
    def rate(self) -> float:
        """Work per second of the fastest round."""
        return self.work / self.best

    @property
    def sustained(self) -> float:
        """Work per second of all rounds together."""
        return self.work * self.rounds / self.total


class PeakLoops(msgspec.Struct, frozen=True):
    """The compiled loops, and the command that compiled them."""

    path: str
    command: str

    def run(self, kind: Kind, seconds: float, threads: int = 1, nbytes: int = 0) -> Loop:
        """Run a loop for about `seconds`; `nbytes` is the size of each array of the triad.

        Raises NoLoopError where it fails, or computes something wrong.
        """
        parts = {"clock": [str(seconds)], "triad": [str(threads), str(seconds), str(nbytes)]}
        given = parts.get(kind, [str(threads), str(seconds)])
        try:
            done = subprocess.run(
                [self.path, kind, *given], capture_output=True, timeout=seconds + _BEYOND
            )
            if done.returncode:
                raise _failed(kind, f"it ended with {done.returncode}")
            return msgspec.convert(json.loads(done.stdout), Loop)
        except subprocess.TimeoutExpired as error:
            raise _failed(kind, "it did not end") from error
        except (OSError, ValueError) as error:
            raise _failed(kind, str(error)) from error


def compiler() -> str | None:
    """The C compiler: $CC, or the first of cc, gcc and clang. None where there is none."""
    named = os.environ.get("CC", "").split()
    return next(filter(None, map(shutil.which, (*named[:1], *_COMPILERS))), None)


@contextmanager
def compiled() -> Iterator[PeakLoops]:
    """The program, for as long as the context lasts. Raises NoLoopError."""
    command = compiler()
    if command is None or platform.system() == "Windows":
        raise NoLoopError("there is no C compiler", "install gcc or clang, or set CC")
    source = files("crossflops.bench.machine").joinpath("peak.c")
    with tempfile.TemporaryDirectory(prefix="crossflops-") as folder, as_file(source) as path:
        yield _build(command, path, Path(folder) / "peak")


def _build(cc: str, source: Path, target: Path) -> PeakLoops:
    complaint = ""
    for native in _NATIVE:
        command = [cc, "-O2", *native, "-ffp-contract=fast", "-pthread"]
        try:
            done = subprocess.run(
                [*command, str(source), "-o", str(target)],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_COMPILING,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoLoopError(f"{cc} does not run: {error}", "set CC to another") from error
        if done.returncode == 0:
            return PeakLoops(str(target), " ".join([Path(cc).name, *command[1:]]))
        complaint = (done.stderr.strip().splitlines() or ["it said nothing"])[0]
    raise NoLoopError(f"{cc} cannot compile the loops: {complaint}", "set CC to another compiler")


def _failed(kind: str, why: str) -> NoLoopError:
    return NoLoopError(f"the {kind} loop failed: {why}", "set CC to another compiler")


# Where nothing can be compiled: numpy. A matrix product is a lower bound, and no peak.
#
# numpy's sgemm was seen at half of what convolutions of another library reached on one machine, so
# a share of this rate may be above 100 % with nothing wrong.

_SIDE = 1024  # of the matrices: 4 MiB each, and 2 x 1024^3 FLOPs
_LEAST = 3  # repetitions


def product_rate(dtype: str, seconds: float) -> float:
    """FLOP/s of the best product of two square matrices, with the threads that numpy takes."""
    import numpy as np

    left = np.ones((_SIDE, _SIDE), dtype)
    out = np.empty_like(left)
    return 2 * _SIDE**3 / _best(lambda: np.matmul(left, left, out=out), seconds)


def sum_bandwidth(nbytes: int, seconds: float) -> float:
    """Bytes/s of a = b + c over three arrays of `nbytes`, with one thread."""
    import numpy as np

    first = np.ones(max(1, nbytes // 8))
    second, out = np.ones_like(first), np.empty_like(first)
    out.fill(0)  # its pages exist before they are timed
    return 3 * first.nbytes / _best(lambda: np.add(first, second, out=out), seconds)


def _best(action: Callable[[], object], seconds: float) -> float:
    """Seconds of the fastest run of the action, of several."""
    action()
    fastest, count, begun = float("inf"), 0, time.perf_counter()
    while count < _LEAST or time.perf_counter() - begun < seconds:
        start = time.perf_counter()
        action()
        fastest, count = min(fastest, time.perf_counter() - start), count + 1
    return fastest
