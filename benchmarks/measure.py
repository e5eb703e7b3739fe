"""How long the command takes and how much memory: whole processes, with peers in the same run.

    python benchmarks/measure.py [--row WORDS ...] [--runs 5] [--limit 600] [-o FILE.json]
    python benchmarks/measure.py --table     the table of docs/performance.md, from the JSON

A row is a command and, where there are any, peers: all are run in turn, after a first run of each
that brings files and byte code into memory. Figures are medians. Memory is the peak of the largest
process, of a comparison the peak of the sum of all (Pss, Linux). A row that needs what is not
installed says so. Results that other rows left in the file are kept.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
PAGE = HERE.parent / "docs" / "performance.md"
MARKS = "<!-- figures: begin -->", "<!-- figures: end -->"
COMMAND = (sys.executable, "-m", "crossflops")
FILE = "FILE:"
LOOK = 0.2  # seconds between two looks at the memory of all processes


class Use(NamedTuple):
    """Seconds by the clock and of the processor, peak MB of the largest process, and of all."""

    seconds: float
    cpu: float
    mb: float
    mb_of_all: float


class Row(NamedTuple):
    """What is measured: words after `crossflops`, and those of its peers after `python`, by name.

    Of several peers the one that takes longest counts. A word FILE:NAME stands for a file, of
    exporters.py or "chain-NODES" of chains.py; TABLE and EMPTY for places that are gone later.
    """

    name: str
    words: tuple[str, ...]
    peers: Mapping[str, tuple[str, ...]] = {}
    env: Mapping[str, str] = {}


def _file(name: str, file: str) -> Row:
    """A count of a file, with onnx-tool for its peer."""
    words = ("-m", "onnx_tool", "-m", "profile", "-i", f"FILE:{file}", "-f", "TABLE")
    return Row(f"count a file of {name}", ("count", f"FILE:{file}"), {"onnx-tool": words})


def _count(*words: str) -> tuple[str, ...]:
    return ("-m", "crossflops", "count", *words)


def _target(name: str) -> str:
    return f"{HERE / 'targets.py'}:{name}"


UNCOMPILED = "PYTHONDONTWRITEBYTECODE"
SMALL, RESNET = _target("small"), _target("resnet50")
CHAIN, TENTH = "FILE:chain-1000000", "FILE:chain-100000"
THREE = ("thop", "fvcore", "torch-flop-counter")
ALONE = {f"{tool} alone": (str(HERE / "alone.py"), tool) for tool in THREE}
ROWS = (
    _file("ResNet-50 (PyTorch)", "resnet50-torch"),
    _file("ResNet-50 (PyTorch's older exporter)", "resnet50-torchscript"),
    _file("ResNet-50 (Keras)", "resnet50-keras"),
    _file("ResNet-50 (TensorFlow)", "resnet50-tensorflow"),
    _file("BERT-base (PyTorch)", "bert-base-torch"),
    _file("5000 nodes (PyTorch)", "5000-nodes-torch"),
    Row("count 100 000 nodes", ("count", TENTH)),
    Row("count 1 000 000 nodes", ("count", CHAIN), {"100 000 nodes": _count(TENTH)}),
    Row("count a file without byte code", ("count", "FILE:resnet50-torch"),
        {"with it": _count("FILE:resnet50-torch")},
        {"PYTHONPYCACHEPREFIX": "EMPTY", UNCOMPILED: "1"}),
    Row("count a small torch module", ("count", SMALL)),
    Row("compare it, all tools", ("compare", SMALL), {"count": _count(SMALL)}),
    Row("compare ResNet-50, three tools",
        ("compare", RESNET, *(word for tool in THREE for word in ("--tool", tool))),
        {"count": _count(RESNET), **ALONE}),
    Row("count BERT-base from its target", ("count", _target("bert_base"))),
    Row("count VGG-16 from its target", ("count", _target("vgg16"))),
    Row("compare BERT-base, all tools", ("compare", _target("bert_base"), "--weights", "real")),
    Row("compare BERT-large, all tools", ("compare", _target("bert_large"), "--weights", "real")),
    Row("count Llama 405 B, meta device", ("count", _target("llama_405b"))),
    Row("count a step of Llama 405 B, checkpoints",
        ("count", _target("checkpointed_llama_405b"), "--train", "--train-mode")),
    Row("count a step of Llama 8 B, adapters", ("count", _target("adapted_llama_8b"), "--train")),
    Row("compare Llama 8 B, meta device", ("compare", _target("llama_8b"))),
    Row("compare Llama 70 B, meta device", ("compare", _target("llama_70b"))),
    Row("compare Llama 405 B, meta device", ("compare", _target("llama_405b"))),
)  # fmt: skip


def main() -> int:
    """Measure the rows that are asked for, keep them, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--row", action="append", metavar="WORDS", help="rows with these words")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--limit", type=float, default=600, help="seconds of one process")
    parser.add_argument("--files", type=Path, help="where files are kept between runs")
    parser.add_argument("-o", type=Path, default=RESULTS, dest="results")
    parser.add_argument("--table", action="store_true", help="only write the table of the page")
    options = parser.parse_args()
    kept = json.loads(options.results.read_text()) if options.results.is_file() else {}
    if options.files:
        options.files.mkdir(parents=True, exist_ok=True)
    if not options.table:
        wanted = [row for row in ROWS if _asked(row, options.row)]
        with tempfile.TemporaryDirectory() as scratch:
            for number, row in enumerate(wanted, 1):
                print(f"{number} of {len(wanted)}: {row.name}", file=sys.stderr, flush=True)
                kept[row.name] = measured(row, options.files or Path(scratch), options)
                _write(options.results, json.dumps(kept, indent=1) + "\n")
    print(table(kept))
    if options.table:
        _write(PAGE, _with_table(PAGE.read_text(encoding="utf-8"), table(kept)))
    return 0


