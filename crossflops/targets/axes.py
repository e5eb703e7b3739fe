"""Give named axes of the inputs of a model other sizes, in any framework.

A caller who has tensors names axes of them: `vary={"seq": {"input_ids": 1}}`, or as a text
`seq=input_ids:1`. A tensor of another size has the values of the given one again and again, so
that indices stay valid.
"""

import copy
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from crossflops.errors import InputError
from crossflops.frontends import Source, require_frontend
from crossflops.frontends.batches import is_keyed_object, record_values
from crossflops.frontends.inputs import PLAIN

_HINT = 'name an axis of every input, such as seq=1, or of some, such as "seq=input_ids:1,mask:1"'
_CALLS = ("forward", "call")


class InputAxis(NamedTuple):
    """An axis of one input by its name, "" for that axis of every input."""

    input: str
    axis: int

    @property
    def text(self) -> str:
        """The axis as it is written: "1", or "input_ids:1"."""
        return f"{self.input}:{self.axis}" if self.input else str(self.axis)


Axes: TypeAlias = tuple[InputAxis, ...]
BATCH: Axes = (InputAxis("", 0),)


def parse_named_axes(text: str) -> tuple[str, Axes]:
    """Return (name, axes) of a text such as "seq=input_ids:1,mask:1"; no axes of a name alone.

    Raises InputError.

    >>> parse_named_axes("seq=ids:1,mask:-1")
    ('seq', (InputAxis(input='ids', axis=1), InputAxis(input='mask', axis=-1)))
    >>> parse_named_axes("batch=0"), parse_named_axes("batch")
    (('batch', (InputAxis(input='', axis=0),)), ('batch', ()))
    """
    name, equals, listed = text.partition("=")
    axes = []
    for part in listed.split(",") if equals else ():
        where, _, number = part.strip().rpartition(":")
        if not re.fullmatch(r"-?\d+", number):
            raise InputError(f"cannot read the axis {part.strip()!r} of --vary {text}", _HINT)
        axes.append(InputAxis(where, int(number)))
    return name, tuple(axes)


def axes_from_mapping(
    axes: Mapping[str, int | Mapping[str, int | Sequence[int]] | None],
) -> dict[str, Axes]:
    """Return the axes by name of what a caller in Python wrote. Raises InputError.

    >>> axes_from_mapping({"seq": {"ids": 1, "mask": [1, 2]}, "width": None})["seq"][-1].text
    'mask:2'
    """
    return {name: tuple(_axes_of_value(name, value)) for name, value in axes.items()}


def _axes_of_value(name: str, value: Any) -> Iterator[InputAxis]:
    """Yield the axes of a number, or of a mapping of inputs to numbers. Raises InputError."""
    if value is None:
        return
    rows = value.items() if isinstance(value, Mapping) else (("", value),)
    for where, numbers in rows:
        for number in numbers if isinstance(numbers, list | tuple) else (numbers,):
            if not isinstance(number, int) or isinstance(number, bool):
                raise InputError(
                    f"the axes of {name!r} in vary must be whole numbers, got {number!r}",
                    'write {"batch": 0} for an axis of every input, or '
                    '{"seq": {"input_ids": 1}} for that of one',
                )
            yield InputAxis(str(where), number)


def axes_text(name: str, axes: Axes) -> str:
    """Return a name with its axes as a text that `parse_named_axes` reads."""
    return f"{name}={','.join(axis.text for axis in axes)}" if axes else name


def with_batch_size(source: Source, batch: int) -> Source:
    """Return the source with inputs of this size along their first axis."""
    return with_axis_sizes(source, {"batch": BATCH}, {"batch": batch})


def axis_size_of_source(source: Source, name: str, axes: Axes) -> int:
    """Return the size that these axes of a model's inputs have.

    Raises InputError for an input or an axis that is not there, and for axes of unequal sizes.
    """
    sizes = {
        input_name: shape[axis]
        for input_name, (shape, own) in _axes_of_inputs(source, name, axes).items()
        for axis in own
    }
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{input_name} has {size}" for input_name, size in sizes.items())
        raise InputError(
            f"the axes of {name} do not have one size: {listed}",
            "name axes of one size, and give inputs that agree",
        )
    return next(iter(sizes.values()))


def with_axis_sizes(source: Source, axes: Mapping[str, Axes], sizes: Mapping[str, int]) -> Source:
    """Return the source with inputs whose named axes have these sizes. Raises InputError for an
    input or an axis that is not there.
    """
    changes: dict[str, dict[int, int]] = {}
    for name, size in sizes.items():
        for input_name, (_, own) in _axes_of_inputs(source, name, axes[name]).items():
            changes.setdefault(input_name, {}).update(dict.fromkeys(own, size))
    resize = require_frontend(source.model).with_axis_size

    def resize_input(input_name: str, tensor: Any) -> Any:
        """Return an input with its new sizes."""
        for axis, size in changes.get(input_name, {}).items():
            tensor = (_resize_array if _is_array(tensor) else resize)(tensor, axis, size)
        return tensor

    args, kwargs = _map_inputs(source.args, source.kwargs, resize_input)
    arrays = source.arrays and _map_inputs(*source.arrays, resize_input)
    return msgspec.structs.replace(source, args=args, kwargs=kwargs, arrays=arrays)


def _is_array(value: Any) -> bool:
    """Return whether a value is an array of NumPy, which stands beside the placeholder of it."""
    return type(value).__module__ == "numpy"


def _resize_array(array: Any, axis: int, size: int) -> Any:
    """Return an array of NumPy with another size along an axis, its values again and again."""
    import numpy as np

    return np.take(array, np.arange(size) % array.shape[axis], axis)


