"""While a framework's converter runs: whoever can end it is told when it begins and ends.

A converter is another project's code, and some take time that grows with the square of the model.
The command line has it run in a process that can be ended (crossflops/cli/supervision.py); from
Python nobody listens unless `listen` says so.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Listener: TypeAlias = Callable[[str | None], None]
CONVERTERS = {
    "torch": "torch.onnx.export",
    "tensorflow": "tf2onnx",
    "jax": "jax2onnx",
    "sklearn": "skl2onnx",
}
_listeners: list[Listener] = []
_running: list[str] = []


def listen(listener: Listener) -> None:
    """Call `listener` with a converter's name when it begins, and with None when it ended."""
    _listeners.append(listener)


@contextmanager
def converting(framework: str) -> Iterator[None]:
    """What runs in this block converts a model of this framework, and may take long."""
    _running.append(CONVERTERS[framework])
    _tell(_running[-1])
    try:
        yield
    finally:
        _running.pop()
        _tell(None)


@contextmanager
def paused() -> Iterator[None]:
    """What runs in this block, while a model is converted, is no converter: it has own limits."""
    _tell(None)
    try:
        yield
    finally:
        if _running:
            _tell(_running[-1])


def _tell(word: str | None) -> None:
    for listener in _listeners:
        listener(word)
