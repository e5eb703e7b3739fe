"""What a person typed, or the object that Python gives -> a model with its inputs."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from crossflops.errors import InputError
from crossflops.frontends import GIVEN, Source, frameworks, require
from crossflops.frontends import inputs as _inputs
from crossflops.frontends.frameworks import framework_of, opened
from crossflops.frontends.onnx import OnnxFile
from crossflops.frontends.tensorflow.quiet import quiet
from crossflops.ir.tensor import TensorSpec
from crossflops.targets.target import build, refuse_url


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
        require(model)
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
    require(model)
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
    from crossflops.frontends.pytorch.model import ready

    _inputs.check(model, args, kwargs)
    return Source(ready(model, args, kwargs, owned), args, kwargs)
