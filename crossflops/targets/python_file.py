"""Python files and pickles that a target names, and the extra that a missing package needs."""

import ast
import functools
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from crossflops.errors import TRACEBACK, MissingExtraError, TargetError, raised_at
from crossflops.frontends import FRONTENDS, mended
from crossflops.load import refuse_stand_in

_RELATIVE = "attempted relative import"


def missing(package: str) -> MissingExtraError | None:
    """The error that names the extra of a package, None for a package of somebody else."""
    name = package.partition(".")[0]
    extra = next((frontend.extra for frontend in FRONTENDS if name in frontend.packages), None)
    if extra is None:
        return None
    return MissingExtraError(f"{name} is not installed", f"pip install 'crossflops[{extra}]'")


def run(path: Path, hint: str) -> ModuleType:
    """The module of a file, run afresh. It may import what lies beside it, and by dots.

    Raises TargetError, MissingExtraError.
    """
    if not path.is_file():
        raise TargetError(f"there is no file {path}", hint)
    sys.path.append(str(path.parent.resolve()))
    try:
        try:
            return _run_alone(path)
        except ImportError as error:
            if _RELATIVE not in str(error) or not (path.parent / "__init__.py").is_file():
                raise
            return _run_in_its_package(path.resolve())
    except TargetError:
        raise
    except (Exception, SystemExit) as error:
        absent = isinstance(error, ModuleNotFoundError) and missing(error.name or "")
        if isinstance(absent, MissingExtraError):
            raise absent from error
        raise TargetError(
            f"running {path} failed: {type(error).__name__}: {error}{raised_at(error)}",
            TRACEBACK,
        ) from error


def _run_alone(path: Path) -> ModuleType:
    # Registered under a name of its own, so that what it defines can be pickled and inspected;
    # two files of one name in two folders are two modules.
    import hashlib  # which loads OpenSSL

    place = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    name = f"crossflops_target_{path.stem}_{place}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is no Python file", "give a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    mended(functools.partial(spec.loader.exec_module, module))
    return module


def _run_in_its_package(path: Path) -> ModuleType:
    """A file that imports `from . import x` is a part of the package around it."""
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    name = ".".join(parts)
    sys.path.append(str(folder))
    module = mended(lambda: importlib.import_module(name))
    if Path(module.__file__ or "").resolve() != path:
        raise TargetError(
            f"{path} belongs to a package {parts[0]}, and another of that name is imported",
            f"start in {folder} and write {name}:callable",
        )
    return module


def offered(path: Path) -> list[str]:
    """The public names that a file defines at its top, without running it; [] if it is broken."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return []
    names = []
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            names.append(statement.name)
        elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Lambda):
            names += [target.id for target in statement.targets if isinstance(target, ast.Name)]
    return [name for name in names if not name.startswith("_")]


# A model that was pickled whole: read only on demand, since reading it runs its code.

_PLAIN = (".pkl", ".pickle")  # of no framework in particular
PICKLES = {
    **dict.fromkeys(_PLAIN, "is a pickle"),
    **{suffix: kind for frontend in FRONTENDS for suffix, kind in frontend.pickles.items()},
}
_LONGEST = 300
_HINT = "pass a callable that builds the model: file.py:callable"


def unpickled(path: Path, allowed: bool) -> Any:
    """The object in a file with one of the suffixes in PICKLES. Raises TargetError."""
    if not path.is_file():
        raise TargetError(f"there is no file {path}", _HINT)
    refuse_stand_in(path)
    if not allowed:
        raise TargetError(
            f"{path} {PICKLES[path.suffix]}, which runs code when it is read",
            f"if you trust it, --allow-pickle; better: {_HINT}",
        )
    try:
        return mended(lambda: _read(path))
    except ModuleNotFoundError as error:
        raise missing(error.name or "") or TargetError(
            f"{path} needs {error.name}", f"pip install {error.name}"
        ) from error
    except Exception as error:
        what = " ".join(str(error).split())[:_LONGEST]
        raise TargetError(
            f"{path} cannot be unpickled: {type(error).__name__}: {what}", _HINT
        ) from error


def _read(path: Path) -> Any:
    if path.suffix in _PLAIN:
        import pickle

        with path.open("rb") as file:
            return pickle.load(file)
    frontend = next(known for known in FRONTENDS if path.suffix in known.pickles)
    return frontend.unpickled(path)
