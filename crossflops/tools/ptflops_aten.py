"""ptflops' backend "aten": products and convolutions as they reach a dispatch mode.

It counts the bias of a convolution and of `aten.addmm`, not that of a linear layer that becomes
`aten.mm` and `aten.add`; a fused CPU kernel counts nothing. Hooks sit on the children of the model
alone. Sources: ptflops/aten_ops.py and ptflops/aten_engine.py of 0.7.5.
"""

from crossflops.ir.convention import Clause, Convention, Match, Parameters
from crossflops.ir.trace import Scalar

_OPS, _ENGINE = "ptflops/aten_ops.py", "ptflops/aten_engine.py"
_CONVOLUTIONS = ("aten.convolution.*", "aten._convolution.*")
_PRODUCTS, _ADDED = ("aten.mm.*", "aten.matmul.*", "aten.bmm.*"), ("aten.addmm.*",)
# What a composite consists of, which inference mode alone shows, happens out of sight.
_WHOLE: dict[str, Scalar] = {"composed": False}
_COMPLEX = ("complex64", "complex128")
_SAME = "graph.export-decomposition"


def _core(name: str, cause: str, targets: tuple[str, ...], formula: str, *types: str) -> Clause:
    return Clause(
        id=f"ptflops-aten.{name}",
        cause=cause,
        level="dispatch",
        match=Match(targets=targets, dtypes=types, settings=_WHOLE),
        kind="core",
        formula=f"dispatched.{formula}",
        reference=f"{_OPS}: ATEN_OPS_MAPPING",
    )


def _bias(name: str, cause: str, targets: tuple[str, ...], formula: str) -> Clause:
    return Clause(
        id=f"ptflops-aten.{name}",
        cause=cause,
        level="dispatch",
        match=Match(targets=targets, settings=_WHOLE),
        kind="part",
        formula=f"ptflops_aten.{formula}",
        reference=f"{_OPS}: ATEN_OPS_MAPPING",
    )


def _unseen(name: str, cause: str, match: Match) -> Clause:
    return Clause(
        id=f"ptflops-aten.{name}",
        cause=cause,
        level="operator",
        match=match,
        kind="unseen",
        reference=f"{_ENGINE}: FlopCounterMode.__torch_dispatch__",
    )


CONVENTIONS = (
    Convention(
        tool="ptflops-aten",
        edition="0.7.5",
        verified=("0.7.5",),
        unit=1,
        printed_as="MACs",
        sees="dispatch",
        counts_dead=True,
        unseen="op.unregistered-zero",
        forces={"training": False, "hooked": "children"},
        source=_ENGINE,
        parameters=Parameters(
            trainable=True, reference="ptflops/pytorch_engine.py: get_model_parameters_number"
        ),
        clauses=(
            _core("product.complex", "contraction.complex", _PRODUCTS, "product", *_COMPLEX),
            _core("product", _SAME, _PRODUCTS, "product"),
            _core("addmm.complex", "contraction.complex", _ADDED, "added_product", *_COMPLEX),
            _core("addmm", _SAME, _ADDED, "added_product"),
            _bias("addmm.input", "bias.linear", _ADDED, "added"),
            _core("convolution", _SAME, _CONVOLUTIONS, "convolution"),
            _bias("convolution.bias", "bias.conv", _CONVOLUTIONS, "convolution_bias"),
            _unseen(
                "fast-path",
                "attention.module-fastpath",
                Match(fused=("aten._native_multi_head*", "aten._transformer_encoder_layer*")),
            ),
            _unseen(
                "attention",
                "attention.sdpa",
                Match(targets=("aten.scaled_dot_product_attention.default",)),
            ),
            _unseen("recurrent", "rnn.fused", Match(targets=("aten.lstm.*",))),
        ),
    ),
)
