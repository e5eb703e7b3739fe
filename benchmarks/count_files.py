"""How long counting ONNX files takes, and how much memory, against onnx-tool in the same run.

Fresh processes, best of N runs, every file made here with zeros for weights: one of the size of
ResNet-50, one of BERT-base, one of 5000 nodes; then 1000 to 100 000 nodes, and 2.3 GB of inline
weights against the same graph without them. Linux (the large file is a hole on the disk).

    tox -e bench-files [-- --runs N --json]

Exit status 1 when a limit does not hold.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

MODELS = Path(__file__).with_name("file_models.py")


class Use(NamedTuple):
    """Seconds by the clock and of the processor, and peak resident bytes of a process."""

    seconds: float
    cpu: float
    memory: int


class Limit(NamedTuple):
    """A ratio or an amount, and how large it may be."""

    name: str
    value: float
    most: float


def main() -> int:
    """Measure and print; 0 when every limit holds, 1 when one does not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="how often everything is run")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        uses, limits = measure(Path(folder), options.runs)
    print(as_json(uses, limits) if options.json else table(uses, limits))
    return 0 if all(one.value <= one.most for one in limits) else 1


def measure(folder: Path, runs: int) -> tuple[dict[str, Use], list[Limit]]:
    """All uses by name, and what is asked of them."""
    uses: dict[str, Use] = {}

    def ours(name: str, path: Path) -> Use:
        uses[f"crossflops {name}"] = best(
            runs, [sys.executable, "-m", "crossflops", "count", str(path)]
        )
        return uses[f"crossflops {name}"]

    def theirs(name: str, path: Path) -> Use:
        line = [sys.executable, "-m", "onnx_tool", "-m", "profile", "-i", str(path), "-f"]
        uses[f"onnx-tool {name}"] = best(runs, [*line, str(folder / "table.csv")])
        return uses[f"onnx-tool {name}"]

    limits = []
    for name, model, most in (
        ("ResNet-50", "resnet", 0.6),
        ("BERT-base", "bert", 0.22),
        ("5000 nodes", "5000", 0.25),
    ):
        path = made(folder, model)
        a, b = ours(name, path), theirs(name, path)
        limits.append(Limit(f"{name}: time against onnx-tool", a.seconds / b.seconds, most))
        if name == "BERT-base":
            limits.append(Limit("BERT-base: memory against onnx-tool", a.memory / b.memory, 0.25))
    # By what the next node costs, not by the start of a process, which is most of 1000 nodes.
    sizes = (1_000, 10_000, 100_000)
    took = [ours(f"{nodes} nodes", made(folder, str(nodes))).cpu for nodes in sizes]
    fewer, more = ((took[i + 1] - took[i]) / (sizes[i + 1] - sizes[i]) for i in range(2))
    limits.append(Limit("cost of a node beyond 10 000 against before", more / fewer, 1.5))
    small = ours("2.3 GB, without weights", made(folder, "huge, without"))
    large = ours("2.3 GB of weights", made(folder, "huge"))
    limits.append(Limit("2.3 GB against none: time", large.seconds / small.seconds, 1.5))
    limits.append(Limit("2.3 GB: memory in MB", large.memory / 1e6, 150))
    return uses, limits


def made(folder: Path, model: str) -> Path:
    """The path of a file with that model of file_models.py."""
    path = folder / f"{model}.onnx"
    subprocess.run([sys.executable, MODELS, model, path], check=True)
    return path


def best(runs: int, line: Sequence[str]) -> Use:
    """The run that took the least time; the first only brings the files into memory."""
    return min((process(line) for _ in range(runs + 1)), key=lambda use: use.seconds)


def process(line: Sequence[str]) -> Use:
    """One run. Raises when it fails."""
    begin = time.perf_counter()
    child = subprocess.Popen(list(line), stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, list(line))
    return Use(
        seconds=time.perf_counter() - begin,
        cpu=used.ru_utime + used.ru_stime,
        memory=used.ru_maxrss * 1024,
    )


def table(uses: dict[str, Use], limits: list[Limit]) -> str:
    """The figures as text."""
    lines = [f"{'':36}{'seconds':>10}{'of CPU':>10}{'MB':>10}"]
    lines += [
        f"{name:36}{use.seconds:10.3f}{use.cpu:10.3f}{use.memory / 1e6:10.0f}"
        for name, use in uses.items()
    ]
    for one in limits:
        verdict = "holds" if one.value <= one.most else "does not hold"
        lines.append(f"{one.name:46}{one.value:8.2f}, limit {one.most}: {verdict}")
    return "\n".join(lines)


def as_json(uses: dict[str, Use], limits: list[Limit]) -> str:
    """The figures as JSON."""
    plain = {name: use._asdict() for name, use in uses.items()}
    return json.dumps({"uses": plain, "limits": [one._asdict() for one in limits]}, indent=2)


if __name__ == "__main__":
    sys.exit(main())
