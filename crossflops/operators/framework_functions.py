"""Operations of frameworks that ONNX has not, or that a converter writes in other nodes.

The node has the tensors of the operation as inputs and outputs, and its plain arguments as
attributes. The same function costs the same in every framework: one formula here serves them all.
"""

from collections.abc import Callable, Iterable
from math import prod

from crossflops.ir.cost import ZERO, Cost
from crossflops.ir.graph import Node
from crossflops.operators import linear_algebra as algebra
from crossflops.operators.access import folded, integer, out_size, result, shape, size, source
from crossflops.operators.movement import moved
from crossflops.operators.operands import sizes
from crossflops.operators.resampling import resize
from crossflops.operators.rule import TORCH, TORCH_PAGES, Entry, Formula, bounded, entry, estimated
from crossflops.operators.spectral import fft

JAX = "jax"
TENSORFLOW = "tensorflow"
SCIPY = "scipy"  # what scikit-learn calls
_JAX_PAGES = "https://docs.jax.dev/en/latest/_autosummary/jax."
_TF_PAGES = "https://www.tensorflow.org/api_docs/python/tf/raw_ops/"


def _matrices(node: Node, index: int = 0) -> tuple[int, int, int]:
    """How many matrices an input holds, their rows and their columns."""
    dims = shape(source(node, index), at_least=2)
    return prod(dims[:-2]), dims[-2], dims[-1]


def _square(node: Node, index: int = 0) -> tuple[int, int]:
    count, rows, columns = _matrices(node, index)
    if rows != columns:
        raise ValueError(f"{node.op} needs square matrices, not {rows}x{columns}")
    return count, rows


def _each(work: Callable[[int], Cost]) -> Formula:
    """Of every square matrix."""

    def formula(node: Node) -> Cost:
        count, n = _square(node)
        return work(n) * count

    return formula


def _solve(node: Node) -> Cost:
    """A X = B: one elimination for each A [..., n, n]; X has as many columns as the result."""
    count, n = _square(node)
    columns, rest = divmod(out_size(node), count * n) if count * n else (0, 0)
    if rest:
        raise ValueError(f"{node.op}: {out_size(node)} unknowns for {count} systems of {n}")
    return algebra.solve(n, columns) * count


