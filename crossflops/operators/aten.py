"""The cost of PyTorch operators that have no ONNX form: the exporter keeps each as one node.

A node has the tensors of the call as inputs, lists flattened, and its plain arguments as
attributes, by the names of PyTorch's schema (native_functions.yaml).
"""

from collections.abc import Sequence
from math import inf, isqrt, prod

import msgspec

from crossflops.ir.graph import Node, TensorSpec
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators import linear_algebra as algebra
from crossflops.operators.access import (
    float_attribute,
    has_input,
    input_element_count,
    input_spec,
    integer_attribute,
    output_element_count,
    output_spec,
    reduction_operation_count,
    spec_shape,
)
from crossflops.operators.gradient import (
    Gradient,
    OperandPositions,
    broadcast_sum_cost,
    elementwise_backward,
    movement_backward,
    no_gradient,
    product_backward,
)
from crossflops.operators.matmul import einsum_backward, onnx_einsum_cost
from crossflops.operators.movement import DROPPED, MOVED, movement_cost
from crossflops.operators.operands import sizes_constraint
from crossflops.operators.pointwise import SWISH_BACK
from crossflops.operators.recurrent import UNIT_BACK
from crossflops.operators.reduction import CUMULATIVE_PRODUCT_BACK
from crossflops.operators.rule import (
    TORCH,
    TORCH_PAGES,
    Operators,
    estimate_exactness,
    upper_bound_exactness,
)

operator = Operators(TORCH)

_TWICE = "it is already a gradient, and gradients of gradients are not counted"
_SIGMOIDS_AND_TANHS = Cost(specials=5)

# The recurrences on packed sequences: gates, states, and the work of one unit beside the gates.
_PACKED = {
    "aten.lstm.data": (4, 2, Cost(muls=3, adds=1) + _SIGMOIDS_AND_TANHS),
    "aten.gru.data": (3, 1, Cost(muls=3, adds=3, specials=3)),
    "aten.rnn_tanh.data": (1, 1, Cost(specials=1)),
    "aten.rnn_relu.data": (1, 1, Cost(compares=1)),
}
# Gates, states, and the work of the gradient of one unit.
_CELLS = {
    "aten.lstm.input": (4, 2, UNIT_BACK["LSTM"]),
    "aten.lstm.data": (4, 2, UNIT_BACK["LSTM"]),
    "aten.gru.data": (3, 1, UNIT_BACK["GRU"]),
    "aten.rnn_tanh.data": (1, 1, UNIT_BACK["RNN"]),
    "aten.rnn_relu.data": (1, 1, Cost(compares=1)),
}


