"""Turn a typed target, or a Python object, into a model with its inputs.

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
    default_model_input,
    model_and_inputs_of_value,
    require_frontend,
    with_control,
)
from crossflops.frontends.inputs import OF_TARGET, ProvidedInputs, input_option_text
from crossflops.frontends.named import SIZES, NamedModel
from crossflops.frontends.onnx import OnnxFile
from crossflops.ir.graph import Control, TensorSpec
from crossflops.targets.target import (
    build_target,
    call_batch_function,
    is_batch_function,
    refuse_url,
)


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
    """Build the model of a target; its inputs are from a file, from `specs`, or the model's own.

    `dims` are those of an ONNX file, which is not opened yet: see OnnxFile. `control` may be about
    a model of another framework, too. `sizes` (keys of `named.SIZES`) change the usual input of a
    model by name. Without `values` the model is built without numbers where that can be done: see
    `target.build_target`. Raises TargetError, InputError, MissingExtraError.
    """
    refuse_url(target)
    if is_pipeline(target):
        raise InputError(
            f"{target} is a pipeline of several models, which only count and table take",
            f"use `crossflops count {target}`",
        )
    if inputs_file is not None and specs:
        raise InputError("--input and --inputs cannot be combined", "leave out one of the two")
    other_sizes = [size for size in sizes if specs or size != "batch"]
    if other_sizes and (specs or inputs_file is not None):
        flag = SIZES[other_sizes[0]]
        raise InputError(
            f"{flag} changes the default input and cannot be combined with --input or --inputs",
            f"leave out {flag}",
        )
    if is_onnx_target(target):
        if sizes:
            flag = SIZES[next(iter(sizes))]
            raise InputError(
                f"{flag} cannot be used with an ONNX file, which has no default input",
                "give --dim NAME=N or --input",
            )
        if arguments or inputs_file is not None:
            if arguments:
                raise InputError(
                    "--arg cannot be used with an ONNX file, which is not a callable",
                    "leave out --arg",
                )
            raise InputError(
                "--inputs cannot be used with an ONNX file, which is counted from shapes alone",
                "give --input NAME=SHAPE",
            )
        file = OnnxFile(path=target, specs=tuple(specs), dims=dims or {}, control=control)
        return Source(file, (), {})
    if dims:
        name = next(iter(dims))
        raise InputError(
            f"--dim {name}: no input has a size of this name, and {target} is not a file with "
            "open sizes",
            f"write the name into the shape of an input, such as --input {name}x3x224x224",
        )
    model, values = build_target(target, arguments, allow_pickle, sizes, values)
    has_own = values is not None and not isinstance(values, NamedModel)
    if has_own and other_sizes:
        raise InputError(
            f"{SIZES[other_sizes[0]]} changes the usual input of a model, but {target} returns "
            "its own inputs",
            "give the shapes of its inputs with --input, or name an axis of them that varies: "
            "--vary seq=1",
        )
    batch = sizes.get("batch") if has_own or inputs_file is not None else None
    origin = OF_TARGET
    if inputs_file is not None and is_batch_function(inputs_file):
        values = call_batch_function(inputs_file)
        origin, inputs_file = inputs_file, None
    if values is None and not specs and inputs_file is None:
        values = default_model_input(model, sizes)
        if sizes:
            _check_sizes_apply(target, values, sizes)
    known: Mapping[str, Any] = {}
    if isinstance(values, NamedModel):
        known = {} if specs or inputs_file is not None else values.values
        specs, values = _choose_input_specs(target, values, specs, inputs_file), None
    provided = ProvidedInputs(
        file=inputs_file, specs=tuple(specs), known=known, values=values, origin=origin
    )
    source = require_frontend(model).prepare_source(model, provided, owned=True)
    if batch is not None:
        from crossflops.targets.axes import with_batch_size  # most counts change no size

        source = with_batch_size(source, batch)
    return with_control(source, control)


def _check_sizes_apply(target: str, usual: NamedModel | None, sizes: Mapping[str, int]) -> None:
    """Raise InputError for a size that changes nothing in the usual input of a model."""
    fitting = () if usual is None else usual.sizes
    flags = " and ".join(SIZES[size] for size in fitting)
    for size in sizes:
        if size not in fitting:
            raise InputError(
                f"{SIZES[size]} has no effect on the input of {target}"
                if usual is not None
                else f"{SIZES[size]} changes the usual input of a model, and {target} has none",
                f"use {flags} for its input"
                if flags
                else "give the shapes of its inputs with --input",
            )


def _choose_input_specs(
    target: str, named: NamedModel, specs: Sequence[TensorSpec], file: str | None
) -> Sequence[TensorSpec]:
    """Return `specs`, or if empty the default inputs of a model given by name; print its notes.

    Raises InputError where its library says nothing of them.
    """
    for note in named.notes:
        warnings.warn(note, CrossflopsWarning, stacklevel=2)
    if specs or file is not None:
        return specs
    if not named.specs:
        raise InputError(
            f"the input shape of {target} is unknown",
            "give --input SHAPE, such as --input 1x3x224x224",
        )
    flags = [SIZES[size] for size in named.sizes]
    changes = "changes" if len(flags) < 2 else "change"
    changed = f"{' and '.join(flags) or '--input'} {changes} it"
    warnings.warn(
        f"using the default input {', '.join(map(input_option_text, named.specs))}, from "
        f"{named.origin}; {changed}",
        CrossflopsWarning,
        stacklevel=2,
    )
    return named.specs


def is_onnx_target(target: str) -> bool:
    """Return whether the target is an ONNX file."""
    return target.lower().endswith(".onnx")


def is_pipeline(target: str) -> bool:
    """Return whether the target is a file that lists the parts of a pipeline."""
    return target.lower().endswith(".toml")


def source_from_object(model: Any, inputs: Any) -> Source:
    """Return the Source of a model object; its inputs are tensors, or texts like "1x3x8x8"."""
    return model_source(model, ProvidedInputs(values=inputs))


def model_source(model: Any, provided: ProvidedInputs, sizes: Mapping[str, int] = {}) -> Source:
    """Return the Source of a model object with the given inputs, with its example inputs, or with
    its usual input in these sizes.

    Raises InputError for a size that changes nothing.
    """
    model, example = model_and_inputs_of_value(model, provided.values)
    values = provided.values
    is_empty = isinstance(values, tuple | list | dict) and not values
    has_inputs = not is_empty or provided.file is not None or bool(provided.specs)
    has_inputs = has_inputs or example is not None
    usual = None if has_inputs else default_model_input(model, sizes)
    if sizes and not (has_inputs and sizes.keys() == {"batch"}):
        _check_sizes_apply("the model", usual, sizes)
    if example is not None and is_empty:
        provided = msgspec.structs.replace(provided, values=example)
    elif usual is not None:
        specs = tuple(_choose_input_specs("the model", usual, (), None))
        provided = ProvidedInputs(specs=specs, known=usual.values)
    source = require_frontend(model).prepare_source(model, provided, owned=False)
    if sizes and has_inputs:
        from crossflops.targets.axes import with_batch_size  # most counts change no size

        source = with_batch_size(source, sizes["batch"])
    return source
