"""torch.utils.flop_counter.FlopCounterMode: 2 per MAC of what it sees dispatched.

It stands below the operators that the model calls: a fused CPU kernel for which it has no formula
counts nothing, and whether there is one depends on the setting. Source: the wheel's
torch/utils/flop_counter.py (`flop_registry`, `FlopCounterMode._count_flops`).
"""

from crossflops.ir.convention import Clause, Convention, Match
from crossflops.ir.trace import Scalar

_SOURCE = "torch/utils/flop_counter.py"
_COMPLEX = ("complex64", "complex128")
_SAME = "graph.export-decomposition"


def _core(name: str, formula: str, function: str, *kernels: str) -> tuple[Clause, ...]:
    """The branches of a condition have a cause of their own: see `dispatched`, which adds them.

    So have products of complex numbers, which count like those of real ones.
    """

    def clause(suffix: str, cause: str, *dtypes: str, **settings: Scalar) -> Clause:
        return Clause(
            id=f"torch-flop-counter.{name}{suffix}",
            cause=cause,
            level="dispatch",
            match=Match(targets=kernels, dtypes=dtypes, settings=settings),
            kind="core",
            formula=f"dispatched.{formula}",
            reference=f"{_SOURCE}: {function}",
        )

    return (
        clause(".branch", "control.branch", branch=True),
        clause(".complex", "contraction.complex", *_COMPLEX),
        clause("", _SAME),
    )


def _hidden(name: str, cause: str, *kernels: str) -> Clause:
    return Clause(
        id=f"torch-flop-counter.{name}",
        cause=cause,
        level="dispatch",
        match=Match(targets=kernels),
        kind="core",
        reference=f"{_SOURCE}: flop_registry has no formula for {kernels[0].rstrip('.*')}",
    )


CONVENTIONS = (
    Convention(
        tool="torch-flop-counter",
        edition="2.13",
        verified=("2.13.0",),
        unit=2,
        printed_as="FLOPs",
        sees="dispatch",
        counts_dead=True,
        unseen="op.unregistered-zero",
        source=_SOURCE,
        clauses=(
            _hidden(
                "native-attention-module",
                "attention.module-fastpath",
                "aten._native_multi_head_attention.*",
                "aten._transformer_encoder_layer_fwd.*",
            ),
            _hidden(
                "cpu-flash-attention",
                "attention.sdpa",
                "aten._scaled_dot_product_flash_attention_for_cpu.*",
            ),
            _hidden("mkldnn-lstm", "rnn.fused", "aten.mkldnn_rnn_layer.*"),
            _hidden(
                "vector-products",
                "op.unregistered-zero",
                *(f"aten.{one}.*" for one in ("mv", "addmv", "dot", "vdot", "_trilinear")),
            ),
            *_core("product", "product", "mm_flop, bmm_flop", "aten.mm.*", "aten.bmm.*"),
            *_core(
                "added",
                "added_product",
                "addmm_flop, baddbmm_flop",
                "aten.addmm.*",
                "aten.baddbmm.*",
            ),
            Clause(
                id="torch-flop-counter.convolution",
                cause=_SAME,
                level="dispatch",
                match=Match(targets=("aten.convolution.*", "aten._convolution.*")),
                kind="core",
                formula="dispatched.convolution",
                reference=f"{_SOURCE}: conv_flop",
            ),
        ),
    ),
)
