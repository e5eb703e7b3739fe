"""Count a model, or read a report, as git has it at a revision.

It is checked out into a folder of its own, and code is counted there by a process of its own,
since the modules of two revisions bear the same names.
"""

import os
import pickle
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from crossflops.errors import CrossflopsError, InputError, nearest_name_hint
from crossflops.load import is_git_lfs_pointer
from crossflops.report.report import Report
from crossflops.targets import is_onnx_target
from crossflops.targets.request import Request
from crossflops.targets.target import is_batch_function

_CHECKOUT_HINT = "correct what git names, or check that revision out yourself and count there"
_NOT_INSTALLED = 127  # the status that a shell gives a command that is not there
_OF_SUBMODULE = "160000 "  # the mode of its row in a tree of git
_COMMIT_HINT = "name a commit, a branch or a tag, such as HEAD~1"
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_HASH = re.compile(r"[0-9a-f]{7,64}")
_LIBRARIES = ("hf", "keras", "timm", "torchvision", "torch.hub")  # before the name of a model
_PACKAGE = Path(__file__).parents[1]
_CHILD = "from crossflops.verbs.revisions import main; main()"


class TargetAtRevision(msgspec.Struct, frozen=True):
    """A target, or the file of a report, as it was at a revision."""

    revision: str
    source: Request | Path


def split_revision(text: str) -> tuple[str, str]:
    r"""Return (revision, target) for a text "REVISION:TARGET"; ("", text) if it names no revision.

    `HEAD~1:model.py:make`, `v1.0:model.onnx`: what has one colon names a file of that revision, or
    is a target. The letter of `C:\models\model.py:make` and `C:/model.onnx` is a drive. Raises
    InputError where the colon stands behind a revision that git does not have here, or before a
    file that the revision has not.
    """
    before, colon, target = text.partition(":")
    if not colon or not target or _DRIVE.match(text):
        return "", text
    if not before:
        raise InputError(f"{text} has no revision before the colon", f"write HEAD{text}")
    if ":" in target:
        reject_unknown_git_revision(before)
        return before, target
    if not _run_git("cat-file", "-e", f"{before}:./{target}").returncode:
        return before, target
    is_kept = is_onnx_target(target) or target.endswith((".json", ".json.gz"))
    if is_kept and before not in _LIBRARIES and not Path(text).exists():
        reject_unknown_git_revision(before)
        path_at_revision(before, target)  # raises for a file of a submodule
        raise InputError(
            f"the file {target} does not exist at revision {before}",
            nearest_name_hint(
                target,
                _model_files_at_revision(before),
                "use the name that the file had at that revision",
            ),
        )
    return "", text


def reject_unknown_git_revision(revision: str) -> None:
    """Raise InputError if git does not know the revision, with a hint how to fetch it."""
    if not _run_git("rev-parse", "--verify", "--quiet", "--end-of-options",
                f"{revision}^{{commit}}").returncode:  # fmt: skip
        return
    status = _run_git("rev-parse", "--git-dir").returncode
    if status == _NOT_INSTALLED:
        raise InputError(
            f"{revision!r} looks like a git revision, but git is not installed", "install git"
        )
    if status:
        raise InputError(
            f"{revision!r} looks like a git revision, but this folder is not in a git repository",
            "change to a folder of the repository, or leave out the revision",
        )
    message = f"unknown git revision {revision!r}"
    is_shallow = _run_git("rev-parse", "--is-shallow-repository").stdout.strip() == "true"
    if is_shallow:
        message += ": this is a shallow clone"
    raise InputError(message, _missing_revision_remedy(revision, is_shallow))


def _missing_revision_remedy(revision: str, is_shallow: bool) -> str:
    """Return the hint for a revision that git does not know: how to fetch it, or a similar
    name.
    """
    if both := re.fullmatch(r"(.+?)\.{2,3}(.+)", revision):
        return (
            f"name one commit: `git merge-base {both[1]} {both[2]}` prints their common ancestor"
        )
    names = _run_git("for-each-ref", "--format=%(refname:short)", "refs").stdout.split()
    remotes = _run_git("remote").stdout.split()
    for remote in remotes:
        if f"{remote}/{revision}" in names:
            return f"write {remote}/{revision}, which exists in this clone"
    back = re.fullmatch(r"(.+?)[~^](\d*)", revision)
    if back and back[1] in (*names, "HEAD"):
        if is_shallow:
            return f"`git fetch --deepen={back[2] or 1}` fetches it, if it exists"
        return f"{back[1]} does not have so many ancestors: see `git log {back[1]}`"
    remote = next((name for name in remotes if revision.startswith(f"{name}/")), "")
    near = "" if remote else nearest_name_hint(revision, names, " ").strip()
    if near or not remotes:
        return near or _COMMIT_HINT
    branch = revision.removeprefix(f"{remote}/") if remote else revision
    remote = remote or remotes[0]
    if _HASH.fullmatch(revision):
        return f"`git fetch --depth=1 {remote} {revision}` fetches it"
    return (
        f"`git fetch --depth=1 {remote} {branch}:refs/remotes/{remote}/{branch}` fetches it "
        f"as {remote}/{branch}"
    )


