"""torchprofile: MACs of a torch.jit trace, one per element of norms, averages and products.

It looks at the nodes of the traced graph one by one, so the clauses do, too: shape arithmetic that
was traced counts, work that no output needs does not. Source: torchprofile/profile.py
(`profile_macs`), torchprofile/trace.py and torchprofile/handlers.py (`HANDLER_MAP`).
"""

from crossflops.ir.convention import Clause, Convention, Match
from crossflops.ir.trace import Scalar

_SOURCE = "torchprofile/handlers.py"
_MISSING = f"{_SOURCE}: HANDLER_MAP has no handler, a warning"


def _core(
    name: str,
    *nodes: str,
    formula: str = "",
    cause: str = "graph.export-decomposition",
    settings: dict[str, Scalar] | None = None,
) -> Clause:
    return Clause(
        id=f"torchprofile.{name}",
        cause=cause,
        level="jit",
        match=Match(targets=tuple(f"aten::{node}" for node in nodes), settings=settings or {}),
        kind="core",
        formula=f"torchprofile.{formula or name}",
        reference=f"{_SOURCE}: _{formula or name}",
    )


def _part(
    name: str,
    cause: str,
    *nodes: str,
    formula: str = "results",
    factor: int = 1,
    match: Match | None = None,
) -> Clause:
    own = match or Match()
    return Clause(
        id=f"torchprofile.{name}",
        cause=cause,
        level="jit",
        match=Match(
            targets=tuple(f"aten::{node}" for node in nodes), has=own.has, settings=own.settings
        ),
        kind="part",
        formula=f"torchprofile.{formula}",
        factor=factor,
        reference=_SOURCE,
    )


def _unseen(name: str, cause: str, *operators: str) -> Clause:
    return Clause(
        id=f"torchprofile.{name}",
        cause=cause,
        level="operator",
        match=Match(targets=tuple(f"aten.{one}" for one in operators)),
        kind="unseen",
        reference=_MISSING,
    )


def _failure(name: str, match: Match, reference: str) -> Clause:
    return Clause(
        id=f"torchprofile.{name}",
        cause="tool.error",
        level="jit",
        match=match,
        kind="fails",
        reference=reference,
    )


_FAILURES = (
    _failure(
        "not-traced",
        Match(targets=("untraced",)),
        "torchprofile/trace.py: trace: torch.jit._get_trace_graph",
    ),
    _failure(
        "undefined-tensor",
        Match(settings={"undefined": True}),
        "torchprofile/ir.py: Variable.__post_init__: the type of a tensor never made is None",
    ),
    _failure(
        "complex-constant",
        Match(settings={"unreadable": True}),
        "torchprofile/trace.py: trace: attributes=, by the kind of each",
    ),
)
_CORE = (
    _core(
        "convolution.transposed",
        "_convolution",
        formula="convolution",
        cause="conv.transpose-output-size",
        settings={"transposed": True, "groups": 1},
    ),
    _core(
        "convolution.transposed-groups",
        "_convolution",
        formula="convolution",
        cause="conv.transpose-groups",
        settings={"transposed": True},
    ),
    _core("convolution", "_convolution"),
    _core("matmul", "linear", "matmul"),
    _core("addmm", "addmm"),
    _core("addmv", "addmv"),
    _core("bmm", "bmm"),
    _core("baddbmm", "baddbmm"),
    _core("attention", "scaled_dot_product_attention"),
    _core("einsum", "einsum", cause="einsum.path-estimate"),
    _core("lstm", "lstm"),
)
_PARTS = (
    _part("mul", "elementwise.add-function", "mul", "mul_", formula="product"),
    _part("shape-arithmetic", "graph.shape-arithmetic-counted", "mul", "mul_", formula="extent"),
    _part("batch_norm", "norm.batch", "batch_norm", match=Match(has=("weight",))),
    _part("instance_norm", "norm.instance", "instance_norm", match=Match(has=("weight",))),
    _part("layer_norm", "norm.layer", "layer_norm", match=Match(has=("weight",))),
    _part("group_norm", "norm.group", "group_norm", match=Match(has=("weight",))),
    _part("avg_pool", "pool.avg", "avg_pool1d", "avg_pool2d", "avg_pool3d"),
    _part(
        "adaptive_avg_pool",
        "pool.adaptive",
        *(f"adaptive_avg_pool{rank}d" for rank in (1, 2, 3)),
    ),
    _part("mean", "reduce.mean", "mean"),
    _part("leaky_relu", "act.piecewise-other", "leaky_relu"),
    _part("upsample_bilinear2d", "upsample.linear", "upsample_bilinear2d", factor=4),
    _part(
        "grid_sampler.bilinear",
        "resample.grid",
        "grid_sampler",
        factor=4,
        match=Match(settings={"interpolation_mode": 0}),
    ),
    _part(
        "grid_sampler.bicubic",
        "resample.grid",
        "grid_sampler",
        factor=16,
        match=Match(settings={"interpolation_mode": 2}),
    ),
)
_UNSEEN = (
    _unseen(
        "string-padding",
        "conv.string-padding-unsupported",
        *(f"conv{rank}d.padding" for rank in (1, 2, 3)),
    ),
    _unseen("recurrent", "rnn.fused", "gru.*", "rnn_tanh.*", "rnn_relu.*"),
)

CONVENTIONS = (
    Convention(
        tool="torchprofile",
        edition="0.1",
        verified=("0.1.0",),
        unit=1,
        printed_as="MACs",
        sees="jit",
        counts_dead=False,
        counts_stored=True,
        unseen="op.unregistered-zero",
        source="torchprofile/profile.py: profile_macs",
        clauses=(*_FAILURES, *_CORE, *_PARTS, *_UNSEEN),
    ),
)
