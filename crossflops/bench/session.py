"""Prepare an ONNX model for onnxruntime: bind sizes, inline functions, name nodes, give weights
values.
"""

import os
from collections.abc import Mapping, Sequence
from math import prod, sqrt
from pathlib import Path
from typing import Any

from crossflops.errors import InputError, MissingExtraError, NormalizeError
from crossflops.frontends.onnx import binding, functions
from crossflops.ir.graph import TensorSpec
from crossflops.load.order import node_subgraphs
from crossflops.load.payload import ELEMENT_TYPES
from crossflops.load.protobuf import parse_model_proto
from crossflops.load.validation import validate_and_sort_model
from crossflops.plugins.failures import says_memory_ran_out

FOLDER = "session.model_external_initializers_file_folder_path"
_SAVED = "session.optimized_model_external_initializers_"
_NEWEST = "ALLOW_RELEASED_ONNX_OPSET_ONLY"  # operator sets newer than the runtime are tried
_FORMAT = 10  # what later formats add (devices, notes) is no matter of a run, but is refused
INSTALL = "pip install 'crossflops[runtime]'"
LEVELS = {
    "all": "ORT_ENABLE_ALL",
    "extended": "ORT_ENABLE_EXTENDED",
    "basic": "ORT_ENABLE_BASIC",
    "off": "ORT_DISABLE_ALL",
}
PROVIDERS = ["CPUExecutionProvider"]


def import_onnxruntime() -> Any:
    """Return the module onnxruntime. Raises MissingExtraError if it is missing, NormalizeError if
    it cannot be imported.

    Raises MemoryError where its libraries find no room.
    """
    os.environ[_NEWEST] = "0"
    try:
        import onnxruntime
    except ModuleNotFoundError as error:
        raise MissingExtraError("onnxruntime is not installed", INSTALL) from error
    except ImportError as error:
        if says_memory_ran_out(str(error)):
            raise MemoryError(str(error)) from error
        raise NormalizeError(f"onnxruntime cannot be imported: {error}", INSTALL) from error
    return onnxruntime


def prepare_session_model(
    path: str, dims: Mapping[str, int], specs: Sequence[TensorSpec], feeds: Mapping[str, Any]
) -> Any:
    """Return the model of a file with its weights, with definite input sizes, and with its
    functions inlined.

    Inlined as they are for the count, so that values and nodes have the same names there and
    here. Raises TargetError, InputError.
    """
    model = parse_model_proto(Path(path).read_bytes())
    validate_and_sort_model(model)
    provided = [TensorSpec(name, "", array.shape) for name, array in feeds.items()]
    binding.bind_input_sizes(model.graph, dims, (*specs, *provided), path)
    if specs or provided:
        _remove_stated_shapes(model.graph)
    _remove_empty_output_types(model.graph)
    local = functions.local_functions(model)
    if functions.node_count_after_inlining(model, local) <= functions.LIMIT:
        functions.inline_function_calls(model, local)
    model.ir_version = min(model.ir_version, _FORMAT)
    return model


def _remove_stated_shapes(graph: Any) -> None:
    """Remove the shapes that a graph states for other input sizes; onnxruntime infers
    them again.
    """
    del graph.value_info[:]
    for value in graph.output:
        if value.type.WhichOneof("value") == "tensor_type":
            for dim in value.type.tensor_type.shape.dim:
                dim.ClearField("dim_value")


def _remove_empty_output_types(graph: Any) -> None:
    """Remove output types without an element type, which onnxruntime rejects; it infers the
    missing types.
    """
    for value in graph.output:
        if value.type.HasField("tensor_type") and not value.type.tensor_type.elem_type:
            value.ClearField("type")
    for node in graph.node:
        for body in node_subgraphs(node):
            _remove_empty_output_types(body)


def make_node_names_unique(graph: Any, taken: set[str] | None = None) -> None:
    """Give every node of an ONNX graph and its subgraphs a unique name, in place; keep names that
    are unique.
    """
    taken = set() if taken is None else taken
    for number, node in enumerate(graph.node):
        base = name = node.name or f"{node.op_type}_{number}"
        again = 1
        while name in taken:
            again += 1
            name = f"{base}#{again}"
        node.name = name
        taken.add(name)
        for body in node_subgraphs(node):
            make_node_names_unique(body, taken)


