"""Where an exception comes from: the file and line of the model, whoever was running it."""

import os
import re
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

_HERE = str(Path(__file__).resolve().parent)
_LIBRARIES = sysconfig.get_path("stdlib")
_INSTALLED = re.compile(r".*[\\/](?:site|dist)-packages[\\/]")
# what runs models, and is none
_RUNNERS = frozenset(
    ("torch", "tensorflow", "keras", "jax", "jaxlib", "flax", "sklearn", "numpy", "onnx",
     "onnxscript", "onnx_ir", "tf2onnx", "jax2onnx", "skl2onnx", "crossflops")
)  # fmt: skip


def raised_at(error: BaseException) -> str:
    """The innermost line of the model itself, as " (model.py:12, in forward)"; "" where none is.

    That is a file of the user; else one of an installed library that is no framework. Of an error
    that another one led to, the first that tells is taken.
    """
    for one in _causes(error):
        frames = traceback.extract_tb(one.__traceback__)
        places = [(frame, _place(frame.filename)) for frame in frames]
        own = [(frame, place) for frame, (place, mine) in places if place and mine]
        found = own or [(frame, place) for frame, (place, _) in places if place]
        if found:
            frame, place = found[-1]
            return f" ({place}:{frame.lineno}, in {frame.name})"
    return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it, the first cause first."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and current not in chain:
        chain.append(current)
        current = current.__cause__ or current.__context__
    return reversed(chain)


def _place(file: str) -> tuple[str, bool]:
    """The file as a message names it, "" of what is no model; and whether it is the user's own."""
    if file.startswith("<"):
        return "", False
    installed = _INSTALLED.match(file)
    if installed:
        rest = file[installed.end() :]
        return ("" if re.split(r"[\\/]", rest)[0] in _RUNNERS else rest), False
    if file.startswith((_HERE, _LIBRARIES)):
        return "", False
    here = os.path.join(os.getcwd(), "")
    return file.removeprefix(here), True
