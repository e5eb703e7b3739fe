"""The cost of operations of frameworks that ONNX does not have, or that a converter writes as
other nodes.

The node has the tensors of the operation as inputs and outputs, and its plain arguments as
attributes. The same function costs the same in every framework: one formula here serves them all.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Unpack

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators import linear_algebra as algebra
from crossflops.operators.access import (
    input_element_count,
    input_spec,
    output_element_count,
    output_spec,
    reduction_operation_count,
    spec_shape,
)
from crossflops.operators.gradient import (
    Backward,
    Gradient,
    OperandPositions,
    elementwise_backward,
    first_operand_backward,
    linear_map_backward,
    movement_backward,
    no_gradient,
    product_backward,
    scatter_add_backward,
    sum_of_copies_backward,
)
from crossflops.operators.movement import MOVED, movement_cost
from crossflops.operators.operands import sizes_constraint
from crossflops.operators.reduction import CUMULATIVE_PRODUCT_BACK
from crossflops.operators.resampling import onnx_resize_cost, resize_backward
from crossflops.operators.rule import (
    JAX,
    SCIPY,
    TENSORFLOW,
    TORCH,
    TORCH_PAGES,
    Constraint,
    F,
    Facts,
    Formula,
    Operators,
    estimate_exactness,
    upper_bound_exactness,
)
from crossflops.operators.spectral import fft_cost

operator = Operators()

Names = str | tuple[str, ...]
_JAX_PAGES = "https://docs.jax.dev/en/latest/_autosummary/jax."
_SPECIAL_IN_JAX = (
    *("lgamma", "digamma", "polygamma", "zeta", "igamma", "igammac", "erf_inv"),
    *("bessel_i0e", "bessel_i1e"),
)
_COLLECTIVES = (
    *("psum", "psum_invariant", "unreduced_psum", "reduce_scatter", "unreduced_reduce_scatter"),
    *("pmax", "pmin", "ppermute", "pbroadcast", "all_to_all"),
    *("all_gather", "all_gather_invariant", "all_gather_reduced"),
)
_OF_LAX = (
    *("fft", "abs", "scatter-add", "scatter", "rev", "ragged_dot_general"),
    "select_and_scatter_add",
    *(*_SPECIAL_IN_JAX, *_COLLECTIVES),
)
_PAGE_OF = {  # primitives that have none of their own
    "select_and_scatter_add": "reduce_window",
    "geqrf": "qr",
    "psum_invariant": "psum",
    "unreduced_psum": "psum",
    "reduce_scatter": "psum_scatter",
    "unreduced_reduce_scatter": "psum_scatter",
    "all_gather_invariant": "all_gather",
    "all_gather_reduced": "all_gather",
}


def _jax_page_address(name: str) -> str:
    """Return the address of the documentation page of a JAX function."""
    public = name.replace("/other", "").replace("/scale._", "/").replace("/", ".")
    if "/" not in name:
        index = "lax" if name in _OF_LAX or name.startswith("complex_") else "lax.linalg"
        plain = name.removeprefix("complex_")
        public = f"{index}.{_PAGE_OF.get(plain, plain).replace('-', '_')}"
    return f"{_JAX_PAGES}{public}.html"


def _torch_page_address(name: str) -> str:
    """Return the address of the documentation page of a PyTorch function."""
    public = name.lstrip("_").removesuffix("_ex").replace("linalg_", "linalg.")
    return f"{TORCH_PAGES}{public}.html"


# How the pages of a framework are named, by the operation's name.
_PAGES: Mapping[str, Callable[[str], str]] = {
    JAX: _jax_page_address,
    TENSORFLOW: "https://www.tensorflow.org/api_docs/python/tf/raw_ops/{}".format,
    TORCH: _torch_page_address,
    SCIPY: "https://docs.scipy.org/doc/scipy/reference/generated/scipy.{}.html".format,
}


def declare_function(
    equation: str,
    *,
    jax: Names = (),
    tensorflow: Names = (),
    torch: Names = (),
    scipy: Names = (),
    requires: Constraint | tuple[Constraint, ...] = (),
    **facts: Unpack[Facts],
) -> Callable[[F], F]:
    """Return a decorator that registers a formula for functions of several frameworks, by their
    names there.

    Names are: of JAX a primitive's, or the file in jax/_src and the function's in it; of
    TensorFlow an operation's; of torch the function's in torch.ops.aten; of SciPy the module's and
    the function's.
    """
    named = {JAX: jax, TENSORFLOW: tensorflow, TORCH: torch, SCIPY: scipy}

    def register_formula_for_frameworks(formula: F) -> F:
        """Register the formula for the functions of all the frameworks, and return it."""
        for domain, names in named.items():
            for name in [names] if isinstance(names, str) else names:
                operator(
                    f"aten.{name}.default" if domain == TORCH else name,
                    equation,
                    domain=domain,
                    page=_PAGES[domain](name),
                    requires=requires,
                    **facts,
                )(formula)
        return formula

    return register_formula_for_frameworks


# Factorizations and solvers, by one algorithm of several: estimates.

_LU = "n(n-1)/2 divs, (n-1)n(2n-1)/6*(mul, sub)"
_QR = "Householder: step s, L = m-s: L muls, L adds, sqrt, L divs, (2L-1)*(mul, add) per column"
_SVD = "Golub-Reinsch: 4mn^2-4n^3/3; U, V: 14mn^2+8n^3; all of U: 4m^2n+8mn^2+9n^3; half muls"
_EIG = "QR: 10n^3; vectors: 25n^3; half muls"
_FFT = "per axis rows * N*ceil(log2 N)*(2 muls, 3 adds), half if real; inverse: 2N divs"


declare_function(
    "n roots, n(n-1)/2 divs, (n^3-n)/6*(mul, sub)",
    jax=("cholesky", "numpy/linalg.cholesky"),
    tensorflow="Cholesky",
    torch=("linalg_cholesky", "linalg_cholesky_ex", "cholesky"),
    doubt=estimate_exactness,
    backward=first_operand_backward(algebra.square_matrix_formula(algebra.cholesky_gradient_cost)),
)(algebra.square_matrix_formula(algebra.cholesky_cost))
declare_function(
    "n^2 divs, n(n-1)^2*(mul, sub)",
    tensorflow="MatrixInverse",
    torch=("linalg_inv", "linalg_inv_ex", "inverse"),
    doubt=estimate_exactness,
    backward=first_operand_backward(algebra.square_matrix_formula(algebra.inverse_gradient_cost)),
)(algebra.square_matrix_formula(algebra.matrix_inverse_cost))
declare_function(
    "n^2 divs, n(n-1)^2*(mul, sub)",
    jax="numpy/linalg.inv",
    doubt=estimate_exactness,
    backward=first_operand_backward(
        algebra.square_matrix_formula(algebra.jax_inverse_gradient_cost)
    ),
)(algebra.square_matrix_formula(algebra.matrix_inverse_cost))
declare_function(
    f"{_LU}, n-1 muls",
    jax="numpy/linalg.det",
    doubt=estimate_exactness,
    backward=first_operand_backward(
        algebra.square_matrix_formula(algebra.determinant_gradient_cost)
    ),
)(algebra.square_matrix_formula(algebra.determinant_cost))
declare_function(
    f"{_LU}, n-1 muls of signs, n logs, n-1 adds",
    jax="numpy/linalg.slogdet",
    torch="_linalg_slogdet",
    doubt=estimate_exactness,
    backward=first_operand_backward(
        algebra.square_matrix_formula(algebra.log_determinant_gradient_cost)
    ),
)(algebra.square_matrix_formula(algebra.log_determinant_cost))


def _solve_backward(node: Node, requested: OperandPositions, _forward: Cost) -> Gradient:
    """Return the cost of the gradients of solving A X = B, for each requested operand.

    dB solves A^T dB = dX by the stored factors; dA = -dB X^T (linalg_solve_backward).

    Source: torch/csrc/autograd/FunctionsManual.cpp. Raises ValueError for sizes that broadcast.
    """
    count, n = algebra.square_matrix_count_and_rows(node)
    columns = algebra.solution_column_count(node)
    solved = algebra.triangular_solve_cost(n, columns, unit=True) + algebra.triangular_solve_cost(
        n, columns
    )
    product = Cost(macs=n * n * columns, adds=n * n) * count
    work = {0: product, 1: ZERO}
    return Gradient({index: work[index] for index in requested}, inner=solved * count)


@declare_function(
    f"{_LU}, then per column n(n-1)*(mul, sub), n divs",
    jax="numpy/linalg.solve",
    tensorflow="MatrixSolve",
    torch=("linalg_solve", "linalg_solve_ex", "_linalg_solve_ex"),
    scipy="linalg.solve",
    doubt=estimate_exactness,
    backward=_solve_backward,
)
def _linear_solve_cost(node: Node) -> Cost:
    """Return the estimated cost of solving A X = B for each matrix A [..., n, n]: an LU
    decomposition, then two solves per column.
    """
    count, n = algebra.square_matrix_count_and_rows(node)
    columns, rest = divmod(output_element_count(node), count * n) if count * n else (0, 0)
    if rest:
        raise ValueError(
            f"{node.op}: {output_element_count(node)} unknowns for {count} systems of {n}"
        )
    return algebra.linear_solve_cost(n, columns) * count


@declare_function(
    "per column n(n-1)/2*(mul, sub), n divs unless the diagonal is 1",
    jax="triangular_solve",
    tensorflow="MatrixTriangularSolve",
    torch="linalg_solve_triangular",
    doubt=estimate_exactness,
    backward=algebra.triangular_backward,
)
def _triangular_solve_cost(node: Node) -> Cost:
    """Return the estimated cost of solving L X = B or X L = B: n(n-1)/2 muls and subs, and n divs,
    per column (or row) of X.
    """
    _, n = algebra.square_matrix_count_and_rows(node)
    return algebra.triangular_solve_cost(
        n, output_element_count(node) // n if n else 0, algebra.has_unit_diagonal(node)
    )


@declare_function(
    _LU,
    jax="lu",
    tensorflow="Lu",
    torch=("linalg_lu_factor_ex", "linalg_lu_factor", "linalg_lu"),
    doubt=estimate_exactness,
    backward=first_operand_backward(algebra.square_matrix_formula(algebra.lu_gradient_cost)),
)
def _lu_decomposition_cost(node: Node) -> Cost:
    """Return the estimated cost of the LU decomposition of each matrix of the input."""
    count, m, n = algebra.matrix_count_and_sizes(node)
    return algebra.lu_cost(m, n) * count


def _qr_column_count(node: Node) -> int:
    """Return the number of columns of Q that a QR decomposition computes; 0 if only R is
    requested.

    They are those of the first result; torch requests R alone by "r".
    """
    return 0 if node.attrs.get("mode") == "r" else spec_shape(output_spec(node), at_least=2)[-1]


def _result_reaches_loss(node: Node, index: int) -> bool:
    """Return whether the result at this index reaches the loss; assumed so for other frameworks
    than PyTorch.

    It is known for PyTorch, and assumed for other frameworks.
    """
    result = node.outputs[index] if index < len(node.outputs) else None
    return node.op.domain != TORCH or (result is not None and result.name != "")


def _qr_gradient_cost(node: Node) -> Cost:
    """Return the cost of the gradient of a QR decomposition, from those of Q and R that reach the
    loss. Raises ValueError if it is not defined.
    """
    count, m, n = algebra.matrix_count_and_sizes(node)
    if _qr_column_count(node) != min(m, n):
        raise ValueError(f"{node.op}: only a reduced factorization has a gradient")
    return (
        algebra.qr_gradient_cost(
            m, n, _result_reaches_loss(node, 0), _result_reaches_loss(node, 1)
        )
        * count
    )


@declare_function(
    _QR,
    jax=("qr", "numpy/linalg.qr"),
    tensorflow="Qr",
    torch="linalg_qr",
    doubt=estimate_exactness,
    backward=first_operand_backward(_qr_gradient_cost),
    by_result=True,
)
def _qr_decomposition_cost(node: Node) -> Cost:
    """Return the estimated cost of the QR decomposition of each matrix of the input."""
    count, m, n = algebra.matrix_count_and_sizes(node)
    return algebra.qr_cost(m, n, _qr_column_count(node)) * count


@declare_function(
    _QR,
    jax="geqrf",
    torch="geqrf",
    doubt=estimate_exactness,
    backward="no framework has a gradient for it",
)
def _householder_vectors_cost(node: Node) -> Cost:
    """Return the estimated cost of R and the Householder vectors of each matrix of the input."""
    count, m, n = algebra.matrix_count_and_sizes(node)
    return algebra.householder_vectors_cost(m, n) * count


@declare_function(
    "Householder backwards: step s, L = m-s: (2L-1)*(mul, add) per column from s on",
    jax="householder_product",
    torch="linalg_householder_product",
    doubt=estimate_exactness,
    backward="the backward pass of its reflections has no formula yet",
)
def _orthogonal_matrix_cost(node: Node) -> Cost:
    """Return the estimated cost of computing Q [m, n] from k Householder vectors, with k the
    number of factors `taus`.
    """
    count, m, n = algebra.matrix_count_and_sizes(node)
    return (
        algebra.orthogonal_columns_cost(m, spec_shape(input_spec(node, 1), at_least=1)[-1], n)
        * count
    )


def _svd_backward(values_alone: str = "") -> Backward:
    """Return a backward function of a singular value decomposition, for those results that reach
    the loss.

    `values_alone` is the name of that attribute.
    """

    def gradient_cost_of_used_results(node: Node) -> Cost:
        """Return the cost of the gradient of a singular value decomposition, from those results
        that reach the loss.
        """
        count, m, n = algebra.matrix_count_and_sizes(node)
        vectors = values_alone == "" or bool(node.attrs.get(values_alone, 1))
        left, right = (vectors and _result_reaches_loss(node, index) for index in (0, 2))
        return algebra.svd_gradient_cost(m, n, left, right) * count

    return first_operand_backward(gradient_cost_of_used_results)


@declare_function(
    _SVD,
    jax="svd",
    tensorflow="Svd",
    torch="_linalg_svd",
    doubt=estimate_exactness,
    backward=_svd_backward("compute_uv"),
    by_result=True,
)
def _svd_cost(node: Node) -> Cost:
    """Return the estimated cost of a singular value decomposition of each matrix, with vectors if
    the node computes them.
    """
    count, m, n = algebra.matrix_count_and_sizes(node)
    vectors = bool(node.attrs.get("compute_uv", 1))
    return algebra.svd_cost(m, n, vectors, bool(node.attrs.get("full_matrices", 0))) * count


@declare_function(
    _SVD, torch="linalg_svd", doubt=estimate_exactness, backward=_svd_backward(), by_result=True
)
def _torch_svd_cost(node: Node) -> Cost:
    """Return the estimated cost of torch's singular value decomposition of each matrix, with all
    columns of U if `full_matrices`.
    """
    count, m, n = algebra.matrix_count_and_sizes(node)
    return algebra.svd_cost(m, n, True, bool(node.attrs.get("full_matrices", 1))) * count


def _singular_values_gradient_cost(node: Node) -> Cost:
    """Return the cost of the gradient of singular values, without vectors."""
    count, m, n = algebra.matrix_count_and_sizes(node)
    return algebra.svd_gradient_cost(m, n, left=False, right=False) * count


@declare_function(
    _SVD,
    torch="linalg_svdvals",
    doubt=estimate_exactness,
    backward=first_operand_backward(_singular_values_gradient_cost),
)
def _singular_values_cost(node: Node) -> Cost:
    """Return the estimated cost of the singular values of each matrix, without vectors."""
    count, m, n = algebra.matrix_count_and_sizes(node)
    return algebra.svd_cost(m, n, vectors=False, all_of_u=False) * count


def _eigh_gradient_cost(node: Node) -> Cost:
    """Return the cost of the gradient of a symmetric eigendecomposition, from those results that
    reach the loss.
    """
    count, n = algebra.square_matrix_count_and_rows(node)
    vectors = bool(node.attrs.get("compute_v", 1)) and _result_reaches_loss(node, 1)
    return algebra.symmetric_eigen_gradient_cost(n, vectors) * count


@declare_function(
    "QR: 4n^3/3; vectors: 9n^3; half muls",
    jax=("eigh", "numpy/linalg.eigh"),
    tensorflow="SelfAdjointEigV2",
    torch=("linalg_eigh", "_linalg_eigh"),
    doubt=estimate_exactness,
    backward=first_operand_backward(_eigh_gradient_cost),
    by_result=True,
)
def _eigh_cost(node: Node) -> Cost:
    """Return the estimated cost of the eigenvalues of each symmetric matrix, with vectors if the
    node computes them.
    """
    count, n = algebra.square_matrix_count_and_rows(node)
    return algebra.symmetric_eigen_cost(n, bool(node.attrs.get("compute_v", 1))) * count


_COMPLEX_VECTORS = "the gradients of its complex values and vectors have no formula yet"


@declare_function(
    _EIG, jax="eig", tensorflow="Eig", doubt=estimate_exactness, backward=_COMPLEX_VECTORS
)
def _eig_cost(node: Node) -> Cost:
    """Return the estimated cost of the eigenvalues of each matrix, with vectors if the node
    computes them.
    """
    count, n = algebra.square_matrix_count_and_rows(node)
    requested = (node.attrs.get(name, 0) for name in ("compute_v", "compute_left_eigenvectors",
                                                   "compute_right_eigenvectors"))  # fmt: skip
    return algebra.eigen_cost(n, any(requested)) * count


@declare_function(_EIG, torch="linalg_eig", doubt=estimate_exactness, backward=_COMPLEX_VECTORS)
def _torch_eig_cost(node: Node) -> Cost:
    """Return the estimated cost of the eigenvalues and vectors of each matrix."""
    count, n = algebra.square_matrix_count_and_rows(node)
    return algebra.eigen_cost(n, vectors=True) * count


# Fourier transforms.


def fourier_transform_cost(node: Node, axes: int, inverse: bool) -> Cost:
    """Return the cost of Fourier transforms along the last `axes` axes; an inverse one of N
    elements takes 2N divs more.

    Where one side is real, so is the transform along the last axis, and the others have only the N
    // 2 + 1 of its elements that are stored.
    """
    before, after = input_spec(node, 0), output_spec(node)
    real = not (before.dtype.startswith("complex") and after.dtype.startswith("complex"))
    narrow = spec_shape(after if before.dtype.startswith("float") else before, at_least=axes)
    wide = spec_shape(after if after.dtype.startswith("float") else before, at_least=axes)
    if not real:
        narrow = wide = spec_shape(after, at_least=axes)
    wide = (*spec_shape(after)[:-1], wide[-1])
    total = ZERO
    for index in range(len(wide) - axes, len(wide)):
        last = index == len(wide) - 1
        dims = wide if last else (*wide[:-1], narrow[-1])
        length = dims[index]
        rows = prod(dims) // length if length else 0
        scaled = Cost(divs=2 * length if inverse else 0)
        total += (fft_cost(length, real and last) + scaled) * rows
    return total


@declare_function(_FFT, jax="fft", doubt=estimate_exactness, backward=linear_map_backward)
def _jax_fft_cost(node: Node) -> Cost:
    """Return the estimated cost of JAX's transform of the kind `fft_type`: FFT, IFFT, RFFT or
    IRFFT (jax/_src/lax/fft.py).
    """
    lengths = node.attrs.get("fft_lengths")
    kind = str(node.attrs.get("fft_type", ""))
    if not isinstance(lengths, tuple) or not kind:
        raise ValueError(f"{node.op} has no fft_lengths or no fft_type")
    return fourier_transform_cost(node, len(lengths), inverse=kind.startswith("I"))


def _fourier_transform_formula(axes: int, inverse: bool) -> Formula:
    """Return a formula that counts Fourier transforms along the last `axes` axes."""
    return lambda node: fourier_transform_cost(node, axes, inverse)


for kind in ("FFT", "IFFT", "RFFT", "IRFFT"):
    for axes, ending in ((1, ""), (2, "2D"), (3, "3D")):
        inverse = kind.startswith("I")
        declare_function(
            _FFT, tensorflow=kind + ending, doubt=estimate_exactness, backward=linear_map_backward
        )(_fourier_transform_formula(axes, inverse))

# Operations on elements, and sums of segments.


def _absolute_value_gradient_cost(node: Node) -> Cost:
    """Return the cost of the gradient of |X|, dY sign(X); for complex numbers dY z / |z|, a div
    and 2 muls each.
    """
    if input_spec(node, 0).dtype.startswith("complex"):
        return Cost(divs=1, muls=2) * output_element_count(node)
    return Cost(compares=2, muls=1) * output_element_count(node)


_ABSOLUTE_BACK = first_operand_backward(_absolute_value_gradient_cost)


@declare_function(
    "n(Y) compares; complex: n(Y)*(2 muls, add, sqrt)", jax="abs", backward=_ABSOLUTE_BACK
)
@declare_function("n(Y)*(2 muls, add, sqrt)", tensorflow="ComplexAbs", backward=_ABSOLUTE_BACK)
def _absolute_value_cost(node: Node) -> Cost:
    """Return the cost of |z|: a compare for each real number; 2 muls, an add and a square root for
    each complex one.
    """
    if input_spec(node, 0).dtype.startswith("complex"):
        return Cost(muls=2, adds=1, specials=1) * output_element_count(node)
    return Cost(compares=output_element_count(node))


@declare_function("n(updates) adds", jax="scatter-add", backward=movement_backward)
def _scatter_add_cost(node: Node) -> Cost:
    """Return the cost of adding updates at indices: an add for each element of the updates."""
    return Cost(adds=input_element_count(node, 2 if len(node.inputs) > 2 else 0))


@declare_function(
    "n(data) adds",
    tensorflow=("SegmentSum", "SegmentSumV2", "UnsortedSegmentSum"),
    backward=movement_backward,
)
def _segment_sum_cost(node: Node) -> Cost:
    """Return the cost of segment sums: an add for each element of the data, since sums start from
    zeros.
    """
    return Cost(adds=input_element_count(node))


def _segment_extreme_gradient_cost(node: Node) -> Cost:
    """Return the cost of the gradient of a segment minimum or maximum, which equal extremes share:
    per element a compare, an add, a mul.

    Source: _UnsortedSegmentMinOrMaxGrad in tensorflow/python/ops/math_grad.py.
    """
    return Cost(compares=1, adds=1, muls=1) * input_element_count(node) + Cost(
        divs=output_element_count(node)
    )


@declare_function(
    "n(data) compares",
    tensorflow=("UnsortedSegmentMax", "UnsortedSegmentMin"),
    backward=first_operand_backward(_segment_extreme_gradient_cost),
)
def _segment_extreme_cost(node: Node) -> Cost:
    """Return the cost of segment minima or maxima: a compare for each element of the data."""
    return Cost(compares=input_element_count(node))


operator.declare_without_rule(
    (
        *("StringLower", "StringUpper", "StringSplit", "StringSplitV2", "StringJoin"),
        *("StringToHashBucket", "StringToHashBucketFast", "StringToHashBucketStrong"),
        *("StaticRegexReplace", "RegexReplace", "StaticRegexFullMatch", "RegexFullMatch"),
        *("StringFormat", "StringLength", "StringNGrams", "StringStrip", "StringToNumber"),
        *("AsString", "ReduceJoin", "Substr", "UnicodeDecodeWithOffsets", "UnicodeEncode"),
        *("UnsortedSegmentJoin", "DecodeBase64", "EncodeBase64", "DecodeJpeg", "DecodePng"),
    ),
    "text and media are not counted",
    domain=TENSORFLOW,
)


@declare_function(
    "0: a look-up",
    tensorflow=("LookupTableFindV2", "LookupTableSizeV2"),
    tables=(0,),
    backward=no_gradient,
)
def _table_lookup_cost(_node: Node) -> Cost:
    """Return zero cost for looking keys up in a table: hashes and compares of keys are not
    counted.
    """
    return ZERO


@declare_function(
    "0: a handle",
    tensorflow=("HashTableV2", "MutableHashTableV2"),
    traffic="view",
    backward=no_gradient,
)
def _table_handle_cost(_node: Node) -> Cost:
    """Return zero cost for the handle of a table."""
    return ZERO


@declare_function(
    "n(x)*ceil(log2(boundaries + 1)) compares", tensorflow="Bucketize", backward=no_gradient
)
def _bucketize_cost(node: Node) -> Cost:
    """Return the cost of Bucketize: for each element a binary search among B boundaries,
    ceil(log2(B + 1)) compares.

    Source: tensorflow/core/kernels/bucketize_op.cc, std::upper_bound.
    """
    boundaries = node.attrs.get("boundaries", ())
    stored = len(boundaries) if isinstance(boundaries, tuple) else 1
    return Cost(compares=output_element_count(node) * stored.bit_length())


@declare_function(
    "n*(4 adds, mul, div), n*ceil(log2(points + 1)) compares",
    scipy="interpolate.interp1d",
    doubt=estimate_exactness,
    backward=no_gradient,
)
def _interpolation_cost(node: Node) -> Cost:
    """Return the estimated cost of linear interpolation: per element a binary search, then y0 +
    (y1 - y0) / (x1 - x0) * (x - x0).

    Source: scipy/interpolate/_interpolate.py, _call_linear; numpy/_core/src/multiarray/
    compiled_base.c, arr_interp, which divides once for each line where these are fewer.
    """
    n, points = output_element_count(node), node.attrs.get("points")
    if not isinstance(points, int):
        raise ValueError(f"{node.op} has no number of points")
    return Cost(adds=4 * n, muls=n, divs=n, compares=n * points.bit_length())


@declare_function(
    "n(values)*N MACs",
    tensorflow="SparseTensorDenseMatMul",
    contracts=(1, 3),
    backward=product_backward(1, 3),
)
def _tensorflow_sparse_product_cost(node: Node) -> Cost:
    """Return the cost of a sparse A [M, K] times a dense B [K, N]: N MACs for each stored value of
    A.

    a_indices [n, 2], a_values [n], a_shape [2], b.
    """
    columns = spec_shape(input_spec(node, 3), rank=2)[0 if node.attrs.get("adjoint_b") else 1]
    return Cost(macs=input_element_count(node, 1) * columns)


@declare_function(
    "n(indices)*n(row) adds; mean: n(Y) divs; sqrt-n: n(Y) divs, a sqrt for each segment",
    tensorflow=tuple(f"SparseSegment{kind}" for kind in ("Sum", "Mean", "SqrtN")),
    backward="the sum of the gradient of each segment into its rows is not derived",
)
def _sparse_segment_sum_cost(node: Node) -> Cost:
    """Return the cost of summing, by segments, the table rows that indices select; divs for a
    mean.
    """
    row = prod(spec_shape(input_spec(node, 0), at_least=1)[1:])
    adds = Cost(adds=input_element_count(node, 1) * row)
    if node.op.type.endswith("Sum"):
        return adds
    roots = spec_shape(output_spec(node), at_least=1)[0] if node.op.type.endswith("SqrtN") else 0
    return adds + Cost(divs=output_element_count(node), specials=roots)


@declare_function("n(values) adds", tensorflow="SparseReduceSumSparse", backward=no_gradient)
@declare_function(
    "n(values) adds",
    tensorflow=("SparseReduceSum", "SparseTensorDenseAdd"),
    backward=movement_backward,
)
def _tensorflow_sparse_sum_cost(node: Node) -> Cost:
    """Return the cost of summing a sparse tensor: an add for each stored value."""
    return Cost(adds=input_element_count(node, 1))


@declare_function(
    "n(values) adds; binary: 0",
    tensorflow=("RaggedBincount", "SparseBincount"),
    backward=no_gradient,
)
def _bincount_cost(node: Node) -> Cost:
    """Return the cost of counting values: an add for each value, 0 if only presence matters."""
    return Cost(adds=0 if node.attrs.get("binary_output") else input_element_count(node, 1))


@declare_function("n(x) muls", tensorflow="Cumprod", backward=CUMULATIVE_PRODUCT_BACK)
def _running_product_cost(node: Node) -> Cost:
    """Return the cost of running products: a mul for each element."""
    return Cost(muls=output_element_count(node))


@declare_function(
    "[M, K] x [G, K, N]: n(Y)*K MACs; cut along K: M*K*N",
    jax="ragged_dot_general",
    doubt=upper_bound_exactness,
    backward=product_backward(0, 1),
)
def _jax_ragged_dot_cost(node: Node) -> Cost:
    """Return the largest cost of a product in which each row belongs to one group, [M, K] x [G, K,
    N]: K MACs per element of the result.

    Where the contracted axis is cut into groups, [M, K] x [K, N] -> [G, M, N]: M*K*N MACs.
    https://docs.jax.dev/en/latest/_autosummary/jax.lax.ragged_dot_general.html
    """
    left, right = (
        spec_shape(input_spec(node, 0), at_least=2),
        spec_shape(input_spec(node, 1), at_least=2),
    )
    after = spec_shape(output_spec(node), at_least=2)
    if len(right) == len(left) + 1 == len(after) + 1:
        return Cost(macs=prod(after) * left[-1])
    if len(right) == len(left) == len(after) - 1:
        return Cost(macs=prod(after[1:]) * (prod(left) // after[-2] if after[-2] else 0))
    raise ValueError(f"{node.op} of ranks {len(left)} and {len(right)} is not supported")


def _window_element_count(node: Node) -> int:
    """Return the number of elements of the node's window."""
    window = node.attrs.get("window_dimensions")
    if not isinstance(window, tuple):
        raise ValueError(f"{node.op} has no window_dimensions")
    return prod(map(int, window))


