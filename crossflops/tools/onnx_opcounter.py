"""onnx_opcounter 0.0.4: MACs of an ONNX file, and of every operator it does not know n(result).

Source: onnx_opcounter/onnx_opcounter.py (github.com/gmalivenko/onnx-opcounter), `calculate_macs`.
It takes the shapes that onnx.shape_inference tells in its strict mode; where that raises, those of
a run in onnxruntime. It looks at the type of an operator and never at its domain, and into no
function, loop or branch.
"""

from crossflops.ir.convention import Clause, Convention, Kind, Match, Parameters

_SOURCE = "onnx_opcounter.py: calculate_macs"
_SILENT = (
    "Constant", "Reshape", "Slice", "Shape", "Gather", "ScatterND", "Tile", "Transpose", "Sign",
    "Squeeze", "Unsqueeze", "Split", "Cast",
)  # fmt: skip
_RESIZE = ("Upsample", "Resize")
_RULED = (
    "Conv", "ConvTranspose", "Gemm", "MatMul", "BatchNormalization", "Relu", "Add", *_SILENT,
    *_RESIZE,
)  # fmt: skip
# Without a rule, and they compute nothing.
_MOVING = (
    "Identity", "Concat", "Flatten", "Expand", "Pad", "ConstantOfShape", "GatherElements",
    "GatherND", "ScatterElements", "DepthToSpace", "SpaceToDepth", "Dropout", "Trilu", "Size",
    "Range", "EyeLike", "OneHot", "CastLike", "ReverseSequence", "Compress",
)  # fmt: skip


def _any(*names: str) -> tuple[str, ...]:
    """The operators of these types in every domain: the tool does not look at it."""
    return (*names, *(f"*.{name}" for name in names))


def _clause(
    name: str, kind: Kind, cause: str, match: Match, formula: str = "", factor: int = 1
) -> Clause:
    return Clause(
        id=f"onnx-opcounter.{name}",
        cause=cause,
        level="node",
        match=match,
        kind=kind,
        formula=f"opcounter.{formula}" if formula else None,
        factor=factor,
        reference=_SOURCE,
    )


def _unseen(name: str, cause: str, *targets: str) -> Clause:
    return _clause(f"unseen.{name}", "unseen", cause, Match(targets=_any(*targets)))


CONVENTIONS = (
    Convention(
        tool="onnx-opcounter",
        edition="0.0.4",
        verified=("0.0.4",),
        unit=1,
        printed_as="MACs",
        sees="node",
        opens=False,
        shapes="onnx.shape_inference",
        counts_dead=True,
        unseen="op.unregistered-zero",
        source=_SOURCE,
        parameters=Parameters(stored="all", reference="onnx_opcounter.py: calculate_params"),
        clauses=(
            _clause("input", "fails", "tool.error", Match(targets=("(graph)",)), "other_inputs"),
            _clause("nameless", "fails", "tool.error", Match(), "nameless"),
            _clause(
                "foreign", "fails", "tool.error",
                Match(targets=("*.*",), but=("ai.onnx.*",)), "foreign",
            ),
            _clause(
                "cubic", "fails", "tool.error",
                Match(targets=_any(*_RESIZE), settings={"mode": "cubic"}),
            ),
            _clause(
                "conv", "core", "graph.export-decomposition", Match(targets=_any("Conv")),
                "convolution",
            ),
            _clause(
                "conv_transpose", "core", "conv.transpose-output-size",
                Match(targets=_any("ConvTranspose")), "convolution",
            ),
            _clause(
                "matmul", "core", "matmul.broadcast-batch-lost",
                Match(targets=_any("Gemm", "MatMul")), "product",
            ),
            _clause(
                "batch_norm", "part", "norm.batch", Match(targets=_any("BatchNormalization")),
                "first_output", factor=2,
            ),
            _clause("relu", "part", "act.relu", Match(targets=_any("Relu")), "first_input"),
            _clause(
                "add", "part", "elementwise.add-function", Match(targets=_any("Add")),
                "first_input",
            ),
            _clause(
                "linear", "part", "upsample.linear",
                Match(targets=_any(*_RESIZE), settings={"mode": "linear"}), "first_output",
                factor=11,
            ),
            _clause(
                "moving", "part", "graph.identity-or-constant-nodes",
                Match(targets=_any(*_MOVING)), "first_output",
            ),
            _clause(
                "unknown", "part", "op.unregistered-nonzero",
                Match(targets=("*",), but=_any(*_RULED, *_MOVING)), "first_output",
            ),
            _unseen("rnn", "rnn.fused", "LSTM", "GRU", "RNN"),
            _unseen("attention", "attention.sdpa", "Attention"),
            _unseen("einsum", "einsum.path-estimate", "Einsum"),
            _unseen("loop", "control.loop-body-once", "Loop", "Scan", "SequenceMap"),
            _unseen("if", "control.branch", "If"),
        ),
    ),
)  # fmt: skip
