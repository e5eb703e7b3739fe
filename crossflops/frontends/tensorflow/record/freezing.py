"""Freeze the concrete function of a TensorFlow model: its variables become constants."""

import importlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from crossflops.errors import NormalizeError
from crossflops.frontends.tensorflow.load.messages import short_error_text
from crossflops.load.payload import NUMBER
from crossflops.patches import inventory
from crossflops.patches.patching import original_attribute, patching_attribute

_LARGE = 1024  # elements from which on a variable of floats is there by shape
_STORES = ("AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp")
_CHANGES = (
    "ResourceScatter",
    "ResourceApply",
    "ResourceSparseApply",
    "ResourceStridedSliceAssign",
)


def has_variable_writes(function: Any) -> bool:
    """Return whether a concrete function, or one that it calls, writes to variables."""
    graph = function.graph.as_graph_def()
    bodies = (graph.node, *(function.node_def for function in graph.library.function))
    return any(
        node.op in _STORES or node.op.startswith(_CHANGES) for nodes in bodies for node in nodes
    )


def calls_functions(function: Any) -> bool:
    """Return whether a concrete function has functions in it, as loops and branches have.

    One that has none is frozen alike with loops lowered and with loops whole.
    """
    return bool(function.graph.as_graph_def().library.function)


def freeze_variables(function: Any, lowers_control_flow: bool, keeps_weights: bool = False) -> Any:
    """Return the concrete function with variables as constants and its functions inlined.

    Large float variables are stored by shape: all their elements are one number, which a constant
    holds once, unless they are needed (`keeps_weights`). TensorFlow would write several
    copies of all weights.

    `lowers_control_flow` turns loops and branches into the operations that TensorFlow runs (Enter,
    Merge, Switch ...); without it they stay whole. Raises NormalizeError.
    """
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    try:
        with (
            nullcontext() if keeps_weights else _freezing_without_copies(),
            keeping_case_operations(),
            freezing_gathers_in_functions(),
        ):
            return convert_variables_to_constants_v2(
                function,
                lower_control_flow=lowers_control_flow,
                aggressive_inlining=not lowers_control_flow,
            )
    except Exception as error:
        if has_variable_writes(function):
            raise NormalizeError(
                "the model writes its variables while it runs, so it cannot be frozen",
                "give the Keras model itself, or a function that returns the new values instead",
            ) from error
        raise NormalizeError(
            "TensorFlow cannot freeze the model: "
            f"{type(error).__name__}: {short_error_text(error)}",
            "to see the whole error, call convert_variables_to_constants_v2 of "
            "tensorflow.python.framework.convert_to_constants on its concrete function",
        ) from error


@contextmanager
def _freezing_without_copies() -> Iterator[None]:
    """Return a context in which freezing does not copy the values of large float variables.

    tensorflow/python/framework/convert_to_constants.py: `_FunctionConverterDataInEager._eval`
    reads a variable, `make_tensor_proto` writes it.
    """
    module: Any = importlib.import_module("tensorflow.python.framework.convert_to_constants")
    kind, write = module._FunctionConverterDataInEager, module.tensor_util.make_tensor_proto
    read = original_attribute(kind, "_eval", inventory.VARIABLE_COPIES)

    def variable_as_array_without_copy(self: Any, tensor: Any) -> Any:
        """Return the array of a variable; a large one of floats repeats one stored number."""
        shape = tensor.shape
        if not tensor.dtype.is_floating or not shape.is_fully_defined():
            return read(self, tensor)
        return _uniform_array(tensor) if shape.num_elements() > _LARGE else read(self, tensor)

    def write_tensor_proto(values: Any, *provided: Any, **named: Any) -> Any:
        """Return the TensorProto of an array; a large array of one number stores it once."""
        if not getattr(values, "ndim", 0) or any(values.strides) or values.size <= _LARGE:
            return write(values, *provided, **named)
        first_value = values.flat[0]
        return write(first_value, dtype=values.dtype, shape=values.shape, allow_broadcast=True)

    with (
        patching_attribute(
            kind, "_eval", variable_as_array_without_copy, inventory.VARIABLE_COPIES
        ),
        patching_attribute(
            module.tensor_util, "make_tensor_proto", write_tensor_proto, inventory.VARIABLE_PROTOS
        ),
    ):
        yield


def _uniform_array(tensor: Any) -> Any:
    """Return an array in a variable's shape and dtype that repeats one number, stored once."""
    import numpy as np

    return np.broadcast_to(np.array(NUMBER, tensor.dtype.as_numpy_dtype), tensor.shape.as_list())


_LACKING = {"Case", "StatelessCase"}


def keeping_case_operations() -> AbstractContextManager[object]:
    """Return a context in which freezing does not lower Case operations.

    tensorflow/python/framework/convert_to_constants.py: `_CONTROL_FLOW_OPS` names the operations
    that are not lowered, and lacks Case.
    """
    module: Any = importlib.import_module("tensorflow.python.framework.convert_to_constants")
    name = "_CONTROL_FLOW_OPS"
    return patching_attribute(
        module,
        name,
        original_attribute(module, name, inventory.CONTROL_FLOW) | _LACKING,
        inventory.CONTROL_FLOW,
    )


def freezing_gathers_in_functions() -> AbstractContextManager[object]:
    """Return a context in which freezing also converts gathers of variables in functions.

    tensorflow/python/framework/convert_to_constants.py: `_ResourceGather` leaves those in the body
    of a loop or a branch unchanged, although they get the constant in place of the variable: such
    a frozen graph cannot run.
    """
    module: Any = importlib.import_module("tensorflow.python.framework.convert_to_constants")
    kind, name = module._ResourceGather, "convert_variable_to_constant"
    convert = original_attribute(kind, name, inventory.GATHERS)

    def convert_gather(self: Any, edge: Any, tensor: Any) -> None:
        """Convert a gather of a variable to a gather of a constant, in place."""
        if self._function is None:
            convert(self, edge, tensor)
        else:
            _turn_into_tensor_gather(
                self.converted_self().node, self._function.converted_self().function
            )

    return patching_attribute(kind, name, convert_gather, inventory.GATHERS)


def _turn_into_tensor_gather(node: Any, function: Any) -> None:
    """Change a gather of a variable in a function to a gather of a tensor, in place."""
    from tensorflow.python.framework.tensor_util import make_tensor_proto

    kind = node.attr["Tindices"]
    axis = function.node_def.add(name=f"{node.name}/axis", op="Const")
    axis.attr["dtype"].CopyFrom(kind)
    number = make_tensor_proto(node.attr["batch_dims"].i, dtype=kind.type)
    axis.attr["value"].tensor.CopyFrom(number)
    node.op = "GatherV2"
    node.input.insert(2, f"{axis.name}:output:0")
    node.attr["Tparams"].CopyFrom(node.attr.pop("dtype"))
    node.attr["Taxis"].CopyFrom(kind)
    node.attr.pop("validate_indices", None)
