"""A function of JAX -> ONNX by jax2onnx, with nothing folded or merged that computes."""

import importlib
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from crossflops.errors import NormalizeError
from crossflops.normalize.jax.model import Pure, apart

OPSET = 23  # the newest that jax2onnx 0.17 takes for granted


def to_onnx(pure: Pure) -> bytes:
    """The bytes of an ONNX model of the function. Raises NormalizeError where jax2onnx fails."""
    jax2onnx = importlib.import_module("jax2onnx")
    try:
        with apart(), _quiet():
            _register()
            model = jax2onnx.to_onnx(
                pure.function,
                list(pure.specs),
                model_name="crossflops",
                opset=OPSET,
            )
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())
        raise NormalizeError(
            f"jax2onnx cannot convert the model: {type(error).__name__}: {text[:300]}",
            "write that part in other operations of JAX",
        ) from error
    data: bytes = model.SerializeToString()
    return data


def _register() -> None:
    """Make jax2onnx's rules known, and leave out what takes it long: its examples build models.

    Its rules for libraries that are not imported build some, too, and cannot be needed.
    """
    left = ["examples", *(name for name in ("equinox", "dm_pix") if name not in sys.modules)]
    names = [f"jax2onnx.plugins.{name}" for name in left]
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        importlib.import_module("jax2onnx.plugins.plugin_system").import_all_plugins()
    finally:
        for name in hidden:
            del sys.modules[name]


@contextmanager
def _quiet() -> Iterator[None]:
    logger = logging.getLogger("jax2onnx")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
