"""Shapes of operators that ONNX's own inference does not know: onnxruntime's, and of ai.onnx.ml.

While it infers, nodes of ai.onnx with the same shapes stand in for them, so that one run goes
through the whole graph, bodies and small values included. A stand-in says nothing of what the
node computes: `crossflops/operators/contrib` does.
"""

from collections.abc import Mapping
from typing import Any

from crossflops.frontends.onnx.inference import infer as infer_onnx
from crossflops.frontends.onnx.stand_ins.attention import learn
from crossflops.frontends.onnx.stand_ins.draft import Draft, Types
from crossflops.frontends.onnx.stand_ins.table import stand_in
from crossflops.frontends.onnx.types import is_tensor, of_graph, shape_of, unset
from crossflops.load.order import bodies

_RUNS = 12
_KEY = "crossflops.stand_in"
_DOMAINS = ("com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc", "ai.onnx.ml")
_OWN = {"", "ai.onnx"}
_OPSET = 21  # of stand-ins where the file has none
_CONTROL = ("If", "Loop", "Scan", "SequenceMap")
# Of ai.onnx: those that onnxruntime adds to it, and that ONNX has dropped.
_ADDED = (
    *("SimplifiedLayerNormalization", "LayerNormalization", "MemcpyFromHost", "MemcpyToHost"),
    *("Affine", "Crop", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh"),
)


def infer(model: Any, strict: bool = True) -> Any:
    """The model with every shape that follows, through operators of onnxruntime, too.

    What a stand-in needs may follow only from the run before: it is repeated while that changes
    anything. Raises NormalizeError as ONNX's inference does.
    """
    if not _concerned(model.graph):
        return infer_onnx(model, strict)
    opset = {one.domain: one.version for one in model.opset_import}
    if not _OWN & set(opset):  # nodes of ai.onnx.ml alone, and the stand-ins are of ai.onnx
        asked = _copy(model)
        asked.opset_import.add(domain="", version=_OPSET)
        found = infer(asked, strict)
        del found.opset_import[-1]
        return found
    version = opset.get("", opset.get("ai.onnx", 1))
    drafts: list[bytes] | None = None
    for _ in range(_RUNS):
        exchange = _Exchange(version)
        exchange.plan(model.graph, {})
        if exchange.drafts == drafts:
            break
        exchange.put_in()
        inferred = infer_onnx(model, strict)
        exchange.take_out(model.graph, inferred=False)
        exchange.take_out(inferred.graph, inferred=True)
        model, drafts = inferred, exchange.drafts
    return model


def _foreign(node: Any) -> bool:
    if node.domain == "ai.onnx.preview":
        return bool(node.op_type == "FlexAttention")
    return node.domain in _DOMAINS or (not node.domain and node.op_type in _ADDED)


def _concerned(graph: Any) -> bool:
    """Whether any node may need a stand-in."""
    return any(
        _foreign(node) or (node.op_type in _CONTROL and any(map(_concerned, bodies(node))))
        for node in graph.node
    )


class _Exchange:
    """Stand-ins of one run, and the nodes that they stand in for."""

    def __init__(self, opset: int) -> None:
        self._opset = opset
        self._made: set[str] = set()
        self._plans: list[tuple[Any, list[Any]]] = []
        self.originals: list[Any] = []
        self.drafts: list[bytes] = []

    def plan(self, graph: Any, outer: Types) -> None:
        """Write the stand-ins for the nodes of a graph and of its bodies."""
        types: Mapping[str, Any] = {**outer, **of_graph(graph)}
        found: list[Any] = []
        changed = False
        for node in graph.node:
            draft = self._draft(graph, node, types)
            if draft is None:
                for body in bodies(node):
                    self.plan(body, types)
                found.append(node)
                continue
            changed = True
            self.originals.append(_copy(node))
            for one in draft.nodes:
                one.metadata_props.add(key=_KEY, value=str(len(self.originals) - 1))
                self.drafts.append(one.SerializeToString())
            self._made.update(draft.made)
            found += draft.nodes
        if changed:
            _forget_parts(graph, {name for one in found for name in one.output if name})
            self._plans.append((graph, found))

    def put_in(self) -> None:
        """Exchange the nodes for their stand-ins, in place; what is in a body comes first."""
        for graph, nodes in self._plans:
            _replace(graph, nodes)

    def _draft(self, graph: Any, node: Any, types: Types) -> Draft | None:
        if not _foreign(node):
            return None
        if node.op_type == "LayerNormalization" and self._opset >= 17:
            return None
        draft = Draft(graph, node, types, self._opset)
        try:
            stand_in(draft)
        except (ArithmeticError, LookupError, ValueError):
            return None  # sizes that cannot be: the rule of the operator says so
        return draft if draft.nodes else None

    def take_out(self, graph: Any, inferred: bool) -> None:
        """Put the nodes back, in place, and forget the values that only stand-ins made."""
        found: list[Any] = []
        back: set[int] = set()
        changed = False
        for node in graph.node:
            place = next((int(one.value) for one in node.metadata_props if one.key == _KEY), None)
            if place is None:
                for body in bodies(node):
                    self.take_out(body, inferred)
                found.append(node)
                continue
            changed = True
            original = self.originals[place]
            if node.op_type == "If" and inferred:
                learn(original, node)
            if place not in back:
                back.add(place)
                found.append(original)
        if changed:
            _replace(graph, found)
            kept = [_copy(one) for one in graph.value_info if one.name not in self._made]
            del graph.value_info[:]
            graph.value_info.extend(kept)


def _forget_parts(graph: Any, names: set[str]) -> None:
    """Forget shapes of which only some sizes are known: inference keeps such as they are."""
    for value in (*graph.value_info, *graph.output):
        known = value.name in names and is_tensor(value.type)
        if known and value.type.tensor_type.HasField("shape") and shape_of(value.type) is None:
            unset(value.type)


def _copy(proto: Any) -> Any:
    return type(proto).FromString(proto.SerializeToString())


def _replace(graph: Any, nodes: list[Any]) -> None:
    copies = [_copy(node) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)
