"""onnx-tool 1.0.1: MACs of an ONNX file, with weights for what is none.

Source: onnx_tool/node.py and graph.py (github.com/ThanatosShinji/onnx-tool). Each registered
class infers a shape and counts; where none is registered the tool warns, and then raises when it
infers shapes. It looks at the type of an operator and never at its domain, and into no function,
loop or branch. `ratio`, by which a class would count operands, is 1: the inputs are not known yet
when it is set.
"""

from crossflops.ir.convention import Clause, Convention, Kind, Match, Parameters

_SOURCE = "onnx_tool/node.py: profile of {}"
_OTHERS = (
    "ArgMax", "Cast", "Compress", "Concat", "Constant", "ConstantOfShape", "DepthToSpace",
    "Dropout", "Erf", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "GridSample",
    "Identity", "NonMaxSuppression", "OneHot", "Pad", "RandomNormalLike", "RandomUniformLike",
    "Range", "Reshape", "RoiAlign", "ScatterElements", "ScatterND", "Shape", "Slice", "Split",
    "Squeeze", "Tile", "TopK", "Transpose", "Trilu", "Unsqueeze", "Where",
)  # fmt: skip
# What only other domains have, by name alone.
_FOREIGN = ("*.ArrayFeatureExtractor", "*.ZipMap", "*.CategoryMapper", "Scan")
_RESIZE = ("Resize", "Upsample")
_LOST = "(lost)"  # what stands in the place of a node that the tool loses

# id, cause, weight, formula, operators
_PARTS: tuple[tuple[str, str, int, str, tuple[str, ...]], ...] = (
    ("add", "elementwise.add-function", 1, "results", ("Add", "Sub", "Mul")),
    ("div", "unit.weighted-op-cost", 4, "results", ("Div",)),
    ("compare", "elementwise.native", 1, "results", (
        "Min", "Max", "Neg", "Mod", "Abs", "Ceil", "Less", "LessOrEqual", "Equal", "Greater",
        "GreaterOrEqual", "Round", "Not", "And", "Or", "Xor", "NonZero", "Floor",
    )),
    ("sign", "elementwise.native", 1, "largest", ("Sign", "CumSum")),
    ("quantize", "elementwise.native", 2, "largest", (
        "QuantizeLinear", "DequantizeLinear", "ImageScaler",
    )),
    ("sum", "elementwise.add-function", 1, "added", ("Sum",)),
    ("reciprocal", "unit.weighted-op-cost", 4, "largest", ("Reciprocal",)),
    ("sqrt", "unit.weighted-op-cost", 24, "largest", ("Sqrt",)),
    ("exp", "unit.weighted-op-cost", 32, "largest", ("Exp", "Pow")),
    ("sin", "unit.weighted-op-cost", 39, "largest", ("Sin", "Cos")),
    ("log", "unit.weighted-op-cost", 43, "largest", ("Log",)),
    ("atan", "unit.weighted-op-cost", 64, "largest", ("Atan",)),
    ("relu", "act.relu", 1, "largest", ("Relu",)),
    ("clip", "act.piecewise-other", 2, "largest", ("LeakyRelu", "PRelu", "Clip")),
    ("hard_sigmoid", "act.piecewise-other", 4, "largest", ("HardSigmoid",)),
    ("hard_swish", "act.piecewise-other", 5, "largest", ("HardSwish",)),
    ("sigmoid", "act.transcendental", 32, "largest", ("Sigmoid",)),
    ("gelu", "act.transcendental", 34, "largest", ("Gelu",)),
    ("elu", "act.transcendental", 35, "largest", ("Elu",)),
    ("tanh", "act.transcendental", 76, "largest", ("Tanh", "Softplus")),
    ("softmax", "softmax", 36, "largest", ("Softmax",)),
    ("log_softmax", "softmax", 80, "largest", ("LogSoftmax",)),
    ("hardmax", "softmax", 1, "largest", ("Hardmax",)),
    ("batch_norm", "norm.batch", 31, "results", ("BatchNormalization",)),
    ("instance_norm", "norm.instance", 7, "largest", ("InstanceNormalization",)),
    ("layer_norm", "norm.layer", 1, "layer_norm", ("LayerNormalization",)),
    ("lp_norm", "unit.weighted-op-cost", 33, "largest", ("LpNormalization",)),
    ("lrn", "unit.weighted-op-cost", 37, "results", ("LRN",)),
    ("lrn.products", "unit.weighted-op-cost", 1, "neighbours", ("LRN",)),
    ("max_pool", "pool.max", 1, "window", ("MaxPool",)),
    ("avg_pool", "pool.avg", 1, "window", ("AveragePool",)),
    ("global_pool", "pool.adaptive", 1, "global_average", ("GlobalAveragePool",)),
    ("reduce", "reduce.mean", 1, "elements", (
        "ReduceMean", "ReduceSum", "ReduceProd", "ReduceMin", "ReduceMax",
    )),
    ("reduce_l2", "unit.weighted-op-cost", 25, "elements", ("ReduceL2",)),
    ("conv_bias", "bias.conv", 1, "bias", ("Conv", "ConvTranspose")),
    ("quantized_bias", "bias.conv", 1, "quantized_bias", ("QLinearConv",)),
    ("gemm_bias", "bias.linear", 1, "added_matrix", ("Gemm", "MatMulInteger")),
    ("rnn_bias", "bias.rnn", 1, "recurrent_bias", ("LSTM", "GRU")),
    ("lstm", "rnn.gate-elementwise", 180, "lstm_gates", ("LSTM",)),
    ("gru", "rnn.gate-elementwise", 110, "gru_gates", ("GRU",)),
)  # fmt: skip
_CORE: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("conv", "graph.export-decomposition", "convolution", ("Conv",)),
    ("conv_transpose", "conv.transpose-output-size", "convolution", ("ConvTranspose",)),
    ("qlinear_conv", "conv.dim-unsupported", "quantized_convolution", ("QLinearConv",)),
    ("conv_integer", "conv.dim-unsupported", "integer_convolution", ("ConvInteger",)),
    ("matmul", "matmul.broadcast-batch-lost", "gemm", ("Gemm", "MatMul", "MatMulInteger")),
    ("qlinear_matmul", "matmul.broadcast-batch-lost", "quantized_product", ("QLinearMatMul",)),
    ("einsum", "einsum.path-estimate", "einsum", ("Einsum",)),
    ("rnn", "rnn.fused", "recurrent", ("LSTM", "GRU")),
)
# id, what raises, formula, operators; without operators, those that are not registered
_FAILS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("modeless", "ResizeNode", "modeless", _RESIZE),
    ("axisless", "SplitNode, TopKNode", "axisless", ("Split", "TopK")),
    ("valueless", "ConstantNode", "valueless", ("Constant",)),
    ("scan", "ScanNode", "few", ("Scan",)),
)


