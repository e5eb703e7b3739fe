"""Replace nodes whose shapes ONNX cannot infer by substitutes, infer, and put them back."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from crossflops.frontends.onnx.inference import infer_onnx_shapes as infer_onnx
from crossflops.frontends.onnx.stand_ins import (
    attention,
    has_operator_without_inference,
    lacks_onnx_inference,
    oldest,
    others,
    products,
    substitute_opset,
    training,
)
from crossflops.frontends.onnx.stand_ins.attention import copy_branch_shapes
from crossflops.frontends.onnx.stand_ins.draft import BOOL, INT32, SubstituteDraft, Types
from crossflops.frontends.onnx.types import (
    graph_value_types,
    is_tensor_type,
    remove_shape,
    shape_from_proto,
)
from crossflops.load.order import node_subgraphs

_RUNS = 12
_KEY = "crossflops.stand_in"


def infer_with_stand_ins(model: Any, strict: bool = True) -> Any:
    """Return the model with inferred shapes, by substitutes for nodes that ONNX cannot infer.

    A stand-in may need the results of the inference before: it is repeated while that changes
    anything. Raises NormalizeError as ONNX's inference does.
    """
    version = substitute_opset(model)
    if not has_operator_without_inference(model.graph, version):
        return infer_onnx(model, strict)
    if not any(not opset.domain for opset in model.opset_import):
        # nodes of ai.onnx.ml alone, and the stand-ins are of ai.onnx
        copied = _copy_message(model)
        copied.opset_import.add(domain="", version=version)
        answer = infer_with_stand_ins(copied, strict)
        del answer.opset_import[-1]
        return answer
    drafts: list[bytes] | None = None
    for _ in range(_RUNS):
        exchange = _Exchange(version)
        exchange.plan_substitutes(model.graph, {})
        if exchange.drafts == drafts:
            break
        exchange.insert_substitutes()
        inferred = infer_onnx(model, strict)
        exchange.restore_originals(model.graph, inferred=False)
        exchange.restore_originals(inferred.graph, inferred=True)
        model, drafts = inferred, exchange.drafts
    return model


class _Exchange:
    """The substitutes for one run of inference, and the nodes that they replace."""

    def __init__(self, opset: int) -> None:
        """Take the version of ai.onnx in which substitute nodes are written."""
        self._opset = opset
        self._made: set[str] = set()
        self._plans: list[tuple[Any, list[Any]]] = []
        self.originals: list[Any] = []
        self.drafts: list[bytes] = []

    def plan_substitutes(self, graph: Any, outer: Types) -> None:
        """Write substitutes for the nodes of a graph, also in bodies, that ONNX cannot infer."""
        types: Mapping[str, Any] = {**outer, **graph_value_types(graph)}
        stand_ins: list[Any] = []
        changed = False
        for node in graph.node:
            draft = self._draft_substitutes(graph, node, types)
            if draft is None:
                for body in node_subgraphs(node):
                    self.plan_substitutes(body, types)
                stand_ins.append(node)
                continue
            changed = True
            self.originals.append(_copy_message(node))
            for stand_in in draft.nodes:
                stand_in.metadata_props.add(key=_KEY, value=str(len(self.originals) - 1))
                self.drafts.append(stand_in.SerializeToString())
            self._made.update(draft.made)
            stand_ins += draft.nodes
        if changed:
            _remove_partial_shapes(
                graph, {name for stand_in in stand_ins for name in stand_in.output if name}
            )
            self._plans.append((graph, stand_ins))

    def insert_substitutes(self) -> None:
        """Replace the nodes in the planned graphs by their substitutes, in place."""
        for graph, nodes in self._plans:
            _replace_graph_nodes(graph, nodes)

    def _draft_substitutes(self, graph: Any, node: Any, types: Types) -> SubstituteDraft | None:
        """Return the substitutes for a node, or None if it needs none or too little is known."""
        if not lacks_onnx_inference(node.domain, node.op_type, self._opset):
            return None
        draft = SubstituteDraft(graph, node, types, self._opset)
        try:
            write_substitutes(draft)
        except (ArithmeticError, LookupError, ValueError):
            return None  # sizes that cannot be: the rule of the operator says so
        return draft if draft.nodes else None

    def restore_originals(self, graph: Any, inferred: bool) -> None:
        """Replace the substitutes in a graph by the original nodes, in place."""
        kept_nodes: list[Any] = []
        back: set[int] = set()
        changed = False
        for node in graph.node:
            index = next(
                (int(entry.value) for entry in node.metadata_props if entry.key == _KEY), None
            )
            if index is None:
                for body in node_subgraphs(node):
                    self.restore_originals(body, inferred)
                kept_nodes.append(node)
                continue
            changed = True
            original = self.originals[index]
            if node.op_type == "If" and inferred:
                copy_branch_shapes(original, node)
            if index not in back:
                back.add(index)
                kept_nodes.append(original)
        if changed:
            _replace_graph_nodes(graph, kept_nodes)
            kept = [
                _copy_message(value) for value in graph.value_info if value.name not in self._made
            ]
            del graph.value_info[:]
            graph.value_info.extend(kept)


def _remove_partial_shapes(graph: Any, names: set[str]) -> None:
    """Remove the declared shapes of these values in which some sizes are unknown, in place."""
    for value in (*graph.value_info, *graph.output):
        known = value.name in names and is_tensor_type(value.type)
        if (
            known
            and value.type.tensor_type.HasField("shape")
            and shape_from_proto(value.type) is None
        ):
            remove_shape(value.type)


def _copy_message(proto: Any) -> Any:
    """Return a copy of a protobuf message."""
    return type(proto).FromString(proto.SerializeToString())


def _replace_graph_nodes(graph: Any, nodes: list[Any]) -> None:
    """Replace the nodes of a graph by copies of `nodes`, in place."""
    copies = [_copy_message(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


# Which nodes stand in for which operator.

Writer: TypeAlias = Callable[[SubstituteDraft], None]

# Outputs that have the shape and the element type of an input: output, input.
_SAME: Mapping[str, tuple[tuple[int, int], ...]] = {
    **dict.fromkeys(
        (
            *("Gelu", "BiasGelu", "FastGelu", "QuickGelu", "ScaledSiLU", "BiasAdd", "BiasSoftmax"),
            *("BitmaskDropout", "BitmaskBiasDropout", "GroupNorm", "GatedRMSNorm", "GatedAdd"),
            *("BranchwiseRMSNorm", "HyperConnectionPostMix", "RotaryEmbedding", "ComplexMulConj"),
            *("MRotaryEmbedding", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax", "MoE"),
            *("QMoE", "Trilu", "Inverse", "QOrderedGelu", "QOrderedLayerNormalization"),
            *("LongformerAttention", "DecoderAttention", "QOrderedAttention", "SampleOp"),
            *("SimplifiedLayerNormalization", "LayerNormalization"),
            *("VarlenCausalConvWithState", "BiasDropout", "ComplexMul", "ScaledTanh", "Scale"),
            *("Quant", "IntQuant", "BipolarQuant", "Trunc", "MultiThreshold"),
            *("Affine", "ImageScaler", "ParametricSoftplus", "MemcpyFromHost", "MemcpyToHost"),
        ),
        ((0, 0),),
    ),
    **dict.fromkeys(
        ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), ((0, 0), (3, 0))
    ),
    **dict.fromkeys(("SkipGroupNorm", "EngramGate"), ((0, 0), (1, 0))),
    "LinearAttentionGate": ((0, 0), (1, 3)),
    "GemmaRotaryEmbedding": ((0, 1), (1, 3)),
    "NGramRepeatBlock": ((0, 1),),
}
# Operands that broadcast against each other.
_BROADCAST = {"QLinearAdd": (0, 3), "QLinearMul": (0, 3)}


def _write_identities(draft: SubstituteDraft, pairs: tuple[tuple[int, int], ...]) -> None:
    """Add to the draft an Identity for each (output, input) pair, so that both have the same
    shape.
    """
    for index, source in pairs:
        if draft.output(index) and draft.input(source):
            draft.add_node("Identity", (draft.input(source),), draft.output(index))
    if draft.node.op_type == "BiasDropout" and draft.output(1):
        draft.add_cast(draft.input(0), draft.output(1), BOOL)
    if draft.node.op_type.endswith("LayerNormalization"):
        _write_norm_statistics_shape(draft)


def _write_norm_statistics_shape(draft: SubstituteDraft) -> None:
    """Add to the draft the mean and deviation outputs of a layer normalization: one number for
    each group.
    """
    dims = draft.shape(0)
    axis = draft.integer("axis", -1)
    if dims is None or not -len(dims) <= axis < len(dims):
        return
    groups = [1 if index >= axis % len(dims) else size for index, size in enumerate(dims)]
    for index in (1, 2):
        if draft.output(index):
            draft.add_filled_tensor(groups, draft.output(index))


def write_mul_integer_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of MulInteger: inputs 0 and 2
    broadcast, as int32.
    """
    operands = [draft.add_cast(draft.input(i), "", INT32) for i in (0, 2)]
    draft.add_node("Mul", operands, draft.output(0))