@declare_function(
    "n(dY)*(window-1) compares, n(dY) adds",
    jax="select_and_scatter_add",
    backward="its gradient in JAX is that of a gather, which has no formula yet",
)
def _select_scatter_cost(node: Node) -> Cost:
    """Return the cost of the gradient of a max pool: the search for each maximum, and an add of dY
    at its index.

    https://openxla.org/stablehlo/spec#select_and_scatter: source and operand in this order.
    """
    return Cost(compares=_window_element_count(node) - 1, adds=1) * input_element_count(node)


# Collectives, on each of the n devices of a `group`: what arrives there is combined there.


def _other_device_count(node: Node) -> int:
    """Return the number of other devices in the node's group. Raises ValueError if it is
    unknown.
    """
    group = node.attrs.get("group")
    if not isinstance(group, int) or group < 1:
        raise ValueError(f"{node.op} does not declare the number of devices")
    return group - 1


def _device_gather_gradient_cost(node: Node) -> Cost:
    """Return the cost of the gradient of gathering parts from n devices: (n - 1) n(X) adds on each
    device.
    """
    return Cost(adds=_other_device_count(node) * input_element_count(node))


@declare_function(
    "(n-1)*n(Y) adds on each of n devices",
    jax=("psum", "psum_invariant", "unreduced_psum"),
    doubt=estimate_exactness,
    backward=movement_backward,
)
@declare_function(
    "(n-1)*n(Y) adds on each of n devices",
    jax=("reduce_scatter", "unreduced_reduce_scatter"),
    doubt=estimate_exactness,
    backward=movement_backward,
)
def _device_sum_cost(node: Node) -> Cost:
    """Return the estimated cost of a sum over n devices: n - 1 adds per element of the result on
    each device.
    """
    return Cost(adds=_other_device_count(node) * output_element_count(node))


