"""Read a counted graph as a list of its contractions, with the operations that follow each of
them.

A contraction is read in terms that do not depend on how a framework writes it down.
"""

from collections import Counter
from collections.abc import Iterator
from math import prod

import msgspec

from crossflops.frontends.onnx.parameters import input_weight_count, weight_elements_by_node
from crossflops.ir.graph import Graph, Node, TensorSpec
from crossflops.ir.ledger import ZERO, CountedNode, Ledger
from crossflops.ir.trace import Trace
from crossflops.operators.float_forms import float_operator_name

WEIGHTED, SCORES = "weighted", "scores"
_CONVOLUTIONS = {
    "Conv": 1, "FusedConv": 1, "ConvTranspose": 1, "ConvInteger": 1, "QLinearConv": 3,
    "DeformConv": 1,
}  # fmt: skip
_BIASES = {
    "Conv": 2, "FusedConv": 2, "ConvTranspose": 2, "QLinearConv": 8, "Gemm": 2, "FusedGemm": 2,
    "QGemm": 6, "DynamicQuantizeMatMul": 4, "MatMulIntegerToFloat": 6, "MatMulNBits": 5,
}  # fmt: skip
_PRODUCTS = (
    "MatMul", "Gemm", "Einsum", "FusedMatMul", "FusedGemm", "TransposeMatMul", "MatMulInteger",
    "QLinearMatMul", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QGemm",
    "MatMulNBits", "MatMulBnb4", "MatMulFpQ4",
)  # fmt: skip
_SCALED_PRODUCTS = ("QLinearMatMul", "QGemm")  # a scale and a zero point behind each operand
_ATTENTIONS = ("Attention", "MultiHeadAttention", "GroupQueryAttention")


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of a convolution for each spatial axis; `pads` is the sum of the padding at both
    ends.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]


class Contraction(msgspec.Struct, frozen=True, kw_only=True):
    """A convolution or matrix product: MACs = batch x places x taps x inner x outer (places:
    output positions; taps: kernel positions; inner, outer: channels).

    Of a layer with weights `outer` are the output channels, `inner` the input channels of a
    group, `taps` the places of its window, `places` the outputs of one example by channel (of a
    transposed convolution the inputs). So a 1x1 convolution, a linear layer and a product with a
    stored matrix are the same, in whatever layout. Of a product of two activations ("scores")
    `inner` is the length of the sums and `outer` the last axis of the result. Others have a
    `kind` of their own, and their MACs are their places.

    `bias` are the elements of a bias, whose additions are `adds`; `weights` the parameters that
    are first used here, those of the bias not among them.
    """

    node: str
    path: str
    op: str
    kind: str
    macs: int
    batch: int = 1
    places: int = 1
    taps: int = 1
    inner: int = 1
    outer: int = 1
    groups: int = 1
    window: Window | None = None
    bias: int = 0
    adds: int = 0
    weights: int = 0
    bias_params: int = 0

    @property
    def flops(self) -> int:
        """The FLOPs: 2 x MACs, plus the additions of the bias."""
        return 2 * self.macs + self.adds

    @property
    def params(self) -> int:
        """The number of parameters that no earlier node uses."""
        return self.weights + self.bias_params

    @property
    def weight_elements(self) -> int:
        """The number of elements of the weights, shared or not; 0 without weights."""
        return self.taps * self.inner * self.outer if self.kind == WEIGHTED else 0


