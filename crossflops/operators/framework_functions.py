"""Operations of frameworks that ONNX has not, or that a converter writes in other nodes.

The node has the tensors of the operation as inputs and outputs, and its plain arguments as
attributes. The same function costs the same in every framework: one formula here serves them all.
"""

from collections.abc import Callable, Mapping
from math import prod
from typing import Unpack

from crossflops.ir.cost import ZERO, Cost
from crossflops.ir.graph import Node
from crossflops.operators import linear_algebra as algebra
from crossflops.operators.access import folded, out_size, result, shape, size, source
from crossflops.operators.gradient import Gradient, Wanted
from crossflops.operators.movement import MOVED, moved
from crossflops.operators.operands import sizes
from crossflops.operators.resampling import resize
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
    bounded,
    estimated,
)
from crossflops.operators.spectral import fft

operator = Operators()

Names = str | tuple[str, ...]
_JAX_PAGES = "https://docs.jax.dev/en/latest/_autosummary/jax."
_SPECIAL_IN_JAX = (
    *("lgamma", "digamma", "polygamma", "zeta", "igamma", "igammac", "erf_inv"),
    *("bessel_i0e", "bessel_i1e"),
)
_OF_LAX = ("fft", "abs", "scatter-add", "scatter", "rev", "ragged_dot_general", *_SPECIAL_IN_JAX)
_PAGE_OF = {"geqrf": "qr"}  # a primitive that has none of its own


def _page_of_jax(name: str) -> str:
    public = name.replace("/other", "").replace("/scale._", "/").replace("/", ".")
    if "/" not in name:
        place = "lax" if name in _OF_LAX or name.startswith("complex_") else "lax.linalg"
        bare = name.removeprefix("complex_")
        public = f"{place}.{_PAGE_OF.get(bare, bare).replace('-', '_')}"
    return f"{_JAX_PAGES}{public}.html"


def _page_of_torch(name: str) -> str:
    public = name.lstrip("_").removesuffix("_ex").replace("linalg_", "linalg.")
    return f"{TORCH_PAGES}{public}.html"


# How the pages of a framework are named, by the operation's name.
_PAGES: Mapping[str, Callable[[str], str]] = {
    JAX: _page_of_jax,
    TENSORFLOW: "https://www.tensorflow.org/api_docs/python/tf/raw_ops/{}".format,
    TORCH: _page_of_torch,
    SCIPY: "https://docs.scipy.org/doc/scipy/reference/generated/scipy.{}.html".format,
}


def function(
    equation: str,
    *,
    jax: Names = (),
    tensorflow: Names = (),
    torch: Names = (),
    scipy: Names = (),
    requires: Constraint | tuple[Constraint, ...] = (),
    **facts: Unpack[Facts],
) -> Callable[[F], F]:
    """Declares a function by its names in the frameworks: those that have it.

    Names are: of JAX a primitive's, or the file in jax/_src and the function's in it; of
    TensorFlow an operation's; of torch the function's in torch.ops.aten; of SciPy the module's
    and the function's.
    """
    named = {JAX: jax, TENSORFLOW: tensorflow, TORCH: torch, SCIPY: scipy}

    def declare(formula: F) -> F:
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

    return declare


# Factorizations and solvers, by one algorithm of several: estimates.

_LU = "n(n-1)/2 divs, (n-1)n(2n-1)/6*(mul, sub)"
_QR = "Householder: step s, L = m-s: L muls, L adds, sqrt, L divs, (2L-1)*(mul, add) per column"
_SVD = "Golub-Reinsch: 4mn^2-4n^3/3; U, V: 14mn^2+8n^3; all of U: 4m^2n+8mn^2+9n^3; half muls"
_EIG = "QR: 10n^3; vectors: 25n^3; half muls"
_FFT = "per axis rows * N*ceil(log2 N)*(2 muls, 3 adds), half if real; inverse: 2N divs"


def _each(work: Callable[[int], Cost]) -> Formula:
    """Of every square matrix."""

    def formula(node: Node) -> Cost:
        count, n = algebra.square(node)
        return work(n) * count

    return formula