def write_qlinear_where_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of QLinearWhere: inputs 0
    (condition), 1 and 4 broadcast.
    """
    draft.add_node("Where", [draft.input(i) for i in (0, 1, 4)], draft.output(0))


def write_qlinear_concat_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers QLinearConcat's output shape: every third
    input from the third on is data.
    """
    data = list(draft.node.input)[2::3]
    draft.add_node("Concat", data, draft.output(0), axis=draft.integer("axis"))


def write_bias_split_gelu_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of BiasSplitGelu: [N, S, D]
    -> [N, S, D / 2].
    """
    if (dims := draft.shape(0)) is not None:
        draft.add_filled_tensor((*dims[:-1], dims[-1] // 2), draft.output(0), draft.dtype(0))


def write_quantized_reduction_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of QLinearReduceMean or
    ReduceSumInteger, by its axes.
    """
    dims, axes = draft.shape(0), draft.integers("axes")
    if dims is None:
        return
    gone = {axis % len(dims) for axis in axes} if axes else set(range(len(dims)))
    kept = draft.integer("keepdims", 1)
    shape = [1 if axis in gone else size for axis, size in enumerate(dims)]
    left = shape if kept else [size for axis, size in enumerate(dims) if axis not in gone]
    integers = draft.node.op_type == "ReduceSumInteger"
    draft.add_filled_tensor(left, draft.output(0), INT32 if integers else draft.dtype(0))