def contractions_of_node(
    node: Node, macs: int, times: int, batch: int, constant: frozenset[str]
) -> list[Contraction]:
    """Return the contractions (convolutions, matrix products) that a node does; a fused attention
    has two or three, other nodes one.

    `macs` are those of all `times` runs, `batch` is that of the model, `constant` are the values
    that depend on no input.
    """
    if node.op.type in _ATTENTIONS and (
        parts := _contraction_fields_of_attention(node, macs, times)
    ):
        return [_contraction_from_fields(node, part, times, batch) for part in parts]
    facts = _contraction_fields_of_convolution(
        node, macs // times
    ) or _contraction_fields_of_product(node, macs // times, constant)
    plain = {"kind": str(node.op), "places": macs // times}
    contraction = _contraction_from_fields(node, facts or plain, times, batch)
    if contraction.macs != macs:  # shapes that do not tell what its formula tells
        contraction = _contraction_from_fields(
            node, {"kind": str(node.op), "places": macs}, 1, batch
        )
    index = _BIASES.get(node.op.type)
    provided = node.inputs[index] if index is not None and index < len(node.inputs) else None
    if provided is not None and provided.shape is not None:
        contraction = msgspec.structs.replace(contraction, bias=prod(provided.shape))
    return [contraction]


def _contraction_from_fields(
    node: Node, facts: dict[str, object], times: int, batch: int
) -> Contraction:
    """Return the contraction of a node from its sizes in `facts`; its positions are split into
    batch size and positions per example.
    """
    contraction = msgspec.convert(
        {**facts, "node": node.key, "path": node.path, "op": str(node.op), "macs": 0}, Contraction
    )
    rows = contraction.places * times
    share = batch if rows % batch == 0 else 1
    return msgspec.structs.replace(
        contraction,
        batch=share,
        places=rows // share,
        macs=rows * contraction.taps * contraction.inner * contraction.outer,
        window=facts.get("window"),
    )


def _contraction_input_shape(node: Node, index: int) -> tuple[int, ...] | None:
    """Return the shape of the node's input at `index`; None if there is no such input or its shape
    is unknown.
    """
    spec = node.inputs[index] if index < len(node.inputs) else None
    return spec.shape if spec is not None else None


def _contraction_fields_of_convolution(node: Node, macs: int) -> dict[str, object] | None:
    """Return the fields of a Contraction for a convolution, as {field name: value}; None for
    another operator or unknown shapes.
    """
    index = _CONVOLUTIONS.get(node.op.type)
    source, result = (
        _contraction_input_shape(node, 0),
        node.outputs[0].shape if node.outputs[0] else None,
    )
    weight = _contraction_input_shape(node, index) if index is not None else None
    if weight is None or source is None or result is None or "nhwc" in node.op.domain:
        return None
    groups = node.attrs.get("group", 1)
    assert isinstance(groups, int)
    turned = node.op.type == "ConvTranspose"
    inner, outer = (weight[0] // groups, weight[1] * groups) if turned else (weight[1], weight[0])
    taps = prod(weight[2:])
    if not inner * outer * taps:
        return None
    return {
        "kind": WEIGHTED,
        "places": macs // (taps * inner * outer),
        "taps": taps,
        "inner": inner,
        "outer": outer,
        "groups": groups,
        "window": None
        if turned
        else _convolution_window(node, source[2:], result[2:], weight[2:]),
    }


def _convolution_window(
    node: Node, before: tuple[int, ...], after: tuple[int, ...], kernel: tuple[int, ...]
) -> Window:
    """Return the window of a convolution; `before` and `after` are the spatial sizes of its input
    and its result.
    """
    rank = len(kernel)

    def attribute_by_axis(name: str, default: int) -> tuple[int, ...]:
        """Return the values of a node's attribute, one for each spatial axis, or `default` for
        each if it is missing.
        """
        values = node.attrs.get(name)
        return values if isinstance(values, tuple) and values else (default,) * rank  # type: ignore[return-value]

    strides, dilations = attribute_by_axis("strides", 1), attribute_by_axis("dilations", 1)
    ends = node.attrs.get("pads")
    if isinstance(ends, tuple) and len(ends) == 2 * rank:
        pads = tuple(int(ends[axis]) + int(ends[axis + rank]) for axis in range(rank))
    else:  # "SAME": as many as the result needs
        requested = zip(before, after, kernel, strides, dilations, strict=True)
        pads = tuple(max((o - 1) * s + d * (k - 1) + 1 - i, 0) for i, o, k, s, d in requested)
    return Window(
        before=before, after=after, kernel=kernel, strides=strides, dilations=dilations, pads=pads
    )


def _contraction_fields_of_product(
    node: Node, macs: int, constant: frozenset[str]
) -> dict[str, object] | None:
    """Return the fields of a Contraction for a matrix product, as {field name: value}; None if the
    node is not one or its sizes do not fit.
    """
    result = node.outputs[0].shape if node.outputs[0] else None
    if node.op.type not in _PRODUCTS or not result or not macs:
        return None
    out, stored = prod(result), _weight_operand_elements(node, constant)
    if stored and macs % stored == 0 and out % (macs // stored) == 0:
        rows = macs // stored
        outer = out // rows
        inner = stored // outer
        return {"kind": WEIGHTED, "places": rows, "inner": inner, "outer": outer}
    if stored:
        return None
    return {"kind": SCORES, "places": out // result[-1], "inner": macs // out, "outer": result[-1]}


def _weight_operand_elements(node: Node, constant: frozenset[str]) -> int:
    """Return the number of elements of the largest operand that does not depend on the model's
    inputs, 0 without one.
    """

    def is_constant_operand(spec: TensorSpec | None) -> bool:
        """Return whether a tensor is a parameter, a constant, or computed from these alone."""
        return spec is not None and (
            spec.role in ("parameter", "constant") or spec.name in constant
        )

    indices = (0, 3) if node.op.type in _SCALED_PRODUCTS else (0, 1)
    specs = [(index, node.inputs[index]) for index in indices if index < len(node.inputs)]
    sizes = [
        input_weight_count(node, index) or prod(operand.shape)
        for index, operand in specs
        if operand is not None and is_constant_operand(operand) and operand.shape
    ]
    return max(sizes, default=0)


def _contraction_fields_of_attention(
    node: Node, macs: int, times: int
) -> list[dict[str, object]] | None:
    """Return the fields of the contractions in a fused attention (projection, scores, weighted
    values), one dict for each; None if its sizes are unknown.

    Both have as many MACs where the heads of queries and values are of one length; otherwise
    the node stays whole.
    """
    queries = _contraction_input_shape(node, 0)
    if queries is None or len(queries) < 3:
        return None
    left, parts = macs // times, list[dict[str, object]]()
    weights = _contraction_input_shape(node, 1)
    if node.op.domain == "com.microsoft" and node.op.type == "Attention":
        if weights is None or len(weights) != 2:
            return None
        rows = prod(queries[:-1])
        parts.append({"kind": WEIGHTED, "places": rows, "inner": weights[0], "outer": weights[1]})
        left -= rows * prod(weights)
    split = _query_rows_and_head_size(node, queries)
    if split is None or left % 2 or (left // 2) % prod(split):
        return None
    rows, length = split[0], split[1]
    others = left // 2 // (rows * length)
    parts.append({"kind": SCORES, "places": rows, "inner": length, "outer": others})
    parts.append({"kind": SCORES, "places": rows, "inner": others, "outer": length})
    return parts


def _query_rows_and_head_size(node: Node, queries: tuple[int, ...]) -> tuple[int, int] | None:
    """Return (query rows of all heads together, head size) of an attention; None if its heads are
    unknown.
    """
    if len(queries) == 4:
        return prod(queries[:3]), queries[3]
    heads = node.attrs.get("q_num_heads") or node.attrs.get("num_heads")
    result = node.outputs[0].shape if node.outputs[0] else None
    if not isinstance(heads, int) or not heads or result is None:
        return None
    if node.op.domain:  # packed queries, keys and values: the result has the width of the values
        queries = result
    return (prod(queries[:-1]) * heads, queries[-1] // heads) if queries[-1] % heads == 0 else None


# Which node of a graph holds how many of the model's parameters.


def parameter_count_by_first_user(graph: Graph, trace: Trace) -> dict[str, int]:
    """Return {key of a node: number of parameters that this node is the first to use}.

    Of a file every stored weight is a parameter. A model whose modules say what theirs are has
    other stored tensors too, such as the statistics of a batch normalization: there a tensor
    counts that is as large as a parameter of the node's module, or else of any other.
    """
    held_by = weight_elements_by_node(graph.nodes)
    stored = {
        parameter.storage: (module.path, parameter.numel)
        for module in reversed(trace.modules)
        for parameter in module.params
    }
    if not stored:
        return {key: sum(sizes.values()) for key, sizes in held_by.items()}
    return dict(_parameters_within_budget(graph, held_by, Counter(stored.values())))


def _parameters_within_budget(
    graph: Graph, held_by: dict[str, dict[str, int]], budget: Counter[tuple[str, int]]
) -> Iterator[tuple[str, int]]:
    """Yield (key of a node, number of parameters in it); `budget` says how many tensors of a path
    and size are parameters.
    """
    paths = {node.key: node.path for node in graph.nodes}
    counts: Counter[str] = Counter()
    strays: list[tuple[str, int]] = []
    for key, sizes in held_by.items():
        for size in sizes.values():
            if budget[paths[key], size] > 0:
                budget[paths[key], size] -= 1
                counts[key] += size
            else:
                strays.append((key, size))
    anywhere: Counter[int] = Counter()
    for (_, size), times in budget.items():
        anywhere[size] += times
    for key, size in strays:
        if anywhere[size] > 0:
            anywhere[size] -= 1
            counts[key] += size
    yield from counts.items()


_MOVERS = (
    "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Cast", "Dropout",
    "QuantizeLinear", "DequantizeLinear",
)  # fmt: skip
_WHOLE = ("ConvInteger", "MatMulInteger")  # their results are scaled before a bias is added
FIRST = -1  # the owner of what comes before the first contraction


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """Work outside contractions, or parameters that no contraction has.

    `owner` is the place of the contraction that it follows; of work on constants alone, of the
    one that it is made for. `size` is the number of elements of its result.
    """

    node: str
    path: str
    op: str
    size: int
    flops: int
    params: int
    owner: int
    constant: bool = False


class AlignableModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model as a list of contractions and a list of other operations, with its totals, to be
    aligned with another one.

    `batch` and `places` are the first axis of the first input, and all the others but the
    channels'. `rest` are parameters that no node uses.
    """

    contractions: tuple[Contraction, ...]
    operations: tuple[Operation, ...]
    macs: int
    flops: int
    params: int
    rest: int
    uncounted: int
    batch: int
    inputs: tuple[tuple[int, ...], ...]


def read_alignable_model(graph: Graph, trace: Trace, ledger: Ledger) -> AlignableModel:
    """Return a counted model as contractions and other operations, which together have its MACs,
    FLOPs and parameters.
    """
    reader = _Reader(graph, parameter_count_by_first_user(graph, trace))
    for count in ledger.counts:
        if isinstance(count, CountedNode):
            reader.add_counted_node(count)
        else:  # it may hold parameters all the same
            reader.add_counted_node(
                CountedNode(node=count.node, cost=ZERO, formula="", precision="")
            )
    contractions, additional = reader.contractions_and_operations()
    stored = sum(count.params for count in contractions) + sum(
        count.params for count in additional
    )
    return AlignableModel(
        contractions=contractions,
        operations=additional,
        macs=ledger.total.macs,
        flops=ledger.total.flops,
        params=graph.params,
        rest=graph.params - stored,
        uncounted=len(ledger.uncounted),
        batch=_example_batch_size(graph),
        inputs=tuple(spec.shape or () for spec in graph.inputs),
    )


def _example_batch_size(graph: Graph) -> int:
    """Return the batch size of the model: the first axis of its first input, or 1 if that has
    fewer than two axes.
    """
    shape = graph.inputs[0].shape if graph.inputs else None
    return shape[0] if shape and len(shape) > 1 and shape[0] else 1


class _Reader:
    """Reads the counted nodes once, in their order, and remembers from which contraction each
    value comes.
    """

    def __init__(self, graph: Graph, stored: dict[str, int]) -> None:
        self._held = stored
        self._batch = _example_batch_size(graph)
        self._constant = frozenset(
            spec.name for node in graph.nodes if node.constant for spec in node.outputs if spec
        )
        self._found: list[Contraction] = []
        self._beside: list[Operation] = []
        self._owners: dict[str, int] = {}
        self._bare: dict[str, int] = {}  # values that are a contraction's result, moved at most
        # Values made of constants -> the place in _beside of what made them, and its inputs.
        self._makers: dict[str, tuple[int, tuple[str, ...]]] = {}

    def add_counted_node(self, count: CountedNode) -> None:
        """Add one counted node to the lists: as a contraction, as the bias of one, or as another
        operation.
        """
        node = count.node
        owner = max(
            (self._owners.get(spec.name, FIRST) for spec in node.inputs if spec), default=FIRST
        )
        if count.cost.macs:
            self._add_contractions_of_node(count)
            return
        if self._is_bias_addition(count):
            owner = self._add_bias_to_contraction(count)
        else:
            self._add_operation(count, owner, count.cost.flops, self._held.pop(node.key, 0))
            self._assign_moved_result(node)
        self._assign_results_to_contraction(node, owner)

    def _add_contractions_of_node(self, count: CountedNode) -> None:
        """Add the contractions of a node to the list, and its FLOPs beyond them as an
        operation.
        """
        node, stored = count.node, self._held.pop(count.node.key, 0)
        parts = contractions_of_node(
            node, count.cost.macs, count.times, self._batch, self._constant
        )
        beyond = count.cost.flops - 2 * count.cost.macs
        for index, part in enumerate(parts):
            adds = min(beyond, part.outer * part.batch * part.places) if part.bias else 0
            beyond -= adds
            last = index == len(parts) - 1
            weights = stored if last else min(stored, part.weight_elements)
            bias = min(part.bias, weights) if weights != part.weight_elements else 0
            stored -= weights
            self._found.append(
                msgspec.structs.replace(part, adds=adds, weights=weights - bias, bias_params=bias)
            )
        owner = len(self._found) - 1
        self._add_operation(count, owner, beyond, 0)
        self._assign_results_to_contraction(node, owner)
        is_plain = not beyond or float_operator_name(str(node.op)) != str(node.op)
        if is_plain and not parts[-1].bias:
            self._bare |= {spec.name: owner for spec in node.outputs[:1] if spec}

    def _add_operation(self, count: CountedNode, owner: int, flops: int, params: int) -> None:
        """Add an operation with these FLOPs and parameters, which belongs to the contraction at
        index `owner`; without either, it is added only if it works on constants alone.
        """
        node = count.node
        if count.node.constant:
            maker = len(self._beside), tuple(spec.name for spec in node.inputs if spec)
            self._makers |= {spec.name: maker for spec in node.outputs if spec}
        elif not flops and not params:
            return
        spec = node.outputs[0] if node.outputs else None
        self._beside.append(
            Operation(
                node=node.key,
                path=node.path,
                op=str(node.op),
                size=prod(spec.shape or ()) if spec else 0,
                flops=flops,
                params=params,
                owner=owner,
                constant=node.constant,
            )
        )

    def _assign_results_to_contraction(self, node: Node, owner: int) -> None:
        """Record that the results of a node, and the constants computed only for it, belong to the
        contraction at index `owner`.
        """
        if not node.constant:
            self._owners |= {spec.name: owner for spec in node.outputs if spec}
            todo = [spec.name for spec in node.inputs if spec]
            while todo:
                maker = self._makers.pop(todo.pop(), None)
                if maker is not None:
                    index, sources = maker
                    made = self._beside[index]
                    self._beside[index] = msgspec.structs.replace(made, owner=owner)
                    todo += sources

    def _assign_moved_result(self, node: Node) -> None:
        """If a node only moves or scales the result of a contraction, record its own result as the
        result of that contraction, too.
        """
        source = node.inputs[0] if node.inputs else None
        if source is None or source.name not in self._bare:
            return
        index = self._bare[source.name]
        is_scale = node.op.type == "Mul" and self._found[index].op in _WHOLE
        if node.op.type in _MOVERS or is_scale:
            self._bare |= {spec.name: index for spec in node.outputs[:1] if spec}

    def _is_bias_addition(self, count: CountedNode) -> bool:
        """Return whether a node adds a stored bias, one number per output channel, to the result
        of a contraction.
        """
        return (
            float_operator_name(str(count.node.op)) == "Add"
            and self._contraction_index_and_bias_elements(count.node) is not None
        )

    def _contraction_index_and_bias_elements(self, node: Node) -> tuple[int, int] | None:
        """Return (index of the contraction, elements of the bias) if the node adds a bias to its
        result, else None.
        """
        second = 3 if node.op.type == "QLinearAdd" else 1
        for own, other in ((0, second), (second, 0)):
            spec, added = node.inputs[own], node.inputs[other]
            index = self._bare.get(spec.name) if spec else None
            if index is None or added is None or added.shape is None:
                continue
            fixed = added.role in ("parameter", "constant") or added.name in self._constant
            contraction = self._found[index]
            if fixed and contraction.kind == WEIGHTED and prod(added.shape) == contraction.outer:
                return index, contraction.outer
        return None

    def _add_bias_to_contraction(self, count: CountedNode) -> int:
        """Add the bias of an Add node to the contraction before it; return the index of that
        contraction.
        """
        known = self._contraction_index_and_bias_elements(count.node)
        assert known is not None
        index, size = known
        contraction = self._found[index]
        result, flops = count.node.outputs[0], count.cost.flops
        adds = min(flops, result.numel * count.times) if result and result.shape else flops
        self._add_operation(count, index, flops - adds, 0)
        self._found[index] = msgspec.structs.replace(
            contraction,
            bias=size,
            adds=adds,
            bias_params=self._held.pop(count.node.key, 0),
        )
        return index

    def contractions_and_operations(self) -> tuple[tuple[Contraction, ...], tuple[Operation, ...]]:
        """Return the lists of contractions and of operations that were read, without operations
        that have neither FLOPs nor parameters.
        """
        kept = (operation for operation in self._beside if operation.flops or operation.params)
        return tuple(self._found), tuple(kept)
