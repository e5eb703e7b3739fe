"""How long a comparison of ResNet-50 by three tools takes, against its parts, all in one run.

The parts, by the clock and in CPU time: the process that exports and counts (`crossflops count`),
and the worker process of every tool, alone. The comparison may take at most 1.3 times the larger
of two bounds: the slowest tool's own process + the export's, and half of the CPU time of all of
them, which is all that two cores can give.

    python benchmarks/compare_resnet50.py [--runs N] [--json]

Every figure is the fastest of N runs, so that what else the machine does counts least.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

MODEL = "torchvision.models:resnet50"
SHAPE = (1, 3, 224, 224)
TARGET = (MODEL, "--input", "x".join(map(str, SHAPE)))
TOOLS = ("thop", "fvcore", "torch-flop-counter")
COMPARE = ("compare", *TARGET, *(part for tool in TOOLS for part in ("--tool", tool)), "--json")
LIMIT = 1.3
CORES = 2


class Timing(NamedTuple):
    """Seconds by the clock, and CPU seconds of a process and all its children."""

    wall: float
    cpu: float


class Clock:
    """Seconds since it was made, and the CPU seconds of the processes that have ended since."""

    def __init__(self) -> None:
        self._begin = self._now()

    def read(self) -> Timing:
        """The time that has passed."""
        now = self._now()
        return Timing(now.wall - self._begin.wall, now.cpu - self._begin.cpu)

    @staticmethod
    def _now() -> Timing:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return Timing(time.perf_counter(), used.ru_utime + used.ru_stime)


def main() -> int:
    """Measure and print; 0 when the limit holds, 1 when it does not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="how often everything is run")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--alone", metavar="TOOL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        print(json.dumps(worker(options.alone)))
        return 0
    check()
    figures = measure(options.runs)
    print(json.dumps(figures, indent=2) if options.json else table(figures))
    return 0 if figures["ratio"] <= LIMIT else 1


def check() -> None:
    """Stop unless all the tools answer. Also, no measured run is the first to read a library."""
    done = subprocess.run(
        [sys.executable, "-m", "crossflops", *COMPARE], check=True, stdout=subprocess.PIPE
    )
    answers = {one["tool"]: one for one in json.loads(done.stdout)["profiles"]}
    for tool in TOOLS:
        if "total" not in answers[tool]:
            sys.exit(f"{tool} gave no answer: {answers[tool]['message']}")


def measure(runs: int) -> dict[str, Any]:
    """All the figures, and their ratio."""
    export = fastest(runs, lambda: command("count", *TARGET, "--json"))
    alone = {tool: fastest(runs, partial(process_of, tool)) for tool in TOOLS}
    together = fastest(runs, lambda: command(*COMPARE))
    chain = export.wall + max(one.wall for one in alone.values())
    share = (export.cpu + sum(one.cpu for one in alone.values())) / CORES
    return {
        "export": export._asdict(),
        "alone": {tool: one._asdict() for tool, one in alone.items()},
        "comparison": together._asdict(),
        "slowest tool and export": chain,
        "half of the CPU time": share,
        "ratio": together.wall / max(chain, share),
        "limit": LIMIT,
    }


def process_of(tool: str) -> Timing:
    """The tool's worker process, started by a process that does nothing else."""
    line = [sys.executable, __file__, "--alone", tool]
    done = subprocess.run(line, check=True, stdout=subprocess.PIPE)
    return Timing(**json.loads(done.stdout))


def worker(tool: str) -> dict[str, float]:
    """Seconds of one worker from its start to its answer. Exits when there is none."""
    from crossflops.ir.profile import Failure
    from crossflops.ir.tensor import TensorSpec
    from crossflops.ir.trace import Setting
    from crossflops.workers.jobs import Job
    from crossflops.workers.pool import Workers

    image = TensorSpec("0", "float32", SHAPE)
    job = Job(tool=tool, setting=Setting(), target=MODEL, inputs=(image,))
    clock = Clock()
    with Workers((job,)) as workers:
        answers = [answer for _, answer in workers.go()]
    for answer in answers:
        if isinstance(answer, Failure):
            sys.exit(f"{tool} gave no answer: {answer.message}")
    return clock.read()._asdict()


def fastest(runs: int, run: Callable[[], Timing]) -> Timing:
    """The run that took the least time by the clock."""
    return min((run() for _ in range(runs)), key=lambda timing: timing.wall)


def command(*arguments: str) -> Timing:
    """A run of the command line with everything that it starts. Raises when it fails."""
    clock = Clock()
    line = [sys.executable, "-m", "crossflops", *arguments]
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    return clock.read()


def table(figures: dict[str, Any]) -> str:
    """The figures as text."""
    rows = {"export": figures["export"], **figures["alone"], "comparison": figures["comparison"]}
    lines = [f"{'':26}{'seconds':>10}{'CPU':>10}"]
    lines += [f"{name:26}{one['wall']:10.2f}{one['cpu']:10.2f}" for name, one in rows.items()]
    for name in ("slowest tool and export", "half of the CPU time"):
        lines.append(f"{name:26}{figures[name]:10.2f}")
    verdict = "holds" if figures["ratio"] <= LIMIT else "does not hold"
    return "\n".join([*lines, f"ratio {figures['ratio']:.2f}, limit {LIMIT}: {verdict}"])


if __name__ == "__main__":
    sys.exit(main())