function(
    "n roots, n(n-1)/2 divs, (n^3-n)/6*(mul, sub)",
    jax=("cholesky", "numpy/linalg.cholesky"),
    tensorflow="Cholesky",
    torch=("linalg_cholesky", "linalg_cholesky_ex"),
    doubt=estimated,
)(_each(algebra.cholesky))
function(
    "n^2 divs, n(n-1)^2*(mul, sub)",
    jax="numpy/linalg.inv",
    tensorflow="MatrixInverse",
    torch=("linalg_inv", "linalg_inv_ex"),
    doubt=estimated,
)(_each(algebra.inverse))
function(f"{_LU}, n-1 muls", jax="numpy/linalg.det", doubt=estimated)(_each(algebra.determinant))


def _solve_backward(node: Node, wanted: Wanted, _forward: Cost) -> Gradient:
    """dB solves A^T dB = dX by the factors that are kept; dA = -dB X^T (linalg_solve_backward).

    Source: torch/csrc/autograd/FunctionsManual.cpp. Raises ValueError for sizes that broadcast.
    """
    count, n = algebra.square(node)
    outer = shape(source(node, 0))[:-2]
    if shape(result(node))[: len(outer)] != outer or size(node, 1) != out_size(node):
        raise ValueError(f"{node.op}: the backward pass of sizes that are broadcast")
    columns = out_size(node) // (count * n) if count * n else 0
    solved = algebra.triangular(n, columns, unit=True) + algebra.triangular(n, columns)
    product = Cost(macs=n * n * columns, adds=n * n) * count
    work = {0: product, 1: ZERO}
    return Gradient({place: work[place] for place in wanted}, inner=solved * count)


@function(
    f"{_LU}, then per column n(n-1)*(mul, sub), n divs",
    jax="numpy/linalg.solve",
    tensorflow="MatrixSolve",
    torch=("linalg_solve", "linalg_solve_ex", "_linalg_solve_ex"),
    scipy="linalg.solve",
    doubt=estimated,
    backward=_solve_backward,
)
def _solve(node: Node) -> Cost:
    """A X = B: one elimination for each A [..., n, n]; X has as many columns as the result."""
    count, n = algebra.square(node)
    columns, rest = divmod(out_size(node), count * n) if count * n else (0, 0)
    if rest:
        raise ValueError(f"{node.op}: {out_size(node)} unknowns for {count} systems of {n}")
    return algebra.solve(n, columns) * count


