"""Convert a frozen TensorFlow graph to ONNX by tf2onnx, with few operations folded.

tf2onnx's own way in (`tf2onnx.convert.from_function`) lets grappler push the scale of a batch
normalization into the convolution before it, and folds whatever depends on constants. Here
functions are inlined and dead branches go, and only sizes and moved weights are folded: what
computes stays a node.
"""

import importlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple, TypeVar

from crossflops.errors import NormalizeError, error_words
from crossflops.frontends.converted import has_known_cost
from crossflops.frontends.tensorflow.convert.branches import giving_function_inputs_shapes
from crossflops.frontends.tensorflow.convert.lost_attributes import with_checks_of_lost_attributes
from crossflops.frontends.tensorflow.convert.tensorflow_only_operations import (
    input_tensors_without_tables,
)
from crossflops.load.order import node_subgraphs
from crossflops.load.payload import (
    NUMBER,
    drop_tensor_data,
    is_dataless_tensor,
    is_missing_weight_array,
)
from crossflops.patches import inventory
from crossflops.patches.patching import patch_owner, patching_attribute, patching_items

# What tf2onnx writes, tidied: loops whose trips and shapes follow, operators that ONNX has.

DOMAIN = "tensorflow"  # of operations that tf2onnx has no rule for
_SIZED = ("OneHot", "TopK", "Range")
_COMPARISONS = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal")


def move_unknown_operators_to_domain(graph: Any) -> bool:
    """Give nodes that ONNX lacks TensorFlow's domain, in place; return whether there were any."""
    return bool(sum(_move_unknown_operator_to_domain(node) for node in _all_nodes(graph)))


def _move_unknown_operator_to_domain(node: Any) -> bool:
    """Give a node that ONNX lacks TensorFlow's domain, in place; return whether it was one."""
    from onnx import defs

    if node.domain or defs.has(node.op_type):
        return False
    node.domain = DOMAIN
    return True


def read_unchanging_states_from_outside(graph: Any) -> None:
    """Let bodies of loops read values that never change from outside, in place."""
    for node in graph.node:
        for body in node_subgraphs(node):
            read_unchanging_states_from_outside(body)
        if node.op_type == "Loop":
            _read_unchanging_state_from_outside(node, graph)


def replace_negative_pads(graph: Any) -> None:
    """Replace negative pads of transposed convolutions, which ONNX rejects, in place."""
    for node in _all_nodes(graph):
        if node.op_type == "ConvTranspose":
            _replace_negative_pads_of_node(node)


def compare_integers_without_casts(graph: Any) -> None:
    """Let comparisons read integers directly, without casts to floats, in place."""
    made = {value: node for node in graph.node for value in node.output}
    for node in graph.node:
        for body in node_subgraphs(node):
            compare_integers_without_casts(body)
        casts = [made.get(value) for value in node.input]
        if node.op_type in _COMPARISONS and all(cast and cast.op_type == "Cast" for cast in casts):
            # tf2onnx casts the counters to floats, of which nothing would follow
            node.input[:] = [cast.input[0] for cast in casts if cast]


def write_known_shapes(graph: Any, source: Any, converted: Any) -> None:
    """Write shapes that TensorFlow knows and ONNX cannot infer into a GraphProto, in place.

    They are those of operations that tf2onnx left unchanged, and of those whose sizes ONNX needs
    as an initializer (the depth of OneHot). Others may have another order of axes than
    TensorFlow's. `source` is the tf.Graph, None for a body, of which tf2onnx has TensorFlow's
    shapes; `converted` is tf2onnx's graph.
    """
    from onnx import defs, helper

    operations = source.get_operations() if source is not None else ()
    known = {
        tensor.name: tensor.shape.as_list()
        for op in operations
        for tensor in op.outputs
        if tensor.shape.is_fully_defined()
    }
    for node in graph.node:
        bodies_of_node = converted.get_node_by_name(node.name).get_body_graphs() or {}
        for name, body in bodies_of_node.items():
            write_known_shapes(helper.get_node_attr_value(node, name), None, body)
        if node.op_type not in _SIZED and (node.domain or defs.has(node.op_type)):
            continue
        for name in node.output:
            kind = converted.get_dtype(name)
            shape = known.get(name) if source is not None else converted.get_shape(name)
            if kind and shape is not None and min(shape, default=0) >= 0:
                graph.value_info.append(helper.make_tensor_value_info(name, kind, shape))


