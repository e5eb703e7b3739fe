"""A Python file that a target names: run as a module, or only looked at."""

import ast
import functools
import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from crossflops.errors import TRACEBACK, MissingExtraError, TargetError
from crossflops.normalize import extras
from crossflops.normalize.torchvision import mended
from crossflops.whereabouts import raised_at

_RELATIVE = "attempted relative import"


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
        absent = isinstance(error, ModuleNotFoundError) and extras.missing(error.name or "")
        if isinstance(absent, MissingExtraError):
            raise absent from error
        raise TargetError(
            f"running {path} failed: {type(error).__name__}: {error}{raised_at(error)}",
            TRACEBACK,
        ) from error


def _run_alone(path: Path) -> ModuleType:
    # Registered under a name of its own, so that what it defines can be pickled and inspected;
    # two files of one name in two folders are two modules.
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
    found = []
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            found.append(statement.name)
        elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Lambda):
            found += [one.id for one in statement.targets if isinstance(one, ast.Name)]
    return [name for name in found if not name.startswith("_")]