@declare_function(
    "(n-1)*n(Y) compares on each of n devices",
    jax=("pmax", "pmin"),
    doubt=estimate_exactness,
    backward="JAX has no gradient for it",
)
def _device_extreme_cost(node: Node) -> Cost:
    """Return the estimated cost of a minimum or maximum over n devices: n - 1 compares per element
    on each device.
    """
    return Cost(compares=_other_device_count(node) * output_element_count(node))


declare_function(MOVED, jax=("ppermute", "pbroadcast", "all_to_all"), backward=movement_backward)(
    movement_cost
)
declare_function(
    MOVED,
    jax=("all_gather", "all_gather_invariant", "all_gather_reduced"),
    backward=first_operand_backward(_device_gather_gradient_cost),
)(movement_cost)


# Gradients. In either layout; the sizes of a filter come as a list.

_FILTER = sizes_constraint("input[N,...] filter_sizes[_] out_backprop[N,...]")


@declare_function(
    "n(dY)*prod(kernel)*C/groups MACs",
    tensorflow=("Conv2DBackpropFilter", "Conv3DBackpropFilterV2"),
    requires=_FILTER,
    backward=product_backward(0, 2),
)
def _conv_weight_gradient_cost(node: Node) -> Cost:
    """Return the cost of the gradient of a convolution's weights: each element of dY meets each
    weight of its filter once.

    n(dY) * prod(kernel) * C / groups MACs: out_backprop [N, ..., K], result [..., C / groups, K].
    """
    *kernel, inputs, _ = spec_shape(output_spec(node), at_least=3)
    return Cost(macs=input_element_count(node, 2) * prod(kernel) * inputs)


