"""The verb `diff`: two models, or two saved reports, and what is between them.

A model at a revision of git is checked out into a folder of its own, and counted there by a
process of its own, since the modules of two revisions bear the same names.
"""

import os
import pickle
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

import msgspec

import crossflops
from crossflops.errors import CrossflopsError, InputError
from crossflops.files import contents
from crossflops.report.difference import Difference, difference
from crossflops.report.report import SCHEMA, Report
from crossflops.targets.request import Request, fitted
from crossflops.targets.target import imports_restored
from crossflops.verbs.count import CountedModel, native_count

_CHECKOUT_HINT = "write REVISION:TARGET in a repository of git, such as HEAD~1:model.py:make"
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_CHILD = "from crossflops.verbs.diff import main; main()"


class AtRevision(msgspec.Struct, frozen=True):
    """What is to be counted, or the file of a report, as it was at a revision."""

    revision: str
    source: Request | Path


def revision_of(text: str) -> tuple[str, str]:
    r"""The revision and the target that `REVISION:TARGET` names; "" where it is a target alone.

    `HEAD~1:model.py:make`, `v1.0:model.onnx`: what has one colon names a file of that revision, or
    is a target. The letter of `C:\models\model.py:make` and `C:/model.onnx` is a drive. Raises
    InputError for two colons where git knows no such revision.
    """
    before, colon, target = text.partition(":")
    if not colon or not target or _DRIVE.match(text):
        return "", text
    is_whole = ":" in target
    if not is_whole and _git("cat-file", "-e", f"{before}:./{target}").returncode:
        return "", text
    known = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{before}^{{commit}}")
    if known.returncode:
        raise InputError(f"git knows no revision {before!r} here", _CHECKOUT_HINT)
    return before, target


def counted_at(side: AtRevision, read: Callable[[Path], Report]) -> Report:
    """The report of a side; `read` reads one that is a file. Raises what counting raises."""
    with _checked_out(side.revision) as folder:
        if isinstance(side.source, Path):
            return read(folder / side.source)
        return _counted(side.source, folder)


@contextmanager
def _checked_out(revision: str) -> Iterator[Path]:
    """The folder that is the current one in a temporary worktree of the revision."""
    top = repository()
    with tempfile.TemporaryDirectory(prefix="crossflops-") as temporary:
        tree = Path(temporary, top.name)
        hookless = ("-c", f"core.hooksPath={os.devnull}")
        made = _git(*hookless, "worktree", "add", "--detach", str(tree), revision)
        if made.returncode:
            raise InputError(
                f"git cannot check {revision} out: {made.stderr.strip()}", _CHECKOUT_HINT
            )
        try:
            folder = tree / Path.cwd().resolve().relative_to(top)
            if not folder.is_dir():
                raise InputError(f"this folder is not in {revision}", "go to one that is")
            yield folder
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _counted(request: Request, folder: Path) -> Report:
    """The count of a process that runs in the folder, and imports from there what lies here."""
    if request.inputs_file is not None:
        request = msgspec.structs.replace(
            request, inputs_file=os.path.abspath(request.inputs_file)
        )
    answer = folder / f".crossflops-{os.getpid()}"
    order = pickle.dumps((request, str(repository()), str(answer)))
    package = str(Path(crossflops.__file__).parents[1])
    path = os.pathsep.join((*_moved(sys.path, folder), package, *elsewhere()))
    done = subprocess.run(
        [sys.executable, "-P", "-c", _CHILD], cwd=folder, input=order, stdout=sys.stderr.fileno(),
        env=os.environ | {"PYTHONPATH": path}, check=False,
    )  # fmt: skip
    if not answer.is_file():
        raise CrossflopsError(
            f"the process that counts {request.target} ended with {done.returncode}",
            "count it by itself in a checkout of that revision",
        )
    report, message, hint = msgspec.json.decode(answer.read_bytes(), type=tuple[str, str, str])
    if message:
        raise CrossflopsError(message, hint)
    return Report.from_json(report.encode())


def _moved(paths: list[str], folder: Path) -> list[str]:
    """Where modules are imported from, with the folders of this repository as they are there."""
    top = repository()
    depth = len(Path.cwd().resolve().relative_to(top).parts)
    tree = folder if not depth else folder.parents[depth - 1]
    moved = (tree / path.relative_to(top) for path in _inside(paths, top))
    return [str(path) for path in moved if path.is_dir()]


def elsewhere() -> list[str]:
    """The folders of the reader's PYTHONPATH that do not lie in this repository."""
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    top, absolute = repository(), map(os.path.abspath, paths)
    return [path for path in absolute if not Path(path).resolve().is_relative_to(top)]


