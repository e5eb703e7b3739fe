"""Rebuild the counted graph as a module of TensorFlow operations, with inputs of its sizes.

In: a `Source` of another framework, or a file. Out: a `Source` with a `tf.Module`.
May import: rebuild, frontends, load, ir, errors.
"""

from typing import Any

from crossflops.errors import MissingExtraError
from crossflops.frontends import Source
from crossflops.frontends.onnx import OnnxFile
from crossflops.frontends.tensorflow.load.quiet import quieting_tensorflow
from crossflops.ir.graph import Graph
from crossflops.load.payload import fill_model_weights


@quieting_tensorflow()
def rebuild_as_tensorflow(program: Any, graph: Graph) -> Source:
    """Return a TensorFlow module that computes the ONNX model counted as `graph`, with
    tf.TensorSpecs as inputs.

    `program` is a model of onnx_ir, the bytes of one, or a file. Weights are zeros, of which one
    is stored. Raises MissingExtraError without TensorFlow, TargetError and InputError about a
    file, NormalizeError where an operator cannot be rebuilt.
    """
    try:
        import tensorflow as tf
    except ImportError as error:
        raise MissingExtraError(
            f"cannot rebuild a TensorFlow function: {error}",
            "pip install 'crossflops[tensorflow]'",
        ) from error
    from crossflops.rebuild.tensorflow import module as module_rebuilding
    from crossflops.rebuild.tensorflow.module import OnnxModule

    if isinstance(program, OnnxFile):
        model = module_rebuilding.model_of_file_without_weight_values(program)
    else:
        in_bytes = isinstance(program, bytes)
        model = (
            module_rebuilding.model_of_bytes_without_weight_values(fill_model_weights(program))
            if in_bytes
            else module_rebuilding.model_of_ir_without_weight_values(program)
        )
    module = module_rebuilding.rebuild_program(
        model, {node.key: node.path for node in graph.nodes}
    )
    inputs = tuple(tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in graph.inputs)
    return Source(OnnxModule(module, graph.name or "model"), inputs, {})
