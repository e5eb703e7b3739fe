"""fvcore.nn.FlopCountAnalysis: MACs of contractions, called flops, plus operations of norms.

It traces with torch.jit and looks at undecomposed operators. Source: fvcore/nn/flop_count.py
(`_DEFAULT_SUPPORTED_OPS`) and fvcore/nn/jit_handles.py.
"""

from crossflops.conventions.operators import VMAP, complex_products, contraction
from crossflops.core.convention import Clause, Convention, Match, Parameters

_SOURCE = "fvcore/nn/jit_handles.py"


def _part(
    name: str,
    cause: str,
    targets: tuple[str, ...],
    factor: int,
    formula: str,
    match: Match | None = None,
) -> Clause:
    match = match or Match()
    return Clause(
        id=f"fvcore.{name}",
        cause=cause,
        storey="operator",
        match=Match(targets=targets, has=match.has, lacks=match.lacks, settings=match.settings),
        kind="part",
        formula=formula,
        factor=factor,
        reference=_SOURCE,
    )


_AFFINE, _PLAIN = Match(has=("weight",)), Match(lacks=("weight",))


def _norm(name: str, cause: str, target: str) -> tuple[Clause, Clause]:
    elements = "fvcore.normalized_elements"
    return (
        _part(f"{name}.affine", cause, (target,), 5, elements, _AFFINE),
        _part(f"{name}.plain", cause, (target,), 4, elements, _PLAIN),
    )


_NORMS = (
    *(
        _part(
            f"batch_norm.{state}.{kind}",
            "norm.batch",
            ("aten.batch_norm.default",),
            factor,
            "input_elements",
            Match(has=match.has, lacks=match.lacks, settings={"training": state == "train"}),
        )
        for state, kind, factor, match in (
            ("eval", "affine", 2, _AFFINE),
            ("eval", "plain", 1, _PLAIN),
            ("train", "affine", 5, _AFFINE),
            ("train", "plain", 4, _PLAIN),
        )
    ),
    *_norm("layer_norm", "norm.layer", "aten.layer_norm.default"),
    *_norm("group_norm", "norm.group", "aten.group_norm.default"),
    *_norm("instance_norm", "norm.instance", "aten.instance_norm.default"),
)
_OTHERS = (
    _part(
        "adaptive_avg_pool2d",
        "pool.adaptive",
        ("aten.adaptive_avg_pool2d.default",),
        1,
        "input_elements",
    ),
    _part(
        "upsample_nearest2d",
        "upsample.nearest",
        ("aten.upsample_nearest2d.*",),
        1,
        "output_elements",
    ),
    _part(
        "upsample_bilinear2d",
        "upsample.linear",
        ("aten.upsample_bilinear2d.*",),
        4,
        "output_elements",
    ),
    _part("grid_sampler", "resample.grid", ("aten.grid_sampler.default",), 4, "output_elements"),
)


def _zero(name: str, cause: str, match: Match, reference: str) -> Clause:
    return Clause(
        id=f"fvcore.{name}",
        cause=cause,
        storey="operator",
        match=match,
        kind="core",
        reference=reference,
    )


_OPAQUE = Clause(
    id="fvcore.opaque-function",
    cause="function.opaque",
    storey="function",
    match=Match(targets=("torch.autograd.Function.apply", "torch.jit.ScriptFunction.__call__")),
    kind="core",
    reference="fvcore/nn/jit_analysis.py: _should_ignore_node: prim::PythonOp, prim::CallFunction",
)
# Python sees the shapes of one example, the trace what the batching rules made for all of them:
# products, and no operator that a norm or a pooling would be.
_VMAPPED = Clause(
    id="fvcore.vmapped",
    cause="graph.export-decomposition",
    storey="function",
    match=Match(targets=(VMAP,)),
    kind="core",
    weights={"macs": 1},
    reference=_SOURCE,
)

_CORE = (
    _OPAQUE,
    _VMAPPED,
    _zero(
        "native-attention-module",
        "attention.module-fastpath",
        Match(fused=("aten._native_multi_head_attention*", "aten._transformer_encoder_layer*")),
        "fvcore/nn/flop_count.py: no handle for aten::_native_multi_head_attention",
    ),
    _zero(
        "string-padding",
        "conv.string-padding-unsupported",
        Match(targets=("aten.conv1d.padding", "aten.conv2d.padding", "aten.conv3d.padding")),
        "fvcore/nn/flop_count.py: no handle for aten::_convolution_mode",
    ),
    _zero(
        "attention",
        "attention.sdpa",
        Match(targets=("aten.scaled_dot_product_attention.default",)),
        "fvcore/nn/flop_count.py: no handle for aten::scaled_dot_product_attention",
    ),
    _zero(
        "recurrent",
        "rnn.fused",
        Match(targets=("aten.lstm.*", "aten.gru.*", "aten.rnn_tanh.*", "aten.rnn_relu.*")),
        "fvcore/nn/flop_count.py: no handle for aten::lstm, gru, rnn_tanh, rnn_relu",
    ),
    complex_products("fvcore", _SOURCE),
    contraction("fvcore", "convolution", f"{_SOURCE}: conv_flop_jit"),
    contraction("fvcore", "linear", f"{_SOURCE}: linear_flop_jit"),
    contraction(
        "fvcore",
        "matmul",
        f"{_SOURCE}: addmm_flop_jit, bmm_flop_jit",
        targets=("aten.addmm.default", "aten.bmm.default", "aten.mm.default"),
    ),
    contraction(
        "fvcore",
        "fvcore.matmul",
        f"{_SOURCE}: matmul_flop_jit",
        cause="matmul.broadcast-batch-lost",
        targets=("aten.matmul.default",),
    ),
    contraction(
        "fvcore",
        "fvcore.einsum",
        f"{_SOURCE}: einsum_flop_jit",
        cause="einsum.path-estimate",
        targets=("aten.einsum.default",),
    ),
    contraction("fvcore", "recurrent_cell", "fvcore sees the linear layers of a cell"),
)

CONVENTIONS = (
    Convention(
        tool="fvcore",
        edition="0.1.5",
        verified=("0.1.5.post20221221",),
        unit=1,
        printed_as="flops",
        sees="operator",
        counts_dead=False,
        counts_stored=True,
        unseen="op.unregistered-zero",
        forces={"hooked": True},
        source="fvcore/nn/flop_count.py",
        clauses=(*_CORE, *_NORMS, *_OTHERS),
        parameters=Parameters(reference="fvcore/nn/parameter_count.py: parameter_count"),
    ),
)
