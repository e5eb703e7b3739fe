"""fvcore.nn.FlopCountAnalysis: MACs of contractions, called flops, plus operations of norms.

It looks at the nodes of a graph that torch.jit traces, one by one, so the clauses do, too. Source:
fvcore/nn/flop_count.py (`_DEFAULT_SUPPORTED_OPS`) and fvcore/nn/jit_handles.py.
"""

from crossflops.ir.convention import Clause, Convention, Match, Parameters

_SOURCE = "fvcore/nn/jit_handles.py"
_MISSING = "fvcore/nn/flop_count.py: no handle for"


def _core(
    name: str, handle: str, *nodes: str, cause: str = "graph.export-decomposition"
) -> Clause:
    return Clause(
        id=f"fvcore.{name}",
        cause=cause,
        level="traced",
        match=Match(targets=tuple(f"aten::{node}" for node in nodes)),
        kind="core",
        formula=f"fvcore.{name}",
        reference=f"{_SOURCE}: {handle}",
    )


def _part(
    name: str, cause: str, node: str, factor: int, formula: str, match: Match | None = None
) -> Clause:
    own = match or Match()
    return Clause(
        id=f"fvcore.{name}",
        cause=cause,
        level="traced",
        match=Match(
            targets=(f"aten::{node}",), has=own.has, lacks=own.lacks, settings=own.settings
        ),
        kind="part",
        formula=formula,
        factor=factor,
        reference=_SOURCE,
    )


def _unseen(name: str, cause: str, reference: str, *operators: str) -> Clause:
    return Clause(
        id=f"fvcore.{name}",
        cause=cause,
        level="operator",
        match=Match(targets=tuple(f"aten.{one}" for one in operators)),
        kind="unseen",
        reference=f"{_MISSING} {reference}",
    )


_AFFINE, _PLAIN = Match(has=("weight",)), Match(lacks=("weight",))


def _norm(name: str, cause: str) -> tuple[Clause, Clause]:
    elements = "fvcore.normalized_elements"
    return (
        _part(f"{name}.affine", cause, name, 5, elements, _AFFINE),
        _part(f"{name}.plain", cause, name, 4, elements, _PLAIN),
    )


def _batch_norm(training: bool, kind: Match, factor: int) -> Clause:
    state, affine = "train" if training else "eval", "affine" if kind.has else "plain"
    return _part(
        f"batch_norm.{state}.{affine}",
        "norm.batch",
        "batch_norm",
        factor,
        "fvcore.normalized_elements" if training else "input_elements",
        Match(has=kind.has, lacks=kind.lacks, settings={"training": training}),
    )


_NORMS = (
    _batch_norm(False, _AFFINE, 2),
    _batch_norm(False, _PLAIN, 1),
    _batch_norm(True, _AFFINE, 5),
    _batch_norm(True, _PLAIN, 4),
    *_norm("layer_norm", "norm.layer"),
    *_norm("group_norm", "norm.group"),
    *_norm("instance_norm", "norm.instance"),
)
_OTHERS = (
    _part("adaptive_avg_pool2d", "pool.adaptive", "adaptive_avg_pool2d", 1, "input_elements"),
    _part("upsample_nearest2d", "upsample.nearest", "upsample_nearest2d", 1, "output_elements"),
    _part("upsample_bilinear2d", "upsample.linear", "upsample_bilinear2d", 4, "output_elements"),
    _part("grid_sampler", "resample.grid", "grid_sampler", 4, "output_elements"),
)
_NOT_TRACED = Clause(
    id="fvcore.not-traced",
    cause="tool.error",
    level="traced",
    match=Match(targets=("untraced",)),
    kind="fails",
    reference="fvcore/nn/jit_analysis.py: _get_scoped_trace_graph: torch.jit._get_trace_graph",
)
# Nothing inside them is a node.
_OPAQUE = Clause(
    id="fvcore.opaque-function",
    cause="function.opaque",
    level="function",
    match=Match(targets=("torch.autograd.Function.apply", "torch.jit.ScriptFunction.__call__")),
    kind="core",
    reference="fvcore/nn/jit_analysis.py: _should_ignore_node: prim::PythonOp, prim::CallFunction",
)
# They count like those of real numbers.
_COMPLEX = Clause(
    id="fvcore.complex",
    cause="contraction.complex",
    level="traced",
    match=Match(
        targets=tuple(
            f"aten::{one}"
            for one in ("_convolution", "linear", "addmm", "bmm", "matmul", "mm", "einsum")
        ),
        dtypes=("complex64", "complex128"),
    ),
    kind="core",
    formula="fvcore.contraction",
    reference=_SOURCE,
)
_FAST_PATH = Clause(
    id="fvcore.native-attention-module",
    cause="attention.module-fastpath",
    level="traced",
    match=Match(
        targets=("aten::_native_multi_head_attention", "aten::_transformer_encoder_layer_fwd")
    ),
    kind="core",
    reference=f"{_MISSING} aten::_native_multi_head_attention",
)
_UNSEEN = (
    _unseen(
        "string-padding",
        "conv.string-padding-unsupported",
        "aten::_convolution_mode",
        *(f"conv{rank}d.padding" for rank in (1, 2, 3)),
    ),
    _unseen(
        "attention",
        "attention.sdpa",
        "aten::scaled_dot_product_attention",
        "scaled_dot_product_attention.default",
    ),
    _unseen(
        "recurrent",
        "rnn.fused",
        "aten::lstm, gru, rnn_tanh, rnn_relu",
        *("lstm.*", "gru.*", "rnn_tanh.*", "rnn_relu.*"),
    ),
)

CONVENTIONS = (
    Convention(
        tool="fvcore",
        edition="0.1.5",
        verified=("0.1.5.post20221221",),
        unit=1,
        printed_as="flops",
        sees="traced",
        counts_dead=False,
        counts_stored=True,
        unseen="op.unregistered-zero",
        forces={"hooked": True},
        source="fvcore/nn/flop_count.py",
        clauses=(
            _NOT_TRACED,
            _OPAQUE,
            _FAST_PATH,
            _COMPLEX,
            _core("convolution", "conv_flop_jit", "_convolution"),
            _core("linear", "linear_flop_jit", "linear"),
            _core("addmm", "addmm_flop_jit", "addmm"),
            _core("bmm", "bmm_flop_jit", "bmm"),
            _core(
                "matmul", "matmul_flop_jit", "matmul", "mm", cause="matmul.broadcast-batch-lost"
            ),
            _core("einsum", "einsum_flop_jit", "einsum", cause="einsum.path-estimate"),
            *_NORMS,
            *_OTHERS,
            *_UNSEEN,
        ),
        parameters=Parameters(reference="fvcore/nn/parameter_count.py: parameter_count"),
    ),
)
