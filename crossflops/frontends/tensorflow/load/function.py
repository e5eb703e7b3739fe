"""Turn a TensorFlow model of any kind into one function of tensors."""

import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from crossflops.errors import InputError, NormalizeError
from crossflops.frontends.frontend import require_packages
from crossflops.frontends.inputs import Arguments

# A function of tensors, and the positional and keyword inputs to trace it with.
CallToTrace: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]

_INPUTS = ("Placeholder", "PlaceholderWithDefault")
_NO_RESULTS = ("Const", "NoOp", "Assert", "Placeholder", "SaveV2", "RestoreV2")
_RESOURCE = 20  # tensorflow/core/framework/types.proto: DT_RESOURCE
_VARIABLES = ("VariableV2", "VarHandleOp", "VarIsInitializedOp")


def graph_as_function(
    graph: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return a function that runs a frozen graph on inputs for its placeholders.

    Its results are those that no other operation reads. Raises InputError.
    """
    import tensorflow as tf

    if isinstance(graph, tf.Graph):
        graph = graph.as_graph_def()
    nodes = list(graph.node)
    if any(node.op in _VARIABLES or _is_variable_handle(node) for node in nodes):
        raise InputError(
            "the graph has variables, but does not contain their shapes",
            "freeze the graph (turn its variables into constants), or give the SavedModel",
        )
    requested = [node.name for node in nodes if node.op == _INPUTS[0]]
    if len(args) + len(kwargs) != len(requested) or not set(kwargs) <= set(requested):
        raise _graph_inputs_error(requested, len(args) + len(kwargs))
    read = {value.lstrip("^").partition(":")[0] for node in nodes for value in node.input}
    results = [node.name for node in nodes if node.name not in read and node.op not in _NO_RESULTS]
    indices = [name for name in requested if name not in kwargs]

    def run_frozen_graph(*provided: Any, **named: Any) -> Any:
        """Return the results of the frozen graph for these inputs, as a list."""
        inputs = {f"{name}:0": tensor for name, tensor in zip(indices, provided, strict=True)}
        inputs |= {f"{name}:0": tensor for name, tensor in named.items()}
        imported = tf.graph_util.import_graph_def(
            graph, input_map=inputs, return_elements=results, name=""
        )
        return [tensor for op in imported for tensor in op.outputs]

    return run_frozen_graph


def _graph_inputs_error(requested: list[str], provided_count: int) -> InputError:
    """Return the error for `provided_count` inputs that are not those of the graph."""
    if not requested:
        return InputError(
            f"the graph has no inputs, but {provided_count} were given", "leave out --input"
        )
    options = " ".join(f"--input {name}=SHAPE" for name in requested)
    return InputError(
        f"the graph has the inputs {', '.join(requested)}, but other inputs were given",
        f"give one --input for each: {options}",
    )


def _is_variable_handle(node: Any) -> bool:
    """Return whether a GraphDef's node is the handle of a variable: the graph is not frozen."""
    return bool(node.op == "Placeholder" and node.attr["dtype"].type == _RESOURCE)


CHOSEN = "crossflops_signature"  # an attribute of a SavedModel whose target names a signature
_SERVING = ("serving_default", "serve")


def require_tensorflow() -> None:
    """Raise MissingExtraError, or NormalizeError if Keras has another backend."""
    require_packages(("tensorflow", "tf2onnx"), "read a TensorFlow model", "tensorflow")
    keras = sys.modules.get("keras")
    if keras is not None and keras.backend.backend() != "tensorflow":
        raise NormalizeError(
            f"Keras uses the backend {keras.backend.backend()}, but this model needs TensorFlow",
            "set KERAS_BACKEND=tensorflow",
        )


def may_have_constant_weights(model: Any) -> bool:
    """Return whether a model may have constants for variables: a graph or a SavedModel."""
    import tensorflow as tf

    return isinstance(model, tf.compat.v1.GraphDef | tf.Graph) or hasattr(model, "signatures")


def is_rebuilt_from_onnx(model: Any) -> bool:
    """Return whether crossflops rebuilt the model from an ONNX graph."""
    return getattr(model, "is_rebuilt_by_crossflops", False) is True


def function_arguments(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], training: bool
) -> Arguments:
    """Return (args, kwargs) of the function that is traced for the model. Raises InputError."""
    return call_to_trace(model, args, dict(kwargs), training)[1:]


def call_to_trace(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], training: bool
) -> CallToTrace:
    """Return (function, args, kwargs) to trace for a model in train or evaluation mode.

    Raises InputError where it takes others.
    """
    import tensorflow as tf

    if isinstance(model, tf.compat.v1.GraphDef | tf.Graph):
        return graph_as_function(model, args, kwargs), args, kwargs
    if is_keras_layer(model):
        return _keras_call(model, args, kwargs, training)
    if hasattr(model, "signatures") and len(model.signatures):
        return _signature_call(model, args, kwargs)
    if training and not is_rebuilt_from_onnx(
        model
    ):  # which is in the mode of what it was made from
        raise InputError(
            "--train-mode can be used only with Keras models", "leave out --train-mode"
        )
    if not callable(model):
        raise InputError(
            "the SavedModel has no signature and cannot be called",
            "write it with model.export(FOLDER), or with tf.saved_model.save(..., signatures=...)",
        )
    return (lambda *provided, **named: model(*provided, **named)), args, kwargs


