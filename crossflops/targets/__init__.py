"""What a person typed, or the object that Python gives -> a model with its inputs.

In: a `Request` (`request.py`). Out: a `Source`. Which framework a model is of, `frontends` knows.
May import: frontends, load, ir, errors, threads.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from crossflops.errors import CrossflopsWarning, InputError
from crossflops.frontends import (
    Source,
    require_frontend,
    unwrap_model_value,
    usual_input,
    with_control,
)
from crossflops.frontends.inputs import OF_TARGET, Given, input_option_text
from crossflops.frontends.named import SIZES, Named
from crossflops.frontends.onnx import OnnxFile
from crossflops.ir.graph import Control, TensorSpec
from crossflops.targets.target import build_target, refuse_url


def load_target_source(
    target: str,
    arguments: Mapping[str, object],
    specs: Sequence[TensorSpec],
    inputs_file: str | None = None,
    allow_pickle: bool = False,
    dims: Mapping[str, int] | None = None,
    control: Control = Control(),
    sizes: Mapping[str, int] = {},
    values: bool = True,
) -> Source:
    """Build the model of a target, with inputs from a file, from specs, or the target's own.

    `dims` are those of an ONNX file, which is not opened yet: see OnnxFile. `control` may be about
    a model of another framework, too. `sizes` (keys of `named.SIZES`) change the usual input of a
    model by name. Without `values` the model is built without numbers where that can be done: see
    `target.build_target`. Raises TargetError, InputError, MissingExtraError.
    """
    refuse_url(target)
    if inputs_file is not None and specs:
        raise InputError("--input and --inputs contradict each other", "leave one out")
    if sizes and (specs or inputs_file is not None):
        flag = SIZES[next(iter(sizes))]
        raise InputError(
            f"{flag} is a size of the usual input, and another is given", "leave it out"
        )
    if is_file(target):
        if sizes:
            flag = SIZES[next(iter(sizes))]
            raise InputError(
                f"{flag}: an ONNX file has no usual input", "give --dim NAME=N or --input"
            )
        if arguments or inputs_file is not None:
            flag = "--arg" if arguments else "--inputs"
            raise InputError(
                f"{flag}: an ONNX file is counted by shapes alone", "give --input NAME=SHAPE"
            )
        file = OnnxFile(path=target, specs=tuple(specs), dims=dims or {}, control=control)
        return Source(file, (), {})
    if dims:
        raise InputError("--dim is for ONNX files", "give --input for other targets")
    model, values = build_target(target, arguments, allow_pickle, sizes, values)
    if values is None and not specs and inputs_file is None:
        values = usual_input(model)
    known: Mapping[str, Any] = {}
    if isinstance(values, Named):
        known = {} if specs or inputs_file is not None else values.values
        specs, values = _choose_input_specs(target, values, specs, inputs_file), None
    provided = Given(
        file=inputs_file, specs=tuple(specs), known=known, values=values, origin=OF_TARGET
    )
    return with_control(require_frontend(model).source(model, provided, owned=True), control)


def _choose_input_specs(
    target: str, named: Named, specs: Sequence[TensorSpec], file: str | None
) -> Sequence[TensorSpec]:
    """The inputs that were given, else the usual ones of the model, and a word on them.

    Raises InputError where its library says nothing of them.
    """
    for note in named.notes:
        warnings.warn(note, CrossflopsWarning, stacklevel=2)
    if specs or file is not None:
        return specs
    if not named.specs:
        raise InputError(f"nothing says which input {target} takes", "give --input SHAPE")
    flags = [SIZES[size] for size in named.sizes]
    changed = f"{' and '.join(flags)} change it" if flags else "--input changes it"
    warnings.warn(
        "the input is the usual one, "
        f"{', '.join(map(input_option_text, named.specs))}, of {named.origin}; "
        f"{changed}",
        CrossflopsWarning,
        stacklevel=2,
    )
    return named.specs


def is_file(target: str) -> bool:
    """Whether the target is an ONNX file."""
    return target.lower().endswith(".onnx")


def from_object(model: Any, inputs: Any) -> Source:
    """A model object with inputs as Python callers give them."""
    return model_source(model, Given(values=inputs))


def model_source(model: Any, provided: Given) -> Source:
    """A model object with these inputs; with its own where it has some and none are given."""
    model, example = unwrap_model_value(model, provided.values)
    values = provided.values
    if example is not None and isinstance(values, tuple | list | dict) and not values:
        provided = msgspec.structs.replace(provided, values=example)
    return require_frontend(model).source(model, provided, owned=False)