def to_model_bytes(model: Any) -> bytes:
    """Return an ONNX model as bytes. Raises NormalizeError above protobuf's limit of 2 GiB."""
    try:
        return bytes(model.SerializeToString())
    except ValueError as error:
        raise NormalizeError(
            "the model is larger than 2 GiB, the most that can be run from memory",
            "save it with onnx.save(model, FILE, save_as_external_data=True), and give FILE",
        ) from error


def build_session_options(module: Any, folder: str, threads: int, optimization: str) -> Any:
    """Return onnxruntime session options with these threads, this optimization level and the
    folder of external data.
    """
    chosen = module.SessionOptions()
    levels = module.GraphOptimizationLevel
    chosen.graph_optimization_level = getattr(levels, LEVELS[optimization])
    chosen.log_severity_level = 4
    chosen.intra_op_num_threads = threads
    chosen.inter_op_num_threads = 1
    chosen.add_session_config_entry(FOLDER, folder)
    return chosen


def set_optimized_graph_path(session_options: Any, path: Path) -> None:
    """Set session options so that onnxruntime saves its optimized graph to a file."""
    session_options.optimized_model_filepath = str(path)
    session_options.add_session_config_entry(f"{_SAVED}file_name", f"{path.name}.data")
    session_options.add_session_config_entry(f"{_SAVED}min_size_in_bytes", "64")


def make_model_inputs(model: Any, provided: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value for each input of the model, by name: the provided one, by its name or its
    index, else random floats or zero integers.
    """
    return {
        value.name: _make_input_value(value, provided, str(index))
        for index, value in enumerate(binding.inputs_given_by_caller(model.graph))
    }


def _make_input_value(value: Any, provided: Mapping[str, Any], index: str) -> Any:
    """Return the provided array for an input of an ONNX model, else random floats or zeros of its
    shape and type.
    """
    import numpy as np

    for key in (value.name, index):
        if key in provided:
            return provided[key]
    kind = value.type.tensor_type
    dtype = ELEMENT_TYPES.get(kind.elem_type, "")
    if value.type.WhichOneof("value") != "tensor_type" or not hasattr(np, dtype or "?"):
        message = (
            f"cannot make a random input {value.name!r} of type {dtype or 'sequence or optional'}"
        )
        raise InputError(
            message, f"give its value with --inputs FILE.npz, in an array {value.name!r}"
        )
    shape = tuple(dim.dim_value for dim in kind.shape.dim)
    if dtype.startswith("float"):
        return np.random.default_rng(0).standard_normal(shape).astype(dtype)
    return np.zeros(shape, dtype=dtype)


# Values for weights of which only the shapes are known.

_VALUES = (
    *("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"),
    "external_data",
)


def fill_weights_with_random_values(model: Any) -> int:
    """Give each weight that has a shape but no values random values, in place; return the number
    of these weights.

    Matrices and kernels get random values of about 1 / sqrt(inputs of an output), so that numbers
    neither grow nor vanish on their way through the model; vectors, which scale or are variances,
    values about 1. Integers are zero.
    """
    import numpy as np

    random = np.random.default_rng(0)
    filled = 0
    for tensor in model.graph.initializer:
        size = prod(tensor.dims)
        if not size or any(getattr(tensor, field) for field in _VALUES):
            continue
        dtype = ELEMENT_TYPES.get(tensor.data_type, "")
        values = _random_weight_values(random, tuple(tensor.dims), dtype)
        tensor.raw_data = values.astype(dtype).tobytes()
        filled += 1
    return filled


def _random_weight_values(random: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Return random values for a weight of this shape, scaled so that the values of a deep model
    stay finite; zeros for integers.
    """
    import numpy as np

    if not dtype.startswith("float"):
        return np.zeros(shape)
    if len(shape) < 2:
        return random.uniform(0.5, 1.5, shape)
    return random.standard_normal(shape) / sqrt(prod(shape) / max(shape[0], shape[-1]))
