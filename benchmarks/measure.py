"""How long the command takes and how much memory: whole processes, with peers in the same run.

    python benchmarks/measure.py [--row WORDS ...] [--runs 5] [--limit 600] [-o FILE.json]
    python benchmarks/measure.py --table     the table of docs/performance.md, from the JSON

A row is a command and, where there is one, a peer: both are run in turn, after a first run of each
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
TARGETS = HERE / "targets.py"
LOOK = 0.2  # seconds between two looks at the memory of all processes


class Use(NamedTuple):
    """Seconds by the clock and of the processor, peak MB of the largest process, and of all."""

    seconds: float
    cpu: float
    mb: float
    mb_of_all: float


class Row(NamedTuple):
    """What is measured: words after `crossflops`, or a peer's; FILE stands for the row's file.

    `file` is one of exporters.py, or "chain-NODES" of chains.py.
    """

    name: str
    words: tuple[str, ...]
    peer: str = ""
    peer_words: tuple[str, ...] = ()
    file: str = ""
    env: Mapping[str, str] = {}


def _file(name: str, file: str, peer: bool = True) -> Row:
    words = ("-m", "onnx_tool", "-m", "profile", "-i", "FILE", "-f", "TABLE") if peer else ()
    return Row(name, ("count", "FILE"), "onnx-tool" if peer else "", words, file)


UNCOMPILED = "PYTHONDONTWRITEBYTECODE"
SMALL, BERT, LLAMA = (f"{TARGETS}:{name}" for name in ("small", "bert_base", "llama_405b"))
ROWS = (
    _file("count a file of ResNet-50 (PyTorch)", "resnet50-torch"),
    _file("count a file of ResNet-50 (PyTorch's older exporter)", "resnet50-torchscript"),
    _file("count a file of ResNet-50 (Keras)", "resnet50-keras"),
    _file("count a file of ResNet-50 (TensorFlow)", "resnet50-tensorflow"),
    _file("count a file of BERT-base (PyTorch)", "bert-base-torch"),
    _file("count a file of 5000 nodes (PyTorch)", "5000-nodes-torch"),
    _file("count 100 000 nodes", "chain-100000", peer=False),
    _file("count 1 000 000 nodes", "chain-1000000", peer=False),
    Row("count a file without byte code", ("count", "FILE"), "with it", ("-m", "crossflops",
        "count", "FILE"), "resnet50-torch", {"PYTHONPYCACHEPREFIX": "EMPTY",
        UNCOMPILED: "1"}),
    Row("count a small torch module", ("count", SMALL)),
    Row("compare it, all tools", ("compare", SMALL), "count",
        ("-m", "crossflops", "count", SMALL)),
    Row("compare BERT-base, all tools", ("compare", BERT), "count",
        ("-m", "crossflops", "count", BERT)),
    Row("count Llama 405 B, meta device", ("count", LLAMA)),
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
    try:
        file = made(row.file, folder) if row.file else Path()
        with tempfile.TemporaryDirectory() as empty:
            places = {"FILE": str(file), "TABLE": f"{empty}/table.csv", "EMPTY": f"{empty}/cache"}
            ours = _filled((*COMMAND, *row.words), places)
            peer = _filled((sys.executable, *row.peer_words), places) if row.peer else []
            extra = {name: places.get(value, value) for name, value in row.env.items()}
            runs: tuple[list[Use], list[Use]] = ([], [])
            # the first run of each keeps its byte code, also where the machine's usual is not to
            compiled = {key: at for key, at in os.environ.items() if key != UNCOMPILED}
            for number in range(options.runs + 1):
                for line, uses, added in ((ours, runs[0], extra), (peer, runs[1], {})):
                    use = process(line, {**compiled, **added}, options.limit) if line else None
                    if use is not None and number:
                        uses.append(use)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"  not measured: {error}", file=sys.stderr, flush=True)
        return {"not measured": str(error)[:300]}
    load, cores = os.getloadavg()[0], os.cpu_count()
    found: dict[str, Any] = {"runs": options.runs, "load": round(load, 1), "cores": cores}
    found |= {"python": platform.python_version(), "ours": _median(runs[0])}
    if runs[1]:
        found |= {"peer": row.peer, "theirs": _median(runs[1])}
    return found


def _filled(line: Sequence[str], places: Mapping[str, str]) -> list[str]:
    return [places.get(word, word) for word in line]


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
        "| work | seconds | CPU seconds | MB | peer | its CPU seconds | of its time | load |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        found = kept.get(row.name)
        if found is None or "ours" not in found:
            continue
        ours, theirs = found["ours"], found.get("theirs")
        memory = ours["mb_of_all"] if row.words[0] == "compare" else ours["mb"]
        peer = "" if theirs is None else f"{theirs['cpu']:.2f}"
        ratio = "" if theirs is None else f"{ours['cpu'] / theirs['cpu']:.2f}"
        cells = (row.name, f"{ours['seconds']:.2f}", f"{ours['cpu']:.2f}", f"{memory:.0f}",
                 found.get("peer", ""), peer, ratio, str(found["load"]))  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
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
