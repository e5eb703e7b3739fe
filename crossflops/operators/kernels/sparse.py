"""The cost of work along lists of indices: torch_scatter, torch_sparse, pyg_lib, spconv.

How many elements meet in one place does not change their number: a sum of n elements into m places
adds each, n adds, into a field of zeros.
"""

from math import prod
from typing import Any

from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import reduction_operation_count
from crossflops.operators.formula import OperatorCall, operator
from crossflops.operators.gradient import Gradient

_SCATTER = "https://github.com/rusty1s/pytorch_scatter/tree/master/csrc"
_SPARSE = "https://github.com/rusty1s/pytorch_sparse/tree/master/csrc"
_PYG = "https://github.com/pyg-team/pyg-lib/tree/master/pyg_lib/csrc/ops"
_SPCONV = "https://github.com/traveller59/spconv/blob/master/spconv/pytorch/functional.py"


def _reduction_kind(call: OperatorCall) -> str:
    """Return how an operator combines elements, by its name: "sum", "mean", "mul", "min"
    or "max".
    """
    name = call.operator.partition("torch_")[2]
    return next((kind for kind in ("mean", "mul", "min", "max") if kind in name), "sum")


def _combination_cost(kind: str, elements: int, results: int) -> Cost:
    """Return the cost of combining `elements` elements to `results` results by this kind, such as
    "mean".
    """
    if kind in ("min", "max"):
        return Cost(compares=elements)
    if kind == "mul":
        return Cost(muls=elements)
    return Cost(adds=elements, divs=results if kind == "mean" else 0)


def _scatter_gradient(call: OperatorCall, trainable: frozenset[Any]) -> Gradient:
    """Return the cost of the gradient of a scatter: 0 for sums and extremes, divs for a mean. For
    a product dY Y, a mul per result, is taken to each element and divided by it.
    """
    results, count = call.result.numel, call.input("src").numel
    kind = _reduction_kind(call)
    work = {"mean": Cost(divs=results), "mul": Cost(muls=results, divs=count)}
    return Gradient({name: work.get(kind, ZERO) if name == "src" else ZERO for name in trainable})


def scatter(call: OperatorCall) -> Cost:
    """Count scattering n elements: n adds, muls or (min, max) compares; mean: 1 div per result.

    src [..., n, ...] into as many places as the result has, by index (scatter, segment_coo) or by
    the starts of segments (segment_csr).
    """
    return _combination_cost(_reduction_kind(call), call.input("src").numel, call.result.numel)


for _name in (
    *(f"scatter_{kind}" for kind in ("sum", "mean", "mul", "min", "max")),
    *(f"segment_{kind}_coo" for kind in ("sum", "mean", "min", "max")),
    *(f"segment_{kind}_csr" for kind in ("sum", "mean", "min", "max")),
):
    operator(f"torch_scatter::{_name}", backward=_scatter_gradient, source=_SCATTER)(scatter)


@operator(
    "torch_scatter::gather_coo",
    backward=lambda call, trainable: Gradient(
        {name: Cost(adds=call.result.numel) for name in trainable}
    ),
    source=_SCATTER,
)
@operator(
    "torch_scatter::gather_csr",
    backward=lambda call, trainable: Gradient(
        {name: Cost(adds=call.result.numel) for name in trainable}
    ),
    source=_SCATTER,
)
def gather_segments(call: OperatorCall) -> Cost:
    """Count 0: data are only moved."""
    return ZERO


def _spmm_gradient(call: OperatorCall, trainable: frozenset[Any]) -> Gradient:
    """Return the cost of the gradients of a sparse-dense product: its MACs for each trainable
    factor; without values its adds. Of an extreme only the elements that were chosen have one: a
    mul by the other factor and an add at their place, per result.
    """
    stored, columns = call.input("col").numel, call.input("mat").shape[-1]
    kind, valued, results = _reduction_kind(call), call.has_input("value"), call.result.numel
    count = stored * columns * prod(call.input("mat").shape[:-2])
    if kind in ("min", "max"):
        work = Cost(muls=results if valued else 0, adds=results)
    else:
        work = Cost(macs=count) if valued else Cost(adds=count)
    mean = Cost(divs=results if kind == "mean" else 0)
    return Gradient(
        {name: work if name in ("mat", "value") else ZERO for name in trainable}, inner=mean
    )