@declare_function(
    "n(dY)*prod(kernel) MACs",
    tensorflow="DepthwiseConv2dNativeBackpropFilter",
    requires=_FILTER,
    backward=product_backward(0, 2),
)
@declare_function(
    "n(dY)*prod(kernel) MACs",
    tensorflow="DepthwiseConv2dNativeBackpropInput",
    requires=sizes_constraint("input_sizes[_] filter[_,_,C,M] out_backprop[N,_,_,_]"),
    backward=product_backward(1, 2),
)
def _depthwise_conv_gradient_cost(node: Node) -> Cost:
    """Return the cost of the gradient of the weights or the input of a depthwise convolution:
    prod(kernel) MACs per element of dY.

    The filter [h, w, C, M] is the result, or the second input where the gradient is that of the
    input.
    """
    is_filter = node.op.type.endswith("BackpropFilter")
    dims = spec_shape(output_spec(node) if is_filter else input_spec(node, 1), rank=4)
    return Cost(macs=input_element_count(node, 2) * prod(dims[:2]))


@declare_function("n(dY)-C adds", tensorflow="BiasAddGrad", backward=movement_backward)
def _bias_gradient_cost(node: Node) -> Cost:
    """Return the cost of the gradient of a bias with C channels: n(dY) - C adds."""
    return Cost(
        adds=reduction_operation_count(input_element_count(node), output_element_count(node))
    )


