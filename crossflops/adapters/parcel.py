"""A model object and its inputs on their way into a worker process."""

import importlib
import pickle
import zipfile
from pathlib import Path
from typing import Any

from crossflops.adapters.pytorch import is_module
from crossflops.normalize.torchvision import mended

Contents = tuple[Any, tuple[Any, ...], dict[str, Any]]

HINT = (
    "let the class live in a module that can be imported, give a target string such as"
    " 'pkg.module:callable', or pass isolate=False"
)


def pack(path: Path, contents: Contents) -> None:
    """Write a model, its positional and its keyword inputs to a file.

    A PyTorch model is written by PyTorch, whose files can be mapped into several processes at
    once. Raises whatever pickle raises on an object that cannot be pickled.
    """
    if is_module(contents[0]):
        importlib.import_module("torch").save(contents, path)
    else:
        with path.open("wb") as file:
            pickle.dump(contents, file, protocol=pickle.HIGHEST_PROTOCOL)


def unpack(path: Path) -> Contents:
    """Read what `pack` wrote. The file is trusted: it was written by the parent process.

    The classes in it are imported on the way, torchvision's with what it needs.
    """
    return mended(lambda: _read(path))


def _read(path: Path) -> Contents:
    contents: Contents
    if zipfile.is_zipfile(path):
        load = importlib.import_module("torch").load
        contents = load(path, weights_only=False, mmap=True)
    else:
        with path.open("rb") as file:
            contents = pickle.load(file)
    return contents
