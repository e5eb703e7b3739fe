"""exact-2k-1: every operation once, K products and K - 1 additions in a sum of products.

No tool. The native FLOPs count 2 for each multiply-accumulate, as if the first product of a sum
were added to a zero; here it is not. All other work is as in the native count, a bias one
addition for each result: so `Linear(5, 4)` with its bias is 4 x (2 x 5 - 1) + 4 = 40 on one row,
whether the graph has it as one Gemm or as MatMul and Add.
"""

from crossflops.ir.convention import Clause, Convention, Match

_SOURCE = "the sum of K products needs K multiplications and K - 1 additions"
_OTHERS = ("adds", "muls", "divs", "compares", "specials")
_RUNTIME = "com.microsoft."

# Operators whose contractions have one sum for each element of the first output.
_ONE_PER_RESULT = (
    "Conv", "ConvInteger", "QLinearConv", "DeformConv", "CausalConvWithState", "MatMul",
    "MatMulInteger", "QLinearMatMul", "Gemm", "AffineGrid", "ai.onnx.ml.LinearRegressor",
    "com.microsoft.nchwc.Conv", "com.ms.internal.nhwc.Conv", "com.ms.internal.nhwc.QLinearConv",
    *(_RUNTIME + name for name in (
        "FusedConv", "NhwcConv", "NhwcFusedConv", "QLinearConv", "CausalConvWithState",
        "VarlenCausalConvWithState", "FusedMatMul", "FusedMatMulActivation", "TransposeMatMul",
        "FusedGemm", "GemmFastGelu", "GemmFloat8", "QGemm", "QOrderedMatMul",
        "SparseToDenseMatMul", "MatMulNBits", "MatMulBnb4", "MatMulFpQ4",
        "MatMulBlockQuantizedFp4Weight",
        "MatMulBlockQuantizedFp8Weight", "MatMulInteger16", "MatMulIntegerToFloat",
        "DynamicQuantizeMatMul",
    )),
)  # fmt: skip
_SUMS = {
    "node.results": _ONE_PER_RESULT,
    "node.scattered": ("ConvTranspose", f"{_RUNTIME}ConvTransposeWithDynamicPads"),
    "node.attended": ("Attention", "ai.onnx.preview.FlexAttention"),
    "node.contracted": ("Einsum",),
    "node.gates": ("LSTM", "GRU", "RNN"),
}


def _first(formula: str, targets: tuple[str, ...]) -> Clause:
    """One addition less for each sum of a contraction."""
    return Clause(
        id=f"exact-2k-1.first.{formula.partition('.')[2]}",
        cause="unit.first-add-omitted",
        level="node",
        match=Match(targets=targets),
        kind="part",
        formula=formula,
        factor=-1,
        reference=_SOURCE,
    )


CONVENTIONS = (
    Convention(
        tool="exact-2k-1",
        edition="1",
        verified=(),
        unit=2,
        printed_as="FLOPs",
        sees="node",
        counts_dead=False,
        unseen="op.unregistered-zero",
        source="no tool: the exact number of operations",
        clauses=(
            Clause(
                id="exact-2k-1.products",
                cause="graph.export-decomposition",
                level="node",
                match=Match(targets=tuple(name for names in _SUMS.values() for name in names)),
                kind="core",
                weights={"macs": 1},
                reference=_SOURCE,
            ),
            *(_first(*row) for row in _SUMS.items()),
            Clause(
                id="exact-2k-1.others",
                cause="elementwise.native",
                level="node",
                match=Match(),
                kind="part",
                weights=dict.fromkeys(_OTHERS, 1),
                reference="the native count",
            ),
        ),
    ),
)
