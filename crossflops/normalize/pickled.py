"""A model that was pickled whole: read only on demand, since reading it runs its code."""

import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crossflops.errors import TargetError
from crossflops.load import refuse_stand_in
from crossflops.normalize import extras
from crossflops.normalize.torchvision import mended

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
        raise extras.missing(error.name or "") or TargetError(
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
