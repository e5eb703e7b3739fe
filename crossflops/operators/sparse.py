"""The cost of PyTorch operators on sparse tensors, which store only some of their elements.

An export writes each as one node: a sparse tensor is the vector of its stored values there, and
what one run of the model showed stands in attributes. `stored` says of each operand how many
elements it holds, `distinct` how many of them are left when those of one place are summed, `kept`
what the result holds, `terms` how many products of two elements it sums up, `masked` how many the
gradient of its sparse factor takes, and `groups` how many rows of stored elements there are.
"""

from crossflops.ir.graph import Node
from crossflops.ir.ledger import Cost
from crossflops.operators.access import (
    float_attribute,
    integer_attribute,
    output_element_count,
    reduction_operation_count,
)
from crossflops.operators.gradient import (
    Gradient,
    OperandPositions,
    broadcast_sum_cost,
    movement_backward,
)
from crossflops.operators.movement import MOVED, movement_cost
from crossflops.operators.normalization import (
    GroupSizes,
    log_softmax_cost,
    log_softmax_gradient_cost,
    softmax_cost,
    softmax_gradient_cost,
)
from crossflops.operators.rule import TORCH, Operators

operator = Operators(TORCH)
_PAGE = "https://docs.pytorch.org/docs/stable/sparse.html"
_PLACED = {
    **dict.fromkeys(
        (
            "mm.default", "matmul.default", "_sparse_mm.default", "_sparse_mm.reduce",
            "_sparse_sparse_matmul.default", "mv.default", "bmm.default", "linear.default",
            "smm.default", "hspmm.default",
        ),
        (0, 1),
    ),
    **dict.fromkeys(
        (
            "addmm.default", "_sparse_addmm.default", "addmv.default", "baddbmm.default",
            "sspaddmm.default", "sparse_sampled_addmm.default",
        ),
        (1, 2),
    ),
}  # fmt: skip
# They move or name what is stored.
_MOVING = (
    "t.default", "transpose.int", "permute.default", "values.default", "_values.default",
    "indices.default", "_indices.default", "crow_indices.default", "col_indices.default",
    "ccol_indices.default", "row_indices.default", "clone.default", "detach.default",
    "detach_.default", "alias.default", "contiguous.default", "to.dtype", "to.device",
    "to.dtype_layout", "_to_copy.default", "sparse_mask.default", "_to_sparse.default",
    "to_sparse.default", "to_sparse.sparse_dim", "to_sparse_csr.default",
    "to_sparse_csc.default", "to_sparse_bsr.default", "to_sparse_bsc.default",
    "_to_sparse_csr.default", "_to_sparse_csc.default", "_to_sparse_bsr.default",
    "_to_sparse_bsc.default", "_to_sparse.sparse_dim", "select.int", "index_select.default",
    "cat.default", "unsqueeze.default", "squeeze.dim", "reshape.default", "view.default",
    "_coalesced_.default", "_coalesced.default", "sparse_coo_tensor.indices_size",
    "sparse_coo_tensor.indices", "_sparse_coo_tensor_unsafe.default",
    "_sparse_coo_tensor_with_dims_and_tensors.default", "sparse_csr_tensor.crow_col_value_size",
    "sparse_csr_tensor.crow_col_value", "sparse_csc_tensor.ccol_row_value_size",
    "sparse_bsr_tensor.crow_col_value_size", "sparse_bsc_tensor.ccol_row_value_size",
    "sparse_compressed_tensor.comp_plain_value_size", "_sparse_compressed_tensor_unsafe.default",
    "_sparse_csr_tensor_unsafe.default", "narrow_copy.default", "resolve_conj.default",
    "lift_fresh_copy.default", "lift_fresh.default",
)  # fmt: skip
PRODUCTS = tuple(f"aten.{name}.sparse" for name in _PLACED)
_BIASED = ("aten.linear.default.sparse",)