def _axes_of_inputs(
    source: Source, name: str, axes: Axes
) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return {input: (its shape, those of its axes that the name means)}. Raises InputError."""
    shapes: dict[str, tuple[int, ...]] = {}

    def note_shape(input_name: str, tensor: Any) -> Any:
        """Note the shape of an input, and return the input."""
        shapes[input_name] = tuple(tensor.shape)
        return tensor

    _map_inputs(source.args, source.kwargs, note_shape)
    parameters = _parameter_names(source)
    common = _shapes_without_parameters(source, shapes)
    own_axes: dict[str, tuple[int, ...]] = {}
    for where, axis in axes:
        one_input = _input_with_argument_name(where, parameters)
        input_names = [one_input] if where else _inputs_with_first_size(common, axis)
        if not input_names or not all(
            _has_axis(shapes.get(input_name, ()), axis) for input_name in input_names
        ):
            raise _missing_axis_error(name, where, axis, shapes, parameters)
        for input_name in input_names:
            index = axis % len(shapes[input_name])
            own_axes[input_name] = (*own_axes.get(input_name, ()), index)
    if empty := next((input_name for input_name in own_axes if 0 in shapes[input_name]), ""):
        raise InputError(
            f"the input {empty} has no elements, and {name} names an axis of it",
            "give an input with elements",
        )
    return {input_name: (shapes[input_name], own) for input_name, own in own_axes.items()}


def _has_axis(shape: tuple[int, ...], axis: int) -> bool:
    """Return whether a shape has an axis, which is counted from the end if it is negative."""
    return -len(shape) <= axis < len(shape)


def _shapes_without_parameters(
    source: Source, shapes: Mapping[str, tuple[int, ...]]
) -> Mapping[str, tuple[int, ...]]:
    """Return the shapes without those of a tree of parameters, which a function may get beside its
    inputs.
    """
    outer = {input_name: shape for input_name, shape in shapes.items() if "." not in input_name}
    return outer if outer and require_frontend(source.model).takes_parameters else shapes


def _inputs_with_first_size(shapes: Mapping[str, tuple[int, ...]], axis: int) -> list[str]:
    """Return the inputs whose size along an axis is that of the first input with this axis."""
    having = {
        input_name: shape[axis] for input_name, shape in shapes.items() if _has_axis(shape, axis)
    }
    first = next(iter(having.values()), None)
    return [input_name for input_name, size in having.items() if size == first]


def _missing_axis_error(
    name: str,
    where: str,
    axis: int,
    shapes: Mapping[str, tuple[int, ...]],
    parameters: Mapping[str, str],
) -> InputError:
    """Return the error for an input or an axis that the model does not have."""
    words = {input_name: word for word, input_name in parameters.items()}
    listed = ", ".join(
        f"{_input_with_argument_name(input_name, words)} ({'x'.join(map(str, shape)) or 'scalar'})"
        for input_name, shape in shapes.items()
    )
    known = f"the inputs are {listed}" if listed else "give inputs with shapes"
    if not where:
        return InputError(f"no input has an axis {axis}, which {name} names", known)
    if _input_with_argument_name(where, parameters) not in shapes:
        return InputError(f"there is no input {where}, of which {name} names an axis", known)
    return InputError(f"the input {where} has no axis {axis}, which {name} names", known)


def _input_with_argument_name(input_name: str, names: Mapping[str, str]) -> str:
    """Return the name of an input with another name for the argument that it is in.

    >>> _input_with_argument_name("batch.x", {"batch": "0"})
    '0.x'
    """
    argument, dot, rest = input_name.partition(".")
    return f"{names.get(argument, argument)}{dot}{rest}"


def _parameter_names(source: Source) -> dict[str, str]:
    """Return {name of a parameter: index of the positional input that it gets}; {} where the
    model does not tell.
    """
    functions = (getattr(source.model, name, None) for name in _CALLS)
    function = next(filter(callable, functions), source.model)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (ValueError, TypeError):
        return {}
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return {name: str(index) for index, name in enumerate(names[: len(source.args)])}


# Inputs at any depth, by their names: "0", "input_ids", "batch.x".


def _map_inputs(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], change: Callable[[str, Any], Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return (args, kwargs) with every tensor replaced by change(name, tensor)."""
    positional = tuple(_map_value(str(index), value, change) for index, value in enumerate(args))
    named = {name: _map_value(name, value, change) for name, value in kwargs.items()}
    return positional, named


def _map_value(input_name: str, value: Any, change: Callable[[str, Any], Any]) -> Any:
    """Return a value with every tensor in it replaced by change(name, tensor)."""
    if isinstance(value, PLAIN):
        return value
    if hasattr(value, "shape"):
        return change(input_name, value)
    stored = record_values(value)
    if stored is not None:
        items = {
            name: _map_value(f"{input_name}.{name}", item, change) for name, item in stored.items()
        }
        return _with_values(value, items)
    if isinstance(value, list | tuple):
        parts = [
            _map_value(f"{input_name}.{index}", item, change) for index, item in enumerate(value)
        ]
        return type(value)(parts)
    return value


def _with_values(value: Any, items: Mapping[Any, Any]) -> Any:
    """Return a copy of a container with these values by name."""
    if isinstance(value, tuple):
        return type(value)(*items.values())
    if type(value) is dict:
        return dict(items)
    copied = copy.copy(value)
    is_by_key = isinstance(value, Mapping) or is_keyed_object(value)
    if not is_by_key and dataclasses.is_dataclass(value):
        for name, item in items.items():
            object.__setattr__(copied, name, item)
        return copied
    if not hasattr(copied, "__setitem__"):
        return type(value)(items)
    for name, item in items.items():
        copied[name] = item
    return copied