def _recurrent_cells_backward(node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
    """Return the cost of the gradients of stacked recurrent layers, for each requested operand:
    each product again.

    The input of a layer has a gradient where x requires one, or a weight of a lower layer does;
    its states where that holds, or a weight of the layer itself requires one. That concerns all
    steps but the first (B of the N rows), and the first one only where the first states require a
    gradient. The product with a first state of zeros is run. In the backward direction, the first
    step of a packed sequence has the last of its batch sizes as rows: where that is unknown, all
    sequences are assumed to be equally long. Units are as in LSTM, GRU and RNN of ai.onnx; a bias
    sums N rows.
    """
    gates, states, unit = _CELLS[node.op.type]
    packed = node.op.type.endswith(".data")
    before = 2 + states if packed else 3
    dims, first = spec_shape(input_spec(node, 0)), 2 if packed else 1
    rows = dims[0] if packed else dims[0] * dims[1]
    batch = spec_shape(input_spec(node, first), rank=3)[1]
    sizes_ = node.values.get(1, ()) if packed else ()
    skipped = batch, (*sizes_, batch)[max(len(sizes_) - 1, 0)]  # forwards and backwards
    stated = not requested.isdisjoint(range(first, before))
    directions = 2 if integer_attribute(node, "bidirectional") else 1
    layers = integer_attribute(node, "num_layers")
    per_cell = (len(node.inputs) - before) // (layers * directions)
    work, inner, below = dict.fromkeys(requested, ZERO), ZERO, 0 in requested
    for layer in range(layers):
        start = before + layer * directions * per_cell
        indices = range(start, start + directions * per_cell)
        for way, index in enumerate(range(start, indices.stop, per_cell)):
            wide, inputs = spec_shape(input_spec(node, index), rank=2)
            carried = spec_shape(input_spec(node, index + 1), rank=2)[1]
            units = wide // gates
            of_place = [Cost(macs=rows * wide * inputs), Cost(macs=rows * wide * carried)]
            if per_cell > 3:
                of_place += [Cost(adds=reduction_operation_count(rows, 1) * wide)] * 2
            projected = Cost(macs=rows * carried * units) if per_cell in (3, 5) else ZERO
            of_place.append(projected)
            for at, cost in enumerate(of_place[:per_cell]):
                if index + at in requested:
                    work[index + at] = cost
            if below and layer == 0:
                work[0] += of_place[0]
            elif below:
                inner += of_place[0]
            if below or stated or not requested.isdisjoint(range(index, index + per_cell)):
                stepped = rows if stated else rows - skipped[way]
                inner += Cost(macs=stepped * wide * carried) + projected + unit * (rows * units)
        below = below or stated or not requested.isdisjoint(indices)
    unsure = packed and directions == 2 and not stated and not sizes_
    doubt = (
        "the number of its longest sequences is unknown; counted as if all sequences were "
        "the longest"
    ) * unsure
    return Gradient(work, inner=inner, doubt=doubt)


@operator(
    "aten.lstm.input",
    "T*B*(4*H*(I+P) + P*H) MACs per layer and direction; biases: 2 adds per gate; "
    "T*B*H*(3 muls, 1 add, 3 sigmoids, 2 tanhs)",
    page=f"{TORCH_PAGES}nn.LSTM.html",
    backward=_recurrent_cells_backward,
)
def aten_lstm_cost(node: Node) -> Cost:
    """Return the cost of nn.LSTM (aten.lstm.input) over all layers, directions and steps, with the
    projection if it has one.

    Per step, sample and cell of H units: 4*H*(I+P) MACs for the gates, P*H for the projection
    (P = H without one), with biases 2 adds per gate; per unit 3 muls, 1 add, 3 sigmoids, 2
    tanhs. In training what a layer gives to the next is dropped out. input [T, B, I], hx, then
    by layer and direction w_ih [4H, I], w_hh [4H, P], two biases, w_hr [P, H].
    https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html
    """
    first, second, _ = spec_shape(input_spec(node, 0), rank=3)
    return _recurrent_cells_cost(node, 4, 3, Cost(muls=3, adds=1) + _SIGMOIDS_AND_TANHS) * (
        first * second
    )


@operator(
    _PACKED,
    "N*(gates*H*(I+P) + P*H) MACs per layer and direction, N rows of all sequences; "
    "biases: 2 adds per gate; N*H units of lstm, gru or rnn",
    page=f"{TORCH_PAGES}nn.utils.rnn.pack_padded_sequence.html",
    backward=_recurrent_cells_backward,
)
def aten_packed_rnn_cost(node: Node) -> Cost:
    """Return the cost of a recurrent layer on packed sequences (aten.lstm.data, gru.data,
    rnn_tanh.data, rnn_relu.data).

    As that on padded ones, for as many steps as there are rows: data [N, I] holds the N steps of
    all sequences, none of them padding. GRU: 3 muls, 3 adds, 2 sigmoids, 1 tanh per unit; RNN:
    one function. Then batch_sizes, the states, and the weights as in `aten_lstm_cost`.
    https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pack_padded_sequence.html
    """
    gates, states, unit = _PACKED[node.op.type]
    return (
        _recurrent_cells_cost(node, gates, 2 + states, unit)
        * spec_shape(input_spec(node, 0), rank=2)[0]
    )


def _recurrent_cells_cost(node: Node, gates: int, before: int, unit: Cost) -> Cost:
    """Return the cost of one step of one sequence in a recurrent layer stack: all layers and
    directions.

    That is one step of one sequence.

    The weights are the inputs from index `before` on; `unit` is the elementwise work for each
    hidden unit.
    """
    layers = integer_attribute(node, "num_layers")
    directions = 2 if integer_attribute(node, "bidirectional") else 1
    biased = integer_attribute(node, "has_biases")
    size, rest = divmod(len(node.inputs) - before, layers * directions)
    if rest or size not in ((4, 5) if biased else (2, 3)):
        raise ValueError(f"{node.op} has {len(node.inputs)} inputs for {layers} layers")
    step, carried = ZERO, 0
    for index in range(before, len(node.inputs), size):
        rows, inputs = spec_shape(input_spec(node, index), rank=2)
        carried = spec_shape(input_spec(node, index + 1), rank=2)[1]
        projection = carried * (rows // gates) if size in (3, 5) else 0
        step += Cost(macs=rows * (inputs + carried) + projection, adds=2 * rows if biased else 0)
        step += unit * (rows // gates)
    drops = integer_attribute(node, "train", 0) and float_attribute(node, "dropout", 0.0) > 0
    between = carried * directions * (layers - 1) if drops else 0
    return step + DROPPED * between


def _embedding_bag_backward(node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
    """Return the cost of the gradients of an embedding bag, for each requested operand.

    each of n indices adds its gradient to a row, n*D adds; mean: n*D divs; weights n*D muls.
    """
    elements = input_element_count(node, 1) * spec_shape(output_spec(node), rank=2)[1]
    mean = elements if integer_attribute(node, "mode", 0) == 1 else 0
    weighed = elements if has_input(node, 3) else 0
    return Gradient({index: Cost(adds=elements, divs=mean, muls=weighed) for index in requested})


@operator(
    ("aten.embedding_bag.default", "aten.embedding_bag.padding_idx"),
    "(n - bags)*D adds, or compares; mean: bags*D divs; weights: n*D muls",
    page=f"{TORCH_PAGES}nn.EmbeddingBag.html",
    tables=(0,),
    doubt=upper_bound_exactness,
    backward=_embedding_bag_backward,
)
def embedding_bag_cost(node: Node) -> Cost:
    """Return the cost of aten.embedding_bag, which combines table rows bag by bag: an add or
    compare for each further row.

    (n - bags)*D adds, for the largest compares; the mean takes bags*D divs, weights of samples
    n*D muls. An upper bound: what padding_idx leaves out is not known. weight [V, D].
    https://docs.pytorch.org/docs/stable/generated/torch.nn.EmbeddingBag.html
    """
    bags, width = spec_shape(output_spec(node), rank=2)
    combined = reduction_operation_count(input_element_count(node, 1), bags) * width
    mode = integer_attribute(node, "mode", 0)
    return Cost(
        adds=combined if mode < 2 else 0,
        compares=combined if mode == 2 else 0,
        divs=bags * width if mode == 1 else 0,
        muls=input_element_count(node, 1) * width if has_input(node, 3) else 0,
    )


def _cdist_backward(node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
    """Return the cost of the gradients of p-norm distances of pairs of rows, for each requested
    operand.

    dx1 = sum(dY d |d|^(p-2) / Y^(p-1)), d = x1 - x2 again, for each of both operands.

    Per pair and element p = 2: mul, div; p = 1: 2 compares, mul; p = inf: 3 compares, mul; else 3
    compares, 2 powers, 2 muls, a div; and a sub and an add, but for p = 0, which has zeros.
    Source: _cdist_backward in aten/src/ATen/native/cpu/DistanceOpsKernel.cpp.
    """
    power = float_attribute(node, "p", 2.0)
    if power == 0:
        return Gradient(dict.fromkeys(requested, ZERO))
    kinds = {2: Cost(muls=1, divs=1), 1: Cost(compares=2, muls=1), inf: Cost(compares=3, muls=1)}
    element = kinds.get(power, Cost(compares=3, specials=2, muls=2, divs=1)) + Cost(adds=2)
    pairs = output_element_count(node) * spec_shape(input_spec(node, 0), at_least=2)[-1]
    return Gradient(dict.fromkeys(requested, element * pairs))


@operator(
    "aten._cdist_forward.default",
    "n(result)*(M subs; p=2: M muls, M-1 adds, sqrt; see the docstring for other p)",
    page=f"{TORCH_PAGES}cdist.html",
    backward=_cdist_backward,
)
def cdist_cost(node: Node) -> Cost:
    """Return the cost of aten._cdist_forward: the p-norm of the difference of each pair of rows of
    two matrices.

    Per pair M subtractions; p = 2: M muls, M-1 adds, a root; p = 1: M signs, M-1 adds; p = inf:
    M signs, M-1 compares; p = 0: M compares, M-1 adds; else M signs, M+1 powers, M-1 adds.
    x1 [..., P, M], x2 [..., R, M], result [..., P, R].
    https://docs.pytorch.org/docs/stable/generated/torch.cdist.html
    """
    width = spec_shape(input_spec(node, 0), at_least=2)[-1]
    most = reduction_operation_count(width, 1)
    power = float_attribute(node, "p", 2.0)
    if power == 2:
        norm = Cost(muls=width, adds=most, specials=1)
    elif power == inf:
        norm = Cost(compares=width + most)
    elif power in (0, 1):
        norm = Cost(compares=width, adds=most)
    else:
        norm = Cost(compares=width, specials=width + 1, adds=most)
    return (Cost(adds=width) + norm) * output_element_count(node)


def _euclidean_distance_backward(
    node: Node, requested: OperandPositions, forward: Cost
) -> Gradient:
    """Return the cost of the gradients of Euclidean distances that are computed by one product,
    for each requested operand.

    dx1 = dY/Y x2 - sum(dY/Y) x1, dx2 likewise: both products, whichever gradient is wanted.

    Each is of M numbers, and that of the forward pass of M+2. Source: _euclidean_dist_backward in
    torch/csrc/autograd/FunctionsManual.cpp.
    """
    both = 2 * (forward.macs - 2 * output_element_count(node))
    return Gradient(dict.fromkeys(requested, Cost(macs=both // len(requested))))


@operator(
    "aten._euclidean_dist.default",
    "n(result)*(M+2) MACs, n(x1) + n(x2) squares and a sum of each row; n(x1) muls by -2; root",
    page=f"{TORCH_PAGES}cdist.html",
    requires=sizes_constraint("x1[...,P,M] x2[...,R,M]"),
    backward=_euclidean_distance_backward,
)
def euclidean_distance_cost(node: Node) -> Cost:
    """Return the cost of aten._euclidean_dist: the distance of each pair of rows, computed by one
    matrix product.

    [-2 x1, |x1|^2, 1] [x2, 1, |x2|^2]^T, kept from below 0, and its root. x1 [..., P, M],
    x2 [..., R, M], result [..., P, R]. Source: _euclidean_dist in
    aten/src/ATen/native/Distance.cpp.
    """
    left, right = input_spec(node, 0), input_spec(node, 1)
    width = spec_shape(left, at_least=2)[-1]
    rows = [prod(spec_shape(operand, at_least=2)[:-1]) for operand in (left, right)]
    return Cost(
        macs=output_element_count(node) * (width + 2),
        muls=(2 * rows[0] + rows[1]) * width,
        adds=sum(rows) * reduction_operation_count(width, 1),
        compares=output_element_count(node),
        specials=output_element_count(node),
    )


_EXPANDED = ("expand1", "expand2", "expand3", "sumdim")


def _attribute_axes(node: Node, name: str) -> tuple[int, ...]:
    """Return the axes in an attribute that is a list of integers."""
    value = node.attrs.get(name, ())
    axes = value if isinstance(value, tuple) else (value,)
    return tuple(axis for axis in axes if isinstance(axis, int))


def _trilinear_backward(node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
    """Return the cost of the gradients of aten._trilinear, for each requested operand.

    each gradient is _trilinear again, with dY in place of its operand.

    Axes that were summed are then expanded, and the expanded axes of the operand are summed.
    Source: _trilinear_backward in torch/csrc/autograd/FunctionsManual.cpp.
    """
    *expanded, summed_axes = (_attribute_axes(node, name) for name in _EXPANDED)
    work = {}
    for index in requested & {0, 1, 2}:
        shapes = [spec_shape(input_spec(node, at)) for at in range(3)]
        shapes[index], axes = spec_shape(output_spec(node)), list(expanded)
        axes[index] = summed_axes
        work[index] = _trilinear_call_cost(
            shapes, axes, expanded[index], integer_attribute(node, "unroll_dim", 1)
        )
    return Gradient(work)


@operator(
    "aten._trilinear.default",
    "n(slices)*(n(x1 x2) + n(x1 x2 x3)) MACs, of a slice, x1 x2 without axes x3 has not; "
    "slices that are summed: (n(slices)-1)*n(Y) adds",
    page=f"{TORCH_PAGES}nn.Bilinear.html",
    backward=_trilinear_backward,
)
def trilinear_cost(node: Node) -> Cost:
    """Return the cost of aten._trilinear: the sum, over some axes, of the product of three
    broadcast tensors.

    PyTorch cuts all three along `unroll_dim`. Of each slice x1 x2 is made, summed over the axes
    that x3 has not, then that times x3. A product of two counts as MACs, whether it sums or not.
    Source: _trilinear in aten/src/ATen/native/Linear.cpp.
    """
    *expanded, summed_axes = (_attribute_axes(node, name) for name in _EXPANDED)
    shapes = [spec_shape(input_spec(node, at)) for at in range(3)]
    return _trilinear_call_cost(
        shapes, expanded, summed_axes, integer_attribute(node, "unroll_dim", 1)
    )


def _trilinear_call_cost(
    shapes: Sequence[tuple[int, ...]],
    expanded: Sequence[tuple[int, ...]],
    summed_axes: tuple[int, ...],
    unrolled: int,
) -> Cost:
    """Return the cost of one trilinear call on tensors of these shapes. Raises ValueError if their
    sizes differ.
    """
    extents: dict[int, int] = {}
    has: list[set[int]] = []
    for dims, missing in zip(shapes, expanded, strict=True):
        axes = [axis for axis in range(len(dims) + len(missing)) if axis not in missing]
        has.append(set(axes))
        for axis, extent in zip(axes, dims, strict=True):
            if extents.setdefault(axis, extent) != extent:
                raise ValueError(f"axis {axis} is {extents[axis]} and {extent} long")
    slices = extents.get(unrolled, 1)

    def elements_per_slice(axes: set[int]) -> int:
        """Return the product of the sizes of these axes, without the axis along which the call is
        cut.
        """
        return prod(extents[axis] for axis in axes - {unrolled})

    first = has[0] | has[1]
    kept = first - (set(summed_axes) - has[2])
    sums = {*summed_axes} if unrolled in summed_axes else set()
    added = (
        reduction_operation_count(slices, 1) * elements_per_slice({*extents} - sums) if sums else 0
    )
    return Cost(
        macs=slices * (elements_per_slice(first) + elements_per_slice(kept | has[2])),
        adds=added,
    )


def addmm_backward(node: Node, requested: OperandPositions, forward: Cost) -> Gradient:
    """Return the cost of the gradients of beta * C + alpha * A B (inputs in this order): a product
    each for A and B, sums for C.

    alpha other than 0 and 1: n(Y) muls, once; beta: n(C) muls (derivatives.yaml: addmm).
    """
    products = {index: Cost(macs=forward.macs) for index in requested & {1, 2}}
    beta, alpha = float_attribute(node, "beta", 1.0), float_attribute(node, "alpha", 1.0)
    added = {}
    if 0 in requested:
        weighed = Cost(muls=input_element_count(node, 0) if beta not in (0, 1) else 0)
        added[0] = broadcast_sum_cost(node, 0) + weighed if beta else ZERO
    scaled = output_element_count(node) if products and alpha not in (0, 1) else 0
    return Gradient(products | added, inner=Cost(muls=scaled))


@operator(
    "aten._sparse_addmm.default",
    "at most M*K*N MACs; beta: M*N adds; scaled: M*N muls",
    page=f"{TORCH_PAGES}sparse.addmm.html",
    doubt=upper_bound_exactness,
    requires=sizes_constraint("self mat1[M,K] mat2[K,N]"),
    backward=addmm_backward,
)
def sparse_addmm_cost(node: Node) -> Cost:
    """Return the cost of beta * C + alpha * A B with a sparse A (aten._sparse_addmm): at most the
    M*K*N MACs of a dense A.

    Shapes do not tell how many elements of A are there: an upper bound. C [M, N], A [M, K],
    B [K, N]. With beta other than 0 M*N adds, with beta or alpha other than 0 and 1 M*N muls each.
    https://docs.pytorch.org/docs/stable/generated/torch.sparse.addmm.html
    """
    rows, inner = spec_shape(input_spec(node, 1), rank=2)
    columns = spec_shape(input_spec(node, 2), rank=2)[1]
    beta, alpha = float_attribute(node, "beta", 1.0), float_attribute(node, "alpha", 1.0)
    scaled = (beta not in (0, 1)) + (alpha not in (0, 1))
    added = Cost(muls=scaled, adds=int(beta != 0)) * (rows * columns)
    return Cost(macs=rows * inner * columns) + added


operator(
    "aten.cumprod.default",
    "n(x) muls",
    page=f"{TORCH_PAGES}cumprod.html",
    backward=CUMULATIVE_PRODUCT_BACK,
)(lambda node: Cost(muls=output_element_count(node)))
for name in ("cummax", "cummin"):
    operator(
        f"aten.{name}.default",
        "n(x) compares",
        page=f"{TORCH_PAGES}{name}.html",
        backward="the sum of gradients at the positions of the extremes is not derived",
    )(lambda node: Cost(compares=input_element_count(node, 0)))
operator(
    "prims.prod.default",
    "n(x)-n(Y) muls",
    page=f"{TORCH_PAGES}prod.html",
    backward="not derived, because PyTorch differentiates aten.prod, of which it is a part",
)(lambda node: Cost(muls=max(input_element_count(node, 0) - output_element_count(node), 0)))
operator(
    "aten.randperm.default",
    "n-1 divs: the remainders of numbers whose generator is not counted",
    page=f"{TORCH_PAGES}randperm.html",
    doubt=estimate_exactness,
    backward=no_gradient,
)(lambda node: Cost(divs=max(output_element_count(node) - 1, 0)))
for name, page in (
    ("_sparse_coo_tensor_with_dims_and_tensors", "sparse_coo_tensor"),
    ("copy", "Tensor.copy_"),
    ("empty_permuted", "empty_permuted"),
    ("_efficientzerotensor", "zeros"),
    ("resize", "Tensor.resize_"),
    ("select_scatter", "select_scatter"),
    ("slice_scatter", "slice_scatter"),
    ("_pack_padded_sequence", "nn.utils.rnn.pack_padded_sequence"),
    ("_pad_packed_sequence", "nn.utils.rnn.pad_packed_sequence"),
):
    operator(
        f"aten.{name}.default", MOVED, page=f"{TORCH_PAGES}{page}.html", backward=movement_backward
    )(movement_cost)


# Products of PyTorch for which ONNX has no form: complex ones, and those of groups of rows.


def _cost_on_complex_numbers(work: Cost) -> Cost:
    """Return the cost of the same operations on complex numbers: 4 real products for a product, 2
    real adds for an add.

    A product is 4 real ones, and its 2 sums are 2 adds.

    In a matrix product the 4 are accumulated, as the exporter writes those that it supports.
    """
    return Cost(macs=4 * work.macs, muls=4 * work.muls, adds=2 * (work.adds + work.muls))


@operator(
    "aten.linear.default",
    "complex: 4*rows*I*O MACs; bias: 2*rows*O adds",
    page=f"{TORCH_PAGES}nn.functional.linear.html",
    requires=sizes_constraint("input[...,I,2] weight[O,I,2] bias[O,2]"),
    backward=product_backward(0, 1, bias=2),
)
def complex_linear_cost(node: Node) -> Cost:
    """Return the cost of aten.linear on complex numbers, with their 2 parts on the last axis: 4
    MACs per complex product.

    With a bias 2 adds per result. input [..., I, 2], weight [O, I, 2].
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.linear.html
    """
    outputs, inputs, _ = spec_shape(input_spec(node, 1), rank=3)
    rows = prod(spec_shape(input_spec(node, 0), at_least=2)[:-2])
    added = rows * outputs if has_input(node, 2) else 0
    return _cost_on_complex_numbers(Cost(macs=rows * inputs * outputs, adds=added))


def _real_einsum_node(node: Node) -> Node:
    """Return the einsum node of real numbers with the same equation: its tensors lack the last
    axis, of the 2 parts.
    """
    parts = {
        field: tuple(_without_last_axis(spec) for spec in getattr(node, field))
        for field in ("inputs", "outputs")
    }
    return msgspec.structs.replace(node, **parts)


def _without_last_axis(spec: TensorSpec | None) -> TensorSpec | None:
    """Return the tensor without its last axis; None stays None."""
    if spec is None or spec.shape is None:
        return spec
    return msgspec.structs.replace(spec, shape=spec.shape[:-1])


def _complex_einsum_backward(node: Node, requested: OperandPositions, forward: Cost) -> Gradient:
    """Return the cost of the gradients of an einsum of complex numbers: 4 times the products of
    the real one.
    """
    real = einsum_backward(_real_einsum_node(node), requested, forward)
    work = {index: _cost_on_complex_numbers(cost) for index, cost in real.operands.items()}
    return Gradient(work, inner=_cost_on_complex_numbers(real.inner))


@operator(
    "aten.einsum.default",
    "complex: 4 x the MACs and muls of Einsum, 2 adds per mul",
    page=f"{TORCH_PAGES}einsum.html",
    backward=_complex_einsum_backward,
)
def complex_einsum_cost(node: Node) -> Cost:
    """Return the cost of aten.einsum on complex numbers, with their 2 parts on the last axis: 4
    real products for each.

    https://docs.pytorch.org/docs/stable/generated/torch.einsum.html
    """
    return _cost_on_complex_numbers(onnx_einsum_cost(_real_einsum_node(node)))


# The second is what transformers runs where PyTorch's own does not take the tensors.
@operator(
    ("aten._grouped_mm.default", "transformers.grouped_mm_fallback.default"),
    "n(Y)*K MACs; two matrices, cut along K: M*K*N",
    page=f"{TORCH_PAGES}nn.functional.grouped_mm.html",
    experts=(1,),
    backward=product_backward(0, 1),
)
@operator(
    "aten._int_mm.default",
    "n(Y)*K MACs",
    page=f"{TORCH_PAGES}mm.html",
    requires=sizes_constraint("self[M,K] mat2[K,N]"),
    backward=no_gradient,
)
def aten_grouped_mm_cost(node: Node) -> Cost:
    """Return the cost of a product in which each row meets only the matrix of its group: K MACs
    per element of the result.

    self [M, K] or [G, M, K], mat2 [K, N] or [G, K, N]. Two matrices are cut along K instead, and
    the results of the G pieces stand side by side: M*K*N in all.
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grouped_mm.html
    """
    first, second = (
        spec_shape(input_spec(node, 0), at_least=2),
        spec_shape(input_spec(node, 1), at_least=2),
    )
    if len(first) == len(second) == 2 and len(spec_shape(output_spec(node))) == 3:
        return Cost(macs=first[0] * first[1] * second[1])
    return Cost(macs=output_element_count(node) * first[-1])


@operator(
    (
        "aten._scaled_mm.default",
        "aten._weight_int8pack_mm.default",
        "aten._weight_int4pack_mm.default",
        "aten._weight_int4pack_mm_for_cpu.default",
        "aten._dyn_quant_matmul_4bit.default",
    ),
    "n(Y)*K MACs; scales are not counted",
    page="https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/native_functions.yaml",
    backward=no_gradient,
)
def low_bit_product_cost(node: Node) -> Cost:
    """Return the cost of a product with a matrix in few bits, packed or not: K MACs per element of
    the result.

    https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/native_functions.yaml
    """
    return Cost(macs=output_element_count(node) * spec_shape(input_spec(node, 0), at_least=1)[-1])


def _matrix_exponential_backward(
    node: Node, requested: OperandPositions, forward: Cost
) -> Gradient:
    """Return the cost of the gradient of a matrix exponential.

    the exponential of [[A^T, dY], [0, A^T]], which is 2n x 2n: 8 times the products.

    Source: linalg_matrix_exp_differential in torch/csrc/autograd/FunctionsManual.cpp.
    """
    return Gradient(dict.fromkeys(requested, Cost(macs=8 * forward.macs)))


@operator(
    "aten.linalg_matrix_exp.default",
    "5*n^3 MACs per matrix: the Taylor polynomial of degree 18",
    page=f"{TORCH_PAGES}linalg.matrix_exp.html",
    doubt=estimate_exactness,
    backward=_matrix_exponential_backward,
)
def matrix_exponential_cost(node: Node) -> Cost:
    """Return the estimated cost of aten.linalg_matrix_exp: 5 products of [n, n] matrices, for a
    polynomial of degree 18.

    An estimate: a matrix with a small norm takes a lower degree and fewer products, one with a
    large norm is scaled first, and each halving is a square behind it. Source: mexp_impl in
    aten/src/ATen/native/LinearAlgebra.cpp; Bader, Blanes and Casas, Computing the Matrix
    Exponential with an Optimized Taylor Polynomial Approximation (2019).
    """
    count, n = algebra.square_matrix_count_and_rows(node)
    return Cost(macs=5 * n**3) * count


def _matrix_power_backward(node: Node, requested: OperandPositions, forward: Cost) -> Gradient:
    """Return the cost of the gradient of a matrix power.

    two products for each one of the forward pass, and two for the gradient of the inverse.
    """
    count, n = algebra.square_matrix_count_and_rows(node)
    inverse = algebra.inverse_gradient_cost(n) * count
    return Gradient(dict.fromkeys(requested, Cost(macs=2 * forward.macs) + inverse))


@operator(
    "aten.linalg_matrix_power.default",
    "the inverse; n^3 MACs for each of floor(log2 |p|) squares and each further bit of p",
    page=f"{TORCH_PAGES}linalg.matrix_power.html",
    doubt=estimate_exactness,
    backward=_matrix_power_backward,
)
def matrix_power_cost(node: Node) -> Cost:
    """Return the estimated cost of aten.linalg_matrix_power with a negative exponent: the inverse,
    then its power by products.

    https://docs.pytorch.org/docs/stable/generated/torch.linalg.matrix_power.html
    """
    count, n = algebra.square_matrix_count_and_rows(node)
    exponent = abs(integer_attribute(node, "n"))
    products = exponent.bit_length() - 1 + exponent.bit_count() - 1
    return (algebra.matrix_inverse_cost(n) + Cost(macs=products * n**3)) * count


def _square_matrix_rows(node: Node) -> int:
    """Return the number of rows of the square matrix that is the first input. Raises ValueError if
    it is not square.
    """
    rows = isqrt(input_element_count(node, 0))
    if rows * rows != input_element_count(node, 0):
        raise ValueError(
            f"{node.op} has no square matrix in {input_element_count(node, 0)} elements"
        )
    return rows


operator(
    "aten.linalg_tensorsolve.default",
    "of the unfolded n x n matrix: LU, then n(n-1)*(mul, sub), n divs",
    page=f"{TORCH_PAGES}linalg.tensorsolve.html",
    doubt=estimate_exactness,
    backward="not derived, because PyTorch differentiates it as a solution of the unfolded matrix",
)(lambda node: algebra.linear_solve_cost(_square_matrix_rows(node), 1))
operator(
    "aten.linalg_tensorinv.default",
    "of the unfolded n x n matrix: n^2 divs, n(n-1)^2*(mul, sub)",
    page=f"{TORCH_PAGES}linalg.tensorinv.html",
    doubt=estimate_exactness,
    backward="not derived, because PyTorch differentiates it as an inverse of the unfolded matrix",
)(lambda node: algebra.matrix_inverse_cost(_square_matrix_rows(node)))


@operator(
    "aten.cholesky_solve.default",
    "per column 2 triangular solves: n(n-1)*(mul, sub), 2n divs",
    page=f"{TORCH_PAGES}cholesky_solve.html",
    doubt=estimate_exactness,
    backward="two more solutions and a product are not derived",
)
def cholesky_solve_cost(node: Node) -> Cost:
    """Return the estimated cost of aten.cholesky_solve: two triangular solves for each column of
    B.

    https://docs.pytorch.org/docs/stable/generated/torch.cholesky_solve.html
    """
    rows = spec_shape(output_spec(node), at_least=2)[-2]
    return algebra.triangular_solve_cost(rows, 2) * (
        output_element_count(node) // rows if rows else 0
    )


@operator(
    "aten._pdist_forward.default",
    "as _cdist_forward, for each of R(R-1)/2 pairs of rows",
    page=f"{TORCH_PAGES}nn.functional.pdist.html",
    backward="the sum over the pairs of each row is not derived",
)
def pdist_cost(node: Node) -> Cost:
    """Return the cost of aten._pdist_forward: the p-norm of the difference of each pair of rows of
    one matrix, each pair once.

    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pdist.html
    """
    return cdist_cost(node)


@operator(
    "aten._fused_moving_avg_obs_fq_helper_functional.default",
    "n(x)*(2 compares, of the observer; div, round, 2 compares, 2 adds, mul)",
    page="https://docs.pytorch.org/docs/stable/generated/"
    "torch.ao.quantization.fake_quantize.FusedMovingAvgObsFakeQuantize.html",
    backward=elementwise_backward(Cost(muls=1), ZERO),
)
def observer_rounding_cost(node: Node) -> Cost:
    """Return the cost of observing a tensor's range and rounding each element to a quantized
    value, as training for quantization does.

    The observer compares each element with the least and the largest; then as QuantizeLinear and
    DequantizeLinear with a zero point.
    https://docs.pytorch.org/docs/stable/quantization.html
    """
    return Cost(compares=4, divs=1, specials=1, adds=2, muls=1) * input_element_count(node, 0)


@operator(
    "aten.fake_quantize_per_channel_affine_cachemask.default",
    "n(x)*(div, round, 2 compares, 2 adds, mul)",
    page=f"{TORCH_PAGES}fake_quantize_per_channel_affine.html",
    backward=elementwise_backward(Cost(muls=1), ZERO),
)
def channel_rounding_cost(node: Node) -> Cost:
    """Return the cost of rounding each element by the scale of its channel: as QuantizeLinear,
    then DequantizeLinear.

    https://docs.pytorch.org/docs/stable/generated/torch.fake_quantize_per_channel_affine.html
    """
    return Cost(divs=1, specials=1, compares=2, adds=2, muls=1) * input_element_count(node, 0)


@operator(
    (
        "aten._fake_quantize_learnable_per_tensor_affine.default",
        "aten._fake_quantize_learnable_per_channel_affine.default",
    ),
    "n(x)*(div, round, 2 compares, 2 adds, mul)",
    page=f"{TORCH_PAGES}fake_quantize_per_channel_affine.html",
    backward="the gradients of its scale and zero point are not derived",
)
def learnable_rounding_cost(node: Node) -> Cost:
    """Return the cost of rounding each element by a trained scale and zero point: as
    QuantizeLinear, then DequantizeLinear.

    https://docs.pytorch.org/docs/stable/generated/torch.fake_quantize_per_channel_affine.html
    """
    return channel_rounding_cost(node)


# Of either: dY x / Y.
@operator(
    "prims.hypot.default",
    "n(Y)*(2 muls, 1 add, sqrt)",
    page=f"{TORCH_PAGES}hypot.html",
    backward=elementwise_backward(Cost(muls=1, divs=1)),
)
def hypot_cost(node: Node) -> Cost:
    """Return the cost of sqrt(x^2 + y^2): 2 muls, an add and a square root per element.

    https://docs.pytorch.org/docs/stable/generated/torch.hypot.html
    """
    return Cost(muls=2, adds=1, specials=1) * output_element_count(node)


@operator(
    "prims.signbit.default",
    "n(Y) compares",
    page=f"{TORCH_PAGES}signbit.html",
    backward=no_gradient,
)
def signbit_cost(node: Node) -> Cost:
    """Return the cost of testing the sign bit: a compare per element.

    https://docs.pytorch.org/docs/stable/generated/torch.signbit.html
    """
    return Cost(compares=output_element_count(node))


for name in ("fmax", "fmin"):
    operator(
        f"prims.{name}.default",
        "n(Y) compares",
        page=f"{TORCH_PAGES}{name}.html",
        backward=elementwise_backward(Cost(compares=1), Cost(compares=1)),  # as of Max and Min
    )(lambda node: Cost(compares=output_element_count(node)))

# Tensors that are made of sizes alone: sequences, and numbers that are drawn.

operator(
    ("aten.range.step", "aten.range.default"),
    "n(Y)*(mul, add)",
    page=f"{TORCH_PAGES}range.html",
    backward=no_gradient,
)(lambda node: Cost(muls=1, adds=1) * output_element_count(node))
for name in ("fft_fftfreq", "fft_rfftfreq"):
    operator(
        f"aten.{name}.default",
        "n(Y) muls + 1 mul, 1 div",
        page=f"{TORCH_PAGES}{name.replace('_', '.', 1)}.html",
        backward=no_gradient,
    )(lambda node: Cost(muls=output_element_count(node) + 1, divs=1))
operator(
    [f"aten.random.{form}" for form in ("default", "from", "to")],
    "n(Y)*(mul, add) after a generator that is not counted",
    page=f"{TORCH_PAGES}Tensor.random_.html",
    doubt=estimate_exactness,
    backward=no_gradient,
)(lambda node: Cost(muls=1, adds=1) * output_element_count(node))


# Windows, as PyTorch's kernels make them (aten/src/ATen/native/TensorFactories.cpp). A periodic
# one is made of a length of one more, whose last element is left out.


def _window_function_length(node: Node) -> int:
    """Return the number of elements that a window function computes: one more than it returns if
    it is periodic.
    """
    length = output_element_count(node)
    periodic = bool(node.attrs.get("periodic", True))
    return length + periodic if length > 1 else 0  # one element is 1, and nothing is computed


for form in ("default", "periodic"):

    @operator(
        f"aten.bartlett_window.{form}",
        "L muls, then (mul, add) for those behind the middle; L one more than n if periodic",
        page=f"{TORCH_PAGES}bartlett_window.html",
        backward=no_gradient,
    )
    def bartlett_window_cost(node: Node) -> Cost:
        """Return the cost of a Bartlett window of L elements: 2k/(L-1) up to the middle and 2 -
        2k/(L-1) behind it.

        https://docs.pytorch.org/docs/stable/generated/torch.bartlett_window.html
        """
        length = _window_function_length(node)
        behind = length - ((length - 1) // 2 + 1) if length else 0
        return Cost(muls=length + behind, adds=behind)


for form in ("default", "periodic", "beta"):

    @operator(
        f"aten.kaiser_window.{form}",
        "L*(4 muls, 2 adds, compare, sqrt, i0), one i0 and div; L one more than n if periodic",
        page=f"{TORCH_PAGES}kaiser_window.html",
        backward=no_gradient,
    )
    def kaiser_window_cost(node: Node) -> Cost:
        """Return the cost of a Kaiser window of L elements: i0(beta sqrt(1 - x^2)) / i0(beta) with
        x = 2k/(L-1) - 1.

        https://docs.pytorch.org/docs/stable/generated/torch.kaiser_window.html
        """
        length = _window_function_length(node)
        element = Cost(muls=4, adds=2, compares=1, specials=2)
        return element * length + Cost(specials=1, divs=1) * (length > 0)


# Gradients for which PyTorch has a kernel: what a backward pass of a model's own may call.


@operator(
    "aten.convolution_backward.default",
    "n(larger of x and dY)*Cin/g*k MACs for dx, as many for dw; dbias: n(dY)-Cout adds",
    page=f"{TORCH_PAGES}nn.functional.conv2d.html",
    backward=_TWICE,
)
def convolution_backward_cost(node: Node) -> Cost:
    """Return the cost of the gradients of a convolution that `output_mask` requests: of the input,
    the weight and the bias.

    Each of the first two costs the MACs of the convolution, each position of dY (transposed: of
    x) times a kernel; that of the bias n(dY) - n(channels) adds. dY [N, M, o...], x [N, C, i...],
    w [M, C/group, k...].
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.conv2d.html
    """
    asked = node.attrs.get("output_mask")
    if not isinstance(asked, tuple) or len(asked) != 3:
        raise ValueError(f"{node.op} does not declare which gradients it computes")
    gradient = input_element_count(node, 0)
    positions = (
        input_element_count(node, 1) if integer_attribute(node, "transposed", 0) else gradient
    )
    channels = spec_shape(input_spec(node, 0), at_least=2)[1]
    return Cost(
        macs=positions
        * prod(spec_shape(input_spec(node, 2), at_least=3)[1:])
        * sum(map(bool, asked[:2])),
        adds=reduction_operation_count(gradient, channels) if asked[2] else 0,
    )


@operator(
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
    "n(scores)*(3*depth of keys + 2*depth of values MACs, exp, 3 muls, 2 adds), "
    "n(Y)*(1 mul, 1 add)",
    page=f"{TORCH_PAGES}nn.functional.scaled_dot_product_attention.html",
    backward=_TWICE,
)
def attention_backward_cost(node: Node) -> Cost:
    """Return the cost of the gradients of a fused attention, which computes its scores again from
    queries and keys.

    Five products: s = q k^T again, dp = dY v^T, dv = p^T dY, dq = ds k, dk = ds^T q. For each
    score p = exp(c s - l), delta = sum(dY y) from each result, and ds = c p (dp - delta). dY, q,
    k, v, y [N, heads, length, depth].
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html
    """
    query, key, value = (spec_shape(input_spec(node, index), rank=4) for index in (1, 2, 3))
    scores = prod(query[:3]) * key[2]
    softmax = Cost(specials=1, muls=3, adds=2) * scores
    delta = Cost(muls=1, adds=1) * input_element_count(node, 0)
    return Cost(macs=scores * (3 * query[3] + 2 * value[3])) + softmax + delta


@operator(
    "aten.silu_backward.default",
    "n(X)*(sigmoid, 3 muls, 2 adds)",
    page=f"{TORCH_PAGES}nn.SiLU.html",
    backward=_TWICE,
)
def silu_backward_cost(node: Node) -> Cost:
    """Return the cost of dY s (1 + X (1 - s)), with s the sigmoid of X: a sigmoid, 3 muls and 2
    adds per element.

    https://docs.pytorch.org/docs/stable/generated/torch.nn.SiLU.html
    """
    return SWISH_BACK * output_element_count(node)