def write_quantize_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of QuantizeLinear, in the
    dtype of its zero point.
    """
    draft.add_cast(draft.input(0), draft.output(0), draft.dtype(2, 2))


def write_dequantize_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of DequantizeLinear, in the
    dtype of its scale.
    """
    draft.add_cast(draft.input(0), draft.output(0), draft.dtype(1))


def write_embedding_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers EmbedLayerNormalization's output shapes: [B,
    S, H], mask_index [B].
    """
    table = draft.add_node("Gather", (draft.input(2), draft.input(0)), axis=0)
    quantized = draft.node.op_type.startswith("Q")
    for index in (0, 2):
        if draft.output(index):
            kind = draft.dtype(8 if quantized else 2)
            draft.add_cast(table, draft.output(index), kind)
    dims = draft.shape(0)
    if draft.output(1) and dims is not None:
        draft.add_filled_tensor(dims[:1], draft.output(1), INT32)


def write_gather_quantized_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers GatherBlockQuantized's output shape; a byte
    holds 8 / bits elements.
    """
    dims = draft.shape(0)
    if dims is None:
        return
    packed = 8 // draft.integer("bits", 4) if draft.dtype(0) == 2 else 1
    table = draft.add_filled_tensor((*dims[:-1], dims[-1] * packed), dtype=draft.dtype(2))
    axis = draft.integer("gather_axis")
    draft.add_node("Gather", (table, draft.input(1)), draft.output(0), axis=axis)


def write_torch_embedding_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of TorchEmbedding: rows of
    the weight (input 0).
    """
    draft.add_node("Gather", (draft.input(0), draft.input(1)), draft.output(0), axis=0)


def write_quantized_lstm_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shapes of DynamicQuantizeLSTM:
    those of an LSTM.
    """
    first = draft.add_node("Identity", (draft.input(0),))
    names = ("hidden_size", "direction")
    draft.add_node_with_attributes(
        "LSTM", (first, draft.input(1), draft.input(2)), draft.output(0), names
    )
    draft.add_outputs([draft.output(i) for i in (1, 2) if i < len(draft.node.output)])


def write_onnx_operator(draft: SubstituteDraft) -> None:
    """Add to the draft the node itself as an operator of ai.onnx: GatherND, Pad or Range of
    onnxruntime.
    """
    names = [attribute.name for attribute in draft.node.attribute]
    draft.add_node_with_attributes(
        draft.node.op_type, list(draft.node.input), draft.output(0), names
    )


_WRITERS: Mapping[str, Writer] = MappingProxyType(
    {
        **attention.WRITERS,
        **products.WRITERS,
        **others.WRITERS,
        **training.WRITERS,
        "FlexAttention": attention.write_flex_attention_shape,
        "MulInteger": write_mul_integer_shape,
        "QLinearWhere": write_qlinear_where_shape,
        "QLinearConcat": write_qlinear_concat_shape,
        "BiasSplitGelu": write_bias_split_gelu_shape,
        **dict.fromkeys(
            ("QLinearReduceMean", "ReduceSumInteger"), write_quantized_reduction_shape
        ),
        "QuantizeLinear": write_quantize_shape,
        "DequantizeLinear": write_dequantize_shape,
        **dict.fromkeys(
            ("EmbedLayerNormalization", "QEmbedLayerNormalization"), write_embedding_shape
        ),
        "GatherBlockQuantized": write_gather_quantized_shape,
        "TorchEmbedding": write_torch_embedding_shape,
        "DynamicQuantizeLSTM": write_quantized_lstm_shape,
        **dict.fromkeys(("GatherND", "Pad", "Range"), write_onnx_operator),
    }
)


def write_substitutes(draft: SubstituteDraft) -> None:
    """Add to the draft the substitutes for the draft's node, if its operator and enough shapes are
    known.
    """
    name = draft.node.op_type
    if draft.node.domain == "ai.onnx.ml":
        if name in others.WRITERS:
            others.WRITERS[name](draft)
    elif not draft.node.domain and name in oldest.WRITERS:
        oldest.WRITERS[name](draft)
    elif name in _SAME:
        _write_identities(draft, _SAME[name])
    elif name in _BROADCAST:
        left, right = _BROADCAST[name]
        draft.add_node("Add", (draft.input(left), draft.input(right)), draft.output(0))
    elif name in _WRITERS:
        _WRITERS[name](draft)
