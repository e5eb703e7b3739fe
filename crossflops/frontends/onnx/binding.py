"""Describe an ONNX file to be counted, and bind the open sizes of its inputs.

Named and given dimensions are bound: every input gets a shape of numbers before anything else.
"""

import shlex
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from crossflops.errors import CrossflopsWarning, InputError, TargetError
from crossflops.frontends.onnx.dimensions import formula_names, formula_size
from crossflops.ir.graph import Control, TensorSpec
from crossflops.ir.measurement import Observation
from crossflops.load.payload import ELEMENT_TYPES, tensor_dims_problem
from crossflops.load.validation import clear_negative_sizes


class OnnxFile(msgspec.Struct, frozen=True, kw_only=True):
    """An ONNX file that is not opened yet, and the caller's options for its open sizes.

    `dims` binds named dimensions, `specs` replaces shapes of inputs, `control` says how often
    loops run and which branches are taken where the graph does not. Sizes that a run has `seen`
    fill the remaining open ones. With `inlined` false every call of a function stays one node, as
    in the file.
    """

    path: str
    specs: tuple[TensorSpec, ...] = ()
    dims: Mapping[str, int] = {}
    control: Control = Control()
    seen: Observation | None = None
    inlined: bool = True


_HINT = "bind dimensions with --dim NAME=SIZE, or give a whole shape with --input NAME=1x3x224x224"


class _TypedOptions(NamedTuple):
    """The caller's options, to show a command line with these and the missing ones."""

    path: str
    dims: Mapping[str, int]
    specs: Sequence[TensorSpec]

    def command_line(self, dims: Iterable[str], shapes: Iterable[str]) -> str:
        """Return a command line with the caller's options, sizes of 1 for `dims`, and `shapes`."""
        provided = (
            (spec.name, "x".join(map(str, spec.shape or ())) or "scalar") for spec in self.specs
        )
        words = [
            *(("--dim", f"{name}={size}") for name, size in self.dims.items()),
            *(("--input", shape if n.isdecimal() else f"{n}={shape}") for n, shape in provided),
            *(("--dim", f"{name}=1") for name in dims if name not in self.dims),
            *(("--input", shape) for shape in shapes),
        ]
        flat = (word for pair in words for word in pair)
        return shlex.join(["crossflops", "count", self.path, *flat])


def bind_input_sizes(
    graph: Any, dims: Mapping[str, int], specs: Sequence[TensorSpec], path: str = "model.onnx"
) -> dict[str, int]:
    """Write the caller's sizes into a graph's inputs, in place; return the size of each name.

    A shape from `specs`, by input name or index, also binds the dimension names of that input. The
    element type stays that of the file. A name like "past + seq" follows from its parts where it
    is not bound itself. Raises InputError for an unknown name, for a contradicting rank or size,
    and for unbound sizes, with a command line that binds them.
    """
    inputs = inputs_given_by_caller(graph)
    for value in inputs:
        clear_negative_sizes(value.type)
    provided = _input_specs_by_name(inputs, specs)
    bound = dict(dims)
    for value in inputs:
        if value.name in provided:
            _collect_dimension_sizes(value, provided[value.name].shape or (), bound)
    names = {dim.dim_param for value in inputs for dim in _input_dims(value) if dim.dim_param}
    inside = {part for name in names for part in formula_names(name)}
    for name, size in dims.items():
        if name not in names | inside:
            known = ", ".join(sorted(names))
            raise InputError(
                f"no input of the model has a dimension {name!r}",
                f"name one of these dimensions with --dim and --vary: {known}"
                if known
                else "leave out --dim and --vary: no dimension has a name",
            )
        if size < 0:
            raise InputError(f"dimension {name!r} must be at least 0, got {size}", _HINT)
    for name in sorted(names - bound.keys()):
        size_of = formula_size(name, bound) if formula_names(name) else None
        if size_of is not None:
            bound[name] = _require_not_negative(name, size_of)
    for value in inputs:
        spec = provided.get(value.name)
        if spec is not None:
            _warn_of_input_size(path, value.name, _file_input_sizes(value), spec.shape or ())
            _warn_of_input_type(path, value, spec.dtype)
        _write_input_sizes(value, None if spec is None else spec.shape, bound)
    _require_input_sizes(inputs, _TypedOptions(path, dims, specs))
    return {name: bound[name] for name in sorted(bound) if name in names | inside}


