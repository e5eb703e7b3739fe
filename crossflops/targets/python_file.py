"""Python files and pickles that a target names, and the extra that a missing package needs."""

import ast
import functools
import hashlib
import importlib
import importlib.util
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from crossflops.errors import TRACEBACK, MissingExtraError, TargetError, raised_at
from crossflops.frontends.torchvision import mended
from crossflops.load import refuse_stand_in

# Which extra of crossflops brings a package that is missing.

EXTRAS = {
    "torch": "torch",
    "tensorflow": "tensorflow",
    "keras": "tensorflow",
    "jax": "jax",
    "sklearn": "sklearn",
    "flax": "jax",
    "jaxlib": "jax",
    "skl2onnx": "sklearn",
    "joblib": "sklearn",
}


def missing(package: str) -> MissingExtraError | None:
    """The error that names the extra of a package, None for a package of somebody else."""
    name = package.partition(".")[0]
    if name not in EXTRAS:
        return None
    return MissingExtraError(
        f"{name} is not installed", f"pip install 'crossflops[{EXTRAS[name]}]'"
    )


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


# A model that was pickled whole: read only on demand, since reading it runs its code.

PROGRAM = ".pt2"  # of torch.export, which pickles inputs and constants, and evaluates sizes
SUFFIXES = (".pt", ".pth", PROGRAM, ".pkl", ".pickle", ".joblib")
_WHAT = {PROGRAM: "is an archive of pickles and expressions"}
_LONGEST = 300
_HINT = "pass a callable that builds the model: file.py:callable"


def unpickled(path: Path, allowed: bool) -> Any:
    """The object in a file that `torch.save` or pickle wrote. Raises TargetError."""
    if not path.is_file():
        raise TargetError(f"there is no file {path}", _HINT)
    refuse_stand_in(path)
    if not allowed:
        raise TargetError(
            f"{path} {_WHAT.get(path.suffix, 'is a pickle')}, which runs code when it is read",
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
    import pickle

    if path.suffix in {".pkl", ".pickle"}:
        with path.open("rb") as file:
            return pickle.load(file)
    if path.suffix == ".joblib":
        return importlib.import_module("joblib").load(path)
    import torch

    if path.suffix == PROGRAM:
        with _silent("torch.export"):
            return torch.export.load(path)
    return torch.load(path, map_location="cpu", weights_only=False)


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """torch.export.load writes a traceback into its log before it raises."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
