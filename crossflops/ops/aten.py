"""Operators of PyTorch for which ONNX has no form: the export keeps each as one opaque node.

A node has the tensors of the call as inputs, lists flattened, and its plain arguments as
attributes, by the names of PyTorch's schema (native_functions.yaml).
"""

from math import inf

from crossflops.core.cost import ZERO, Cost
from crossflops.core.graph import Node
from crossflops.ops.access import (
    folded,
    given,
    integer,
    number,
    out_size,
    result,
    shape,
    size,
    source,
)
from crossflops.ops.movement import DROPPED, moved
from crossflops.ops.operands import sizes
from crossflops.ops.rule import TORCH, TORCH_PAGES, Entry, bounded, entry

_SIGMOIDS_AND_TANHS = Cost(specials=5)


def lstm(node: Node) -> Cost:
    """aten.lstm.input: the LSTM of nn.LSTM, ht = Whr*(ot*tanh(ct)) where it projects.

    Per step, sample and cell of H units: 4*H*(I+P) MACs for the gates, P*H for the projection
    (P = H without one), with biases 2 adds per gate; per unit 3 muls, 1 add, 3 sigmoids, 2
    tanhs. In training what a layer gives to the next is dropped out. input [T, B, I], hx, then
    by layer and direction w_ih [4H, I], w_hh [4H, P], two biases, w_hr [P, H].
    https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html
    """
    layers = integer(node, "num_layers")
    directions = 2 if integer(node, "bidirectional") else 1
    biased = integer(node, "has_biases")
    first, second, _ = shape(source(node, 0), rank=3)
    size, rest = divmod(len(node.inputs) - 3, layers * directions)
    if rest or size not in ((4, 5) if biased else (2, 3)):
        raise ValueError(f"{node.op} has {len(node.inputs)} inputs for {layers} layers")
    each = ZERO
    for place in range(3, len(node.inputs), size):
        rows, inputs = shape(source(node, place), rank=2)
        carried = shape(source(node, place + 1), rank=2)[1]
        projection = carried * (rows // 4) if size in (3, 5) else 0
        each += Cost(macs=rows * (inputs + carried) + projection, adds=2 * rows if biased else 0)
        each += (Cost(muls=3, adds=1) + _SIGMOIDS_AND_TANHS) * (rows // 4)
    drops = integer(node, "train", 0) and number(node, "dropout", 0.0) > 0
    between = carried * directions * (layers - 1) if drops else 0
    return (each + DROPPED * between) * (first * second)


def embedding_bag(node: Node) -> Cost:
    """aten.embedding_bag: the rows of a table that n indices name, combined bag by bag.

    (n - bags)*D adds, for the largest compares; the mean takes bags*D divs, weights of samples
    n*D muls. An upper bound: what padding_idx leaves out is not known. weight [V, D].
    https://docs.pytorch.org/docs/stable/generated/torch.nn.EmbeddingBag.html
    """
    bags, width = shape(result(node), rank=2)
    combined = folded(size(node, 1), bags) * width
    mode = integer(node, "mode", 0)
    return Cost(
        adds=combined if mode < 2 else 0,
        compares=combined if mode == 2 else 0,
        divs=bags * width if mode == 1 else 0,
        muls=size(node, 1) * width if given(node, 3) else 0,
    )


def cdist(node: Node) -> Cost:
    """aten._cdist_forward: the p-norm of the differences of all pairs of rows.

    Per pair M subtractions; p = 2: M muls, M-1 adds, a root; p = 1: M signs, M-1 adds; p = inf:
    M signs, M-1 compares; p = 0: M compares, M-1 adds; else M signs, M+1 powers, M-1 adds.
    x1 [..., P, M], x2 [..., R, M], result [..., P, R].
    https://docs.pytorch.org/docs/stable/generated/torch.cdist.html
    """
    width = shape(source(node, 0), at_least=2)[-1]
    most = folded(width, 1)
    power = number(node, "p", 2.0)
    if power == 2:
        norm = Cost(muls=width, adds=most, specials=1)
    elif power == inf:
        norm = Cost(compares=width + most)
    elif power in (0, 1):
        norm = Cost(compares=width, adds=most)
    else:
        norm = Cost(compares=width, specials=width + 1, adds=most)
    return (Cost(adds=width) + norm) * out_size(node)


def sparse_addmm(node: Node) -> Cost:
    """aten._sparse_addmm: beta * C + alpha * A B, A sparse; at most the M*K*N MACs of a dense A.

    Shapes do not tell how many elements of A are there: an upper bound. C [M, N], A [M, K],
    B [K, N]. With beta other than 0 M*N adds, with beta or alpha other than 0 and 1 M*N muls each.
    https://docs.pytorch.org/docs/stable/generated/torch.sparse.addmm.html
    """
    rows, inner = shape(source(node, 1), rank=2)
    columns = shape(source(node, 2), rank=2)[1]
    beta, alpha = number(node, "beta", 1.0), number(node, "alpha", 1.0)
    scaled = (beta not in (0, 1)) + (alpha not in (0, 1))
    added = Cost(muls=scaled, adds=int(beta != 0)) * (rows * columns)
    return Cost(macs=rows * inner * columns) + added


_BAG = "(n - bags)*D adds, or compares; mean: bags*D divs; weights: n*D muls"

ENTRIES: tuple[Entry, ...] = (
    entry(
        "aten.lstm.input",
        lstm,
        "T*B*(4*H*(I+P) + P*H) MACs per layer and direction; biases: 2 adds per gate; "
        "T*B*H*(3 muls, 1 add, 3 sigmoids, 2 tanhs)",
        domain=TORCH,
        page=f"{TORCH_PAGES}nn.LSTM.html",
    ),
    *(
        entry(
            f"aten.embedding_bag.{overload}",
            embedding_bag,
            _BAG,
            domain=TORCH,
            page=f"{TORCH_PAGES}nn.EmbeddingBag.html",
            tables=(0,),
            doubt=bounded,
        )
        for overload in ("default", "padding_idx")
    ),
    entry(
        "aten.cumprod.default",
        lambda node: Cost(muls=out_size(node)),
        "n(x) muls",
        domain=TORCH,
        page=f"{TORCH_PAGES}cumprod.html",
    ),
    entry(
        "aten._cdist_forward.default",
        cdist,
        "n(result)*(M subs; p=2: M muls, M-1 adds, sqrt; see the docstring for other p)",
        domain=TORCH,
        page=f"{TORCH_PAGES}cdist.html",
    ),
    entry(
        "aten._sparse_addmm.default",
        sparse_addmm,
        "at most M*K*N MACs; beta: M*N adds; scaled: M*N muls",
        domain=TORCH,
        page=f"{TORCH_PAGES}sparse.addmm.html",
        doubt=bounded,
        requires=sizes("self mat1[M,K] mat2[K,N]"),
    ),
    *(
        entry(
            f"aten.{name}.default",
            moved,
            "0: data movement",
            domain=TORCH,
            page=f"{TORCH_PAGES}{page}.html",
        )
        for name, page in (
            ("_sparse_coo_tensor_with_dims_and_tensors", "sparse_coo_tensor"),
            ("copy", "Tensor.copy_"),
            ("select_scatter", "select_scatter"),
            ("slice_scatter", "slice_scatter"),
        )
    ),
)
