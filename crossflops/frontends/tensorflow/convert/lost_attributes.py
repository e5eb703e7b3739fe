"""List attributes of operations that tf2onnx loses, and what is done for each of them.

The attributes of the operations that cost work were varied, and the outputs of the files compared
with those of TensorFlow. What else differs does the same work on the same sizes, and only other
numbers come out: whole numbers are divided towards zero, numbers are quantized to 8 bits whatever
`num_bits` is, the weights of legacy bicubic resizing are those of the newer one, and a segment
without rows has the infinity or NaN of ONNX's reduction. `export --verify` says so of a model.
A test reads the source of every form, and finds the attributes of `IGNORED` and none beside them.
"""

from collections.abc import Callable, Mapping
from typing import Any

# What is lost with an attribute that no form reads, where nothing of the work is.
KERNEL = "which of several kernels runs, or how many at once, with the same result"
GRADIENT = "it says whose gradient an operand is, or how one is stored"
IMPLIED = "it follows from the number or the shapes of the operands and results"
STATE = "the name, the room or the time of a table, a queue or an iterator"
TEXT = "how texts are written, which has no count"
SOURCE = "the generator of the numbers that are drawn, as many from any"
CHECK = "when an error is raised"
RAGGED = "how rows of several lengths are stored"
MENDED = "it is read below"
HELD = "the graph of tf2onnx reads it, and no form"
NUMBERS = "other numbers come out of the same work, as `export --verify` says of a model"

IGNORED: Mapping[str, str | Mapping[str, str]] = {
    "N": IMPLIED,
    "Truncate": NUMBERS,
    "bad_indices_policy": NUMBERS,
    "blank_index": NUMBERS,
    "capacity": STATE,
    "container": STATE,
    "encoding": TEXT,
    "explicit_paddings": MENDED,
    "grad_a": GRADIENT,
    "grad_b": GRADIENT,
    "grad_x": GRADIENT,
    "grad_y": GRADIENT,
    "incompatible_shape_error": CHECK,
    "input_ragged_rank": RAGGED,
    "is_training": {"CudnnRNN": SOURCE},  # of its dropout
    "message": CHECK,
    "min_object_covered": SOURCE,
    "num_elements": IMPLIED,
    "num_row_partition_tensors": IMPLIED,
    "num_split": IMPLIED,
    "output_ragged_rank": RAGGED,
    "output_shapes": IMPLIED,
    "padding": {
        "Conv2DBackpropInput": MENDED,
        "Conv3DBackpropInputV2": IMPLIED,  # by the size of the result, which is an operand
    },
    "parallel_iterations": KERNEL,
    "RAGGED_RANK": RAGGED,
    "resize_if_index_out_of_bounds": CHECK,
    "seed": {"CudnnRNN": SOURCE},
    "seed2": SOURCE,
    "shape": IMPLIED,
    "shapes": STATE,
    "shared_name": STATE,
    "shortest": TEXT,
    "sparse_gradient": GRADIENT,
    "timeout_ms": STATE,
    "use_cudnn_on_gpu": KERNEL,
    "use_node_name_sharing": STATE,
    "validate_indices": CHECK,
    "value": {"Const": HELD},
    "width": TEXT,
}

_BATCH_NORMS = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")


def _use_batch_statistics_if_possible(graph: Any, node: Any) -> bool:
    """Let a batch norm in training use its batch's statistics; return if it can be converted.

    tf2onnx uses the moving statistics where the factor of their average is not 1. A norm whose
    statistics are read as results, which no form of tf2onnx has, stays unchanged.
    """
    if not node.get_attr_value("is_training", True):
        return True
    if any(name in graph.outputs or graph.find_output_consumers(name) for name in node.output[1:]):
        return False
    node.set_attr("exponential_avg_factor", 1.0)
    return True


def _add_rows_of_equal_index(_graph: Any, node: Any) -> bool:
    """Let rows that are scattered to one index add up; return True: it can be converted."""
    node.set_attr("reduction", "add")
    return True


def _is_area_average_convertible(_graph: Any, _node: Any) -> bool:
    """Return False: tf2onnx cannot convert an average of areas.

    tf2onnx would pick single elements.
    """
    return False


def _has_known_result_size(_graph: Any, node: Any) -> bool:
    """Return whether tf2onnx can convert a transposed convolution: is its result size known?

    Where the size of the result is unknown, it stays unconverted.
    """
    return not _begin_pads(node) or node.inputs[0].is_const()


# By the kind of operation: what mends its node, and says whether tf2onnx may translate it.
_REVIEWED: dict[str, Callable[[Any, Any], bool]] = {
    **dict.fromkeys(_BATCH_NORMS, _use_batch_statistics_if_possible),
    "Conv2DBackpropInput": _has_known_result_size,
    "ScatterNd": _add_rows_of_equal_index,
    "ResizeArea": _is_area_average_convertible,
}


def _begin_pads(node: Any) -> list[int]:
    """Return the explicit padding at the begin of a transposed convolution's axes, or []."""
    if node.type != "Conv2DBackpropInput" or node.get_attr_value("padding") != b"EXPLICIT":
        return []
    first = 1 if node.get_attr_value("data_format", b"NHWC") == b"NHWC" else 2
    pads: list[int] = node.get_attr_value("explicit_paddings")[2 * first :: 2]
    return pads[:2]


def _set_begin_pads(node: Any, begin: list[int]) -> None:
    """Set the padding at the begin of each axis to `begin`; the sum of an axis stays, in place.

    tf2onnx puts half of it before, whatever the operation says.
    """
    pads = node.get_attr_value("pads")
    ends = [before + after for before, after in zip(pads[:2], pads[2:], strict=True)]
    node.set_attr("pads", [*begin, *(size - own for size, own in zip(ends, begin, strict=True))])


def with_checks_of_lost_attributes(handlers: dict[str, Any]) -> dict[str, Any]:
    """Return tf2onnx's handlers, changed so that no attribute is lost."""

    def handler_with_attribute_check(kind: str, handler: Any) -> Any:
        """Return a tf2onnx handler that first checks the attributes that tf2onnx would lose."""

        def check_and_convert(graph: Any, node: Any, **named: Any) -> Any:
            """Convert an operation; return None if a lost attribute would change its result."""
            if not _REVIEWED[kind](graph, node):
                return None
            begin = _begin_pads(node)
            result = handler(graph, node, **named)
            if begin:
                _set_begin_pads(node, begin)
            return result

        return check_and_convert

    return {
        kind: (handler_with_attribute_check(kind, handler), *rest)
        if kind in _REVIEWED
        else (handler, *rest)
        for kind, (handler, *rest) in handlers.items()
    }