def _any(*names: str) -> tuple[str, ...]:
    """The operators of these types in every domain: the tool does not look at it."""
    return (*names, *(f"*.{name}" for name in names))


def _clause(
    name: str, kind: Kind, cause: str, match: Match, formula: str | None, factor: int, source: str
) -> Clause:
    return Clause(
        id=f"onnx-tool.{name}",
        cause=cause,
        level="node",
        match=match,
        kind=kind,
        formula=formula and f"onnx-tool.{formula}",
        factor=factor,
        reference=source,
    )


def _nodes(names: tuple[str, ...]) -> str:
    return _SOURCE.format(", ".join(f"{name}Node" for name in names[:3]))


_RULED = [*(row[-1] for row in _PARTS), *(row[-1] for row in _CORE)]
_REGISTERED = (
    *dict.fromkeys(name for names in _RULED for name in names),
    *_RESIZE,
    *_OTHERS,
)

CONVENTIONS = (
    Convention(
        tool="onnx-tool",
        edition="1.0.1",
        verified=("1.0.1",),
        unit=1,
        printed_as="MACs",
        sees="node",
        opens=False,
        shapes="onnx-tool.shapes",
        counts_dead=True,
        unseen="op.unregistered-zero",
        source="onnx_tool/graph.py: Graph.profile",
        parameters=Parameters(
            stored="used", scalar=0,
            reference="onnx_tool/graph.py: Graph.profile; onnx_tool/tensor.py: volume",
        ),
        clauses=(
            _clause(
                "unregistered", "fails", "tool.error",
                Match(but=(*_any(*_REGISTERED), *_FOREIGN, _LOST)), None, 1,
                "onnx_tool/node.py: Node.value_infer",
            ),
            _clause(
                "unreadable", "fails", "tool.error", Match(), "unreadable", 1,
                "onnx_tool/tensor.py: onnxdtype2npdtype",
            ),
            *(
                _clause(
                    name, "fails", "tool.error", Match(targets=_any(*names)), formula, 1,
                    f"onnx_tool/node.py: {where}",
                )
                for name, where, formula, names in _FAILS
            ),
            _clause(
                "lost", "unseen", "graph.lost-nodes", Match(targets=(_LOST,)), None, 1,
                "onnx_tool/graph.py: Graph.topsort_nodes",
            ),
            *(
                _clause(
                    name, "core", cause, Match(targets=_any(*names)), formula, 1, _nodes(names)
                )
                for name, cause, formula, names in _CORE
            ),
            *(
                _clause(
                    name, "part", cause, Match(targets=_any(*names)), formula, weight,
                    _nodes(names),
                )
                for name, cause, weight, formula, names in _PARTS
            ),
            *(
                _clause(
                    f"resize.{mode}", "part", "upsample.linear",
                    Match(targets=_any(*_RESIZE), settings={"mode": mode}), "results", weight,
                    _SOURCE.format("ResizeNode"),
                )
                for mode, weight in (("linear", 4), ("cubic", 8))
            ),
        ),
    ),
)  # fmt: skip
