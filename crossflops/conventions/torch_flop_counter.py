"""torch.utils.flop_counter.FlopCounterMode: 2 per MAC of what it sees dispatched.

It stands below the operators that the model calls: a fused CPU kernel for which it has no formula
counts nothing, and whether there is one depends on the setting. Source: the wheel's
torch/utils/flop_counter.py (`flop_registry`, `FlopCounterMode._count_flops`).
"""

from crossflops.conventions.operators import CONTRACTIONS, VMAP, complex_products, contraction
from crossflops.core.convention import Clause, Convention, Match

_SOURCE = "torch/utils/flop_counter.py"
_VECTORS = ("aten.mv.default", "aten.dot.default", "aten.vdot.default")


def _hidden(name: str, cause: str, *kernels: str) -> Clause:
    return Clause(
        id=f"torch-flop-counter.{name}",
        cause=cause,
        storey="operator",
        match=Match(fused=kernels),
        kind="core",
        reference=f"{_SOURCE}: flop_registry has no formula for {kernels[0].rstrip('*')}",
    )


CONVENTIONS = (
    Convention(
        tool="torch-flop-counter",
        edition="2.13",
        verified=("2.13.0",),
        unit=2,
        printed_as="FLOPs",
        sees="operator",
        counts_dead=True,
        unseen="op.unregistered-zero",
        source=_SOURCE,
        clauses=(
            _hidden(
                "native-attention-module",
                "attention.module-fastpath",
                "aten._native_multi_head_attention*",
                "aten._transformer_encoder_layer_fwd*",
            ),
            _hidden(
                "cpu-flash-attention", "attention.sdpa", "aten._scaled_dot_product_flash*cpu*"
            ),
            _hidden("mkldnn-lstm", "rnn.fused", "aten.mkldnn_rnn_layer*"),
            # Python sees the shapes of one example, the mode one operator for all of them.
            Clause(
                id="torch-flop-counter.vmapped",
                cause="graph.export-decomposition",
                storey="operator",
                match=Match(targets=(*sum(CONTRACTIONS.values(), ()), *_VECTORS), under=(VMAP,)),
                kind="core",
                weights={"macs": 1},
                reference=_SOURCE,
            ),
            _hidden("vector-products", "op.unregistered-zero", "aten.mv.*", "aten.dot.*"),
            complex_products("torch-flop-counter", _SOURCE),
            *(contraction("torch-flop-counter", name, _SOURCE) for name in CONTRACTIONS),
            # Which products they become is chosen on the way: what was exported says which.
            Clause(
                id="torch-flop-counter.chained-products",
                cause="graph.export-decomposition",
                storey="operator",
                match=Match(
                    targets=(
                        "aten.linalg_multi_dot.default",
                        "aten.chain_matmul.default",
                        "aten.linalg_matrix_power.default",
                        "aten.matrix_power.default",
                    )
                ),
                kind="core",
                weights={"macs": 1},
                reference=_SOURCE,
            ),
        ),
    ),
)
