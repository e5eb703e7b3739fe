"""Operators of com.microsoft without a formula, and why: each is uncounted, never zero."""

from crossflops.operators.rule import MICROSOFT, Operators

operator = Operators(MICROSOFT)

operator.without_rule(
    ("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"),
    "how long it generates depends on data",
)
operator.without_rule(("EPContext", "Snpe"), "the model of another program is inside")
operator.without_rule(
    ("Tokenizer", "WordConvEmbedding", "MurmurHash3"), "text and media are not counted"
)
operator.without_rule(
    (
        *("BifurcationDetector", "NGramRepeatBlock"),
        *("NGramHashMapping", "VarlenNGramHashMapping"),
    ),
    "bookkeeping of tokens is not counted",
)
operator.without_rule(
    (
        *("DynamicSparseAttention", "SparsePagedAttention"),
        *("SparseAttentionIndexer", "PackedSparseAttentionIndexer"),
    ),
    "which keys take part depends on data",
)
operator.without_rule(
    ("LongformerAttention", "QOrderedLongformerAttention"),
    "how many tokens attend globally depends on data",
)
operator.without_rule("DecoderAttention", "whether keys come from the cache depends on data")
operator.without_rule(
    ("QuantizeBFP", "DequantizeBFP"), "the block floating point format belongs to one device"
)
operator.without_rule("AttnLSTM", "its attention has no equation in the specification")
