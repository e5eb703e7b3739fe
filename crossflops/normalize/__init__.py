"""A target -> a model with inputs -> its graph, and the trace of what was called."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from crossflops.core.graph import Graph
from crossflops.core.tensor import TensorSpec
from crossflops.core.trace import Setting, Trace
from crossflops.errors import InputError, MissingExtraError, NormalizeError
from crossflops.normalize import inputs as _inputs
from crossflops.normalize import onnx_file
from crossflops.normalize.dtypes import mixed
from crossflops.normalize.jax.kinds import is_model as is_jax
from crossflops.normalize.onnx_file import OnnxFile
from crossflops.normalize.targets import build, refuse_url
from crossflops.normalize.tensorflow.kinds import is_model as is_tensorflow


class Source(msgspec.Struct, frozen=True):
    """A model object with the arguments that it is called with."""

    model: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def load(
    target: str,
    arguments: Mapping[str, object],
    specs: Sequence[TensorSpec],
    inputs_file: str | None = None,
    allow_pickle: bool = False,
    dims: Mapping[str, int] | None = None,
    trips: Mapping[str, int] | None = None,
    branches: Mapping[str, str] | None = None,
) -> Source:
    """Build the model of a target, with inputs from a file, from specs, or the target's own.

    `dims`, `trips` and `branches` are about an ONNX file, which is not opened yet: see OnnxFile.
    Raises TargetError, InputError, MissingExtraError.
    """
    refuse_url(target)
    if inputs_file is not None and specs:
        raise InputError("--input and --inputs contradict each other", "leave one out")
    if is_file(target):
        if arguments or inputs_file is not None:
            raise InputError("an ONNX file is counted by shapes alone", "give --input NAME=SHAPE")
        file = OnnxFile(
            path=target,
            specs=tuple(specs),
            dims=dims or {},
            trips=trips or {},
            branches=branches or {},
        )
        return Source(file, (), {})
    if dims or trips or branches:
        what = "--dim, --trips and --branch are for ONNX files"
        raise InputError(what, "give --input for other targets")
    model, own = build(target, arguments, allow_pickle)
    _require(model)
    if not _is_pytorch(model):
        return _of_shapes(model, specs, inputs_file, own)
    if inputs_file is not None:
        given = _inputs.from_file(inputs_file)
    elif specs or own is None:
        given = _inputs.make(model, specs)
    else:
        given = _inputs.arguments(own)
    return _source(model, *given, owned=True)


def _of_shapes(
    model: Any, specs: Sequence[TensorSpec], inputs_file: str | None, own: Any
) -> Source:
    """A model of TensorFlow or JAX, which is traced on the shapes of its inputs alone."""
    inputs = _room(model)
    if inputs_file is not None:
        return Source(model, *inputs.from_file(inputs_file))
    if specs or own is None:
        return Source(model, *inputs.make(specs))
    return Source(model, *inputs.given(own))


def is_file(target: str) -> bool:
    """Whether the target is an ONNX file."""
    return target.lower().endswith(".onnx")


def from_object(model: Any, inputs: Any) -> Source:
    """A model object with inputs as Python callers give them."""
    _require(model)
    if not _is_pytorch(model):
        return _of_shapes(model, (), None, inputs)
    return _source(model, *_inputs.arguments(inputs), owned=False)


def make(model: Any, specs: Sequence[TensorSpec]) -> Any:
    """Inputs of these specs, as `from_object` takes them, in the framework of the model."""
    return _inputs.make(model, specs) if _is_pytorch(model) else _room(model).make(specs)


def _room(model: Any) -> Any:
    """How inputs are made for a model that is traced on shapes alone."""
    if is_tensorflow(model):
        from crossflops.normalize.tensorflow import inputs as of_tensorflow

        return of_tensorflow
    from crossflops.normalize.jax import inputs as of_jax

    return of_jax


def _source(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], owned: bool) -> Source:
    from crossflops.normalize.pytorch.model import ready

    _inputs.check(model, args, kwargs)
    return Source(ready(model, args, kwargs, owned), args, kwargs)


def normalize(
    source: Source, setting: Setting, observed: Sequence[Setting] = ()
) -> tuple[Graph, Trace]:
    """The graph of a model and the trace of its calls.

    See `pytorch.program`, `tensorflow.program`, `jax.program` and, for a file,
    `onnx_file.normalize`.
    """
    return program(source, setting, observed)[1:]


def program(
    source: Source, setting: Setting, observed: Sequence[Setting] = ()
) -> tuple[Any, Graph, Trace]:
    """As `normalize`, and before it the ONNX model (of onnx_ir) of the graph.

    None of a file; of a model of TensorFlow or JAX the bytes of the model.
    """
    if isinstance(source.model, OnnxFile):
        return None, *onnx_file.normalize(source.model, setting)
    if is_tensorflow(source.model):
        from crossflops.normalize import tensorflow

        return tensorflow.program(source.model, source.args, source.kwargs, setting)
    if not _is_pytorch(source.model):
        from crossflops.normalize import jax

        return jax.program(source.model, source.args, source.kwargs, setting)
    from crossflops.normalize import pytorch
    from crossflops.normalize.pytorch.model import try_out

    model, args, kwargs = source.model, source.args, source.kwargs
    exported, graph, trace = pytorch.program(model, args, kwargs, setting, observed)
    if mixed(trace) is not None:
        try_out(model, args, kwargs, setting)
    return exported, graph, trace


def _require(model: Any) -> None:
    """The framework is found from the object, without importing what is not there yet."""
    if _is_pytorch(model):
        for extra in ("onnx", "onnxscript"):
            try:
                __import__(extra)
            except ImportError as error:
                raise MissingExtraError(
                    f"{extra} is needed to export a PyTorch model",
                    "pip install 'crossflops[torch]'",
                ) from error
        return
    if is_tensorflow(model):
        from crossflops.normalize.tensorflow.model import require

        require()
        return
    if is_jax(model):
        from crossflops.normalize.jax.model import require as require_jax

        require_jax()
        return
    raise NormalizeError(
        f"the model is of the type {_kind(model)}, which cannot be read",
        "give a model of PyTorch, Keras, TensorFlow or JAX, or a callable that returns one",
    )


def _is_pytorch(model: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _kind(value: Any) -> str:
    kind = type(value)
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"