def _relu_gradient_backward(node: Node, requested: OperandPositions, forward: Cost) -> Gradient:
    """Return the cost of the gradients of a ReLU's gradient, for each requested operand.

    d(dY) where X > 0, by the compares of the forward pass; X has none.
    """
    return Gradient({0: forward} if 0 in requested else {})


@declare_function("n compares", tensorflow="ReluGrad", backward=_relu_gradient_backward)
def _relu_gradient_cost(node: Node) -> Cost:
    """Return the cost of a ReLU's gradient, dY where X > 0 and else 0: a compare per element."""
    return Cost(compares=output_element_count(node))


declare_function("2n compares", tensorflow="Relu6Grad", backward=_relu_gradient_backward)(
    lambda node: _relu_gradient_cost(node) * 2
)


# Of the result Y, and of dY: by dY (1 - 2 Y) with a sigmoid, by -2 dY Y with tanh
# (tensorflow/python/ops/math_grad.py: _SigmoidGradGrad, _TanhGradGrad).
@declare_function(
    "n*(2 muls, sub)",
    tensorflow="SigmoidGrad",
    backward=elementwise_backward(Cost(muls=3, adds=1), Cost(muls=2, adds=1)),
)
@declare_function(
    "n*(2 muls, sub)",
    tensorflow="TanhGrad",
    backward=elementwise_backward(Cost(muls=3), Cost(muls=2, adds=1)),
)
def _activation_slope_cost(node: Node) -> Cost:
    """Return the cost of the gradient of a sigmoid, dY * Y * (1 - Y), or tanh, dY * (1 - Y^2): 2
    muls and a sub per element.
    """
    return Cost(muls=2, adds=1) * output_element_count(node)


