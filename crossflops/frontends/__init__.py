"""A model with its inputs -> its graph, and the trace of what was called."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from crossflops.errors import CrossflopsWarning, MissingExtraError, NormalizeError
from crossflops.frontends import frameworks, onnx
from crossflops.frontends.conversion import converting
from crossflops.frontends.decided import Run
from crossflops.frontends.dtypes import mixed
from crossflops.frontends.frameworks import framework_of, is_pytorch
from crossflops.frontends.onnx import OnnxFile
from crossflops.ir.graph import Graph
from crossflops.ir.trace import Setting, Trace

GIVEN = "the inputs that were given"


class Source(msgspec.Struct, frozen=True):
    """A model object with the arguments that it is called with.

    `trips` and `branches` say of a model of JAX or TensorFlow what `OnnxFile` has of a file.
    `values` says where the inputs come from, in words. Models of other frameworks than PyTorch
    are called with shapes: `arrays` is what was given in their place, for one that is to be run.
    """

    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    trips: Mapping[str, int] = {}
    branches: Mapping[str, str] = {}
    values: str = GIVEN
    arrays: tuple[tuple[Any, ...], dict[str, Any]] | None = None


def normalize(
    source: Source, setting: Setting, observed: Sequence[Setting] = ()
) -> tuple[Graph, Trace]:
    """The graph of a model and the trace of its calls.

    See `pytorch.program`, that of the other frameworks and, for a file, `onnx_file.normalize`.
    """
    return program(source, setting, observed)[1:]


def program(
    source: Source, setting: Setting, observed: Sequence[Setting] = (), run: Run | None = None
) -> tuple[Any, Graph, Trace]:
    """As `normalize`, and before it the ONNX model (of onnx_ir) of the graph.

    None of a file; of a model of another framework than PyTorch the bytes of the model. `run` is
    what runs such a model where sizes or paths depend on data; without it they stay open.
    """
    found = _program(source, setting, observed, run)
    if not found[1].outputs:
        what = "the model returns no tensor, and only work that a result depends on is counted"
        warnings.warn(what, CrossflopsWarning, stacklevel=2)
    return found


def _program(
    source: Source, setting: Setting, observed: Sequence[Setting], run: Run | None
) -> tuple[Any, Graph, Trace]:
    if isinstance(source.model, OnnxFile):
        return None, *onnx.normalize(source.model, setting)
    if (name := framework_of(source.model)) is not None:
        own = frameworks.package(name)
        said: dict[str, Any] = {}
        if name in frameworks.CONTROLLED:
            said = {
                "trips": source.trips,
                "branches": source.branches,
                "arrays": source.arrays,
                "run": run,
            }
        with converting(name):
            found: tuple[bytes, Graph, Trace] = own.program(
                source.model, source.args, source.kwargs, setting, observed, **said
            )
        return found
    from crossflops.frontends import pytorch
    from crossflops.frontends.pytorch.model import try_out

    model, args, kwargs = source.model, source.args, source.kwargs
    with converting("torch"):
        exported, graph, trace = pytorch.program(model, args, kwargs, setting, observed)
    if mixed(trace) is not None:
        try_out(model, args, kwargs, setting)
    return exported, graph, trace


def require(model: Any) -> None:
    """The framework is found from the object, without importing what is not there yet."""
    if is_pytorch(model):
        for extra in ("onnx", "onnxscript"):
            try:
                __import__(extra)
            except ImportError as error:
                raise MissingExtraError(
                    f"{extra} is needed to export a PyTorch model",
                    "pip install 'crossflops[torch]'",
                ) from error
        return
    if (name := framework_of(model)) is not None:
        frameworks.package(name).require(model)
        return
    raise NormalizeError(
        f"the model is of the type {_kind(model)}, which cannot be read",
        f"give a model of {frameworks.NAMES}, or a callable that returns one, or (model, inputs)",
    )


def _kind(value: Any) -> str:
    kind = type(value)
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"