def _integer_list(node: Node, name: str) -> tuple[int, ...]:
    """Return an attribute that is a tuple of integers. Raises ValueError if it is not."""
    value = node.attrs.get(name)
    if not isinstance(value, tuple):
        raise ValueError(f"{node.op} has no list {name!r}")
    return tuple(int(item) for item in value)


def _sparse_factor_indices(node: Node) -> tuple[int, int]:
    """Return the input indices of the two factors of a sparse product."""
    return _PLACED[node.op.type.removeprefix("aten.").removesuffix(".sparse")]


def _product_backward(node: Node, requested: OperandPositions, forward: Cost) -> Gradient:
    """Return the cost of the gradients of a sparse product, for each requested operand: dB = A^T
    dC and dA = dC B^T.

    A COO matrix needs the whole of dA, of which it keeps its stored elements; for a compressed one
    `torch.sparse.mm` and `torch.sparse.addmm` compute only the stored elements. An added term sums
    its gradients. Source: mm_mat1_sparse_backward, mm_mat1_backward in
    torch/csrc/autograd/FunctionsManual.cpp.
    """
    first, second = _sparse_factor_indices(node)
    sparse = _integer_list(node, "sparse")
    beta, alpha = float_attribute(node, "beta", 1.0), float_attribute(node, "alpha", 1.0)
    work = {}
    for index in requested & {first, second}:
        macs = integer_attribute(node, "masked") if sparse[index] else forward.macs
        if macs < 0:
            raise ValueError(f"the gradient of a sparse factor of {node.op} has no formula")
        work[index] = Cost(macs=macs)
    scaled = output_element_count(node) if work and first and alpha not in (0, 1) else 0
    for index in requested - {first, second}:
        weighed = _integer_list(node, "stored")[index] if beta not in (0, 1) else 0
        work[index] = broadcast_sum_cost(node, index) + Cost(muls=weighed)
    return Gradient(work, inner=Cost(muls=scaled))


@operator(
    PRODUCTS,
    "MACs: stored elements of A x columns of B, or pairs of both; "
    "added: n(Y) adds; beta, alpha other than 0 and 1: n(Y) muls each",
    page=_PAGE,
    backward=_product_backward,
)
def sparse_product_cost(node: Node) -> Cost:
    """Return the cost of a product with a sparse factor: each stored element meets a row of the
    other factor.

    Sparse by sparse: sum over k of nnz(A[:, k]) nnz(B[k, :]). Elements of one place are not
    summed before, unless the operator does so. sampled_addmm: nnz(C) K. With a term that is added
    n(Y) adds, and n(Y) muls for beta and alpha other than 0 and 1.
    https://docs.pytorch.org/docs/stable/sparse.html
    """
    terms = integer_attribute(node, "terms")
    if terms < 0:
        raise ValueError(f"the work of {node.op} was not observed in a run")
    added = _sparse_factor_indices(node)[0] > 0
    biased = node.op.type in _BIASED and len(node.inputs) > 2
    beta, alpha = float_attribute(node, "beta", 1.0), float_attribute(node, "alpha", 1.0)
    scaled = (beta not in (0, 1)) + (alpha not in (0, 1)) if added else 0
    adds = int(biased or (added and beta != 0))
    return Cost(macs=terms) + Cost(muls=scaled, adds=adds) * output_element_count(node)


def _sparse_row_groups(node: Node) -> GroupSizes:
    """Return (number of stored elements at distinct indices, number of groups) of a
    sparse tensor.
    """
    groups = integer_attribute(node, "groups")
    if groups < 0:
        raise ValueError(f"{node.op} over dense axes has no formula")
    return GroupSizes(_integer_list(node, "distinct")[0], groups)


