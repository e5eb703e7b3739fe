"""The TensorFlow profiler's float_operation count of a frozen graph.

tf.compat.v1.profiler sums over the operations of a graph what the functions registered for them
compute from static shapes; an operation without such a function, or with an open shape, is 0.
It sees the graph that TensorFlow would run: loops and branches taken apart, each once.
Source: tensorflow/python/profiler/internal/flops_registry.py, tensorflow/python/ops/nn_ops.py.
"""

from functools import partial
from typing import Literal

from crossflops.ir.convention import Clause, Convention, Match
from crossflops.tools.formulas.tensorflow import KINDS, REDUCTIONS, UNARY

_REGISTRY = "tensorflow/python/profiler/internal/flops_registry.py"
_NN_OPS = "tensorflow/python/ops/nn_ops.py"

# Operations that contract, by formula, with the function that is registered for them.
_CORE = {
    "convolution": (("Conv2D", "Conv3D"), f"{_NN_OPS}: _calc_conv_flops"),
    "depthwise": (("DepthwiseConv2dNative",), f"{_NN_OPS}: _calc_depthwise_conv_flops"),
    "matmul": (
        ("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"),
        f"{_REGISTRY}: _calc_mat_mul_flops",
    ),
}
_TRANSPOSED = f"{_REGISTRY}: _conv_2d_backprop_input_flops"
# The layer of Keras around an operation, as the trace notes it: "" where it is none of these.
_LAYERS = {
    "norm.batch": "BatchNormalization",
    "norm.layer": "LayerNormalization",
    "norm.group": "GroupNormalization",
    "norm.rms": "RMSNormalization",
    "rnn.gate-elementwise": "RNN cell",
}
_FLOATS = ("float32", "float64", "float16", "bfloat16", "complex64", "complex128")
_WHOLE = (
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("bool", "string", "resource", "variant"),
)
_PLAIN = {
    "unary": ("elementwise.native", UNARY),
    "binary": (
        "elementwise.add-function",
        tuple(k for k in KINDS if k not in {*UNARY, *REDUCTIONS}),
    ),
    "reduce": ("reduce.mean", REDUCTIONS),
}


def _clause(
    kind: Literal["core", "part", "unseen"],
    name: str,
    cause: str,
    formula: str,
    reference: str,
    **match: object,
) -> Clause:
    """A clause whose match has these fields; `formula` is "" for one that is unseen."""
    return Clause(
        id=f"tensorflow.{name}",
        cause=cause,
        level="operator",
        match=Match(**match),  # type: ignore[arg-type]  # the fields of a match, by name
        kind=kind,
        formula=f"tensorflow.{formula}" if formula else None,
        reference=reference,
    )


_core = partial(_clause, "core")
_part = partial(_clause, "part")
_unseen = partial(_clause, "unseen")


def _contractions() -> tuple[Clause, ...]:
    variants: tuple[tuple[str, str, dict[str, object], tuple[str, ...]], ...] = (
        (".in-loop", "control.loop-body-once", {"in_loop": True}, tuple(_CORE)),
        (".in-branch", "control.branch", {"in_branch": True}, tuple(_CORE)),
        (".dilated", "conv.dilation-by-batches", {"cut": True}, ("convolution", "depthwise")),
        (".adjoint", "matmul.adjoint-ignored", {"adj_x": True}, ("matmul",)),
        ("", "graph.unknown-shape", {}, tuple(_CORE)),
    )
    return tuple(
        _core(f"{name}{variant}", cause, name, reference, targets=targets, settings=settings)
        for variant, cause, settings, names in variants
        for name, (targets, reference) in _CORE.items()
        if name in names
    )


def _transposed() -> tuple[Clause, ...]:
    targets = ("Conv2DBackpropInput",)
    seen: dict[str, object] = {"targets": targets, "settings": {"data_format": "NHWC"}}
    return (
        _core(
            "transposed-convolution",
            "conv.transpose-output-size",
            "transposed_convolution",
            _TRANSPOSED,
            **seen,
        ),
        _part(
            "transposed-odd", "conv.transpose-output-size", "transposed_odd", _TRANSPOSED, **seen
        ),
        _unseen(
            "channels-first",
            "layout.nchw-unsupported",
            "",
            f"{_REGISTRY}: _verify_conv_data_format",
            targets=targets,
        ),
    )


def _elementwise() -> tuple[Clause, ...]:
    every = tuple(KINDS)
    layers = tuple(
        _part(
            cause,
            cause,
            "arithmetic",
            _REGISTRY,
            targets=every,
            settings={"layer": layer},
            dtypes=_FLOATS,
        )
        for cause, layer in _LAYERS.items()
    )
    plain = tuple(
        _part(
            name,
            cause,
            "arithmetic",
            _REGISTRY,
            targets=targets,
            settings={"layer": ""},
            dtypes=_FLOATS,
        )
        for name, (cause, targets) in _PLAIN.items()
    )
    sizes = _part(
        "whole-numbers",
        "graph.shape-arithmetic-counted",
        "arithmetic",
        _REGISTRY,
        targets=every,
        dtypes=_WHOLE,
    )
    return (*layers, *plain, sizes)


def _others() -> tuple[Clause, ...]:
    bias = f"{_NN_OPS}: _calc_bias_add_flops"
    causes = {
        "convolution": "bias.conv",
        "product": "bias.linear",
        "recurrent": "bias.rnn",
        "": "bias.linear",
    }
    return (
        *(
            _part(
                f"bias-{after or 'other'}",
                cause,
                "input_elements",
                bias,
                targets=("BiasAdd",),
                settings={"after": after},
            )
            for after, cause in causes.items()
        ),
        _part(
            "softmax", "softmax", "input_elements", f"{_REGISTRY}: _softmax_flops",
            targets=("Softmax",),
        ),
        *(
            _part(
                name,
                cause,
                "pooling",
                f"{_REGISTRY}: _pool_flops",
                targets=(target,),
                settings={"data_format": "NHWC"},
            )
            for name, cause, target in (
                ("max-pool", "pool.max", "MaxPool"),
                ("average-pool", "pool.avg", "AvgPool"),
            )
        ),
        _part(
            "dilation", "pool.max", "dilation", f"{_NN_OPS}: _calc_dilation2d_flops",
            targets=("Dilation2D",),
        ),
        _part(
            "gradients",
            "scope.backward",
            "backward",
            _REGISTRY,
            targets=("Conv2DBackpropFilter", "MaxPoolGrad", "AvgPoolGrad"),
            settings={"data_format": "NHWC"},
        ),
    )  # fmt: skip


CONVENTIONS = (
    Convention(
        tool="tensorflow",
        edition="2.21",
        verified=("2.21.0",),
        unit=2,
        printed_as="float_ops",
        sees="operator",
        counts_dead=True,
        unseen="op.unregistered-zero",
        source=_REGISTRY,
        framework="tensorflow",
        clauses=(
            *_contractions(),
            *_transposed(),
            *_elementwise(),
            *_others(),
            _unseen(
                "calls",
                "graph.function-not-inlined",
                "",
                f"{_REGISTRY}: nothing is registered for a call of a function",
                targets=("StatefulPartitionedCall", "PartitionedCall"),
            ),
            _unseen(
                "loops",
                "control.loop-body-once",
                "",
                f"{_REGISTRY}: an operation in a loop stands once in the graph",
                targets=("tf2onnx.Loop",),
            ),
            _unseen(
                "branches",
                "control.branch",
                "",
                f"{_REGISTRY}: both branches stand in the graph",
                targets=("tf2onnx.If",),
            ),
        ),
    ),
)
