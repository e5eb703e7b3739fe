"""The float operator that corresponds to each operator on small integers, as quantizers write
them.
"""

from collections.abc import Mapping
from types import MappingProxyType

_WRITTEN = {
    "Conv": ("QLinearConv", "ConvInteger"),
    "ConvTranspose": ("QLinearConvTranspose",),
    "MatMul": (
        *("QLinearMatMul", "MatMulInteger", "MatMulInteger16", "MatMulIntegerToFloat"),
        *("DynamicQuantizeMatMul", "MatMulNBits", "MatMulBnb4", "MatMulFpQ4", "QOrderedMatMul"),
    ),
    "Gemm": ("QGemm", "GemmFloat8"),
    "Attention": ("QAttention", "QOrderedAttention"),
    "LSTM": ("DynamicQuantizeLSTM",),
    "MoE": ("QMoE",),
    "Gather": ("GatherBlockQuantized",),
    "EmbedLayerNormalization": ("QEmbedLayerNormalization",),
    **{
        name: (f"QLinear{name}",)
        for name in (
            *("Add", "Mul", "Concat", "Where", "Softmax", "Sigmoid", "LeakyRelu", "ReduceMean"),
            *("AveragePool", "GlobalAveragePool"),
        )
    },
}
_FORMS: Mapping[str, str] = MappingProxyType(
    {name: plain for plain, names in _WRITTEN.items() for name in names}
)


def float_operator_name(op: str) -> str:
    """Return the float operator, without its domain, that an operator on small integers computes;
    other operators unchanged.

    >>> float_operator_name("com.microsoft.QLinearAdd"), float_operator_name("Relu")
    ('Add', 'Relu')
    """
    return _FORMS.get(op.rpartition(".")[2], op)
