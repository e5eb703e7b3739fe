"""A frozen TensorFlow graph -> ONNX by tf2onnx, with as little folded as the converter allows.

tf2onnx's own way in (`tf2onnx.convert.from_function`) lets grappler push the scale of a batch
normalization into the convolution before it, and folds whatever depends on constants. Here
functions are inlined and dead branches go, and only sizes and moved weights are folded: what
computes stays a node.
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple
from unittest.mock import patch

from crossflops.errors import NormalizeError
from crossflops.load.hollow import NUMBER, hollow, is_hollow, is_uniform
from crossflops.normalize.standing import known
from crossflops.normalize.tensorflow.tidied import DOMAIN, tell_groups, tell_shapes, tidy

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
# What of tf2onnx's optimizers only removes what it put in itself.
_LOOPS = ("While", "StatelessWhile")
_OPTIMIZERS = ("remove_identity", "loop_optimizer")


class Noted(NamedTuple):
    """While tf2onnx works: whose operations its nodes are, and the kinds of loops it fails on."""

    origins: dict[str, str]
    failed: set[str]


class Converted(NamedTuple):
    """The bytes of an ONNX model, and by its nodes the operations that tf2onnx wrote them for.

    Those alone of whose operation it is known what it costs, whatever nodes are written for it.
    """

    data: bytes
    origins: dict[str, str]


def to_onnx(frozen: Any, weighted: bool = False) -> Converted:
    """An ONNX model of a frozen function, whose nodes keep TensorFlow's names.

    Weights are there by shape, all their elements are one number, unless they are wanted
    (`weighted`). Names are the same ones in both. Raises NormalizeError where tf2onnx fails.
    """
    graph = _plain(frozen.graph.as_graph_def(add_shapes=True))
    if not weighted:
        graph = _weightless(graph)
    left: set[str] = set()
    try:
        while True:
            noted = Noted(origins={}, failed=set())
            model = _processed(frozen, graph, weighted, noted, left)
            if noted.failed <= left:
                break
            left |= noted.failed  # what a handler leaves halfway is no graph
    except Exception as error:
        raise NormalizeError(
            f"tf2onnx cannot convert the model: {type(error).__name__}: {error}",
            "see what python -m tf2onnx.convert says about it",
        ) from error
    tidy(model)
    return Converted(model.SerializeToString(), noted.origins)


def _processed(frozen: Any, graph: Any, weighted: bool, noted: Noted, left: set[str]) -> Any:
    """The ONNX model (ModelProto) of a GraphDef; operations of the kinds in `left` stay."""
    import tensorflow as tf

    inputs = [one.name for one in frozen.inputs]
    outputs = [one.name for one in frozen.outputs]
    tfonnx = importlib.import_module("tf2onnx.tfonnx")
    optimizer = importlib.import_module("tf2onnx.optimizer")
    chosen = {name: optimizer._get_optimizers()[name] for name in _OPTIMIZERS}
    with tf.device("/cpu:0"):
        inlined = _inlined(graph, inputs, outputs)
        with (
            tf.Graph().as_default() as imported,
            _folding_sizes(tfonnx),
            nullcontext() if weighted else _hollow(),
            patch.object(importlib.import_module("tf2onnx.utils"), "INTERNAL_NAME", 1),
            _recorded(tfonnx, noted, left),
        ):
            tf.import_graph_def(inlined, name="")
            found = tfonnx.process_tf_graph(
                imported,
                opset=OPSET,
                input_names=inputs,
                output_names=outputs,
                continue_on_error=True,
            )
            found = optimizer.optimize_graph(found, False, optimizers=chosen)
            tell_groups(found)
            model = found.make_model("crossflops")
            tell_shapes(model.graph, imported, found.get_dtype)
    return model


def _weightless(graph: Any) -> Any:
    """The graph with one number for each large float tensor, which TensorFlow spreads out."""
    for node in _nodes(graph):
        tensor = node.attr["value"].tensor if node.op == "Const" else None
        if tensor is not None and tensor.dtype == 1 and len(tensor.tensor_content) > 4096:
            tensor.tensor_content = b""
            tensor.float_val[:] = [NUMBER]
    return graph


def _nodes(graph: Any) -> Iterator[Any]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def _plain(graph: Any) -> Any:
    """The graph with its functions for XLA as functions like others, which can be inlined.

    What only orders operations goes: nothing has to run for its own sake. Random numbers come
    from a seed that nobody sets.
    """
    for node in _nodes(graph):
        inputs = [one for one in node.input if not one.startswith("^")]
        del node.input[:]
        node.input.extend(inputs)
        if node.op in _DRAWN:
            # tf2onnx knows the generators that keep a state of their own
            node.op = _DRAWN[node.op]
            del node.input[1:]
            node.attr["T"].CopyFrom(node.attr["Tshape" if "Tshape" in node.attr else "T"])
            for name in ("Tshape", "Tseed"):
                node.attr.pop(name, None)
    for holder in (*_nodes(graph), *graph.library.function):
        for name in _KEPT_WHOLE:
            holder.attr.pop(name, None)
    return graph


def _inlined(graph: Any, inputs: list[str], outputs: list[str]) -> Any:
    """The graph with its functions inlined, and without what no output needs.

    Unlike tf2onnx's tf_loader.py: tf_optimize_grappler, grappler folds no constants.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
    from tensorflow.python.grappler import tf_optimizer

    config = config_pb2.ConfigProto()
    config.graph_options.infer_shapes = True
    config.graph_options.rewrite_options.optimizers[:] = ["function", "dependency"]
    with tf.Graph().as_default():
        tf.import_graph_def(graph, name="")
        meta = tf.compat.v1.train.export_meta_graph(graph_def=graph)
    wanted = meta_graph_pb2.CollectionDef()
    wanted.node_list.value.extend([*inputs, *outputs])
    meta.collection_def["train_op"].CopyFrom(wanted)
    return tf_optimizer.OptimizeGraph(config, meta)


