"""What a TensorFlow model is: found, read from files, and traced to one function of tensors."""

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import msgspec

from crossflops.errors import CrossflopsError, InputError, NormalizeError, raised_at, remedy
from crossflops.frontends.frontend import RUN, Ready, Source, require_packages
from crossflops.frontends.tensorflow.branches import gathers_frozen, kept_whole
from crossflops.frontends.tensorflow.layers import recorded
from crossflops.frontends.tensorflow.recomputation import names_recomputed
from crossflops.ir.trace import Setting
from crossflops.load.payload import NUMBER
from crossflops.patches import inventory
from crossflops.patches.patching import original, patched

# A frozen graph (GraphDef) -> a function of its placeholders.

_INPUTS = ("Placeholder", "PlaceholderWithDefault")
_NO_RESULTS = ("Const", "NoOp", "Assert", "Placeholder", "SaveV2", "RestoreV2")
_RESOURCE = 20  # tensorflow/core/framework/types.proto: DT_RESOURCE
_VARIABLES = ("VariableV2", "VarHandleOp", "VarIsInitializedOp")


def function_of(
    graph: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Callable[..., Any]:
    """A function that runs the graph on the inputs that stand for its placeholders.

    Its results are what no other operation reads. Raises InputError.
    """
    import tensorflow as tf

    if isinstance(graph, tf.Graph):
        graph = graph.as_graph_def()
    nodes = list(graph.node)
    if any(node.op in _VARIABLES or _is_variable(node) for node in nodes):
        raise InputError(
            "the graph has variables, so their shapes are not in it",
            "freeze it, or give the SavedModel",
        )
    wanted = [node.name for node in nodes if node.op == _INPUTS[0]]
    if len(args) + len(kwargs) != len(wanted) or not set(kwargs) <= set(wanted):
        raise InputError(
            f"the graph has the inputs {', '.join(wanted) or '(none)'}",
            _each(dict.fromkeys(wanted)),
        )
    read = {value.lstrip("^").partition(":")[0] for node in nodes for value in node.input}
    results = [node.name for node in nodes if node.name not in read and node.op not in _NO_RESULTS]
    places = [name for name in wanted if name not in kwargs]

    def run(*given: Any, **named: Any) -> Any:
        inputs = {f"{name}:0": tensor for name, tensor in zip(places, given, strict=True)}
        inputs |= {f"{name}:0": tensor for name, tensor in named.items()}
        imported = tf.graph_util.import_graph_def(
            graph, input_map=inputs, return_elements=results, name=""
        )
        return [tensor for op in imported for tensor in op.outputs]

    return run


def _is_variable(node: Any) -> bool:
    """Whether this stands for a variable, as in the graph of a function that is not frozen."""
    return bool(node.op == "Placeholder" and node.attr["dtype"].type == _RESOURCE)


# What Keras and TensorFlow say when they raise, in a line.

_LIMIT = 300
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_AROUND = re.compile(r"Exception encountered when calling \S+\.\s*|\s*Arguments received by .*$")


def shortened(error: BaseException) -> str:
    """The message of an error without colours, and without what Keras puts around it.

    keras/src/utils/traceback_utils.py: inject_argument_info_in_traceback names the layer before
    the message and lists the arguments behind it.
    """
    text = " ".join(_COLOUR.sub("", str(error)).split())
    text = _AROUND.sub("", text) or text
    return text if len(text) <= _LIMIT else f"{text[:_LIMIT]}..."


# A traced function -> the same with its variables as constants, and what stands in the way.

_LARGE = 1024  # elements from which on a variable of floats is there by shape
_STORES = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
_CHANGES = (
    "ResourceScatter",
    "ResourceApply",
    "ResourceSparseApply",
    "ResourceStridedSliceAssign",
)


def writes(function: Any) -> bool:
    """Whether a concrete function, or one that it calls, stores something in variables."""
    graph = function.graph.as_graph_def()
    bodies = (graph.node, *(function.node_def for function in graph.library.function))
    return any(
        node.op in _STORES or node.op.startswith(_CHANGES) for nodes in bodies for node in nodes
    )


def freeze(function: Any, lowered: bool, weighted: bool = False) -> Any:
    """The concrete function with its variables as constants, its functions inlined.

    Large variables of floats are there by shape: all their elements are one number, which a
    constant holds once, unless they are wanted (`weighted`). TensorFlow would write several copies
    of all weights.

    `lowered` turns loops and branches into the operations that TensorFlow runs (Enter, Merge,
    Switch ...); without it they stay whole. Raises NormalizeError.
    """
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    try:
        with nullcontext() if weighted else _by_shape(), kept_whole(), gathers_frozen():
            return convert_variables_to_constants_v2(
                function, lower_control_flow=lowered, aggressive_inlining=not lowered
            )
    except Exception as error:
        if writes(function):
            raise NormalizeError(
                "the model stores something in its variables, and so it cannot be frozen",
                "give the Keras model itself, or a function that returns what it would store",
            ) from error
        raise NormalizeError(
            f"TensorFlow cannot freeze the model: {type(error).__name__}: {shortened(error)}",
            "see what convert_variables_to_constants_v2 says about its concrete function",
        ) from error


@contextmanager
def _by_shape() -> Iterator[None]:
    """While this is open, large variables of floats are not copied into constants.

    tensorflow/python/framework/convert_to_constants.py: `_FunctionConverterDataInEager._eval`
    reads a variable, `make_tensor_proto` writes it.
    """
    module: Any = importlib.import_module("tensorflow.python.framework.convert_to_constants")
    kind, write = module._FunctionConverterDataInEager, module.tensor_util.make_tensor_proto
    read = original(kind, "_eval", inventory.VARIABLE_COPIES)

    def value(self: Any, tensor: Any) -> Any:
        shape = tensor.shape
        if not tensor.dtype.is_floating or not shape.is_fully_defined():
            return read(self, tensor)
        return _spread(tensor) if shape.num_elements() > _LARGE else read(self, tensor)

    def written(values: Any, *given: Any, **named: Any) -> Any:
        if not getattr(values, "ndim", 0) or any(values.strides) or values.size <= _LARGE:
            return write(values, *given, **named)
        first_value = values.flat[0]
        return write(first_value, dtype=values.dtype, shape=values.shape, allow_broadcast=True)

    with (
        patched(kind, "_eval", value, inventory.VARIABLE_COPIES),
        patched(module.tensor_util, "make_tensor_proto", written, inventory.VARIABLE_PROTOS),
    ):
        yield


def _spread(tensor: Any) -> Any:
    """One number in the shape of a variable, without the memory of it."""
    import numpy as np

    return np.broadcast_to(np.array(NUMBER, tensor.dtype.as_numpy_dtype), tensor.shape.as_list())


CHOSEN = "crossflops_signature"  # an attribute of a SavedModel whose target names a signature
_SERVING = ("serving_default", "serve")


class TracedFunction(msgspec.Struct, frozen=True):
    """A concrete function with definite input shapes, and the Keras layer of every name scope.

    `scopes` are by the name scope that was open while the layer ran. `called` is what was traced,
    on `args` and `kwargs`.
    """

    function: Any
    scopes: dict[str, Any]
    called: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def require() -> None:
    """Raises MissingExtraError, or NormalizeError where Keras runs on something else."""
    require_packages(("tensorflow", "tf2onnx"), "read a TensorFlow model", "tensorflow")
    keras = sys.modules.get("keras")
    if keras is not None and keras.backend.backend() != "tensorflow":
        raise NormalizeError(
            f"Keras runs on {keras.backend.backend()} here", "set KERAS_BACKEND=tensorflow"
        )


def is_frozen(model: Any) -> bool:
    """Whether this is a graph, or a SavedModel, whose variables may have become constants."""
    import tensorflow as tf

    return isinstance(model, tf.compat.v1.GraphDef | tf.Graph) or hasattr(model, "signatures")


def is_rebuilt(model: Any) -> bool:
    """Whether the model was rebuilt from an ONNX graph."""
    return getattr(model, "is_rebuilt_by_crossflops", False) is True


def traced(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], training: bool
) -> TracedFunction:
    """The model traced on inputs of these shapes. Raises InputError where it does not take them.

    `args` and `kwargs` hold tf.TensorSpec.
    """
    function, args, kwargs = _function(model, args, dict(kwargs), training)
    concrete = _concrete(function, args, kwargs)
    if _is_keras(model) and writes(concrete.function):
        concrete = _concrete(_storing_nothing(function), args, kwargs)
    return concrete


