"""Where an exception comes from: the file and line of the model, whoever was running it."""

import contextlib
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

DEBUG = "CROSSFLOPS_DEBUG"  # the variable that asks for tracebacks; workers inherit it
_HERE = str(Path(__file__).resolve().parent)
_LIBRARIES = sysconfig.get_path("stdlib")
_INSTALLED = re.compile(r".*[\\/](?:site|dist)-packages[\\/]")
# what runs models, or this package, and is none
_RUNNERS = frozenset(
    ("torch", "tensorflow", "keras", "jax", "jaxlib", "flax", "sklearn", "numpy", "onnx",
     "onnxscript", "onnx_ir", "tf2onnx", "jax2onnx", "skl2onnx", "crossflops", "click", "google",
     "msgspec", "rich", "sympy", "functorch")
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


def print_traceback(error: BaseException) -> None:
    """The traceback of an error on stderr, with what led to it, where it was asked for."""
    relay("".join(traceback.format_exception(error)))


def relay(output: str) -> None:
    """What a worker process wrote on stderr, its traceback above all, where that was asked for.

    What a terminal would obey is spelled out.
    """
    if os.environ.get(DEBUG, "0") in ("", "0"):
        return
    for line in output.splitlines():
        plain = (one if one.isprintable() else ascii(one)[1:-1] for one in line)
        with contextlib.suppress(OSError):
            sys.stderr.write("".join(plain) + "\n")
            sys.stderr.flush()


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