def _require_not_negative(name: str, size: int) -> int:
    """Return `size`, the size of the named dimension. Raises InputError if it is negative."""
    if size < 0:
        raise InputError(
            f"dimension {name!r} is computed from other dimensions, and would be {size}", _HINT
        )
    return size


def load_bound_model(file: OnnxFile) -> Any:
    """Return a file's ONNX model with its weights, and the caller's sizes in its inputs.

    Raises InputError as `bind_input_sizes` does, TargetError where the file or its data cannot be
    read.
    """
    import onnx

    try:
        model = onnx.load(file.path)
    except Exception as error:
        message = f"{file.path} cannot be read with its weights: {error}"
        raise TargetError(
            message, "put its external data files into the folder of the model"
        ) from error
    bind_input_sizes(model.graph, file.dims, file.specs, file.path)
    return model


def has_declared_input_sizes(graph: Any, specs: Sequence[TensorSpec]) -> bool:
    """Return whether the caller's shapes have the sizes that the file declares, axis 0 excepted.

    `bind_input_sizes` takes any shape, so that a file can be counted at other sizes than it was
    made for. Raises InputError for an unknown input.
    """
    inputs = inputs_given_by_caller(graph)
    provided = _input_specs_by_name(inputs, specs)
    for value in inputs:
        stated = [dim.dim_value for dim in _input_dims(value)]
        shape = provided[value.name].shape if value.name in provided else None
        if shape is not None and len(shape) != len(stated):
            return False
        pairs = zip(stated[1:], (shape or stated)[1:], strict=True)
        if any(size and size != other for size, other in pairs):
            return False
    return True


def inputs_given_by_caller(graph: Any) -> list[Any]:
    """Return the inputs of a graph that a caller gives: those that the file does not store."""
    stored = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in stored]


def _input_specs_by_name(inputs: list[Any], specs: Sequence[TensorSpec]) -> dict[str, TensorSpec]:
    """Return the caller's specs by name of the file's input. Raises InputError if unknown."""
    names = [value.name for value in inputs]
    known = (
        f"the inputs of the model are: {', '.join(names)}"
        if names
        else "leave out --input: the model has no inputs"
    )
    provided: dict[str, TensorSpec] = {}
    for spec in specs:
        index = int(spec.name) if spec.name.isdecimal() and spec.name not in names else -1
        name = names[index] if 0 <= index < len(names) else spec.name
        if name not in names and index >= 0:
            position = index + 1
            raise InputError(
                f"--input gives a shape for input number {position}, but the number of inputs of "
                f"the model is {len(names)}",
                known,
            )
        if name not in names:
            raise InputError(
                f"the model has no input {name!r}",
                known,
            )
        if name in provided:
            raise InputError(
                f"the input {name!r} is given twice",
                f"give one --input for each of: {', '.join(names)}",
            )
        assert spec.shape is not None
        provided[name] = spec
    return provided


def _input_dims(value: Any) -> Any:
    """Return the dimensions (protobuf messages) of an input's shape."""
    return value.type.tensor_type.shape.dim


def _collect_dimension_sizes(value: Any, shape: tuple[int, ...], bound: dict[str, int]) -> None:
    """Add the size of each named dimension in the input's shape to `bound`. Raises InputError."""
    if value.type.WhichOneof("value") != "tensor_type":
        raise InputError(
            f"input {value.name!r} is not a tensor, so --input cannot give it a shape",
            f"leave out --input {value.name}; bind its dimensions with --dim NAME=SIZE",
        )
    if not value.type.tensor_type.HasField("shape"):
        return
    if len(_input_dims(value)) != len(shape):
        sizes = [
            dim.dim_param or (str(dim.dim_value) if dim.HasField("dim_value") else "?")
            for dim in _input_dims(value)
        ]
        raise InputError(
            f"input {value.name!r} has {len(sizes)} dimensions, [{', '.join(sizes)}], but the "
            f"given shape has {len(shape)}",
            "give all of its dimensions, such as "
            f"--input {value.name}={'x'.join('1' * len(sizes)) or 'scalar'}",
        )
    for dim, size in zip(_input_dims(value), shape, strict=True):
        if dim.dim_param and bound.setdefault(dim.dim_param, size) != size:
            raise InputError(
                f"dimension {dim.dim_param!r} is given two sizes: {size} for {value.name!r}, and "
                f"{bound[dim.dim_param]} by --dim, --vary or an --input",
                _HINT,
            )


