"""Operators without a formula, each with the reason: their nodes are uncounted, never zero.

Of those that hold a body, what the body costs is counted instead, run by run.
"""

from functools import partial

from crossflops.ir.graph import Node
from crossflops.operators.access import integer
from crossflops.operators.operands import dims_of, ints, operand_label, single
from crossflops.operators.rule import MICROSOFT, TRAINING, Operators

operator = Operators()

_CONTROL = "the node costs nothing by itself: its body is counted, run by run"


def scan_axes_constraint(node: Node) -> str:
    """Return what is wrong with the operands of Scan, or "" if nothing is: scanned inputs are
    equally long along their scan axes.
    """
    count = integer(node, "num_scan_inputs")
    indices = range(len(node.inputs) - count, len(node.inputs))
    axes = ints(node, "scan_input_axes") or (0,) * count
    first: tuple[int, int] | None = None
    for index, axis in zip(indices, axes, strict=False):
        dims = dims_of(node, index)
        if dims is None or not -len(dims) <= axis < len(dims):
            continue
        if first is None:
            first = index, dims[axis]
        elif dims[axis] != first[1]:
            has = f"{operand_label(node, index)} has {dims[axis]} at axis {axis}"
            return f"{has}, but {first[1]} is needed beside {operand_label(node, first[0])}"
    return ""


operator.without_rule("If", _CONTROL, requires=single(0))
operator.without_rule("Loop", _CONTROL, requires=single(0, 1))
operator.without_rule("Scan", _CONTROL, requires=scan_axes_constraint)
operator.without_rule("SequenceMap", _CONTROL)
operator.without_rule(
    (
        *("ImageDecoder", "RegexFullMatch", "StringConcat"),
        *("StringNormalizer", "StringSplit", "TfIdfVectorizer"),
    ),
    "text and media are not counted",
)
operator.without_rule(
    (
        *("DisentangledAttention_TRT", "EfficientNMS_TRT"),
        *("MultilevelCropAndResize_TRT", "PyramidROIAlign_TRT"),
    ),
    "a plugin of TensorRT, whose equation is not in its schema",
)
operator.without_rule("GRUUnit", "it was dropped before it had a specification")
operator.without_rule(
    "Gradient", "what is differentiated is another part of the graph", domain=TRAINING
)


added = partial(operator.without_rule, domain=MICROSOFT)  # by onnxruntime

added(
    ("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"),
    "how long it generates depends on data",
)
added(("EPContext", "Snpe"), "the model of another program is inside")
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
    "which keys take part depends on data",
)
added(
    ("LongformerAttention", "QOrderedLongformerAttention"),
    "how many tokens attend globally depends on data",
)
added("DecoderAttention", "whether keys come from the cache depends on data")
added(("QuantizeBFP", "DequantizeBFP"), "the block floating point format belongs to one device")
added("AttnLSTM", "its attention has no equation in the specification")
