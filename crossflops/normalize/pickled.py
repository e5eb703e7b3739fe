"""A model that was pickled whole: read only on demand, since reading it runs its code."""

import importlib
from pathlib import Path
from typing import Any

from crossflops.errors import TargetError
from crossflops.normalize.torchvision import mended

SUFFIXES = (".pt", ".pth", ".pkl", ".pickle", ".joblib")
_HINT = "pass a callable that builds the model: file.py:callable"


def unpickled(path: Path, allowed: bool) -> Any:
    """The object in a file that `torch.save` or pickle wrote. Raises TargetError."""
    if not path.is_file():
        raise TargetError(f"there is no file {path}", _HINT)
    if not allowed:
        raise TargetError(
            f"{path} is a pickle, which runs code when it is read",
            f"if you trust it, --allow-pickle; better: {_HINT}",
        )
    try:
        return mended(lambda: _read(path))
    except Exception as error:
        raise TargetError(
            f"{path} cannot be unpickled: {type(error).__name__}: {error}", _HINT
        ) from error


def _read(path: Path) -> Any:
    import pickle

    if path.suffix in {".pkl", ".pickle"}:
        with path.open("rb") as file:
            return pickle.load(file)
    if path.suffix == ".joblib":
        return importlib.import_module("joblib").load(path)
    import torch

    return torch.load(path, map_location="cpu", weights_only=False)