def _triangular(node: Node, matrix: int = 0) -> Cost:
    """L X = B, or X L = B: per column (or row) of X n(n-1)/2 muls and subs, n divs."""
    _, n = _square(node, matrix)
    unit = bool(node.attrs.get("unit_diagonal") or node.attrs.get("unitriangular"))
    return algebra.triangular(n, out_size(node) // n if n else 0, unit)


def _lu(node: Node) -> Cost:
    count, m, n = _matrices(node)
    return algebra.lu(m, n) * count


def _qr(node: Node) -> Cost:
    """Columns of Q: those of the first result, or none where only R is wanted (torch: "r")."""
    count, m, n = _matrices(node)
    columns = 0 if node.attrs.get("mode") == "r" else shape(result(node), at_least=2)[-1]
    return algebra.qr(m, n, columns) * count


def _reflectors(node: Node) -> Cost:
    count, m, n = _matrices(node)
    return algebra.reflectors(m, n) * count


def _orthogonal(node: Node) -> Cost:
    """Q [m, n] of k = n(taus) vectors."""
    count, m, n = _matrices(node)
    return algebra.orthogonal(m, shape(source(node, 1), at_least=1)[-1], n) * count


def _svd(node: Node) -> Cost:
    count, m, n = _matrices(node)
    vectors = bool(node.attrs.get("compute_uv", 1))
    return algebra.svd(m, n, vectors, bool(node.attrs.get("full_matrices", 0))) * count


def _values(node: Node) -> Cost:
    count, m, n = _matrices(node)
    return algebra.svd(m, n, vectors=False, whole=False) * count


def _eigh(node: Node) -> Cost:
    count, n = _square(node)
    return algebra.eigen_symmetric(n, bool(node.attrs.get("compute_v", 1))) * count


def _eig(node: Node) -> Cost:
    count, n = _square(node)
    wanted = (node.attrs.get(name, 0) for name in ("compute_v", "compute_left_eigenvectors",
                                                   "compute_right_eigenvectors"))  # fmt: skip
    return algebra.eigen(n, any(wanted)) * count


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


def _transform(axes: int, inverse: bool) -> Formula:
    return lambda node: transformed(node, axes, inverse)


def _fft_of_jax(node: Node) -> Cost:
    """`fft_type` is the name of the kind: FFT, IFFT, RFFT or IRFFT. jax/_src/lax/fft.py"""
    lengths = node.attrs.get("fft_lengths")
    kind = str(node.attrs.get("fft_type", ""))
    if not isinstance(lengths, tuple) or not kind:
        raise ValueError(f"{node.op} has no fft_lengths or no fft_type")
    return transformed(node, len(lengths), inverse=kind.startswith("I"))


def _absolute(node: Node) -> Cost:
    """|z| of complex numbers: 2 muls, an add and a root each; of real ones a compare."""
    if source(node, 0).dtype.startswith("complex"):
        return Cost(muls=2, adds=1, specials=1) * out_size(node)
    return Cost(compares=out_size(node))


def _added(node: Node) -> Cost:
    """One add for each element that is brought to its place."""
    return Cost(adds=size(node, 2 if len(node.inputs) > 2 else 0))


def _summed(node: Node) -> Cost:
    """Segments: one add for each element of the data, from a start of zeros. data [N, ...]"""
    return Cost(adds=size(node))


def _compared(node: Node) -> Cost:
    return Cost(compares=size(node))


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


def _filter_gradient(node: Node) -> Cost:
    """dW of a convolution: every output gradient meets every weight of its filter once.

    n(dY) * prod(kernel) * C / groups MACs: out_backprop [N, ..., K], result [..., C / groups, K].
    """
    *kernel, inputs, _ = shape(result(node), at_least=3)
    return Cost(macs=size(node, 2) * prod(kernel) * inputs)


def _depthwise_gradient(node: Node) -> Cost:
    """dW or dX of a depthwise convolution: n(dY) * prod(kernel) MACs. The filter is [h, w, C, M].

    The filter is the result, or the second input where the gradient is that of the input.
    """
    is_filter = node.op.type.endswith("BackpropFilter")
    dims = shape(result(node) if is_filter else source(node, 1), rank=4)
    return Cost(macs=size(node, 2) * prod(dims[:2]))


def _gate_gradient(node: Node) -> Cost:
    """dY where X > 0, else 0: n compares."""
    return Cost(compares=out_size(node))


def _slope(node: Node) -> Cost:
    """dY * Y * (1 - Y) of a sigmoid, dY * (1 - Y^2) of tanh: 2 muls and a sub each."""
    return Cost(muls=2, adds=1) * out_size(node)


def _bias_gradient(node: Node) -> Cost:
    return Cost(adds=folded(size(node), out_size(node)))


def _running_product(node: Node) -> Cost:
    return Cost(muls=out_size(node))


_LU = "n(n-1)/2 divs, (n-1)n(2n-1)/6*(mul, sub)"
_CHOLESKY = "n roots, n(n-1)/2 divs, (n^3-n)/6*(mul, sub)"
_SOLVE = f"{_LU}, then per column n(n-1)*(mul, sub), n divs"
_INVERSE = "n^2 divs, n(n-1)^2*(mul, sub)"
_DET = f"{_LU}, n-1 muls"
_TRIANGULAR = "per column n(n-1)/2*(mul, sub), n divs unless the diagonal is 1"
_QR = "Householder: step s, L = m-s: L muls, L adds, sqrt, L divs, (2L-1)*(mul, add) per column"
_Q = "Householder backwards: step s, L = m-s: (2L-1)*(mul, add) per column from s on"
_SVD = "Golub-Reinsch: 4mn^2-4n^3/3; U, V: 14mn^2+8n^3; all of U: 4m^2n+8mn^2+9n^3; half muls"
_EIGH = "QR: 4n^3/3; vectors: 9n^3; half muls"
_EIG = "QR: 10n^3; vectors: 25n^3; half muls"
_FFT = "per axis rows * N*ceil(log2 N)*(2 muls, 3 adds), half if real; inverse: 2N divs"
_MOVED = "0: data movement"
_Row = tuple[str, Formula, str]

# jax.numpy and jax.lax: primitives by their names, functions by the file in jax/_src and theirs.
_OF_JAX: tuple[_Row, ...] = (
    ("lu", _lu, _LU),
    ("cholesky", _each(algebra.cholesky), _CHOLESKY),
    ("triangular_solve", _triangular, _TRIANGULAR),
    ("qr", _qr, _QR),
    ("geqrf", _reflectors, _QR),
    ("householder_product", _orthogonal, _Q),
    ("svd", _svd, _SVD),
    ("eigh", _eigh, _EIGH),
    ("eig", _eig, _EIG),
    ("fft", _fft_of_jax, _FFT),
    ("numpy/linalg.cholesky", _each(algebra.cholesky), _CHOLESKY),
    ("numpy/linalg.solve", _solve, _SOLVE),
    ("numpy/linalg.inv", _each(algebra.inverse), _INVERSE),
    ("numpy/linalg.det", _each(algebra.determinant), _DET),
    ("numpy/linalg.qr", _qr, _QR),
    ("numpy/linalg.eigh", _eigh, _EIGH),
)
# Primitives of JAX that move numbers, for which jax2onnx forgets that complex ones have two parts.
COMPLEX_MOVES = (
    "transpose", "reshape", "squeeze", "broadcast_in_dim", "slice", "dynamic_slice",
    "dynamic_update_slice", "concatenate", "gather", "pad", "select_n", "copy", "rev", "split",
)  # fmt: skip
_MEASURED_OF_JAX: tuple[_Row, ...] = (
    *((f"complex_{name}", moved, _MOVED) for name in COMPLEX_MOVES),
    ("abs", _absolute, "n(Y) compares; complex: n(Y)*(2 muls, add, sqrt)"),
    ("scatter-add", _added, "n(updates) adds"),
    ("scatter", moved, _MOVED),
    ("lu_pivots_to_permutation", moved, _MOVED),
    ("rev", moved, _MOVED),
    ("lax/other.conv_general_dilated_patches", moved, _MOVED),
    (
        "image/scale._resize",
        resize,
        "linear: n(Y)*(2^d muls, 2^d - 1 adds); cubic: 4^d; as Resize",
    ),
)
_OF_TENSORFLOW: tuple[_Row, ...] = (
    ("Cholesky", _each(algebra.cholesky), _CHOLESKY),
    ("MatrixSolve", _solve, _SOLVE),
    ("MatrixInverse", _each(algebra.inverse), _INVERSE),
    ("MatrixTriangularSolve", _triangular, _TRIANGULAR),
    ("Lu", _lu, _LU),
    ("Qr", _qr, _QR),
    ("Svd", lambda node: _svd_of_tensorflow(node), _SVD),
    ("SelfAdjointEigV2", _eigh, _EIGH),
    ("Eig", _eig, _EIG),
    *(
        (f"{kind}{f'{axes}D' if axes > 1 else ''}", _transform(axes, kind.startswith("I")), _FFT)
        for kind in ("FFT", "IFFT", "RFFT", "IRFFT")
        for axes in (1, 2, 3)
    ),
)
_SEGMENTS = "n(data) adds"
_DW = "n(dY)*prod(kernel)*C/groups MACs"
_MEASURED_OF_TENSORFLOW: tuple[_Row, ...] = (
    ("ComplexAbs", _absolute, "n(Y)*(2 muls, add, sqrt)"),
    ("SegmentSum", _summed, _SEGMENTS),
    ("SegmentSumV2", _summed, _SEGMENTS),
    ("UnsortedSegmentSum", _summed, _SEGMENTS),
    ("UnsortedSegmentMax", _compared, "n(data) compares"),
    ("UnsortedSegmentMin", _compared, "n(data) compares"),
    ("Cumprod", _running_product, "n(x) muls"),
    ("Conv2DBackpropFilter", _filter_gradient, _DW),
    ("Conv3DBackpropFilterV2", _filter_gradient, _DW),
    ("DepthwiseConv2dNativeBackpropFilter", _depthwise_gradient, "n(dY)*prod(kernel) MACs"),
    ("DepthwiseConv2dNativeBackpropInput", _depthwise_gradient, "n(dY)*prod(kernel) MACs"),
    ("BiasAddGrad", _bias_gradient, "n(dY)-C adds"),
    ("ReluGrad", _gate_gradient, "n compares"),
    ("Relu6Grad", lambda node: _gate_gradient(node) * 2, "2n compares"),
    ("SigmoidGrad", _slope, "n*(2 muls, sub)"),
    ("TanhGrad", _slope, "n*(2 muls, sub)"),
    *(
        (name, moved, _MOVED)
        for name in (
            "ExtractImagePatches", "Roll", "ShapeN", "BroadcastGradientArgs", "Real", "Imag",
            "Complex",
        )
    ),
)  # fmt: skip
# Lists of tensors are handles, whose elements stay where they are.
_LISTS = (
    "EmptyTensorList", "TensorListReserve", "TensorListSetItem", "TensorListGetItem",
    "TensorListStack", "TensorListFromTensor", "TensorListPushBack", "TensorListPopBack",
    "TensorListLength", "TensorListElementShape",
)  # fmt: skip
_OF_TORCH: tuple[_Row, ...] = (
    ("linalg_cholesky", _each(algebra.cholesky), _CHOLESKY),
    ("linalg_cholesky_ex", _each(algebra.cholesky), _CHOLESKY),
    ("linalg_solve", _solve, _SOLVE),
    ("linalg_solve_ex", _solve, _SOLVE),
    ("_linalg_solve_ex", _solve, _SOLVE),
    ("linalg_inv", _each(algebra.inverse), _INVERSE),
    ("linalg_inv_ex", _each(algebra.inverse), _INVERSE),
    ("linalg_solve_triangular", _triangular, _TRIANGULAR),
    ("linalg_lu_factor_ex", _lu, _LU),
    ("linalg_qr", _qr, _QR),
    ("geqrf", _reflectors, _QR),
    ("linalg_householder_product", _orthogonal, _Q),
    ("_linalg_svd", _svd, _SVD),
    ("linalg_svd", lambda node: _svd_of_torch(node), _SVD),
    ("linalg_svdvals", _values, _SVD),
    ("linalg_eigh", _eigh, _EIGH),
    ("_linalg_eigh", _eigh, _EIGH),
    ("linalg_eig", lambda node: algebra.eigen(_square(node)[1], True) * _square(node)[0], _EIG),
)


def _svd_of_tensorflow(node: Node) -> Cost:
    """S, U and V: https://www.tensorflow.org/api_docs/python/tf/raw_ops/Svd"""
    count, m, n = _matrices(node)
    vectors = bool(integer(node, "compute_uv", 1))
    return algebra.svd(m, n, vectors, bool(integer(node, "full_matrices", 0))) * count


def _svd_of_torch(node: Node) -> Cost:
    """All of U unless `full_matrices` says otherwise."""
    count, m, n = _matrices(node)
    return algebra.svd(m, n, True, bool(node.attrs.get("full_matrices", 1))) * count


# In either layout; the sizes of a filter come as a list.
_REQUIRES = {
    **dict.fromkeys(
        (
            *("Conv2DBackpropFilter", "Conv3DBackpropFilterV2"),
            "DepthwiseConv2dNativeBackpropFilter",
        ),
        sizes("input[N,...] filter_sizes[_] out_backprop[N,...]"),
    ),
    "DepthwiseConv2dNativeBackpropInput": sizes(
        "input_sizes[_] filter[_,_,C,M] out_backprop[N,_,_,_]"
    ),
}


def _entries(
    rows: Iterable[_Row], domain: str, page: Callable[[str], str], estimate: bool, name: str = "{}"
) -> tuple[Entry, ...]:
    doubt = estimated if estimate else None
    return tuple(
        entry(
            name.format(type),
            formula,
            words,
            domain=domain,
            page=page(type),
            doubt=doubt,
            requires=_REQUIRES.get(type, ()),
        )
        for type, formula, words in rows
    )


_OF_LAX = ("fft", "abs", "scatter-add", "scatter", "rev")
_PAGE_OF = {"geqrf": "qr"}  # a primitive that has none of its own


def _page_of_jax(name: str) -> str:
    public = name.replace("/other", "").replace("/scale._", "/").replace("/", ".")
    if "/" not in name:
        place = "lax" if name in _OF_LAX or name.startswith("complex_") else "lax.linalg"
        bare = name.removeprefix("complex_")
        public = f"{place}.{_PAGE_OF.get(bare, bare).replace('-', '_')}"
    return f"{_JAX_PAGES}{public}.html"


def _page_of_tensorflow(name: str) -> str:
    return f"{_TF_PAGES}{name}"


def _page_of_torch(name: str) -> str:
    public = name.lstrip("_").removesuffix("_ex").replace("linalg_", "linalg.")
    return f"{TORCH_PAGES}{public}.html"


def _page_of_scipy(name: str) -> str:
    return f"https://docs.scipy.org/doc/scipy/reference/generated/scipy.{name}.html"


ENTRIES: tuple[Entry, ...] = (
    *_entries(_OF_JAX, JAX, _page_of_jax, estimate=True),
    *_entries(_MEASURED_OF_JAX, JAX, _page_of_jax, estimate=False),
    entry(
        "ragged_dot_general",
        _ragged,
        "[M, K] x [G, K, N]: n(Y)*K MACs; cut along K: M*K*N",
        domain=JAX,
        page=f"{_JAX_PAGES}lax.ragged_dot_general.html",
        doubt=bounded,
    ),
    *_entries(_OF_TENSORFLOW, TENSORFLOW, _page_of_tensorflow, estimate=True),
    *_entries(_MEASURED_OF_TENSORFLOW, TENSORFLOW, _page_of_tensorflow, estimate=False),
    *(
        entry(
            name,
            moved,
            _MOVED,
            domain=TENSORFLOW,
            page=_page_of_tensorflow(name),
            traffic="view",
        )
        for name in _LISTS
    ),
    *_entries(_OF_TORCH, TORCH, _page_of_torch, True, "aten.{}.default"),
    *_entries((("linalg.solve", _solve, _SOLVE),), SCIPY, _page_of_scipy, estimate=True),
)