def _inside(paths: list[str], top: Path) -> Iterator[Path]:
    """Those that lie in the repository, apart from Python and from installed packages."""
    parts = ("stdlib", "platstdlib", "purelib", "platlib")
    installed = {Path(sysconfig.get_path(part)).resolve() for part in parts}
    for path in (Path(text).resolve() for text in paths if text):
        if path.is_relative_to(top) and not any(map(path.is_relative_to, installed)):
            yield path


def repository() -> Path:
    """The folder of the repository, links followed."""
    return Path(_git("rev-parse", "--show-toplevel").stdout.strip()).resolve()


def _git(*words: str) -> "subprocess.CompletedProcess[str]":
    # A hook of git has the index of the commit there, which a worktree would be written to.
    environment = {name: text for name, text in os.environ.items() if name != "GIT_INDEX_FILE"}
    try:
        return subprocess.run(
            ["git", *words], env=environment, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(words, 127, "", "git is not installed")


def main() -> None:
    """The process: from a request on stdin to the file of a report, or of what was raised."""
    from crossflops.verbs.count import native_count

    request, top, answer = pickle.loads(sys.stdin.buffer.read())
    try:
        report, _ = native_count(request)
        refuse_modules_of(Path(top))
        content = report.to_json(), "", ""
    except CrossflopsError as error:
        content = "", error.message, error.hint
    Path(answer).write_bytes(msgspec.json.encode(content))


def refuse_modules_of(top: Path) -> None:
    """Raises InputError where something was imported from the repository as it is now."""
    package = Path(crossflops.__file__).parent
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not os.path.isabs(file):
            continue  # torch.ops has "_ops.py"
        for path in _inside([file], top):
            if not path.is_relative_to(package):
                raise InputError(
                    f"{name} was imported from {path}, which is not of that revision",
                    "run this in an environment in which it is not installed from there",
                )


Side: TypeAlias = tuple[str, Request | Path | AtRevision]  # a name, and what it is the name of
_HINT = "give a model, or a file that `crossflops count -o FILE.json` wrote"


@imports_restored()
def diff(
    first: Side, second: Side, most: Fraction | None, tell: Callable[[str], None]
) -> Difference:
    """From the first to the second; `most` is the share by which a total may grow.

    Of two models the causes are given, too. Raises what counting raises, and InputError for a file
    that is no report of a count.
    """
    (report, native), (report_of_second, native_of_second) = (
        _side(side, tell) for side in (first, second)
    )
    change = difference(report, report_of_second, (first[0], second[0]), most)
    if native is None or native_of_second is None:
        return change
    from crossflops.reconcile.alignment import align
    from crossflops.reconcile.contractions import layers

    aligned = align(
        *(layers(side.graph, side.trace, side.ledger) for side in (native, native_of_second))
    )
    return msgspec.structs.replace(change, causes=aligned.causes)


def _side(side: Side, tell: Callable[[str], None]) -> tuple[Report, CountedModel | None]:
    name, source = side
    tell(f"counting {name}")
    if isinstance(source, Request):
        return native_count(source)
    if isinstance(source, AtRevision):
        return counted_at(source, _read), None
    return _read(source), None


def _read(source: Path) -> Report:
    try:
        report = Report.from_json(contents(source))
    except OSError as error:
        raise InputError(f"cannot read {source}: {error.strerror}", _HINT) from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"{source} is no report: {error}", _HINT) from error
    if report.schema != SCHEMA:
        raise InputError(f"{source} has the schema {report.schema!r}", f"this one is {SCHEMA}")
    return report


def side_of(text: str, request: Callable[[str], Request]) -> Side:
    """What was typed: a report, a model, or REVISION: and one of them.

    `request` makes one of a target. Raises InputError.
    """
    revision, place = revision_of(text)
    source = Path(place) if is_report(place) else request(place)
    return text, AtRevision(revision, source) if revision else source


def requests_of(sides: Sequence[Side]) -> list[Request]:
    """Return the requests of those sides that are to be counted."""
    sources = [_source(side) for side in sides]
    return [source for source in sources if isinstance(source, Request)]


def fitted_sides(sides: Sequence[Side]) -> list[Side]:
    """Return the sides, each without the options that the other alone has a use for.

    Raises InputError for an option that neither has a use for.
    """
    requests = iter(fitted(requests_of(sides)))
    return [
        (
            name,
            _with_source(of, next(requests)) if isinstance(_source((name, of)), Request) else of,
        )
        for name, of in sides
    ]


def _source(side: Side) -> Request | Path:
    _, of = side
    return of.source if isinstance(of, AtRevision) else of


def _with_source(of: Request | Path | AtRevision, request: Request) -> Request | AtRevision:
    return AtRevision(of.revision, request) if isinstance(of, AtRevision) else request


def is_report(text: str) -> bool:
    """Whether this names the file of a report."""
    return text.lower().endswith((".json", ".json.gz")) and ":" not in Path(text).name