def sparse_product(call: OperatorCall) -> Cost:
    """Count nnz*N MACs (without values: adds); mean: 1 div per result; min, max: nnz*N compares.

    col [nnz], value [nnz] or none, mat [..., K, N]: rows of mat that the matrix names.
    Without values rows are summed as they are: nnz*N adds.
    """
    stored, columns = call.input("col").numel, call.input("mat").shape[-1]
    count = stored * columns * prod(call.input("mat").shape[:-2])
    kind, valued = _reduction_kind(call), call.has_input("value")
    if kind in ("min", "max"):
        return Cost(compares=count, muls=count if valued else 0)
    divided = Cost(divs=call.result.numel if kind == "mean" else 0)
    return (Cost(macs=count) if valued else Cost(adds=count)) + divided


for _kind_name in ("sum", "mean", "min", "max"):
    operator(f"torch_sparse::spmm_{_kind_name}", backward=_spmm_gradient, source=_SPARSE)(
        sparse_product
    )


def _segment_product_gradient(call: OperatorCall, trainable: frozenset[Any]) -> Gradient:
    """Return the cost of the gradients of a segment product: its MACs for each trainable
    factor.
    """
    macs = segment_product(call)
    return Gradient({name: macs if name in ("input", "other") else ZERO for name in trainable})


@operator("pyg::segment_matmul", backward=_segment_product_gradient, source=_PYG)
def segment_product(call: OperatorCall) -> Cost:
    """Count n results of rows by the matrices of their segments [G, K, N]: n*K MACs."""
    return Cost(macs=call.result.numel * call.input("input").shape[-1])


def _sparse_convolution_gradient(call: OperatorCall, trainable: frozenset[Any]) -> Gradient:
    """Return the cost of the gradients of a sparse convolution: its MACs for each of trainable
    features and filters, and the sum of a bias.

    The gradient of features is added where each was gathered: pairs*Cin adds.
    """
    macs = Cost(macs=sparse_convolution(call).macs)
    outputs, *_, channels = call.input("filters").shape
    work = {
        "features": macs + Cost(adds=_element_pair_count(call) * channels),
        "filters": macs,
        "bias": Cost(adds=reduction_operation_count(call.result.numel, outputs)),
    }
    return Gradient({name: work.get(name, ZERO) for name in trainable})


def _element_pair_count(call: OperatorCall) -> int:
    """Return the number of pairs of an input and an output element in a sparse convolution: the
    recorded one, or the largest possible.
    """
    if call.has_input("indice_pair_num"):
        numbers = call.values(call.names.index("indice_pair_num"))
        if numbers is not None:
            return sum(numbers)
    offsets = prod(call.input("filters").shape[1:-1])
    return offsets * call.input("features").shape[0]


def _element_pair_exactness(call: OperatorCall) -> Any:
    """Return "exact" if the numbers of pairs are recorded, else "bound"."""
    known = call.has_input("indice_pair_num") and (
        call.values(call.names.index("indice_pair_num")) is not None
    )
    return "exact" if known else "bound"


_CLASSES = (
    "SubMConvFunction",
    "SparseConvFunction",
    "SparseInverseConvFunction",
    "SparseImplicitGemmFunction",
)


def sparse_convolution(call: OperatorCall) -> Cost:
    """Count pairs*Cin*Cout MACs, pairs*Cout adds to gather them; bias: 1 add per result.

    features [n, Cin], filters [Cout, k..., Cin]. Pairs of an active input and an output for each
    offset of the kernel: their recorded number, else at most k*...*n.
    """
    filters = call.input("filters").shape
    pairs = _element_pair_count(call)
    bias = call.result.numel if call.has_input("bias") else 0
    return Cost(macs=pairs * filters[0] * filters[-1], adds=pairs * filters[0] + bias)


for _class in _CLASSES:
    operator(
        f"spconv::{_class}",
        module=f"spconv.pytorch.functional:{_class}",
        backward=_sparse_convolution_gradient,
        doubt=_element_pair_exactness,
        source=_SPCONV,
    )(sparse_convolution)
