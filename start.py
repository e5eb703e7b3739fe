"""Set crossflops up in this folder. Needs Python 3.11 or newer with venv and pip, nothing else.

    python3 start.py report    make .venv, count ResNet-50 with eight tools, leave the report
    python3 start.py tests --quick    pass a third of the tests that need no framework
    python3 start.py tests     pass the tests: tox and the environments of its default list
    python3 start.py tests --nightly  pass what runs seldom: newer Pythons, all frameworks in one

All may be run again: what is there and up to date is kept. The tests remove each environment as
it ends, or the disk would fill; with --keep they stay.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - the reader's Python is what is asked about
    version = ".".join(map(str, sys.version_info[:2]))
    sys.stderr.write(f"error: this is Python {version}, and crossflops needs 3.11 or newer\n")
    sys.stderr.write("hint: run it with a newer one, for example python3.11 start.py\n")
    sys.exit(2)

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent
REPORT = ROOT / "first-light.md"
TOX = ROOT / "tox.ini"
# Plugins that install in seconds and share one environment. The others need a build beside PyTorch
# (deepspeed), much else (calflops, tensorflow), or an environment of their own (ultralytics-thop).
FIRST = ("fvcore", "ptflops", "thop", "torch", "torchinfo", "torchprofile")
MODEL = ("torchvision.models:resnet50", "--input", "1x3x224x224")
STAMP = ".crossflops-set-up"
JOBS = 2
QUICK = ("quick1", "quick2")  # the halves of the core, side by side
# Those two at a time, at their largest; all that tox makes is over 10 GB, and most is not kept.
TESTS_NEED = 7e9  # bytes
# How long each environment took, set-up included, in tox's order and two at a time on two cores;
# one that is not here is taken to need their mean.
# They only say how much time is left: a machine that is slower or faster is noticed on the way.
SECONDS = {
    "tools": 1190,
    "torch": 1195,
    "lint": 5,
    "types": 29,
    "floors": 14,
    "py311": 360,
    "onnxruntime": 75,
    "plots": 25,
    "pages": 100,
    "site": 60,
    "pre-commit": 41,
    "sklearn": 45,
    "thop-0.0.31": 100,
    "ultralytics-thop": 107,
    "tensorflow": 280,
    "jax": 240,
    "all-frameworks": 407,
    "py312": 260,
    "py313": 260,
    "release": 750,
    "sweeps": 1500,
    "quick1": 160,
    "quick2": 160,
}
# What an environment needs that pip does not install; where it is missing, `tests` leaves the
# environment out and says so, and the environment by itself fails.
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
PROGRAMS = {"pages": CHROMIUM}
ENDED = "environment has run: "  # begins a line of toxfile.py
CLOSING = re.compile(r"^=+ (.+ in [\d.]+s\b.*?) =+$", re.MULTILINE)  # pytest's last line
COLOUR = re.compile(r"\x1b\[[\d;]*m")
COUNTED = re.compile(r"(\d+) (passed|failed|skipped|errors?|xfailed|xpassed|warnings?)")
Steps = tuple[tuple[list[str], str], ...]


class StartError(Exception):
    """What is wrong, and what to do."""


def main() -> int:
    """Do what is asked for; 0 when it worked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("job", choices=("report", "tests"), nargs="?", default="report")
    parser.add_argument("rest", nargs="*", help="for tests: environments of tox (default: all)")
    parser.add_argument(
        "--keep", action="store_true", help="for tests: leave the environments (over 10 GB)"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--quick", action="store_true", help="for tests: a third of what needs no framework"
    )
    which.add_argument(
        "--nightly", action="store_true", help="for tests: only what is left out of every landing"
    )
    options = parser.parse_args()
    try:
        if options.job == "report":
            return report()
        if options.quick:
            return quick_tests()
        if options.nightly and options.rest:
            raise StartError(
                f"--nightly names its environments itself, got {' '.join(options.rest)} beside it",
                "leave out --nightly, or the names",
            )
        names = nightly_environments() if options.nightly else options.rest
        return tests(names, options.keep)
    except StartError as stop:
        wrong, remedy = stop.args
        print(f"error: {wrong}\nhint: {remedy}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def report() -> int:
    """Make .venv with the command and the plugins of `FIRST`, and do the main job in it."""
    folder = ROOT / ".venv"
    environment(
        folder,
        (
            (
                ["-e", ".[torch]", "pillow", *plugins()],
                "installing crossflops, PyTorch and the plugins (some minutes, about 1 GB)",
            ),
            # the wheel of torchvision names a torch of its own, so it comes last and alone
            (["--no-deps", "torchvision"], "installing torchvision"),
        ),
    )
    byte_compile(folder)
    command = script(folder, "crossflops")
    say(f"counting {MODEL[0]} with eight tools")
    line = [str(command), "compare", *MODEL, "-o", str(REPORT)]
    status = subprocess.run(line, cwd=ROOT, check=False).returncode
    if status:
        raise StartError(
            f"crossflops compare ended with status {status}",
            f"see what it said above; {command} doctor shows what is installed",
        )
    say(f"done. Open {REPORT.name}: it says why the tools differ")
    say(f"the command is {command.relative_to(ROOT)}")
    return 0


def quick_tests() -> int:
    """Run a third of the cases of the core beside this Python, in environments that are kept."""
    status = tests(list(QUICK), keep=True)
    everything = usual_seconds(listed())
    duration = minutes(max(schedule(everything).values()))
    names = ", ".join(everything)
    say("that was a third of the cases of the core, without any framework")
    say(f"`python3 start.py tests` runs all, in about {duration} on two cores: {names}")
    return status


def tests(environments: list[str], keep: bool) -> int:
    """Run tox, which makes what it needs, in an environment of its own.

    Each of its environments is removed as it ends (toxfile.py), unless they are to be kept.
    """
    free = shutil.disk_usage(ROOT).free
    if not environments and free < TESTS_NEED:
        say(f"{free / 1e9:.1f} GB are free here, and all tests need {TESTS_NEED / 1e9:.0f} GB")
    folder = ROOT / ".tox" / "tox"
    environment(folder, ((["tox"], "installing tox"),))
    say("running tox: a line for every environment as it ends, its whole output where it fails")
    line = [str(script(folder, "tox")), "run-parallel", "--parallel", str(JOBS)]
    results = folder.parent / "results.json"
    results.unlink(missing_ok=True)
    line += ["--parallel-no-spinner", "--result-json", str(results)]
    left_out = [] if environments else lacking()
    if left_out:
        environments = [name for name in listed() if name not in left_out]
        say(f"not run, since no {PROGRAMS[left_out[0]][0]} is here: {', '.join(left_out)}")
    if environments:
        line += ["-e", ",".join(environments)]
    variables = os.environ | {
        "CROSSFLOPS_REMOVE_ENVIRONMENTS": "" if keep else "yes",
        "CROSSFLOPS_TELL_OF_ENVIRONMENTS": "yes",
    }
    status = watched(line, variables, environments or listed())
    closing = closing_lines(results)
    for name, last in closing.items():
        say(f"{name}: {last}")
    say(f"in all: {total(closing.values())}; tox ended with status {status}")
    return status


def listed() -> list[str]:
    """The environments of tox's default list."""
    parser = ConfigParser(interpolation=None)
    parser.read(TOX, "utf-8")
    return parser["tox"]["env_list"].split()


def nightly_environments() -> list[str]:
    """Return the environments of tox's label `nightly`."""
    parser = ConfigParser(interpolation=None)
    parser.read(TOX, "utf-8")
    labels = dict(line.split("=", 1) for line in parser["tox"]["labels"].strip().splitlines())
    names = {label.strip(): listed for label, listed in labels.items()}["nightly"]
    return [name.strip() for name in names.split(",")]


def lacking() -> list[str]:
    """The environments whose program is not on the path."""
    return [name for name, programs in PROGRAMS.items() if not any(map(shutil.which, programs))]


def usual_seconds(environments: Iterable[str]) -> dict[str, float]:
    """How long each of these usually takes."""
    mean = sum(SECONDS.values()) / len(SECONDS)
    return {name: SECONDS.get(name, mean) for name in environments}


def watched(line: list[str], variables: Mapping[str, str], environments: list[str]) -> int:
    """Run tox, show what it prints, and say after each environment how much time is left."""
    usual = usual_seconds(environments)
    begin = time.monotonic()
    say(f"environments: {len(usual)}, about {minutes(max(schedule(usual).values()))}")
    with subprocess.Popen(
        line, cwd=ROOT, env=variables, stdout=subprocess.PIPE, text=True, errors="replace"
    ) as tox:
        assert tox.stdout is not None  # it is a pipe
        ended: list[str] = []
        for printed in tox.stdout:
            name = printed.removeprefix(ENDED).strip()
            if not printed.startswith(ENDED):
                print(printed, end="", flush=True)
            elif name in usual and name not in ended:
                ended.append(name)
                left = minutes(time_left(usual, ended, time.monotonic() - begin))
                rest = f", about {left} left" if len(ended) < len(usual) else ""
                say(f"{name} has run: {len(ended)} of {len(usual)}{rest}")
    return tox.returncode


def time_left(usual: Mapping[str, float], ended: list[str], passed: float) -> float:
    """Seconds until the last environment ends, where these have ended after `passed` seconds.

    The machine is taken to go on as it has gone until now, against the usual seconds.
    """
    ends = schedule(usual)
    pace = passed / max(ends[name] for name in ended)
    return max(0.0, pace * max(ends.values()) - passed)


def schedule(seconds: Mapping[str, float]) -> dict[str, float]:
    """When each ends, where the next begins as soon as fewer than `JOBS` run."""
    ends: dict[str, float] = {}
    free_at = [0.0] * JOBS
    for name, duration in seconds.items():
        free_at.sort()
        free_at[0] += duration
        ends[name] = free_at[0]
    return ends


def minutes(seconds: float) -> str:
    """A duration for a person: "a minute", "12 minutes"."""
    count = round(seconds / 60)
    return "a minute" if count <= 1 else f"{count} minutes"


def closing_lines(results: Path) -> dict[str, str]:
    """The last line of pytest, by environment, from the file that tox leaves."""
    lines: dict[str, str] = {}
    if results.is_file():
        for name, outcome in json.loads(results.read_text())["testenvs"].items():
            for command in outcome.get("test", ()):
                for last in CLOSING.findall(COLOUR.sub("", command["output"])):
                    lines[name] = last
    return lines


def total(lines: Iterable[str]) -> str:
    """The closing lines of pytest, added up: "12 passed, 1 skipped"."""
    sums: Counter[str] = Counter()
    for line in lines:
        for number, what in COUNTED.findall(line):
            sums[what.removesuffix("s")] += int(number)
    return ", ".join(f"{number} {what}" for what, number in sums.items()) or "no tests"


def environment(folder: Path, steps: Steps) -> None:
    """Make a virtual environment in which all the steps are installed, unless it is there.

    The stamp is written last: a folder whose stamp is another is made again from nothing.
    """
    name, stamp, mark = folder.relative_to(ROOT), folder / STAMP, fingerprint(steps)
    if stamp.is_file() and stamp.read_text() == mark:
        say(f"{name} is up to date")
        return
    if os.path.lexists(folder) and not stamp.is_file():
        raise StartError(
            f"{name} is there, and was not made by this script",
            "move it away, or remove it, and run this again",
        )
    if Path(sys.prefix) == folder:
        raise StartError(
            f"{name} is out of date, and the Python that runs this lives in it",
            "run `deactivate`, and then this again",
        )
    shutil.rmtree(folder, ignore_errors=True)
    try:
        say(f"making {name}")
        run([sys.executable, "-m", "venv", str(folder)])
        for packages, what in steps:
            say(what)
            python = str(script(folder, "python"))
            pip = [python, "-m", "pip", "install", "-c", "constraints.txt"]
            run([*pip, *packages])
        stamp.write_text(mark)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def byte_compile(folder: Path) -> None:
    """Compile the package and its plugins, as pip does with all that is not editable.

    Where PYTHONDONTWRITEBYTECODE is set, as in many containers, every start would compile them.
    """
    sources = ["crossflops", *(f"plugins/crossflops-{name}" for name in FIRST)]
    run([str(script(folder, "python")), "-m", "compileall", "-q", *sources])


def fingerprint(steps: Steps) -> str:
    """What the environment depends on, in one word."""
    files = [ROOT / "constraints.txt", ROOT / "pyproject.toml"]
    files += sorted(ROOT.glob("plugins/*/pyproject.toml"))
    parts = [sys.version, str(ROOT), repr(steps), *(path.read_text() for path in files)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def plugins() -> list[str]:
    """The plugins of the first report, as arguments of pip."""
    return [part for name in FIRST for part in ("-e", f"plugins/crossflops-{name}")]


def script(folder: Path, name: str) -> Path:
    """A command of a virtual environment."""
    return folder / ("Scripts" if os.name == "nt" else "bin") / name


def run(command: list[str]) -> None:
    """Run it, with its output shown. Raises StartError when it fails."""
    status = subprocess.run(command, cwd=ROOT, check=False).returncode
    if status:
        raise StartError(
            f"this ended with status {status}: {' '.join(command)}",
            "see what it said above; nothing half done is left, so it can be run again",
        )


def say(what: str) -> None:
    """A line of progress."""
    print(f"==> {what}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