def arguments(
    model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], training: bool
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the traced function takes of these, in its order. Raises InputError."""
    return _function(model, args, dict(kwargs), training)[1:]


def _concrete(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> TracedFunction:
    import tensorflow as tf

    scopes: dict[str, Any] = {}
    try:
        with recorded(scopes), names_recomputed():
            return TracedFunction(
                tf.function(function, autograph=False).get_concrete_function(*args, **kwargs),
                scopes,
                function,
                args,
                kwargs,
            )
    except CrossflopsError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(
            f"the model raised {type(error).__name__}: {shortened(error)}{raised_at(error)}",
            remedy(error, "check the number, the names, the shapes and the types of --input"),
        ) from error


def _storing_nothing(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with what it would store in variables handed on to who reads them after it.

    A state (stateful recurrent layers, moving averages in training, seeds of random layers) has
    no frozen form. Variables have to be there already: a stateless scope makes none.
    """
    import keras

    def run(*given: Any, **named: Any) -> Any:
        with keras.StatelessScope():
            return function(*given, **named)

    return run


def _function(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], training: bool
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """What is to be traced, with its arguments."""
    import tensorflow as tf

    if isinstance(model, tf.compat.v1.GraphDef | tf.Graph):
        return function_of(model, args, kwargs), args, kwargs
    if _is_keras(model):
        return _keras(model, args, kwargs, training)
    if hasattr(model, "signatures") and len(model.signatures):
        return _signature(model, args, kwargs)
    if training and not is_rebuilt(model):  # which is in the mode of what it was made from
        raise InputError("--train-mode is for Keras models", "leave it out")
    if not callable(model):
        raise InputError(
            "the SavedModel has no signature and cannot be called",
            "write it with model.export(FOLDER), or with signatures=",
        )
    return (lambda *given, **named: model(*given, **named)), args, kwargs