def _file_input_sizes(value: Any) -> tuple[int | None, ...]:
    """Return the sizes that the file declares for an input; None for one that is no number."""
    return tuple(
        dim.dim_value if dim.WhichOneof("value") == "dim_value" else None
        for dim in _input_dims(value)
    )


def _write_input_sizes(
    value: Any, shape: tuple[int, ...] | None, bound: Mapping[str, int]
) -> None:
    """Write the given shape and the bound sizes into the declared type of an input, in place."""
    if shape is not None:
        dims = value.type.tensor_type.shape.dim
        del dims[:]
        for size in shape:
            dims.add().dim_value = size
    for dim in _input_dims(value):
        if dim.dim_param in bound:
            dim.dim_value = bound[dim.dim_param]
    if wrong := tensor_dims_problem(tuple(dim.dim_value for dim in _input_dims(value))):
        raise InputError(f"input {value.name!r} {wrong}", _HINT)


def _require_input_sizes(inputs: list[Any], stated: _TypedOptions) -> None:
    """Raise InputError, with a command line as its hint, if a size of an input is not a number."""
    named: list[str] = []
    missing: list[str] = []
    examples: list[str] = []
    for value in inputs:
        if value.type.WhichOneof("value") != "tensor_type":
            continue
        if not value.type.tensor_type.HasField("shape"):
            missing.append(f"{value.name} (no shape)")
            examples.append(f"{value.name}=1x1")
        unbound = [dim.WhichOneof("value") != "dim_value" for dim in _input_dims(value)]
        if not any(unbound):
            continue
        words = [
            dim.dim_param or "?" if open_ else str(dim.dim_value)
            for dim, open_ in zip(_input_dims(value), unbound, strict=True)
        ]
        missing.append(f"{value.name} [{', '.join(words)}]")
        open_names = (dim.dim_param for dim in _input_dims(value) if dim.dim_param)
        free = (part for name in open_names for part in formula_names(name) or (name,))
        named += [name for name in dict.fromkeys(free) if name not in named]
        if "?" in words:
            sizes = (word if word.isdecimal() else "1" for word in words)
            examples.append(f"{value.name}={'x'.join(sizes)}")
    if missing:
        raise InputError(
            f"sizes of inputs are unknown: {'; '.join(missing)}",
            f"give these sizes, with your own numbers: {stated.command_line(named, examples)}",
        )


# Sizes that the file fixes and the caller overrides.


def warn_about_file(path: str, sentence: str) -> None:
    """Emit a CrossflopsWarning about a file."""
    warnings.warn_explicit(sentence, CrossflopsWarning, path, 0)


def _warn_of_input_size(
    path: str, name: str, stated: tuple[int | None, ...], shape: tuple[int, ...]
) -> None:
    """Warn if an input is counted at another size than the file declares for it.

    An input whose rank the file leaves open has no fixed sizes.
    """
    if not stated:
        return
    if any(fixed not in (None, size) for fixed, size in zip(stated, shape, strict=True)):
        fixed = "x".join("?" if size is None else str(size) for size in stated)
        warn_about_file(
            path,
            (
                f"the file declares the shape {fixed} for input {name!r}, but it is counted with "
                f"{shape_text(shape)}"
            ),
        )


def _warn_of_input_type(path: str, value: Any, dtype: str) -> None:
    """Warn if the caller gives an input another element type than the file declares for it."""
    fixed = ELEMENT_TYPES.get(value.type.tensor_type.elem_type, "")
    if fixed and dtype not in (fixed, "float32", ""):
        warn_about_file(
            path,
            f"input {value.name!r} of the file is {fixed}, so it cannot be counted as {dtype}",
        )


def shape_text(shape: tuple[int, ...] | None) -> str:
    """Return a shape as text for messages, such as "1x3x224x224", or "a scalar"."""
    return "x".join(map(str, shape or ())) or "a scalar"
