"""torch.profiler with `with_flops=True`: seven operators, wherever they are called.

It sees every operator that goes through the dispatcher, also those that composite operators and
kernels call inside: a linear layer is `aten::addmm`, the gates of a GRU are `aten::mul` and
`aten::add`. Source: torch/csrc/profiler/util.cpp (`saveExtraArgs`, `computeFlops`).
"""

from crossflops.ir.convention import Clause, Convention, Match
from crossflops.ir.trace import Scalar

_SOURCE = "torch/csrc/profiler/util.cpp: computeFlops"
# torch/autograd/profiler_util.py: EventList._remove_dup_nodes
_OUTERMOST: dict[str, Scalar] = {"repeated": False}


def _product(name: str, formula: str) -> Clause:
    return Clause(
        id=f"torch-profiler.{name}",
        cause="graph.export-decomposition",
        level="event",
        match=Match(targets=(f"aten::{name}",), settings=_OUTERMOST),
        kind="core",
        formula=f"torch_profiler.{formula}",
        reference=_SOURCE,
    )


def _elementwise(name: str) -> Clause:
    return Clause(
        id=f"torch-profiler.{name}",
        cause="elementwise.add-function",
        level="event",
        match=Match(targets=(f"aten::{name}",), settings=_OUTERMOST),
        kind="part",
        formula="torch_profiler.first_elements",
        reference=_SOURCE,
    )


def _unseen(name: str, cause: str, *operators: str) -> Clause:
    return Clause(
        id=f"torch-profiler.{name}",
        cause=cause,
        level="operator",
        match=Match(targets=tuple(f"aten.{one}" for one in operators)),
        kind="unseen",
        reference=_SOURCE,
    )


CONVENTIONS = (
    Convention(
        tool="torch-profiler",
        edition="2.13",
        verified=("2.13.0",),
        unit=2,
        printed_as="FLOPs",
        sees="event",
        counts_dead=True,
        unseen="op.unregistered-zero",
        source=_SOURCE,
        clauses=(
            # An event has no stride: the operator that the model called has.
            Clause(
                id="torch-profiler.conv2d",
                cause="conv.unbatched-axis",
                level="operator",
                match=Match(targets=("aten.conv2d.default",)),
                kind="core",
                formula="torch_profiler.convolution",
                reference=_SOURCE,
            ),
            _product("mm", "product"),
            _product("addmm", "added_product"),
            _product("bmm", "batched_product"),
            _product("baddbmm", "added_batched_product"),
            _elementwise("add"),
            _elementwise("mul"),
            _unseen(
                "string-padding",
                "conv.string-padding-unsupported",
                *(f"conv{rank}d.padding" for rank in (1, 2, 3)),
            ),
            _unseen(
                "other-convolutions",
                "conv.dim-unsupported",
                "conv1d.default",
                "conv3d.default",
                "conv_transpose*",
                "convolution.default",
            ),
            _unseen("attention", "attention.sdpa", "scaled_dot_product_attention.default"),
            _unseen("recurrent", "rnn.fused", "lstm.*"),
        ),
    ),
)
