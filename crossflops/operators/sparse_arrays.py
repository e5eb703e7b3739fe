"""The cost of JAX operations on the sparse arrays BCOO and BCSR, which work on stored elements
only.

Every such array has places for a fixed number of elements (`nse`), which is in the shapes of its
tensors, and JAX computes with all of them, whatever they hold. `lhs_contracting` and the like are
the axes of `dimension_numbers`. Source: jax/experimental/sparse/bcoo.py, bcsr.py.
"""

from math import prod

from crossflops.ir.graph import Node
from crossflops.ir.ledger import Cost
from crossflops.operators.access import input_element_count, input_spec, spec_shape
from crossflops.operators.gradient import movement_backward, product_backward, scatter_add_backward
from crossflops.operators.movement import MOVED, movement_cost
from crossflops.operators.rule import JAX, Operators, upper_bound_exactness

operator = Operators(JAX)
_PAGE = "https://docs.jax.dev/en/latest/_autosummary/jax.experimental.sparse.{}.html"


def _sparse_array_axes(node: Node, name: str) -> tuple[int, ...]:
    """Return an attribute that is a tuple of axes. Raises ValueError if it is not."""
    value = node.attrs.get(name)
    if not isinstance(value, tuple):
        raise ValueError(f"{node.op} has no axes {name!r}")
    return tuple(map(int, value))


def _axes_size_product(node: Node, index: int, *names: str) -> int:
    """Return the product of an operand's sizes along the axes that these attributes list."""
    sizes = spec_shape(input_spec(node, index))
    return prod(sizes[axis] for name in names for axis in _sparse_array_axes(node, name))


def _sparse_array_elements(node: Node, data: int, indices: int, inner: int) -> int:
    """Return the number of elements that a sparse array stores; the arguments are the indices of
    its values and places.

    Batch axes of its values and of their places may be 1, for all of a batch. `inner` is how many
    axes the places have beside those of a batch: 2 of BCOO, 1 of BCSR.
    """
    positions, values = spec_shape(input_spec(node, indices)), spec_shape(input_spec(node, data))
    batches = len(positions) - inner
    pairs = zip(values[:batches], positions[:batches], strict=True)
    return prod(max(pair) for pair in pairs) * positions[batches]


def _dense_column_count(node: Node, index: int) -> int:
    """Return how many elements of the dense factor (input `index`) each stored element is
    multiplied with.
    """
    shared = _axes_size_product(node, index, "rhs_contracting", "rhs_batch")
    return input_element_count(node, index) // shared if shared else 0


@operator(
    "bcoo_dot_general",
    "nse x columns of the dense factor MACs, for each matrix of a batch",
    page=_PAGE.format("bcoo_dot_general"),
    backward=product_backward(0, 2),
)
def bcoo_dot_cost(node: Node) -> Cost:
    """Return the cost of a product of a BCOO array, inputs 0 and 1 (values, places), and a dense
    array, input 2.
    """
    return Cost(macs=_sparse_array_elements(node, 0, 1, inner=2) * _dense_column_count(node, 2))


@operator(
    "bcsr_dot_general",
    "nse x columns of the dense factor MACs, for each matrix of a batch",
    page=_PAGE.format("bcsr_dot_general"),
    backward=product_backward(0, 3),
)
def bcsr_dot_cost(node: Node) -> Cost:
    """Return the cost of a product of a BCSR array, inputs 0 to 2 (values, columns, row starts),
    and a dense array, input 3.
    """
    return Cost(macs=_sparse_array_elements(node, 0, 1, inner=1) * _dense_column_count(node, 3))


@operator(
    "bcoo_dot_general_sampled",
    "nse x K MACs: a dot product of K pairs for each element that is stored",
    page=_PAGE.format("bcoo_dot_general_sampled"),
    backward=product_backward(0, 1),
)
def bcoo_sampled_product_cost(node: Node) -> Cost:
    """Return the cost of a product of two dense arrays, computed only at the places in input 2: K
    MACs each.
    """
    indices = spec_shape(input_spec(node, 2), at_least=2)
    return Cost(macs=prod(indices[:-1]) * _axes_size_product(node, 0, "lhs_contracting"))


@operator(
    "bcoo_spdot_general",
    "nse of A x nse of B MACs, for each pair of matrices of a batch: JAX multiplies all pairs",
    page=_PAGE.format("bcoo_spdot_general"),
    backward="the gradient of a product of two sparse arrays is not implemented in JAX",
)
def bcoo_times_bcoo_cost(node: Node) -> Cost:
    """Return the cost of a product of two BCOO arrays: JAX multiplies each pair of stored
    elements.

    JAX multiplies every stored element of the one with every one of the other, and masks those
    that do not meet (_bcoo_spdot_general_unbatched). Operands: values and places of each.
    """
    left, right = (
        _sparse_array_elements(node, 0, 1, inner=2),
        _sparse_array_elements(node, 2, 3, inner=2),
    )
    batch = _axes_size_product(node, 0, "lhs_batch")
    return Cost(macs=left * right // batch if batch else 0)


@operator(
    ("bcoo_todense", "bcsr_todense"),
    "nse adds: elements are added at their places, into zeros",
    page=_PAGE.format("bcoo_todense"),
    backward=movement_backward,
)
def sparse_to_dense_cost(node: Node) -> Cost:
    """Return the cost of turning a sparse array into a dense one: an add for each stored
    element.
    """
    return Cost(adds=input_element_count(node))


@operator(
    "bcoo_sum_duplicates",
    "at most nse adds: elements of one place are added",
    page=_PAGE.format("bcoo_sum_duplicates"),
    doubt=upper_bound_exactness,
    backward=movement_backward,
)
def bcoo_sum_duplicates_cost(node: Node) -> Cost:
    """Return the largest cost of summing elements stored at the same place: an add for each stored
    element.
    """
    return Cost(adds=max(input_element_count(node) - 1, 0))


operator(
    ("bcoo_transpose", "bcoo_sort_indices"),
    MOVED,
    page=_PAGE.format("bcoo_transpose"),
    backward=movement_backward,
)(movement_cost)
operator(
    ("bcoo_extract", "bcsr_extract"),
    MOVED,
    page=_PAGE.format("bcoo_extract"),
    backward=scatter_add_backward,
)(movement_cost)