# What moves numbers.

# Primitives of JAX that move numbers, for which jax2onnx forgets that complex ones have two parts.
COMPLEX_MOVES = (
    *("transpose", "reshape", "squeeze", "broadcast_in_dim", "slice", "dynamic_slice"),
    *("dynamic_update_slice", "concatenate", "gather", "pad", "select_n", "copy", "rev", "split"),
)
declare_function(
    MOVED,
    jax=(
        *(
            f"complex_{name}"
            for name in COMPLEX_MOVES
            if name not in ("broadcast_in_dim", "gather")
        ),
        *("scatter", "rev"),
    ),
    tensorflow=("Roll", "Real", "Imag", "Complex"),
    backward=movement_backward,
)(movement_cost)
declare_function(MOVED, jax="complex_broadcast_in_dim", backward=sum_of_copies_backward)(
    movement_cost
)
# What is read several times sums the gradients of its copies.
declare_function(
    MOVED,
    jax=("complex_gather", "lax/other.conv_general_dilated_patches"),
    tensorflow="ExtractImagePatches",
    backward=scatter_add_backward,
)(movement_cost)
declare_function(
    MOVED,
    jax="lu_pivots_to_permutation",
    tensorflow=("ShapeN", "BroadcastGradientArgs"),
    backward=no_gradient,
)(movement_cost)
# Lists of tensors are handles, whose elements stay where they are.
declare_function(
    MOVED,
    tensorflow=(
        *("TensorListSetItem", "TensorListGetItem", "TensorListStack", "TensorListFromTensor"),
        *("TensorListPushBack", "TensorListPopBack"),
    ),
    traffic="view",
    backward=movement_backward,
)(movement_cost)
declare_function(
    MOVED,
    tensorflow=(
        *("EmptyTensorList", "TensorListReserve", "TensorListLength", "TensorListElementShape"),
    ),
    traffic="view",
    backward=no_gradient,
)(movement_cost)
declare_function(
    "linear: n(Y)*(2^d muls, 2^d - 1 adds); cubic: 4^d; as Resize",
    jax="image/scale._resize",
    backward=resize_backward,
)(onnx_resize_cost)