def _model_files_at_revision(revision: str) -> list[str]:
    """Return the paths of the model files below this folder at a git revision."""
    listed = _run_git("ls-tree", "-r", "--name-only", "-z", revision).stdout.split("\0")
    return [name for name in listed if is_onnx_target(name)]


def path_at_revision(revision: str, path: str) -> str | None:
    """Return the path of a file at a git revision, relative to this folder; None if it does not
    exist there.

    Git says so, since a checkout may be sparse, and a link may lead elsewhere. Raises InputError
    where git does not know: the file is of a submodule, or of no part of the repository.
    """
    index = Path(os.path.abspath(path))
    index = index.parent.resolve() / index.name
    top, here = repository_root(), Path.cwd().resolve()
    if not index.is_relative_to(top):
        raise InputError(
            f"{path} is outside the git repository {top}",
            "leave out the revision; to compare with an older file, run `crossflops check "
            "--update` on that file and `crossflops check` on the new one",
        )
    name = os.path.relpath(index, here)
    if not _run_git("cat-file", "-e", f"{revision}:./{name}").returncode:
        return name
    enclosing = [folder.as_posix() for folder in index.relative_to(top).parents][:-1]
    listed = (
        _run_git("ls-tree", "--full-tree", "-z", revision, "--", *enclosing) if enclosing else None
    )
    for row in listed.stdout.split("\0") if listed is not None else ():
        if row.startswith(_OF_SUBMODULE):
            submodule = row.partition("\t")[2]
            raise InputError(
                f"{path} is in the submodule {submodule}, which has its own revisions",
                f"run the command in {submodule}, with a revision of the submodule",
            )
    return None


def paths_before_renames(revision: str, paths: Iterable[str]) -> dict[str, str]:
    """Return {present path: path at the git revision} for the files that were renamed since then.

    Of `paths` those are seen, too, which git does not know yet: a copy of its index has them.
    """
    files = [path for path in paths if Path(path).is_file()]
    with tempfile.TemporaryDirectory(prefix="crossflops-") as folder:
        index = Path(folder, "index")
        known = Path(_run_git("rev-parse", "--git-path", "index").stdout.strip())
        if known.is_file():
            index.write_bytes(known.read_bytes())
        _run_git("add", "--intent-to-add", "--force", "--", *files, index=index)
        listed = _run_git(
            "diff", "--name-status", "-M", "-z", "--no-relative", "--diff-filter=R", revision,
            index=index,
        )  # fmt: skip
    words, top, here = listed.stdout.split("\0"), repository_root(), Path.cwd().resolve()
    return {
        os.path.relpath(top / words[at + 2], here): os.path.relpath(top / words[at + 1], here)
        for at in range(0, len(words) - 2, 3)
    }


def find_files_by_name(name: str) -> list[str]:
    """Return the paths of all files in the git repository with this name, relative to this
    folder.
    """
    listed = _run_git("ls-files", "-co", "--exclude-standard", "-z", "--full-name", "--",
                  f":(top,glob)**/{name}")  # fmt: skip
    paths = (repository_root() / path for path in listed.stdout.split("\0") if path)
    here = Path.cwd().resolve()
    return [os.path.relpath(path, here) for path in paths if path.is_file()]


def count_at_revision(side: TargetAtRevision, read: Callable[[Path], Report]) -> Report:
    """Return the report of a model, or the saved report, as it was at a git revision."""
    with checking_out_revision(side.revision) as folder:
        if not folder.is_dir():
            raise InputError(
                f"this folder does not exist at revision {side.revision}",
                "run the command in a folder that exists at that revision",
            )
        if isinstance(side.source, Path):
            return read(folder / side.source)
        return count_in_worktree(side.source, folder, side.revision)


@contextmanager
def checking_out_revision(revision: str) -> Iterator[Path]:
    """Check out a git revision into a temporary worktree; yield the folder in it that corresponds
    to the current folder.
    """
    top = repository_root()
    with tempfile.TemporaryDirectory(prefix="crossflops-") as temporary:
        tree = Path(temporary, top.name)
        # without hooks, and whole where the reader's own tree is sparse
        settings = ("-c", f"core.hooksPath={os.devnull}", "-c", "core.sparseCheckout=false")
        made = _run_git(*settings, "worktree", "add", "--detach", str(tree), revision)
        if made.returncode:
            raise InputError(
                f"git cannot check {revision} out: {made.stderr.strip()}", _CHECKOUT_HINT
            )
        try:
            folder = tree / Path.cwd().resolve().relative_to(top)
            yield folder
        finally:
            _run_git("worktree", "remove", "--force", str(tree))


