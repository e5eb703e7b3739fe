"""Operators that have no rule yet, and why: each is uncounted, never zero.

An operator of ai.onnx stands here by its name, one of another domain by domain and name.
"""

from collections.abc import Mapping
from types import MappingProxyType

_CONTROL = "the node costs nothing by itself: its body is counted, run by run"
_TEXT = "text and media are not counted"
_GENERATION = "how long it generates depends on data"
_FOREIGN = "the model of another program is inside"
_CHOSEN = "which keys take part depends on data"
_TOKENS = "bookkeeping of tokens is not counted"
_PLUGIN = "a plugin of TensorRT, whose equation is not in its schema"
_BLOCKS = "the block floating point format belongs to one device"


def _microsoft(reason: str, *names: str) -> dict[str, str]:
    return {f"com.microsoft.{name}": reason for name in names}


NOT_YET: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("If", "Loop", "Scan", "SequenceMap"), _CONTROL),
        **dict.fromkeys(("ImageDecoder", "RegexFullMatch", "StringConcat"), _TEXT),
        **dict.fromkeys(("StringNormalizer", "StringSplit", "TfIdfVectorizer"), _TEXT),
        **dict.fromkeys(("DisentangledAttention_TRT", "EfficientNMS_TRT"), _PLUGIN),
        **dict.fromkeys(("MultilevelCropAndResize_TRT", "PyramidROIAlign_TRT"), _PLUGIN),
        "GRUUnit": "it was dropped before it had a specification",
        "ai.onnx.preview.training.Gradient": "what is differentiated is another part of the graph",
        **_microsoft(_GENERATION, "BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"),
        **_microsoft(_FOREIGN, "EPContext", "Snpe"),
        **_microsoft(_TEXT, "Tokenizer", "WordConvEmbedding", "MurmurHash3"),
        **_microsoft(_TOKENS, "BifurcationDetector", "NGramRepeatBlock"),
        **_microsoft(_TOKENS, "NGramHashMapping", "VarlenNGramHashMapping"),
        **_microsoft(_CHOSEN, "DynamicSparseAttention", "SparsePagedAttention"),
        **_microsoft(_CHOSEN, "SparseAttentionIndexer", "PackedSparseAttentionIndexer"),
        **_microsoft(
            "how many tokens attend globally depends on data",
            "LongformerAttention",
            "QOrderedLongformerAttention",
        ),
        **_microsoft("whether keys come from the cache depends on data", "DecoderAttention"),
        **_microsoft(_BLOCKS, "QuantizeBFP", "DequantizeBFP"),
        **_microsoft("its attention has no equation in the specification", "AttnLSTM"),
    }
)