# Functions that are no composition of others: one special for each element of the result, as of
# exp or erf, whatever series or table a library evaluates.


def special_function_cost(node: Node) -> Cost:
    """Return the cost of a special function, such as Gamma or Bessel functions: one special per
    element.

    Source: the cost of exp and erf (docs/ops.md), of the same kind.
    """
    return Cost(specials=output_element_count(node))


def declare_special_functions(
    back: Backward,
    *,
    jax: Names = (),
    tensorflow: Names = (),
    torch: Names = (),
    prims: Names = (),
) -> None:
    """Register special functions by their names in the frameworks; `prims` are names in
    torch.ops.prims.
    """
    of_prims = (prims,) if isinstance(prims, str) else prims
    equation = "n(Y) specials"
    declare_function(equation, jax=jax, tensorflow=tensorflow, torch=torch, backward=back)(
        special_function_cost
    )
    operator(
        tuple(f"prims.{name}.default" for name in of_prims),
        equation,
        domain=TORCH,
        page="https://docs.pytorch.org/docs/stable/special.html",
        backward=back,
    )(special_function_cost)


def _second_operand_backward(work: Cost) -> Backward:
    """Return a backward function with this work per element for the second operand, the only one
    with a gradient.
    """

    def gradient_of_second_operand(
        node: Node, requested: OperandPositions, forward: Cost
    ) -> Gradient:
        """Return the cost of the gradient of the second operand. Raises ValueError if the first
        one needs a gradient.
        """
        if 0 in requested:
            raise ValueError(f"{node.op} has no gradient by its first operand")
        return elementwise_backward(work)(node, requested, forward)

    return gradient_of_second_operand


