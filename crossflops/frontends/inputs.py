"""Read inputs from text (`--input input_ids=1x128:int64`), from Python, or from a file."""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from crossflops.errors import InputError
from crossflops.ir.graph import DIGITS, TensorSpec
from crossflops.ir.ledger import InputInfo

HINT = "write --input 1x3x224x224, or --input input_ids=1x128:int64"
_NAMED_SIZES = "a name in a shape, batchx128, needs --dim batch=8 or --vary batch"
_SIZE_NAME = r"(?:^|[=x,\s(\[])[A-Za-z_]\w*(?=[x,\s)\]:]|$)"
# Compiled when an input is read, since a count of a file needs none.
_TEXT = r"(?:(?P<name>.+)=)?(?P<shape>scalar|\d+(?:x\d+)*)(?::(?P<dtype>\w+))?"
# A shape as Python prints one, or with commas: (1, 3, 32, 32), [1, 3], 1,3,224,224, 1 x 3
_DIMS = r"\d+(?:(?:\s*[x×*,]\s*|\s+)\d+)*"
_LISTED = (
    rf"(?i)(?:^|(?<==))\s*(?:torch\.size\()?"
    rf"(?:\(\s*({_DIMS})?\s*,?\s*\)|\[\s*({_DIMS})?\s*,?\s*\]|({_DIMS}))\)?\s*(?=:|$)"
)
DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8",
    "bool", "complex64", "complex128", "string",
)  # fmt: skip

Arguments: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]  # positional, and keywords
# Where the values of inputs come from, as reports say it.
GIVEN = "the inputs that were given"
OF_TARGET = "the inputs of the target"
MADE_UP = "random floats (seed 0), and zeros of other types"
PLAIN = (bool, int, float, complex, str, bytes, type(None))


class ProvidedInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs from a caller: an .npz file, specs, or values as Python callers give them.

    Without any of these the inputs are made up from an empty list of specs. `known` are the values
    of some specs, as nested lists by name. `origin` says where values come from.
    """

    file: str | None = None
    specs: tuple[TensorSpec, ...] = ()
    known: Mapping[str, Any] = {}
    values: Any = None
    origin: str = GIVEN

    @property
    def have_only_shapes(self) -> bool:
        """Whether the inputs have shapes only: neither a file nor the caller has their values."""
        return self.file is None and (bool(self.specs) or self.values is None)

    def origin_text(self, values: Any) -> str:
        """Return a text on where inputs come from; `values` is None if only shapes are given."""
        made_up = self.specs or values is None
        known = f"; {', '.join(self.known)} as the model needs them" if self.known else ""
        return self.file or (f"{MADE_UP}{known}" if made_up else self.origin)

    def arrays(self) -> Arguments | None:
        """Return the values of the inputs as arrays, or None if only shapes were given."""
        if self.file is not None:
            return arguments_from_npz(self.file, lambda array: array)
        if self.have_only_shapes:
            return None
        provided = to_call_arguments(self.values)
        return provided if _has_any_value(provided) else None


def _has_any_value(provided: Any) -> bool:
    """Return whether any input has values: it is neither a shape nor a plain number."""
    if isinstance(provided, Mapping):
        return any(map(_has_any_value, provided.values()))
    if isinstance(provided, list | tuple):
        return any(map(_has_any_value, provided))
    if isinstance(provided, PLAIN):
        return False
    return hasattr(provided, "__array__") or not hasattr(provided, "shape")


def parse_inputs(texts: Sequence[str]) -> tuple[TensorSpec, ...]:
    """Return the specs of the inputs in `--input` texts; the nth without a name is named "n".

    Raises InputError.
    """
    specs = tuple(_parse_input_spec(index, text) for index, text in enumerate(texts))
    names = [spec.name for spec in specs]
    for name in names:
        if names.count(name) > 1:
            raise InputError(
                f"the input {name!r} is given twice",
                "give each input once, under its own name, such as --input input_ids=1x128:int64",
            )
    return specs


def with_named_sizes(text: str, sizes: Mapping[str, int]) -> str:
    """Return an `--input` text with numbers instead of the names of sizes in its shape.

    A name is found as a whole size, between the separators of a shape.

    >>> with_named_sizes("ids=batchxseq:int64", {"batch": 2, "seq": 128})
    'ids=2x128:int64'
    """
    head, equals, rest = text.rpartition("=")
    shape, colon, dtype = rest.partition(":")
    for name, size in sizes.items():
        shape = re.sub(_size_name_pattern(name), str(size), shape)
    return f"{head}{equals}{shape}{colon}{dtype}"


def size_names_in_inputs(texts: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """Return those of the names that are sizes in the shapes of `--input` texts.

    >>> size_names_in_inputs(["ids=batchxseq:int64"], ["seq", "ids"])
    ('seq',)
    """
    shapes = [text.rpartition("=")[2].partition(":")[0] for text in texts]
    return tuple(
        name
        for name in dict.fromkeys(names)
        if any(re.search(_size_name_pattern(name), shape) for shape in shapes)
    )


def _size_name_pattern(name: str) -> str:
    """Return the pattern of a named size in a shape, between separators."""
    return rf"(?:^|(?<=[x×*,\s(\[])){re.escape(name)}(?=$|[x×*,\s)\]])"


def input_option_text(spec: TensorSpec | InputInfo) -> str:
    """Return an input as the text of an `--input` option, such as `x=1x3:float32`.

    >>> input_option_text(TensorSpec("input_ids", "int64", (1, 128)))
    'input_ids=1x128:int64'
    """
    name = "" if spec.name.isdigit() else f"{spec.name}="
    return f"{name}{'x'.join(map(str, spec.shape or ())) or 'scalar'}:{spec.dtype}"


def _parse_input_spec(index: int, text: str) -> TensorSpec:
    """Return the tensor spec of an `--input` text such as `x=1x3:float32`. Raises InputError."""
    match = re.fullmatch(_TEXT, re.sub(_LISTED, _shape_text_with_crosses, text).strip())
    if not match:
        hint = HINT if not re.search(_SIZE_NAME, text) else f"{HINT}; {_NAMED_SIZES}"
        raise InputError(f"cannot read the input {text!r}", hint)
    dtype = match["dtype"] or "float32"
    if dtype not in DTYPES:
        known = ", ".join(DTYPES)
        raise InputError(f"unknown type {dtype!r} in the input {text!r}", f"write one of: {known}")
    scalar = match["shape"] == "scalar"
    if any(len(size) > DIGITS for size in match["shape"].split("x")):
        raise InputError(f"a size in the input {text!r} has more than {DIGITS} digits", HINT)
    shape = () if scalar else tuple(map(int, match["shape"].split("x")))
    return TensorSpec(match["name"] or str(index), dtype, shape, "input")


def _shape_text_with_crosses(match: re.Match[str]) -> str:
    """Return a matched shape, such as (1, 3), as text: "1x3", or "scalar" without dimensions."""
    dims = next(filter(None, match.groups()), "")
    return "x".join(re.findall(r"\d+", dims)) or "scalar"


def to_args_and_kwargs(values: Mapping[str, Any]) -> Arguments:
    """Return inputs as (args, kwargs): those whose name is a number are positional, in order."""
    indices = sorted((name for name in values if name.isdigit()), key=int)
    args = tuple(values[name] for name in indices)
    return args, {name: value for name, value in values.items() if not name.isdigit()}


def arguments_from_npz(path: str, convert: Callable[[Any], Any]) -> Arguments:
    """Return the arrays of an .npz file as (args, kwargs), each passed through `convert`."""
    return to_args_and_kwargs(arrays_from_npz(path, convert))


def arrays_from_npz(
    path: str, convert: Callable[[Any], Any] = lambda array: array
) -> dict[str, Any]:
    """Return the arrays of an .npz file by name (or index), each passed through `convert`.

    Raises InputError where the file cannot be read, or an array cannot be converted.
    """
    import zipfile

    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name.removeprefix("arr_"): convert(array) for name, array in arrays.items()}
    except (OSError, ValueError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(
            f"cannot read the inputs in {path}: {error}",
            "write the file with numpy.savez(FILE, x=array)",
        ) from error


def to_call_arguments(inputs: Any) -> Arguments:
    """Return inputs as (args, kwargs), from a tensor, a tuple, a dict, or such a pair."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple | list):
        pair = len(inputs) == 2 and isinstance(inputs[0], tuple | list)
        if pair and isinstance(inputs[1], Mapping):
            return tuple(inputs[0]), dict(inputs[1])
        return tuple(inputs), {}
    return (inputs,), {}


_KINDS_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def positional(
    forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Return the arguments of a call to `forward` as one tuple, all passed by position.

    A gap before a given argument is filled with its default; arguments after the last given one
    are left out. Raises InputError when an argument can only be passed by keyword, or when the
    arguments do not fit the signature.
    """
    if not kwargs:
        return args
    parameters = inspect.signature(forward).parameters
    names = [
        name for name, parameter in parameters.items() if parameter.kind in _KINDS_BY_POSITION
    ]
    stray = [name for name in kwargs if name not in names]
    if stray:
        raise InputError(
            f"this tool passes inputs by position, but {stray[0]!r} can be passed only by keyword",
            "wrap the model in a module whose forward takes all its inputs by position",
        )
    twice = [name for name in names[: len(args)] if name in kwargs]
    if twice:
        raise InputError(
            f"the input {twice[0]!r} is given twice, by position and by name",
            "give each input once",
        )
    last = max(names.index(name) for name in kwargs)
    rest = (_parameter_value(parameters[name], kwargs) for name in names[len(args) : last + 1])
    return (*args, *rest)


def _parameter_value(parameter: inspect.Parameter, kwargs: Mapping[str, Any]) -> Any:
    """Return a parameter's value in `kwargs`, or its default. Raises InputError without either."""
    if parameter.name in kwargs:
        return kwargs[parameter.name]
    if parameter.default is inspect.Parameter.empty:
        raise InputError(
            f"the input {parameter.name!r} is missing and has no default value",
            f"give this input too, such as --input {parameter.name}=1x3x224x224",
        )
    return parameter.default