@operator(
    ("aten._sparse_softmax.default.sparse", "aten._sparse_softmax.int.sparse"),
    "of n stored elements in m groups: n - m compares, 2n - m adds, n exps, n divs",
    page=_PAGE,
    backward=lambda node, requested, _: Gradient(
        dict.fromkeys(requested, softmax_gradient_cost(*_sparse_row_groups(node)))
    ),
)
def sparse_softmax_cost(node: Node) -> Cost:
    """Return the cost of a softmax over the stored elements of each row.

    https://docs.pytorch.org/docs/stable/generated/torch.sparse.softmax.html
    """
    return softmax_cost(*_sparse_row_groups(node))


@operator(
    ("aten._sparse_log_softmax.default.sparse", "aten._sparse_log_softmax.int.sparse"),
    "of n stored elements in m groups: n - m compares, 3n - m adds, n exps, m logs",
    page=_PAGE,
    backward=lambda node, requested, _: Gradient(
        dict.fromkeys(requested, log_softmax_gradient_cost(*_sparse_row_groups(node)))
    ),
)
def sparse_log_softmax_cost(node: Node) -> Cost:
    """Return the cost of the logarithm of a softmax over the stored elements of each row.

    https://docs.pytorch.org/docs/stable/generated/torch.sparse.log_softmax.html
    """
    return log_softmax_cost(*_sparse_row_groups(node))


@operator(
    tuple(
        f"aten.{name}.sparse"
        for name in (
            "_sparse_sum.default", "_sparse_sum.dim", "_sparse_sum.dtype", "_sparse_sum.dim_dtype",
            "sum.default", "sum.dim_IntList",
        )
    ),
    "stored elements - groups adds",
    page=_PAGE,
    backward=movement_backward,
)  # fmt: skip
def sparse_sum_cost(node: Node) -> Cost:
    """Return the cost of summing the stored elements, over some axes or all: an add for each
    beyond the first of a group.

    https://docs.pytorch.org/docs/stable/generated/torch.sparse.sum.html
    """
    groups = integer_attribute(node, "groups")
    if groups < 0:
        raise ValueError(f"{node.op} over dense axes has no formula")
    return Cost(adds=reduction_operation_count(_integer_list(node, "stored")[0], groups))


@operator(
    ("aten.add.Tensor.sparse", "aten.sub.Tensor.sparse"),
    "with a dense tensor: an add for each stored element; of two sparse ones: for each in both",
    page=_PAGE,
    backward=movement_backward,
)
def sparse_add_cost(node: Node) -> Cost:
    """Return the cost of a sum with a sparse operand: an add for each stored element that meets an
    element of the other operand.

    https://docs.pytorch.org/docs/stable/sparse.html
    """
    stored, sparse = _integer_list(node, "stored"), _integer_list(node, "sparse")
    dense = [index for index, is_sparse in enumerate(sparse) if not is_sparse]
    if dense:
        return Cost(adds=sum(stored) - sum(stored[index] for index in dense))
    return Cost(adds=max(sum(stored) - integer_attribute(node, "kept"), 0))


operator(
    "aten.mul.Tensor.sparse",
    "a mul for each stored element of the result",
    page=_PAGE,
    backward=lambda node, requested, forward: Gradient(dict.fromkeys(requested, forward)),
)(lambda node: Cost(muls=integer_attribute(node, "kept")))


@operator(
    tuple(
        f"aten.{name}.default.sparse"
        for name in ("coalesce", "_coalesce", "to_dense", "_to_dense")
    ),
    "an add for each stored element beyond the first of its place",
    page=_PAGE,
    backward=movement_backward,
)  # fmt: skip
def coalesce_cost(node: Node) -> Cost:
    """Return the cost of summing elements with the same indices: an add for each beyond the first
    of its place.

    https://docs.pytorch.org/docs/stable/generated/torch.Tensor.coalesce.html
    """
    return Cost(adds=_integer_list(node, "stored")[0] - _integer_list(node, "distinct")[0])


operator(
    tuple(f"aten.{name}.sparse" for name in _MOVING), MOVED, page=_PAGE, backward=movement_backward
)(movement_cost)