def _is_keras(model: Any) -> bool:
    keras = sys.modules.get("keras")
    return keras is not None and isinstance(model, keras.Layer)


def _keras(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], training: bool
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A Keras model takes its inputs as one value: a tensor, a list, or a dict by their names."""
    names = _parameters(model)
    mode = {"training": training} if "training" in names else {}
    wanted = inputs_struct(model)
    if wanted is None:
        if kwargs and not args and not set(kwargs) & set(names) and len(names):
            return (lambda **named: model(named, **mode)), (), kwargs
        return (lambda *given, **named: model(*given, **named, **mode)), args, kwargs
    return _functional(model, wanted, *_unpacked(args, kwargs), mode)


def inputs_struct(model: Any) -> Any:
    """What a functional or a sequential model of Keras takes, in its own form; None of others."""
    within = getattr(model, "_functional", None) or model  # of a sequential model
    return getattr(within, "_inputs_struct", None)


def _unpacked(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs of a functional model, which may come as one list or dict."""
    if len(args) == 1 and not kwargs and isinstance(args[0], dict):
        return (), args[0]
    if len(args) == 1 and not kwargs and isinstance(args[0], list):
        return tuple(args[0]), {}
    return args, kwargs


def _functional(
    model: Any, wanted: Any, args: tuple[Any, ...], kwargs: dict[str, Any], mode: dict[str, bool]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    names = [tensor.name for tensor in model.inputs]
    whole = isinstance(wanted, dict)
    if kwargs and not args and set(kwargs) == (set(wanted) if whole else set(names)):
        if whole:
            return (lambda **named: model(named, **mode)), (), kwargs
        order = tuple(kwargs[name] for name in names)
        return (lambda *given: model(_one(given), **mode)), order, {}
    if kwargs or len(args) != len(names):
        tensors = wanted if whole else dict(zip(names, model.inputs, strict=True))
        raise InputError(
            f"the model has the inputs {', '.join(tensors)}",
            _each(tensors),
        )
    if whole:
        return (lambda *given: model(dict(zip(wanted, given, strict=True)), **mode)), args, {}
    return (lambda *given: model(_one(given), **mode)), args, {}


def _each(tensors: Mapping[str, Any]) -> str:
    """A hint with the option for each input; what its shape leaves open is 1 there."""
    options = []
    for name, tensor in tensors.items():
        shape = tensor.shape
        known = shape is not None and getattr(shape, "rank", 0) is not None
        sizes = "x".join(str(size or 1) for size in shape) if known else "SHAPE"
        dtype = getattr(tensor.dtype, "name", tensor.dtype)
        typed = f":{dtype}" if dtype != "float32" else ""
        options.append(f"--input {name}={sizes}{typed}")
    return f"give one --input for each: {' '.join(options)}"


def _one(given: tuple[Any, ...]) -> Any:
    return given[0] if len(given) == 1 else list(given)


def _parameters(model: Any) -> tuple[str, ...]:
    """The names of what `call` takes; none where it takes any keyword, or does not tell."""
    try:
        parameters = inspect.signature(model.call).parameters
    except (TypeError, ValueError):
        return ()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return ("training",) if "training" in parameters else ()
    return tuple(parameters)


def _signature(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A SavedModel's signature takes keywords; places are those of its inputs, by name."""
    signatures = model.signatures
    name = chosen_signature(model)
    if name is None:
        raise InputError(
            f"the SavedModel has the signatures {', '.join(signatures)}",
            f"write one of them behind a colon: FOLDER:{next(iter(signatures))}",
        )
    signature = signatures[name]
    wanted = signature.structured_input_signature[1]
    names = list(wanted)
    if len(args) > len(names) or (set(kwargs) | set(names[: len(args)])) != set(names):
        shown = ", ".join(
            f"{input_name}={tuple(spec.shape)}" for input_name, spec in wanted.items()
        )
        raise InputError(
            f"the signature {name} has the inputs {shown}",
            _each(wanted),
        )
    named = {**dict(zip(names, args, strict=False)), **kwargs}
    for argument, spec in wanted.items():
        if (
            not spec.shape.is_compatible_with(named[argument].shape)
            or spec.dtype != named[argument].dtype
        ):
            raise InputError(
                f"the signature {name} takes {argument} of the shape {spec.shape} and the type "
                f"{spec.dtype.name}, not {named[argument].shape} and {named[argument].dtype.name}",
                f"give --input {argument}=SHAPE:{spec.dtype.name} that fits",
            )
    return (lambda **given: signature(**given)), (), named


def chosen_signature(model: Any) -> str | None:
    """The name of the signature that was chosen, or serves; None where several are alike."""
    names = tuple(model.signatures)
    usual = [name for name in _SERVING if name in names] or (names if len(names) == 1 else ())
    chosen: str | None = getattr(model, CHOSEN, None)
    return chosen or next(iter(usual), None)


# A model that is timed in TensorFlow itself.


def runnable(source: Source, threads: int, setting: Setting) -> Ready:
    """The concrete function called on tensors of its shapes, its results copied out."""
    import tensorflow as tf

    function = traced(source.model, source.args, source.kwargs, setting.training).function
    explicit = function.inputs[: len(function.inputs) - len(function.captured_inputs)]
    tensors = [_filled(tf, spec) for spec in explicit]

    def once() -> None:
        for result in tf.nest.flatten(function._call_flat(tensors, function.captured_inputs)):
            if hasattr(result, "numpy"):
                result.numpy()

    def trace(runs: int, path: str) -> None:
        tf.profiler.experimental.start(path)
        for step in range(runs):
            with tf.profiler.experimental.Trace(RUN, step_num=step, _r=1):
                once()
        tf.profiler.experimental.stop()

    how = "concrete tf.function, results copied out"
    return Ready(once, f"tensorflow {tf.__version__}", "cpu", how, trace)


def _filled(tf: Any, spec: Any) -> Any:
    if spec.dtype.is_floating:
        return tf.random.stateless_normal(spec.shape, (0, 0), dtype=spec.dtype)
    return tf.zeros(spec.shape, spec.dtype)
