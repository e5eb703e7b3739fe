"""A target -> a model with inputs -> its graph, and the trace of what was called."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from crossflops.core.graph import Graph
from crossflops.core.tensor import TensorSpec
from crossflops.core.trace import Setting, Trace
from crossflops.errors import CrossflopsWarning, InputError, MissingExtraError, NormalizeError
from crossflops.normalize import frameworks, onnx_file
from crossflops.normalize import inputs as _inputs
from crossflops.normalize.conversion import converting
from crossflops.normalize.decided import Run
from crossflops.normalize.dtypes import mixed
from crossflops.normalize.frameworks import framework_of, is_pytorch, opened
from crossflops.normalize.onnx_file import OnnxFile
from crossflops.normalize.targets import build, refuse_url
from crossflops.normalize.tensorflow.quiet import quiet

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
    The last two may be about a model of JAX, too.
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
    if dims:
        raise InputError("--dim is for ONNX files", "give --input for other targets")
    with quiet():
        model, own = build(target, arguments, allow_pickle)
        _require(model)
    if (name := framework_of(model)) is not None:
        arrays = frameworks.arrays_for(inputs_file, specs, own)
        found = frameworks.arguments_for(name, specs, inputs_file, own)
        values = _whence(inputs_file, specs, arrays)
        return controlled(Source(model, *found, values=values, arrays=arrays), trips, branches)
    _refuse_control(trips, branches)
    if inputs_file is not None:
        given = _inputs.from_file(inputs_file)
    elif specs or own is None:
        given = _inputs.make(model, specs)
    else:
        given = _inputs.arguments(own)
    values = _whence(inputs_file, specs, own)
    return msgspec.structs.replace(_source(model, *given, owned=True), values=values)


def _whence(inputs_file: str | None, specs: Sequence[TensorSpec], own: Any) -> str:
    """Where the inputs of a target come from, in words."""
    made_up = specs or own is None
    return inputs_file or (_inputs.MADE_UP if made_up else "the inputs of the target")


def controlled(
    source: Source, trips: Mapping[str, int] | None, branches: Mapping[str, str] | None
) -> Source:
    """The same model, with what is said of its loops and branches.

    Raises InputError where the framework has no names for them.
    """
    if framework_of(source.model) not in frameworks.CONTROLLED:
        _refuse_control(trips, branches)
    return msgspec.structs.replace(source, trips=trips or {}, branches=branches or {})


def _refuse_control(trips: object, branches: object) -> None:
    if trips or branches:
        what = "--trips and --branch are for ONNX files and models of JAX, Keras and TensorFlow"
        raise InputError(what, "leave them out")


def is_file(target: str) -> bool:
    """Whether the target is an ONNX file."""
    return target.lower().endswith(".onnx")


def from_object(model: Any, inputs: Any) -> Source:
    """A model object with inputs as Python callers give them."""
    model, example = opened(model)
    if example is not None and isinstance(inputs, tuple | list | dict) and not inputs:
        inputs = example
    _require(model)
    if (name := framework_of(model)) is not None:
        arrays = frameworks.arrays_for(None, (), inputs)
        values = GIVEN if arrays is not None else _inputs.MADE_UP
        own = frameworks.arguments_for(name, (), None, inputs)
        return Source(model, *own, values=values, arrays=arrays)
    return _source(model, *_inputs.arguments(inputs), owned=False)


def make(model: Any, specs: Sequence[TensorSpec]) -> Any:
    """Inputs of these specs, as `from_object` takes them, in the framework of the model."""
    if (name := framework_of(model)) is not None:
        return frameworks.make(name, specs)
    return _inputs.make(model, specs)


def _source(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], owned: bool) -> Source:
    from crossflops.normalize.pytorch.model import ready

    _inputs.check(model, args, kwargs)
    return Source(ready(model, args, kwargs, owned), args, kwargs)


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
        return None, *onnx_file.normalize(source.model, setting)
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
    from crossflops.normalize import pytorch
    from crossflops.normalize.pytorch.model import try_out

    model, args, kwargs = source.model, source.args, source.kwargs
    with converting("torch"):
        exported, graph, trace = pytorch.program(model, args, kwargs, setting, observed)
    if mixed(trace) is not None:
        try_out(model, args, kwargs, setting)
    return exported, graph, trace


def _require(model: Any) -> None:
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
