"""How an image is resized: JAX takes the method as a static argument, which no equation shows.

jax/_src/image/scale.py: `_resize` multiplies by a matrix of weights for each axis, most of which
are 0.
"""

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

FUNCTION = "image/scale._resize"
_MODES = {"NEAREST": "nearest", "LINEAR": "linear", "CUBIC": "cubic", "CUBIC_PYTORCH": "cubic"}
_MARK = re.compile(r"/?crossflops\.resize\.(\w*)\.([01])")


@contextmanager
def resizes_named() -> Iterator[None]:
    """While this is open, a scope stands around every resizing and names its method."""
    import jax

    module: Any = importlib.import_module("jax._src.image.scale")
    resize = module._resize

    def named(image: Any, shape: Any, method: Any, antialias: Any, *more: Any) -> Any:
        kind = module.ResizeMethod.from_string(method) if isinstance(method, str) else method
        mode = _MODES.get(kind.name, "")
        with jax.named_scope(f"crossflops.resize.{mode}.{int(bool(antialias))}"):
            return resize(image, shape, method, antialias, *more)

    with patch.object(module, "_resize", named):
        yield


def method_of(stack: str) -> dict[str, str | int]:
    """The mode and whether it is smoothed, as ONNX's Resize names them; {} where unknown."""
    found = _MARK.search(stack)
    return {"mode": found[1], "antialias": int(found[2])} if found and found[1] else {}


def without_method(stack: str) -> str:
    """The name stack as it is without the scope."""
    return _MARK.sub("", stack).strip("/")
