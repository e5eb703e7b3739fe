"""Operators without a formula, each with the reason: their nodes are uncounted, never zero.

Of those that hold a body, what the body costs is counted instead, run by run.
"""

from functools import partial

from crossflops.ir.graph import Node
from crossflops.operators.access import integer_attribute
from crossflops.operators.operands import (
    input_label,
    input_shape,
    integer_list_or_none,
    single_number_constraint,
)
from crossflops.operators.rule import MICROSOFT, TRAINING, OperandProblem, Operators

operator = Operators()

_CONTROL = "the node itself costs nothing; its body is counted for each iteration"


def scan_axes_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the operands of Scan, or "" if nothing is: scanned inputs are
    equally long along their scan axes.
    """
    count = integer_attribute(node, "num_scan_inputs")
    indices = range(len(node.inputs) - count, len(node.inputs))
    axes = integer_list_or_none(node, "scan_input_axes") or (0,) * count
    first: tuple[int, int] | None = None
    for index, axis in zip(indices, axes, strict=False):
        dims = input_shape(node, index)
        if dims is None or not -len(dims) <= axis < len(dims):
            continue
        if first is None:
            first = index, dims[axis]
        elif dims[axis] != first[1]:
            has = f"{input_label(node, index)} has {dims[axis]} at axis {axis}"
            return f"{has}, but {first[1]} is needed to match {input_label(node, first[0])}"
    return ""


operator.declare_without_rule("If", _CONTROL, requires=single_number_constraint(0))
operator.declare_without_rule("Loop", _CONTROL, requires=single_number_constraint(0, 1))
operator.declare_without_rule("Scan", _CONTROL, requires=scan_axes_constraint)
operator.declare_without_rule("SequenceMap", _CONTROL)
operator.declare_without_rule(
    (
        *("ImageDecoder", "RegexFullMatch", "StringConcat"),
        *("StringNormalizer", "StringSplit", "TfIdfVectorizer"),
    ),
    "text and media are not counted",
)
operator.declare_without_rule(
    (
        *("DisentangledAttention_TRT", "EfficientNMS_TRT"),
        *("MultilevelCropAndResize_TRT", "PyramidROIAlign_TRT"),
    ),
    "it is a plugin of TensorRT without an equation in its schema",
)
operator.declare_without_rule("GRUUnit", "it was removed from ONNX before it had a specification")
operator.declare_without_rule(
    "Gradient", "it differentiates another part of the graph", domain=TRAINING
)


added = partial(operator.declare_without_rule, domain=MICROSOFT)  # by onnxruntime

added(
    ("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"),
    "the length of the generated text depends on data",
)
added(("EPContext", "Snpe"), "it runs a model of another program")
added(("Tokenizer", "WordConvEmbedding", "MurmurHash3"), "text and media are not counted")
added(
    (
        *("BifurcationDetector", "NGramRepeatBlock"),
        *("NGramHashMapping", "VarlenNGramHashMapping"),
    ),
    "bookkeeping of tokens is not counted",
)
added(
    (
        *("DynamicSparseAttention", "SparsePagedAttention"),
        *("SparseAttentionIndexer", "PackedSparseAttentionIndexer"),
    ),
    "the selection of keys depends on data",
)
added(
    ("LongformerAttention", "QOrderedLongformerAttention"),
    "the number of tokens with global attention depends on data",
)
added("DecoderAttention", "the use of the cache depends on data")
added(("QuantizeBFP", "DequantizeBFP"), "the block floating point format is that of one device")
added("AttnLSTM", "its attention has no equation in the specification")