def is_keras_layer(model: Any) -> bool:
    """Return whether the model is a layer or a model of Keras."""
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(model, keras.Layer)


def _keras_call(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], training: bool
) -> CallToTrace:
    """Return (function, args, kwargs) to trace for a Keras layer or model."""
    names = _call_parameter_names(model)
    mode = {"training": training} if "training" in names else {}
    requested = keras_input_structure(model)
    if requested is None:
        if kwargs and not args and not set(kwargs) & set(names) and len(names):
            return (lambda **named: model(named, **mode)), (), kwargs
        return (lambda *provided, **named: model(*provided, **named, **mode)), args, kwargs
    return _functional_keras_call(model, requested, *_unpack_inputs(args, kwargs), mode)


def keras_input_structure(model: Any) -> Any:
    """Return the structure of the inputs of a functional Keras model; None for other models."""
    within = getattr(model, "_functional", None) or model  # of a sequential model
    return getattr(within, "_inputs_struct", None)


def _unpack_inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """Return (args, kwargs) with a single list or dict of inputs unpacked."""
    if len(args) == 1 and not kwargs and isinstance(args[0], dict):
        return (), args[0]
    if len(args) == 1 and not kwargs and isinstance(args[0], list):
        return tuple(args[0]), {}
    return args, kwargs


def _functional_keras_call(
    model: Any,
    requested: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    mode: dict[str, bool],
) -> CallToTrace:
    """Return (function, args, kwargs) to trace for a functional Keras model. Raises InputError."""
    names = [tensor.name for tensor in model.inputs]
    full = isinstance(requested, dict)
    if kwargs and not args and set(kwargs) == (set(requested) if full else set(names)):
        if full:
            return (lambda **named: model(named, **mode)), (), kwargs
        order = tuple(kwargs[name] for name in names)
        return (lambda *provided: model(_single_or_list(provided), **mode)), order, {}
    if kwargs or len(args) != len(names):
        tensors = requested if full else dict(zip(names, model.inputs, strict=True))
        raise InputError(
            f"the given inputs do not match the inputs of the model: {', '.join(tensors)}",
            _input_options_hint(tensors),
        )
    if full:
        return (
            (lambda *provided: model(dict(zip(requested, provided, strict=True)), **mode)),
            args,
            {},
        )
    return (lambda *provided: model(_single_or_list(provided), **mode)), args, {}


def _input_options_hint(tensors: Mapping[str, Any]) -> str:
    """Return a hint with an --input option for each of these inputs."""
    if not tensors:
        return "leave out --input: the model has no inputs"
    options = []
    for name, tensor in tensors.items():
        shape: Any = getattr(tensor, "shape", None)  # a list of inputs has none
        known = shape is not None and getattr(shape, "rank", 0) is not None
        sizes = "x".join(str(size or 1) for size in shape) or "scalar" if known else "SHAPE"
        stored = getattr(tensor, "dtype", "float32")
        dtype = getattr(stored, "name", stored)
        typed = f":{dtype}" if dtype != "float32" else ""
        options.append(f"--input {name}={sizes}{typed}")
    return f"give one --input for each of these inputs: {' '.join(options)}"


def _single_or_list(provided: tuple[Any, ...]) -> Any:
    """Return the input itself if there is exactly one, otherwise a list of the inputs."""
    return provided[0] if len(provided) == 1 else list(provided)


def _call_parameter_names(model: Any) -> tuple[str, ...]:
    """Return the parameter names of a model's `call`; if it takes any name, only "training"."""
    try:
        parameters = inspect.signature(model.call).parameters
    except (TypeError, ValueError):
        return ()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return ("training",) if "training" in parameters else ()
    return tuple(parameters)


def _signature_call(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallToTrace:
    """Return (function, args, kwargs) to trace for a SavedModel's signature. Raises InputError."""
    signatures = model.signatures
    name = active_signature(model)
    if name is None:
        raise InputError(
            f"the SavedModel has several signatures, but none is chosen: {', '.join(signatures)}",
            f"write one of them after the folder, such as FOLDER:{next(iter(signatures))}",
        )
    signature = signatures[name]
    requested = signature.structured_input_signature[1]
    names = list(requested)
    if len(args) > len(names) or (set(kwargs) | set(names[: len(args)])) != set(names):
        shown = ", ".join(
            f"{input_name}={tuple(spec.shape)}" for input_name, spec in requested.items()
        )
        raise InputError(
            f"the given inputs do not match the inputs of the signature {name}: {shown}",
            _input_options_hint(requested),
        )
    named = {**dict(zip(names, args, strict=False)), **kwargs}
    for argument, spec in requested.items():
        if (
            not spec.shape.is_compatible_with(named[argument].shape)
            or spec.dtype != named[argument].dtype
        ):
            raise InputError(
                f"the input {argument} of the signature {name} must have the shape {spec.shape} "
                f"and the type {spec.dtype.name}, got {named[argument].shape} and "
                f"{named[argument].dtype.name}",
                f"give --input {argument}=SHAPE:{spec.dtype.name} with such a shape",
            )
    return (lambda **provided: signature(**provided)), (), named


def active_signature(model: Any) -> str | None:
    """Return the name of the chosen, the serving or the only signature, or None if unclear."""
    names = tuple(model.signatures)
    usual = [name for name in _SERVING if name in names] or (names if len(names) == 1 else ())
    chosen: str | None = getattr(model, CHOSEN, None)
    return chosen or next(iter(usual), None)