def set_convolution_groups(graph: Any) -> None:
    """Set the number of groups of convolutions in tf2onnx's graph, in place.

    TensorFlow has no such attribute: their number is the channels of the input divided by those of
    the filter. `graph` is tf2onnx's, X [N, C, ...], W [M, C / groups, ...].
    """
    for node in graph.get_nodes():
        if node.type != "Conv":
            continue
        image, kernel = (graph.get_shape(name) for name in node.input[:2])
        if image and kernel and min(image[1], kernel[1]) > 0:
            node.set_attr("group", image[1] // kernel[1])


def _replace_negative_pads_of_node(node: Any) -> None:
    """Replace a transposed convolution's negative pads by `output_padding`, in place.

    tf2onnx writes it as negative pads, half of them at the beginning. TensorFlow's windows begin
    at the first element wherever the output is longer than they reach (VALID, and SAME with a
    stride beyond the kernel: tensorflow/core/framework/common_shape_fns.cc,
    GetWindowedOutputSizeVerbose).
    """
    from onnx import helper

    pads = next((attribute for attribute in node.attribute if attribute.name == "pads"), None)
    if pads is None or min(pads.ints, default=0) >= 0:
        return
    half = len(pads.ints) // 2
    sums = [begin + end for begin, end in zip(pads.ints[:half], pads.ints[half:], strict=True)]
    begins = [max(number, 0) for number in pads.ints[:half]]
    ends = [max(number, 0) for number in pads.ints[half:]]
    beyond = [max(-total, 0) for total in sums]
    pads.ints[:] = [*begins, *ends]
    node.attribute.append(helper.make_attribute("output_padding", beyond))


def _read_unchanging_state_from_outside(loop: Any, graph: Any) -> None:
    """Let a loop's body read a state that never changes from outside, in place.

    A carried value has an unknown shape for ONNX's inference, since the body could change it.
    """
    from onnx import helper

    (body,) = node_subgraphs(loop)
    read = {value for node in _all_nodes(graph) for value in node.input}
    read |= {value.name for value in graph.output}
    straight = {node.output[0]: node.input[0] for node in body.node if node.op_type == "Identity"}
    for index in reversed(range(len(loop.input) - 2)):
        value, result = body.input[index + 2].name, body.output[index + 1].name
        unused = index >= len(loop.output) or loop.output[index] not in read
        if straight.get(result, result) != value or not unused:
            continue
        for node in _all_nodes(body):
            node.input[:] = [
                loop.input[index + 2] if name == value else name for name in node.input
            ]
        outside = loop.input[index + 2]
        del loop.input[index + 2], body.input[index + 2], body.output[index + 1]
        if index < len(loop.output):
            del loop.output[index]
        if value in {output.name for output in body.output}:  # another value becomes this one
            body.node.append(
                helper.make_node("Identity", [outside], [value], name=f"{value}/kept")
            )


def replace_erfc(graph: Any) -> None:
    """Replace erfc x by 1 - erf x in a graph, in place: tf2onnx cannot convert Erfc."""
    from onnx import helper

    nodes = list(graph.node)
    for body in (body for node in nodes for body in node_subgraphs(node)):
        replace_erfc(body)
    if not any(node.op_type == "Erfc" for node in nodes):
        return
    del graph.node[:]
    for node in nodes:
        graph.node.append(node)
        if node.op_type != "Erfc":
            continue
        stored = graph.node[-1]
        name, result = stored.name, stored.output[0]
        stored.op_type, stored.output[0] = "Erf", f"{result}/erf"
        ones_name = f"{result}/one"
        graph.initializer.append(helper.make_tensor(ones_name, 1, (), [1.0]))
        graph.node.append(
            helper.make_node("Sub", [ones_name, stored.output[0]], [result], name=f"{name}__1")
        )


def _all_nodes(graph: Any) -> Iterator[Any]:
    """Yield all nodes of a graph, also those in bodies."""
    for node in graph.node:
        yield node
        for body in node_subgraphs(node):
            yield from _all_nodes(body)


OPSET = 18  # the newest that tf2onnx 1.17 writes
# Forbid to inline a function, and say nothing about its result.
_KEPT_WHOLE = ("_XlaMustCompile", "_noinline")
# Floats that these make of constants are weights in another place, not results.
_MOVES = ("Identity", "Reshape", "Squeeze", "ExpandDims", "Transpose", "Cast", "Pack", "ConcatV2",
          "Slice", "StridedSlice", "Fill", "Tile", "Split", "Unpack", "GatherV2")  # fmt: skip
_NEVER = ("Placeholder", "PlaceholderWithDefault", "Enter", "Merge", "Switch", "NextIteration",
          "Exit", "NoOp")  # fmt: skip
_DRAWN = {
    **dict.fromkeys(("StatelessRandomUniform", "StatelessRandomUniformV2"), "RandomUniform"),
    **dict.fromkeys(("StatelessRandomNormal", "StatelessRandomNormalV2"), "RandomStandardNormal"),
}
_STOPS = ("StopGradient", "PreventGradient")  # which tf2onnx would make nothing of
_HANDING = "IdentityN"  # as tf.custom_gradient writes it
# Which tf2onnx writes with operators of onnxruntime's extensions, or for some alphabets only.
_TEXT = (
    *("StringLower", "StringUpper", "StringSplit", "StringSplitV2", "StringJoin"),
    *("StringToHashBucketFast", "StaticRegexReplace", "RegexReplace", "StaticRegexFullMatch"),
    *("LookupTableFindV2", "LookupTableSizeV2"),
)
# What of tf2onnx's optimizers only removes what it put in itself.
_LOOPS = ("While", "StatelessWhile")
# What makes one layer of two directions, in which their weights cannot be told apart.
_JOINING = ("rewrite_bi_direction_lstm", "rewrite_bi_direction_gru")
_OPTIMIZERS = ("remove_identity", "loop_optimizer")
_Converted = TypeVar("_Converted")


class WritingNotes(NamedTuple):
    """Notes on one run of tf2onnx: the operation behind each node, and kinds of failed loops.

    `origins` has, by the written nodes, the operations with a known cost, whatever nodes are
    written for them.
    """

    origins: dict[str, str]
    failed: set[str]


def convert_leaving_failing_loops(
    convert: Callable[[WritingNotes, set[str]], _Converted],
) -> _Converted:
    """Return the result of `convert`, with loops that tf2onnx cannot convert left unchanged.

    `convert` gets the object for notes, and those kinds. Raises NormalizeError where it fails
    otherwise.
    """
    left: set[str] = set()
    try:
        while True:
            noted = WritingNotes(origins={}, failed=set())
            try:
                made = convert(noted, left)
            except Exception:
                if noted.failed <= left:
                    raise
            else:
                if noted.failed <= left:
                    return made
            left |= noted.failed  # what a handler leaves halfway is no graph
    except Exception as error:
        raise NormalizeError(
            f"tf2onnx cannot convert the model: {error_words(error)}",
            "run `python -m tf2onnx.convert` on the model to see the whole error",
        ) from error


def turn_gradient_stops_into_identities(graph: Any) -> frozenset[str]:
    """Turn nodes that stop gradients into Identity nodes, in place; return their names."""
    stopped = [node for node in _all_nodes(graph) if node.op_type in _STOPS]
    for node in stopped:
        node.op_type = "Identity"
        del node.attribute[:]
    return frozenset(node.name for node in stopped)


def turn_custom_gradients_into_identities(
    graph: Any, result_counts: Mapping[str, int]
) -> dict[str, tuple[str, ...]]:
    """Turn nodes of custom gradients into Identity nodes, in place; return their operands."""
    provided: dict[str, tuple[str, ...]] = {}
    read = {value for node in _all_nodes(graph) for value in node.input}
    read.update(output.name for output in graph.output)
    for node in graph.node:
        if node.op_type == _HANDING and node.name in result_counts:
            pairs = list(zip(node.input, node.output, strict=True))
            provided[node.name] = tuple(node.input[result_counts[node.name] :])
            [(value, output)] = [pair for pair in pairs if pair[1] in read]
            node.op_type, node.input[:], node.output[:] = "Identity", [value], [output]
            del node.attribute[:]
    return provided


@contextmanager
def importing_definition_as_graph(
    definition: Any,
    keeps_weights: bool,
    notes: WritingNotes,
    unconverted_kinds: set[str],
    result_counts: Container[str],
) -> Iterator[Any]:
    """Return a context in which tf2onnx is prepared; it gives the GraphDef as a tf.Graph.

    Operations of the `unconverted_kinds` stay.
    """
    import tensorflow as tf

    tfonnx = importlib.import_module("tf2onnx.tfonnx")
    with (
        tf.device("/cpu:0"),
        tf.Graph().as_default() as graph,
        _folding_only_sizes_and_weights(tfonnx),
        _supporting_bfloat16(),
        giving_function_inputs_shapes(tfonnx),
        nullcontext() if keeps_weights else _omitting_weight_copies(),
        patching_attribute(patch_owner(inventory.NAMES), "INTERNAL_NAME", 1, inventory.NAMES),
        _keeping_recurrent_layers_separate(tfonnx),
        _keeping_shared_products(),
        _recording_nodes(tfonnx, notes, unconverted_kinds, result_counts),
    ):
        tf.import_graph_def(definition, name="")
        yield graph


def write_tensorflow_onnx(graph: Any, frozen: Any) -> Any:
    """Return tf2onnx's graph of ONNX nodes for the imported graph of a frozen function."""
    return importlib.import_module("tf2onnx.tfonnx").process_tf_graph(
        graph,
        opset=OPSET,
        input_names=[tensor.name for tensor in input_tensors_without_tables(frozen)],
        output_names=[tensor.name for tensor in frozen.outputs],
        continue_on_error=True,
    )


def run_tf2onnx_alias_and_loop_optimizers(graph: Any) -> Any:
    """Return tf2onnx's graph after tf2onnx's own optimizers for aliases and for loops."""
    optimizer = importlib.import_module("tf2onnx.optimizer")
    chosen = {name: optimizer._get_optimizers()[name] for name in _OPTIMIZERS}
    return optimizer.optimize_graph(graph, False, optimizers=chosen)


def replace_large_weights_by_one_number(graph: Any) -> None:
    """Replace each large float32 tensor of a GraphDef by one repeated number, in place."""
    for node in _definition_nodes(graph):
        tensor = node.attr["value"].tensor if node.op == "Const" else None
        if tensor is not None and tensor.dtype == 1 and len(tensor.tensor_content) > 4096:
            tensor.tensor_content = b""
            tensor.float_val[:] = [NUMBER]


def _definition_nodes(graph: Any) -> Iterator[Any]:
    """Yield all nodes of a GraphDef, also those of its functions."""
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def remove_control_inputs(graph: Any) -> None:
    """Remove the control inputs, which only order operations, from a GraphDef, in place."""
    for node in _definition_nodes(graph):
        inputs = [value for value in node.input if not value.startswith("^")]
        del node.input[:]
        node.input.extend(inputs)


def remove_seed_inputs(graph: Any) -> None:
    """Replace random operations with seed inputs by operations without them, in place.

    tf2onnx knows the generators that keep a state of their own.
    """
    for node in _definition_nodes(graph):
        if node.op in _DRAWN:
            node.op = _DRAWN[node.op]
            del node.input[1:]
            node.attr["T"].CopyFrom(node.attr["Tshape" if "Tshape" in node.attr else "T"])
            for name in ("Tshape", "Tseed"):
                node.attr.pop(name, None)


def remove_inlining_bans(graph: Any) -> None:
    """Remove the attributes that forbid inlining functions from a GraphDef, in place."""
    for holder in (*_definition_nodes(graph), *graph.library.function):
        for name in _KEPT_WHOLE:
            holder.attr.pop(name, None)


def inline_functions(graph: Any, frozen: Any, results: Iterable[str]) -> Any:
    """Return the GraphDef with its functions inlined, without nodes that no output needs.

    Nodes needed by the `results`, by name, are kept.

    Unlike tf2onnx's tf_loader.py: tf_optimize_grappler, grappler folds no constants.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
    from tensorflow.python.grappler import tf_optimizer

    requested = [
        tensor.name for tensor in (*input_tensors_without_tables(frozen), *frozen.outputs)
    ]
    config = config_pb2.ConfigProto()
    config.graph_options.infer_shapes = True
    config.graph_options.rewrite_options.optimizers[:] = ["function", "dependency"]
    with tf.device("/cpu:0"):
        with tf.Graph().as_default():
            tf.import_graph_def(graph, name="")
            meta = tf.compat.v1.train.export_meta_graph(graph_def=graph)
        kept = meta_graph_pb2.CollectionDef()
        kept.node_list.value.extend([*requested, *results])
        meta.collection_def["train_op"].CopyFrom(kept)
        return tf_optimizer.OptimizeGraph(config, meta)


@contextmanager
def _recording_nodes(
    tfonnx: Any, notes: WritingNotes, unconverted_kinds: set[str], results: Container[str]
) -> Iterator[None]:
    """Return a context in which `notes` records which nodes tf2onnx writes for an operation.

    tf2onnx/tfonnx.py: tensorflow_onnx_mapping calls the handler of every operation, with the graph
    and the operation's node, which it changes or replaces. Operations of
    `unconverted_kinds` have no handler, and loops whose handler fails are noted.
    """
    name = "tensorflow_onnx_mapping"
    mapping = getattr(tfonnx, name)

    def handler_with_node_recording(kind: str, handler: Any) -> Any:
        """Return a tf2onnx handler that also records which nodes it writes for an operation."""

        def convert_and_record_added_nodes(graph: Any, node: Any, **named: Any) -> Any:
            """Convert an operation by the handler, and record the nodes that this adds."""
            before, own = set(graph.get_nodes()), node.name
            if kind in _LOOPS:
                _begin_tensor_list_empty(graph, node)
            try:
                return handler(graph, node, **named)
            except Exception:
                if kind in _LOOPS:
                    notes.failed.add(kind)
                raise
            finally:
                made = [node.name for node in graph.get_nodes() if node not in before]
                if kind not in _LOOPS:
                    notes.origins.update(dict.fromkeys((own, *made), own))

        return convert_and_record_added_nodes

    def convert_by_recording_handlers(graph: Any, handlers: Any, *more: Any, **named: Any) -> Any:
        """Convert a graph by tf2onnx: handlers record, and `unconverted_kinds` have none."""
        watched = {
            kind: (handler_with_node_recording(kind, handler), *rest)
            for kind, (handler, *rest) in handlers.items()
            if kind in _LOOPS or has_known_cost(DOMAIN, kind)
        }
        every = {
            kind: handle
            for kind, handle in with_checks_of_lost_attributes({**handlers, **watched}).items()
            if kind not in unconverted_kinds and kind not in _TEXT
        }
        kept = {
            kind: (_leave_node_unchanged, *every[kind][1:]) for kind in _STOPS if kind in every
        }
        if results and _HANDING in every:
            handle, *rest = every[_HANDING]
            kept[_HANDING] = (_handler_except_for_nodes(handle, results), *rest)
        return mapping(graph, {**every, **kept}, *more, **named)

    with patching_attribute(tfonnx, name, convert_by_recording_handlers, inventory.HANDLERS):
        yield


def _handler_except_for_nodes(handle: Any, names: Container[str]) -> Any:
    """Return a tf2onnx handler that leaves the nodes of these names unchanged."""

    def convert_unless_node_is_excluded(graph: Any, node: Any, **named: Any) -> Any:
        """Convert a node by the handler, unless its name is one of `names`."""
        return None if node.name in names else handle(graph, node, **named)

    return convert_unless_node_is_excluded


def _begin_tensor_list_empty(graph: Any, loop: Any) -> None:
    """Let a loop's tensor list begin empty, and add its first row after the loop, in place.

    tf.scan without an initializer writes the first row before its loop, and tf2onnx supports only
    lists that begin empty. `graph` is tf2onnx's.
    """
    builder = importlib.import_module("tf2onnx.graph_builder").GraphBuilder(graph)
    functions = importlib.import_module("tf2onnx.tf_loader")
    body = functions.find_function(loop.get_attr_str("body"))
    for index, begun in enumerate(loop.inputs):
        if begun.type != "TensorListSetItem" or begun.inputs[0].type != "TensorListReserve":
            continue
        readers = list(_nodes_that_read(graph, loop.output[index]))
        stacked = all(reader.type == "TensorListStack" for reader in readers)
        if not stacked or body.input_names[index] in body.ta_reads:
            continue
        graph.replace_input(loop, begun.output[0], begun.input[0], index)
        for stack in readers:
            rows = stack.output[0]
            first = builder.make_unsqueeze({"data": begun.input[2], "axes": [0]})
            joined = graph.insert_new_node_on_output("Concat", rows, inputs=[first, rows], axis=0)
            graph.copy_shape(rows, joined.output[0])
            graph.copy_dtype(rows, joined.output[0])


def _nodes_that_read(graph: Any, name: str) -> Iterator[Any]:
    """Yield the nodes that read a value, directly or through Identity nodes."""
    for reader in graph.find_output_consumers(name):
        if reader.type == "Identity":
            yield from _nodes_that_read(graph, reader.output[0])
        else:
            yield reader


def _leave_node_unchanged(*_given: Any, **_named: Any) -> None:
    """Do nothing: a tf2onnx handler that leaves a node unchanged."""


@contextmanager
def _keeping_shared_products() -> Iterator[None]:
    """Return a context in which tf2onnx fuses no product into a Gemm that other nodes read.

    It would keep the product for the others, and multiply twice.
    """
    gemm_rewriter: Any = importlib.import_module("tf2onnx.rewriter.gemm_rewriter")

    class UnsharedGemmMatcher(gemm_rewriter.GraphMatcher):
        def match_ops(self, ops: Any) -> Iterator[Any]:
            """Yield only the matches whose inner products are read by no other node."""
            for match in super().match_ops(ops):
                stored = filter(None, map(match.get_op, ("matmul", "mul1", "mul2")))
                if all(_is_read_once(node) for node in stored):
                    yield match

    with patching_attribute(gemm_rewriter, "GraphMatcher", UnsharedGemmMatcher, inventory.GEMMS):
        yield


def _is_read_once(node: Any) -> bool:
    """Return whether a node's result is read by exactly one node, and is no graph output."""
    name = node.output[0]
    readers = node.graph.find_output_consumers(name)
    return len(readers) == 1 and name not in node.graph.outputs


@contextmanager
def _folding_only_sizes_and_weights(tfonnx: Any) -> Iterator[None]:
    """Return a context in which tf2onnx folds only sizes and moved weights into constants.

    All are folded in one run instead of one run each.
    """
    name = "compute_const_folding_using_tf"
    with patching_attribute(tfonnx, name, _fold_sizes_and_weights, inventory.FOLDING):
        yield


@contextmanager
def _keeping_recurrent_layers_separate(tfonnx: Any) -> Iterator[None]:
    """Return a context in which tf2onnx does not join two recurrent layers into one."""
    with ExitStack() as undo:
        for name in _JOINING:
            kept = patching_attribute(
                tfonnx, name, lambda _graph, nodes: nodes, inventory.REWRITERS
            )
            undo.enter_context(kept)
        yield


@contextmanager
def _supporting_bfloat16() -> Iterator[None]:
    """Return a context in which tf2onnx can convert bfloat16.

    tf2onnx treats it as float16 and fails.

    tf2onnx/tf_utils.py: TF_TO_ONNX_DTYPE; tf2onnx/utils.py has its types of NumPy and names.
    """
    import ml_dtypes
    from onnx import TensorProto
    from tensorflow.core.framework import types_pb2

    kind = TensorProto.BFLOAT16
    tf_utils, utils = (
        importlib.import_module(f"tf2onnx.{name}") for name in ("tf_utils", "utils")
    )
    with (
        patching_items(tf_utils.TF_TO_ONNX_DTYPE, {types_pb2.DT_BFLOAT16: kind}, inventory.TYPES),
        patching_items(
            utils.ONNX_TO_NUMPY_DTYPE, {kind: ml_dtypes.bfloat16}, inventory.TYPE_NAMES
        ),
        patching_items(utils.ONNX_DTYPE_NAMES, {kind: "bfloat16"}, inventory.TYPE_NAMES),
    ):
        yield


@contextmanager
def _omitting_weight_copies() -> Iterator[None]:
    """Return a context in which tf2onnx and onnx do not copy weights that repeat one number.

    tf2onnx/tf_utils.py: get_tf_tensor_data reads a constant, onnx/numpy_helper.py writes it.
    """
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    utils = importlib.import_module("tf2onnx.tf_utils")
    read, write, taken = numpy_helper.to_array, numpy_helper.from_array, utils.get_tf_tensor_data

    def array_of_one_number(dtype: Any, dims: Any) -> Any:
        """Return an array of this shape that repeats one number, stored only once."""
        return np.broadcast_to(np.array(NUMBER, dtype), tuple(dims))

    def tensor_proto_to_array(tensor: Any, *more: Any, **named: Any) -> Any:
        """Return a TensorProto as an array; without data, an array that repeats one number."""
        if not is_dataless_tensor(tensor):
            return read(tensor, *more, **named)
        return array_of_one_number(helper.tensor_dtype_to_np_dtype(tensor.data_type), tensor.dims)

    def array_to_proto(values: Any, name: str | None = None) -> Any:
        """Return an array as a TensorProto, without data if its elements are all `NUMBER`."""
        if not is_missing_weight_array(np.asanyarray(values)):
            return write(values, name)
        kind = helper.np_dtype_to_tensor_dtype(values.dtype)
        return drop_tensor_data(TensorProto(name=name or "", data_type=kind, dims=values.shape))

    def array_of_tensorflow_constant(tensor: Any) -> Any:
        """Return the array of a TensorFlow constant; one repeated number is stored only once."""
        if list(tensor.float_val) != [NUMBER] or not tensor.tensor_shape.dim:
            return taken(tensor)
        return array_of_one_number(np.float32, (dim.size for dim in tensor.tensor_shape.dim))

    with (
        patching_attribute(numpy_helper, "to_array", tensor_proto_to_array, inventory.ONNX_ARRAYS),
        patching_attribute(numpy_helper, "from_array", array_to_proto, inventory.ONNX_ARRAYS),
        patching_attribute(
            utils, "get_tf_tensor_data", array_of_tensorflow_constant, inventory.CONSTANTS
        ),
    ):
        yield


def _fold_sizes_and_weights(
    graph: Any, stored: Any, outputs: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return values and dtypes, each by name, of tensors that are sizes or moved weights."""
    import numpy as np
    import tensorflow as tf

    # of a function tf2onnx gives those of the whole graph
    kept = {*outputs, *(tensor.name for tensor in getattr(graph, "outputs", ()))}
    known: set[str] = set()
    constants: dict[str, Any] = {}
    made: list[Any] = []
    for op in graph.get_operations():
        result = op.outputs[0] if len(op.outputs) == 1 else None
        if result is None or result.name in kept or op.type in _NEVER:
            continue
        if op.type == "Shape" and op.inputs[0].shape.is_fully_defined():
            shape = op.inputs[0].shape.as_list()
            constants[result.name] = np.array(shape, result.dtype.as_numpy_dtype)
        elif op.type != "Const" and not _is_folded(op, result, known):
            continue
        elif op.type != "Const":
            made.append(result)
        known.add(result.name)
    types = {name: tf.as_dtype(value.dtype) for name, value in constants.items()}
    if made:
        with tf.compat.v1.Session(graph=graph) as session:
            values = session.run(made, feed_dict=dict(constants))
        constants |= {output.name: value for output, value in zip(made, values, strict=True)}
        types |= {output.name: output.dtype for output in made}
    return constants, types


def _is_folded(op: Any, result: Any, known: set[str]) -> bool:
    """Return whether an operation is computed at conversion: known inputs, no float work."""
    if op.type.startswith("Random") or result.dtype.name in ("resource", "variant"):
        return False
    if not op.inputs or not all(tensor.name in known for tensor in op.inputs):
        return False
    return not result.dtype.is_floating or op.type in _MOVES