def count_in_worktree(request: Request, folder: Path, revision: str) -> Report:
    """Return the report of a model that another process counts in the folder of a checked-out
    revision.
    """
    reject_lfs_pointer(request, folder, revision)
    if request.inputs_file is not None and not is_batch_function(request.inputs_file):
        request = msgspec.structs.replace(
            request, inputs_file=os.path.abspath(request.inputs_file)
        )
    answer = folder / f".crossflops-{os.getpid()}"
    order = pickle.dumps((request, str(repository_root()), str(answer)))
    package = str(_PACKAGE.parent)
    path = os.pathsep.join(
        (
            *_import_folders_at_revision(sys.path, folder),
            package,
            *import_folders_outside_repository(),
        )
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", _CHILD], cwd=folder, input=order, stdout=sys.stderr.fileno(),
        env=os.environ | {"PYTHONPATH": path}, check=False,
    )  # fmt: skip
    if not answer.is_file():
        raise CrossflopsError(
            f"the process that counts {request.target} ended with exit status {done.returncode}",
            "check that revision out with git, and run `crossflops count` there",
        )
    report, message, hint = msgspec.json.decode(answer.read_bytes(), type=tuple[str, str, str])
    if message:
        raise CrossflopsError(message, hint)
    return Report.from_json(report.encode())


def reject_lfs_pointer(request: Request, folder: Path, revision: str) -> None:
    """Raise InputError if the model file at this revision is only a Git LFS pointer."""
    if not request.is_file or request.target is None:
        return
    try:
        with open(folder / request.target, "rb") as file:
            head = file.read(64)
    except OSError:
        return  # counting says what is wrong
    if is_git_lfs_pointer(head):
        raise InputError(
            f"{request.target} at {revision} is a Git LFS pointer, not the model",
            f"install git-lfs, then run `git lfs fetch origin {revision}`",
        )


def _import_folders_at_revision(paths: list[str], folder: Path) -> list[str]:
    """Return those import folders of this repository that exist in the checked-out revision, as
    paths in it.
    """
    top = repository_root()
    depth = len(Path.cwd().resolve().relative_to(top).parts)
    tree = folder if not depth else folder.parents[depth - 1]
    moved = (tree / path.relative_to(top) for path in _paths_inside_repository(paths, top))
    return [str(path) for path in moved if path.is_dir()]


def import_folders_outside_repository() -> list[str]:
    """Return the folders of PYTHONPATH that are outside of this git repository."""
    paths = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    top, absolute = repository_root(), map(os.path.abspath, paths)
    return [path for path in absolute if not Path(path).resolve().is_relative_to(top)]


def _paths_inside_repository(paths: list[str], top: Path) -> Iterator[Path]:
    """Yield those of the paths that are in the git repository `top` and not in an installed
    package.
    """
    parts = ("stdlib", "platstdlib", "purelib", "platlib")
    installed = {Path(sysconfig.get_path(part)).resolve() for part in parts}
    for path in (Path(text).resolve() for text in paths if text):
        if path.is_relative_to(top) and not any(map(path.is_relative_to, installed)):
            yield path


def repository_root() -> Path:
    """Return the path of the git repository's top folder."""
    return Path(_run_git("rev-parse", "--show-toplevel").stdout.strip()).resolve()


def _run_git(*words: str, index: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a git command, with another index file if one is given; return its exit status and
    output.
    """
    # A hook of git has the index of the commit there, which a worktree would be written to.
    environment = {name: text for name, text in os.environ.items() if name != "GIT_INDEX_FILE"}
    if index is not None:
        environment["GIT_INDEX_FILE"] = str(index)
    try:
        return subprocess.run(
            ["git", *words], env=environment, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(words, _NOT_INSTALLED, "", "git is not installed")


def main() -> None:
    """Count the request that stdin gives, and write the report or the error to the file that it
    names.
    """
    from crossflops.verbs.count import native_count

    request, top, answer = pickle.loads(sys.stdin.buffer.read())
    try:
        report, _ = native_count(request)
        reject_modules_of_present_files(Path(top))
        content = report.to_json(), "", ""
    except CrossflopsError as error:
        content = "", error.message, error.hint
    Path(answer).write_bytes(msgspec.json.encode(content))


def reject_modules_of_present_files(top: Path) -> None:
    """Raise InputError if a module was imported from the present files of the repository instead
    of the revision.
    """
    package = _PACKAGE
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not os.path.isabs(file):
            continue  # torch.ops has "_ops.py"
        for path in _paths_inside_repository([file], top):
            if not path.is_relative_to(package):
                raise InputError(
                    f"{name} was imported from {path}, which is not part of that revision",
                    f"use an environment in which {name} is not installed from that path",
                )