def _asked(row: Row, words: Sequence[str] | None) -> bool:
    return not words or any(word.casefold() in row.name.casefold() for word in words)


def measured(row: Row, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The medians of a row and its peer, with the machine's load; or why there are none."""
    # the first run of each keeps its byte code, also where the machine's usual is not to
    compiled = {key: at for key, at in os.environ.items() if key != UNCOMPILED}
    try:
        with tempfile.TemporaryDirectory() as empty:
            places = {"TABLE": f"{empty}/table.csv", "EMPTY": f"{empty}/cache"}
            extra = {name: places.get(value, value) for name, value in row.env.items()}
            ours = (_filled((*COMMAND, *row.words), places, folder), {**compiled, **extra})
            lines = {"": ours} | {
                name: (_filled((sys.executable, *words), places, folder), compiled)
                for name, words in row.peers.items()
            }
            runs: dict[str, list[Use]] = {name: [] for name in lines}
            for number in range(options.runs + 1):
                for name, (line, env) in lines.items():
                    use = process(line, env, options.limit)
                    if number:
                        runs[name].append(use)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"  not measured: {error}", file=sys.stderr, flush=True)
        return {"not measured": _reason(error)}
    load, cores = os.getloadavg()[0], os.cpu_count()
    result: dict[str, Any] = {"runs": options.runs, "load": round(load, 1), "cores": cores}
    result |= {"python": platform.python_version(), "ours": _median(runs[""])}
    theirs = {name: _median(runs[name]) for name in row.peers}
    if theirs:
        slowest = max(theirs, key=lambda name: theirs[name]["seconds"])
        result |= {"peer": slowest, "theirs": theirs[slowest]}
    return result


def _reason(error: Exception) -> str:
    """What ended a row, without the folders of this machine: the results are published."""
    if isinstance(error, subprocess.CalledProcessError):
        how = f"ended with status {error.returncode}"
    elif isinstance(error, subprocess.TimeoutExpired):
        how = f"took longer than {error.timeout:g} s"
    else:
        return type(error).__name__
    return f"{' '.join(Path(word).name for word in error.cmd[1:3])} {how}"