@contextmanager
def _recorded(tfonnx: Any, noted: Noted, left: set[str]) -> Iterator[None]:
    """Write down the nodes that tf2onnx makes for the operations whose cost is known.

    tf2onnx/tfonnx.py: tensorflow_onnx_mapping calls the handler of every operation, with the graph
    and the operation's node, which it changes, or takes away and makes others. Those in `left`
    have no handler, and those of loops whose handler fails are noted.
    """
    name = "tensorflow_onnx_mapping"
    mapping = getattr(tfonnx, name)

    def recording(kind: str, handler: Any) -> Any:
        def handled(graph: Any, node: Any, **named: Any) -> Any:
            before, own = set(graph.get_nodes()), node.name
            try:
                return handler(graph, node, **named)
            except Exception:
                if kind in _LOOPS:
                    noted.failed.add(kind)
                raise
            finally:
                made = [one.name for one in graph.get_nodes() if one not in before]
                if kind not in _LOOPS:
                    noted.origins.update(dict.fromkeys((own, *made), own))

        return handled

    def mapped(graph: Any, handlers: Any, *more: Any, **named: Any) -> Any:
        watched = {
            kind: (recording(kind, handler), *rest)
            for kind, (handler, *rest) in handlers.items()
            if kind in _LOOPS or known(DOMAIN, kind)
        }
        every = {kind: one for kind, one in {**handlers, **watched}.items() if kind not in left}
        return mapping(graph, every, *more, **named)

    with patch.object(tfonnx, name, mapped):
        yield


@contextmanager
def _folding_sizes(tfonnx: Any) -> Iterator[None]:
    """Let tf2onnx fold sizes and moved weights alone, all in one run instead of one run each."""
    name = "compute_const_folding_using_tf"
    before = getattr(tfonnx, name)
    setattr(tfonnx, name, _folded)
    try:
        yield
    finally:
        setattr(tfonnx, name, before)


@contextmanager
def _hollow() -> Iterator[None]:
    """While this is open, tf2onnx and onnx make no copies of weights that are one number.

    tf2onnx/tf_utils.py: get_tf_tensor_data reads a constant, onnx/numpy_helper.py writes it.
    """
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    utils = importlib.import_module("tf2onnx.tf_utils")
    read, write, taken = numpy_helper.to_array, numpy_helper.from_array, utils.get_tf_tensor_data

    def spread(dtype: Any, dims: Any) -> Any:
        return np.broadcast_to(np.array(NUMBER, dtype), tuple(dims))

    def array(tensor: Any, *more: Any, **named: Any) -> Any:
        if not is_hollow(tensor):
            return read(tensor, *more, **named)
        return spread(helper.tensor_dtype_to_np_dtype(tensor.data_type), tensor.dims)

    def proto(values: Any, name: str | None = None) -> Any:
        if not is_uniform(np.asanyarray(values)):
            return write(values, name)
        kind = helper.np_dtype_to_tensor_dtype(values.dtype)
        return hollow(TensorProto(name=name or "", data_type=kind, dims=values.shape))

    def constant(tensor: Any) -> Any:
        if list(tensor.float_val) != [NUMBER] or not tensor.tensor_shape.dim:
            return taken(tensor)
        return spread(np.float32, (one.size for one in tensor.tensor_shape.dim))

    with (
        patch.object(numpy_helper, "to_array", array),
        patch.object(numpy_helper, "from_array", proto),
        patch.object(utils, "get_tf_tensor_data", constant),
    ):
        yield


def _folded(graph: Any, stored: Any, outputs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Values and types of the tensors of a graph that are known sizes or moved weights."""
    import numpy as np
    import tensorflow as tf

    known: set[str] = set()
    found: dict[str, Any] = {}
    made: list[Any] = []
    for op in graph.get_operations():
        result = op.outputs[0] if len(op.outputs) == 1 else None
        if result is None or result.name in outputs or op.type in _NEVER:
            continue
        if op.type == "Shape" and op.inputs[0].shape.is_fully_defined():
            shape = op.inputs[0].shape.as_list()
            found[result.name] = np.array(shape, result.dtype.as_numpy_dtype)
        elif op.type != "Const" and not _folds(op, result, known):
            continue
        elif op.type != "Const":
            made.append(result)
        known.add(result.name)
    types = {name: tf.as_dtype(value.dtype) for name, value in found.items()}
    if made:
        with tf.compat.v1.Session(graph=graph) as session:
            values = session.run(made, feed_dict=dict(found))
        found |= {one.name: value for one, value in zip(made, values, strict=True)}
        types |= {one.name: one.dtype for one in made}
    return found, types


def _folds(op: Any, result: Any, known: set[str]) -> bool:
    if op.type.startswith("Random") or result.dtype.name in ("resource", "variant"):
        return False
    if not op.inputs or not all(one.name in known for one in op.inputs):
        return False
    return not result.dtype.is_floating or op.type in _MOVES
