"""The table by which PyTorch's exporter looks up the ONNX form of an operator, built once.

`torch.onnx.export` reads the source of some five hundred functions anew for each model, which
takes as long as all else that it does for a small one.
"""

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def kept_registry() -> Iterator[None]:
    """Let exports in this block take a copy of the table that the first of them built.

    A PyTorch that has no such table at the known place builds its own, as ever.
    """
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry as Registry
    except ImportError:
        yield
        return
    build = Registry.__dict__.get("from_torchlib")
    if not isinstance(build, classmethod):
        yield
        return

    def from_torchlib(registry: Any, *args: Any, **kwargs: Any) -> Any:
        # what torchvision brings is in the table only once torchvision has been imported
        return _copy(_built(build, registry, "torchvision" in sys.modules, args, **kwargs))

    Registry.from_torchlib = classmethod(from_torchlib)
    try:
        yield
    finally:
        Registry.from_torchlib = build


@functools.cache
def _built(
    build: "classmethod[Any, Any, Any]",
    registry: Any,
    with_torchvision: bool,
    args: tuple[Any, ...],
    **kwargs: Any,
) -> Any:
    return build.__func__(registry, *args, **kwargs)


def _copy(table: Any) -> Any:
    """A table to which an export may add operators of its own."""
    copied = object.__new__(type(table))
    copied.__dict__.update(vars(table))
    copied.functions = {target: list(forms) for target, forms in table.functions.items()}
    return copied