def _filled(line: Sequence[str], places: Mapping[str, str], folder: Path) -> list[str]:
    """The words, files written where they are not there yet. Raises SubprocessError."""
    return [
        str(made(word.removeprefix(FILE), folder))
        if word.startswith(FILE)
        else places.get(word, word)
        for word in line
    ]


def _median(uses: Sequence[Use]) -> dict[str, float]:
    columns = zip(*uses, strict=True)
    return dict(zip(Use._fields, (round(statistics.median(c), 3) for c in columns), strict=True))


def made(name: str, folder: Path) -> Path:
    """The file of that name, which is written if it is not there. Raises SubprocessError."""
    path = folder / f"{name}.onnx"
    if not path.is_file():
        print(f"  writing {path.name}", file=sys.stderr, flush=True)
        script = "chains.py" if name.startswith("chain-") else "exporters.py"
        with tempfile.TemporaryDirectory(dir=folder) as half:
            line = [sys.executable, str(HERE / script), name, half]
            subprocess.run(line, check=True, stdout=subprocess.DEVNULL, timeout=1800)
            shutil.move(Path(half, path.name), path)
    return path


def process(line: Sequence[str], env: Mapping[str, str], limit: float) -> Use:
    """One run. Raises SubprocessError where it fails, or takes longer than the limit."""
    begin = time.perf_counter()
    child = subprocess.Popen(
        list(line), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(env)
    )
    watch = _Watch(child.pid)
    clock = threading.Timer(limit, child.kill)
    clock.start()
    try:
        _, status, used = os.wait4(child.pid, 0)
    finally:
        clock.cancel()
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, list(line))
    seconds = time.perf_counter() - begin
    most = used.ru_maxrss * 1024 / 1e6
    return Use(seconds, used.ru_utime + used.ru_stime, most, max(watch.end(), 0.0) or most)


class _Watch:
    """Looks at the memory of a process and all below it, shared pages divided, until told."""

    def __init__(self, root: int) -> None:
        self._root, self._most, self._over = root, 0.0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def end(self) -> float:
        """The most MB that were seen at once; 0 of a process that was gone at the first look."""
        self._over.set()
        self._thread.join()
        return self._most

    def _look(self) -> None:
        while not self._over.wait(LOOK):
            pids = _family(self._root)
            self._most = max(self._most, sum(map(_pss, pids)) / 1e3)


def _family(root: int) -> list[int]:
    """The process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(entry.name))
    family = [root]
    for pid in family:
        family += children.get(pid, [])
    return family


def _pss(pid: int) -> float:
    """Proportional set size in kB, 0 of a process that is gone."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return float(line.split()[1])
    except OSError:
        pass
    return 0.0


def table(kept: Mapping[str, Any]) -> str:
    """The figures as a table of Markdown."""
    lines = [
        "| work | seconds | CPU seconds | MB | peer | its seconds | its CPU seconds "
        "| of its seconds | of its CPU seconds | runs | load |",
        f"|{'---|' * 11}",
    ]
    for row in ROWS:
        result = kept.get(row.name)
        if result is None or "ours" not in result:
            continue
        ours, theirs = result["ours"], result.get("theirs")
        memory = max(ours["mb_of_all"], ours["mb"])  # all are looked at now and then
        times = ("seconds", "cpu")
        cells = [row.name, *(f"{ours[time]:.2f}" for time in times), f"{memory:.0f}"]
        cells += [
            result.get("peer", ""),
            *(f"{theirs[time]:.2f}" if theirs else "" for time in times),
        ]
        cells += (f"{ours[time] / theirs[time]:.2f}" if theirs else "" for time in times)
        lines.append(f"| {' | '.join([*cells, str(result['runs']), str(result['load'])])} |")
    return "\n".join(lines)


def _with_table(page: str, figures: str) -> str:
    before, _, rest = page.partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    return f"{before}{MARKS[0]}\n\n{figures}\n\n{MARKS[1]}{after}"


def _write(path: Path, text: str) -> None:
    """All of it, or nothing."""
    half = path.with_name(f"{path.name}.tmp")
    half.write_text(text, encoding="utf-8")
    half.replace(path)


if __name__ == "__main__":
    sys.exit(main())