# Derivatives from x and the result y, as derivatives.yaml, jax/_src/lax/special.py and
# tensorflow/python/ops/math_grad.py have them; what is another special function is one special.
_NEXT = Cost(specials=1, muls=1)  # digamma of lgamma, I1 of I0
_OPPOSITE = _NEXT + Cost(adds=1)  # -J1 of J0, y - K1e of K0e
_QUOTIENT = _NEXT + Cost(divs=1, adds=1)  # J0 - y / x of J1
# Of igamma by x: exp((a - 1) log x - x - lgamma(a)); by a: a special of its own.
_INCOMPLETE = Cost(specials=3, adds=3, muls=2)

declare_special_functions(
    elementwise_backward(_NEXT),
    jax=("lgamma", "digamma"),
    tensorflow=("Lgamma", "Digamma", "BesselI0"),
    prims=("lgamma", "digamma", "bessel_i0"),
    torch="polygamma",
)
declare_special_functions(_second_operand_backward(_NEXT), jax="polygamma", tensorflow="Polygamma")
# -x zeta(x + 1, q)
declare_special_functions(
    _second_operand_backward(Cost(specials=1, muls=2, adds=2)),
    jax="zeta",
    tensorflow="Zeta",
    prims="zeta",
)
declare_special_functions(
    elementwise_backward(_NEXT, _INCOMPLETE), jax="igamma", tensorflow="Igamma", prims="igamma"
)
declare_special_functions(
    elementwise_backward(_OPPOSITE, _INCOMPLETE + Cost(adds=1)),
    jax="igammac",
    tensorflow="Igammac",
    prims="igammac",
)
# sqrt(pi) / 2 exp(y^2); sqrt(2 pi) exp(y^2 / 2); 2 x y - 2 / sqrt(pi)
declare_special_functions(
    elementwise_backward(Cost(specials=1, muls=3)),
    jax="erf_inv",
    tensorflow="Erfinv",
    prims="erf_inv",
)
declare_special_functions(
    elementwise_backward(Cost(specials=1, muls=4)), tensorflow="Ndtri", prims="ndtri"
)
declare_special_functions(elementwise_backward(Cost(muls=3, adds=1)), prims="erfcx")
# I1e - sign(x) y; I0 - y / x; I0e - y (sign(x) + 1 / x)
declare_special_functions(
    elementwise_backward(Cost(specials=1, compares=2, muls=2, adds=1)),
    jax="bessel_i0e",
    tensorflow="BesselI0e",
    prims="bessel_i0e",
)
declare_special_functions(
    elementwise_backward(_QUOTIENT),
    tensorflow=("BesselI1", "BesselJ1", "BesselY1"),
    prims="bessel_i1",
)
declare_special_functions(
    elementwise_backward(Cost(specials=1, compares=2, divs=1, adds=2, muls=2)),
    jax="bessel_i1e",
    tensorflow="BesselI1e",
    prims="bessel_i1e",
)
declare_special_functions(
    elementwise_backward(_OPPOSITE), tensorflow=("BesselJ0", "BesselY0", "BesselK0", "BesselK0e")
)
# -K0 - y / x; y (1 - 1 / x) - K0e
declare_special_functions(elementwise_backward(_QUOTIENT + Cost(adds=1)), tensorflow="BesselK1")
declare_special_functions(
    elementwise_backward(_QUOTIENT + Cost(muls=1, adds=1)), tensorflow="BesselK1e"
)
# PyTorch marks their results as not differentiable (derivatives.yaml).
declare_special_functions(
    no_gradient,
    torch=(
        *("special_airy_ai", "special_bessel_y0", "special_bessel_y1"),
        *(
            f"special_{scale}modified_bessel_{kind}"
            for scale, kinds in (("", ("i0", "i1", "k0", "k1")), ("scaled_", ("k0", "k1")))
            for kind in kinds
        ),
    ),
    prims=("bessel_j0", "bessel_j1", "spherical_bessel_j0"),
)