@function(
    "per column n(n-1)/2*(mul, sub), n divs unless the diagonal is 1",
    jax="triangular_solve",
    tensorflow="MatrixTriangularSolve",
    torch="linalg_solve_triangular",
    doubt=estimated,
)
def _triangular(node: Node) -> Cost:
    """L X = B, or X L = B: per column (or row) of X n(n-1)/2 muls and subs, n divs."""
    _, n = algebra.square(node)
    unit = bool(node.attrs.get("unit_diagonal") or node.attrs.get("unitriangular"))
    return algebra.triangular(n, out_size(node) // n if n else 0, unit)


@function(_LU, jax="lu", tensorflow="Lu", torch="linalg_lu_factor_ex", doubt=estimated)
def _lu(node: Node) -> Cost:
    count, m, n = algebra.matrices(node)
    return algebra.lu(m, n) * count


@function(_QR, jax=("qr", "numpy/linalg.qr"), tensorflow="Qr", torch="linalg_qr", doubt=estimated)
def _qr(node: Node) -> Cost:
    """Columns of Q: those of the first result, or none where only R is wanted (torch: "r")."""
    count, m, n = algebra.matrices(node)
    columns = 0 if node.attrs.get("mode") == "r" else shape(result(node), at_least=2)[-1]
    return algebra.qr(m, n, columns) * count


@function(_QR, jax="geqrf", torch="geqrf", doubt=estimated)
def _reflectors(node: Node) -> Cost:
    count, m, n = algebra.matrices(node)
    return algebra.reflectors(m, n) * count


@function(
    "Householder backwards: step s, L = m-s: (2L-1)*(mul, add) per column from s on",
    jax="householder_product",
    torch="linalg_householder_product",
    doubt=estimated,
)
def _orthogonal(node: Node) -> Cost:
    """Q [m, n] of k = n(taus) vectors."""
    count, m, n = algebra.matrices(node)
    return algebra.orthogonal(m, shape(source(node, 1), at_least=1)[-1], n) * count


@function(_SVD, jax="svd", tensorflow="Svd", torch="_linalg_svd", doubt=estimated)
def _svd(node: Node) -> Cost:
    count, m, n = algebra.matrices(node)
    vectors = bool(node.attrs.get("compute_uv", 1))
    return algebra.svd(m, n, vectors, bool(node.attrs.get("full_matrices", 0))) * count


@function(_SVD, torch="linalg_svd", doubt=estimated)
def _svd_of_torch(node: Node) -> Cost:
    """All of U unless `full_matrices` says otherwise."""
    count, m, n = algebra.matrices(node)
    return algebra.svd(m, n, True, bool(node.attrs.get("full_matrices", 1))) * count


@function(_SVD, torch="linalg_svdvals", doubt=estimated)
def _values(node: Node) -> Cost:
    count, m, n = algebra.matrices(node)
    return algebra.svd(m, n, vectors=False, all_of_u=False) * count


@function(
    "QR: 4n^3/3; vectors: 9n^3; half muls",
    jax=("eigh", "numpy/linalg.eigh"),
    tensorflow="SelfAdjointEigV2",
    torch=("linalg_eigh", "_linalg_eigh"),
    doubt=estimated,
)
def _eigh(node: Node) -> Cost:
    count, n = algebra.square(node)
    return algebra.eigen_symmetric(n, bool(node.attrs.get("compute_v", 1))) * count


@function(_EIG, jax="eig", tensorflow="Eig", doubt=estimated)
def _eig(node: Node) -> Cost:
    count, n = algebra.square(node)
    wanted = (node.attrs.get(name, 0) for name in ("compute_v", "compute_left_eigenvectors",
                                                   "compute_right_eigenvectors"))  # fmt: skip
    return algebra.eigen(n, any(wanted)) * count


@function(_EIG, torch="linalg_eig", doubt=estimated)
def _eig_of_torch(node: Node) -> Cost:
    """Eigenvalues and vectors."""
    count, n = algebra.square(node)
    return algebra.eigen(n, vectors=True) * count


# Fourier transforms.


def transformed(node: Node, axes: int, inverse: bool) -> Cost:
    """Along the last `axes` axes, one after the other; inverse 2N divs more for each of N.

    Where one side is real, so is the transform along the last axis, and the others have only the
    N // 2 + 1 of its elements that are kept.
    """
    before, after = source(node, 0), result(node)
    real = not (before.dtype.startswith("complex") and after.dtype.startswith("complex"))
    narrow = shape(after if before.dtype.startswith("float") else before, at_least=axes)
    wide = shape(after if after.dtype.startswith("float") else before, at_least=axes)
    if not real:
        narrow = wide = shape(after, at_least=axes)
    wide = (*shape(after)[:-1], wide[-1])
    total = ZERO
    for place in range(len(wide) - axes, len(wide)):
        last = place == len(wide) - 1
        dims = wide if last else (*wide[:-1], narrow[-1])
        length = dims[place]
        rows = prod(dims) // length if length else 0
        scaled = Cost(divs=2 * length if inverse else 0)
        total += (fft(length, real and last) + scaled) * rows
    return total


@function(_FFT, jax="fft", doubt=estimated)
def _fft_of_jax(node: Node) -> Cost:
    """`fft_type` is the name of the kind: FFT, IFFT, RFFT or IRFFT. jax/_src/lax/fft.py"""
    lengths = node.attrs.get("fft_lengths")
    kind = str(node.attrs.get("fft_type", ""))
    if not isinstance(lengths, tuple) or not kind:
        raise ValueError(f"{node.op} has no fft_lengths or no fft_type")
    return transformed(node, len(lengths), inverse=kind.startswith("I"))


def _transform(axes: int, inverse: bool) -> Formula:
    return lambda node: transformed(node, axes, inverse)


for kind in ("FFT", "IFFT", "RFFT", "IRFFT"):
    for axes, ending in ((1, ""), (2, "2D"), (3, "3D")):
        inverse = kind.startswith("I")
        function(_FFT, tensorflow=kind + ending, doubt=estimated)(_transform(axes, inverse))

# Operations on elements, and sums of segments.


@function("n(Y) compares; complex: n(Y)*(2 muls, add, sqrt)", jax="abs")
@function("n(Y)*(2 muls, add, sqrt)", tensorflow="ComplexAbs")
def _absolute(node: Node) -> Cost:
    """|z| of complex numbers: 2 muls, an add and a root each; of real ones a compare."""
    if source(node, 0).dtype.startswith("complex"):
        return Cost(muls=2, adds=1, specials=1) * out_size(node)
    return Cost(compares=out_size(node))


@function("n(updates) adds", jax="scatter-add")
def _added(node: Node) -> Cost:
    """One add for each element that is brought to its place."""
    return Cost(adds=size(node, 2 if len(node.inputs) > 2 else 0))


@function("n(data) adds", tensorflow=("SegmentSum", "SegmentSumV2", "UnsortedSegmentSum"))
def _summed(node: Node) -> Cost:
    """Segments: one add for each element of the data, from a start of zeros. data [N, ...]"""
    return Cost(adds=size(node))


@function("n(data) compares", tensorflow=("UnsortedSegmentMax", "UnsortedSegmentMin"))
def _compared(node: Node) -> Cost:
    return Cost(compares=size(node))


@function("n(x) muls", tensorflow="Cumprod")
def _running_product(node: Node) -> Cost:
    return Cost(muls=out_size(node))


@function(
    "[M, K] x [G, K, N]: n(Y)*K MACs; cut along K: M*K*N", jax="ragged_dot_general", doubt=bounded
)
def _ragged(node: Node) -> Cost:
    """Rows that belong to one group each: [M, K] x [G, K, N], n(Y)*K MACs.

    Where what is contracted is cut into groups, [M, K] x [K, N] -> [G, M, N]: M*K*N MACs.
    https://docs.jax.dev/en/latest/_autosummary/jax.lax.ragged_dot_general.html
    """
    left, right = shape(source(node, 0), at_least=2), shape(source(node, 1), at_least=2)
    after = shape(result(node), at_least=2)
    if len(right) == len(left) + 1 == len(after) + 1:
        return Cost(macs=prod(after) * left[-1])
    if len(right) == len(left) == len(after) - 1:
        return Cost(macs=prod(after[1:]) * (prod(left) // after[-2] if after[-2] else 0))
    raise ValueError(f"{node.op} of ranks {len(left)} and {len(right)} is not known")


# Gradients. In either layout; the sizes of a filter come as a list.

_FILTER = sizes("input[N,...] filter_sizes[_] out_backprop[N,...]")


@function(
    "n(dY)*prod(kernel)*C/groups MACs",
    tensorflow=("Conv2DBackpropFilter", "Conv3DBackpropFilterV2"),
    requires=_FILTER,
)
def _filter_gradient(node: Node) -> Cost:
    """dW of a convolution: every output gradient meets every weight of its filter once.

    n(dY) * prod(kernel) * C / groups MACs: out_backprop [N, ..., K], result [..., C / groups, K].
    """
    *kernel, inputs, _ = shape(result(node), at_least=3)
    return Cost(macs=size(node, 2) * prod(kernel) * inputs)


@function(
    "n(dY)*prod(kernel) MACs",
    tensorflow="DepthwiseConv2dNativeBackpropFilter",
    requires=_FILTER,
)
@function(
    "n(dY)*prod(kernel) MACs",
    tensorflow="DepthwiseConv2dNativeBackpropInput",
    requires=sizes("input_sizes[_] filter[_,_,C,M] out_backprop[N,_,_,_]"),
)
def _depthwise_gradient(node: Node) -> Cost:
    """dW or dX of a depthwise convolution: n(dY) * prod(kernel) MACs. The filter is [h, w, C, M].

    The filter is the result, or the second input where the gradient is that of the input.
    """
    is_filter = node.op.type.endswith("BackpropFilter")
    dims = shape(result(node) if is_filter else source(node, 1), rank=4)
    return Cost(macs=size(node, 2) * prod(dims[:2]))


@function("n(dY)-C adds", tensorflow="BiasAddGrad")
def _bias_gradient(node: Node) -> Cost:
    return Cost(adds=folded(size(node), out_size(node)))


@function("n compares", tensorflow="ReluGrad")
def _gate_gradient(node: Node) -> Cost:
    """dY where X > 0, else 0: n compares."""
    return Cost(compares=out_size(node))


function("2n compares", tensorflow="Relu6Grad")(lambda node: _gate_gradient(node) * 2)


@function("n*(2 muls, sub)", tensorflow=("SigmoidGrad", "TanhGrad"))
def _slope(node: Node) -> Cost:
    """dY * Y * (1 - Y) of a sigmoid, dY * (1 - Y^2) of tanh: 2 muls and a sub each."""
    return Cost(muls=2, adds=1) * out_size(node)


# What moves numbers.

# Primitives of JAX that move numbers, for which jax2onnx forgets that complex ones have two parts.
COMPLEX_MOVES = (
    *("transpose", "reshape", "squeeze", "broadcast_in_dim", "slice", "dynamic_slice"),
    *("dynamic_update_slice", "concatenate", "gather", "pad", "select_n", "copy", "rev", "split"),
)
function(
    MOVED,
    jax=(
        *(f"complex_{name}" for name in COMPLEX_MOVES),
        *("scatter", "lu_pivots_to_permutation", "rev"),
        "lax/other.conv_general_dilated_patches",
    ),
    tensorflow=(
        *("ExtractImagePatches", "Roll", "ShapeN", "BroadcastGradientArgs", "Real", "Imag"),
        "Complex",
    ),
)(moved)
# Lists of tensors are handles, whose elements stay where they are.
function(
    MOVED,
    tensorflow=(
        *("EmptyTensorList", "TensorListReserve", "TensorListSetItem", "TensorListGetItem"),
        *("TensorListStack", "TensorListFromTensor", "TensorListPushBack", "TensorListPopBack"),
        *("TensorListLength", "TensorListElementShape"),
    ),
    traffic="view",
)(moved)
function(
    "linear: n(Y)*(2^d muls, 2^d - 1 adds); cubic: 4^d; as Resize", jax="image/scale._resize"
)(resize)


# Functions that are no composition of others: one special for each element of the result, as of
# exp or erf, whatever series or table a library evaluates.


_BESSEL = ("i0", "i0e", "i1", "i1e", "j0", "j1")
_MODIFIED = tuple(
    f"{scale}modified_bessel_{kind}" for scale in ("", "scaled_") for kind in ("k0", "k1")
)


@operator(
    tuple(
        f"prims.{name}.default"
        for name in (
            *("lgamma", "digamma", "zeta", "igamma", "igammac", "erf_inv", "erfcx", "ndtri"),
            *("spherical_bessel_j0", *(f"bessel_{kind}" for kind in _BESSEL)),
        )
    ),
    "n(Y) specials",
    domain=TORCH,
    page="https://docs.pytorch.org/docs/stable/special.html",
)
@function(
    "n(Y) specials",
    jax=_SPECIAL_IN_JAX,
    tensorflow=(
        *("Lgamma", "Digamma", "Polygamma", "Zeta", "Igamma", "Igammac", "Erfinv", "Ndtri"),
        *(f"Bessel{kind.upper()}" for kind in ("i0", "i1", "j0", "j1", "k0", "k1", "y0", "y1")),
        *(f"Bessel{kind}" for kind in ("I0e", "I1e", "K0e", "K1e")),
    ),
    torch=(
        *("polygamma", "special_airy_ai", "special_bessel_y0", "special_bessel_y1"),
        *("special_modified_bessel_i0", "special_modified_bessel_i1"),
        *(f"special_{name}" for name in _MODIFIED),
    ),
)
def special_function(node: Node) -> Cost:
    """Gamma, Bessel, zeta and inverse error functions: a special for each element.

    Source: the cost of exp and erf (docs/ops.md), of the same kind.
    """
    return Cost(specials=out_size(node))
