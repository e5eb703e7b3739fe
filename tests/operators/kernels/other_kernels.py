"""Products of few bits, sums along indices, and boxes that suppress each other."""

# ruff: noqa: N803  the names that the operators have for their operands

import random
from math import prod

import torch

from tests.operators.kernels.calls import Case, Kernel


def _matrices(draw):
    rows = tuple(draw.randint(1, 3) for _ in range(draw.randint(1, 2)))
    depth, outputs = draw.randint(1, 5), draw.randint(1, 5)
    return rows, depth, outputs


def int8_product(A, B, bias=None, row_stats=None, col_stats=None, **_):
    """A float product, scales, a bias."""
    done = A @ B.transpose(0, 1)
    if row_stats is not None:
        done = done * row_stats.view(*A.shape[:-1], 1) * col_stats * (1 / 127**2)
    return done if bias is None else done + bias


def _draw_product(scaled: bool):
    def draw_call(draw: random.Random) -> Case:
        rows, depth, outputs = _matrices(draw)
        tensors = {"A": (*rows, depth), "B": (outputs, depth)}
        if scaled:
            tensors |= {"row_stats": (prod(rows),), "col_stats": (outputs,)}
            if draw.random() < 0.5:
                tensors["bias"] = (outputs,)
        return Case(tensors, (), [(*rows, outputs)])

    return draw_call


def int8_scales(A, row_stats, col_stats, bias=None, **_):
    """Whole numbers by the scales of their row and column."""
    done = A * row_stats[:, None] * col_stats * (1 / 127**2)
    return done if bias is None else done + bias


def _draw_scales(draw: random.Random) -> Case:
    rows, columns = draw.randint(1, 5), draw.randint(1, 5)
    tensors = {"A": (rows, columns), "row_stats": (rows,), "col_stats": (columns,)}
    if draw.random() < 0.5:
        tensors["bias"] = (columns,)
    return Case(tensors, (), [(rows, columns)])


def int8_rows(A, threshold=0.0, **_):
    """Rows by 127 and their greatest |x|, rounded."""
    sizes = A.abs()
    done = torch.round(A * torch.reciprocal(sizes.amax(-1, keepdim=True)))
    return done, (sizes > threshold if threshold else done)


def _draw_rows(draw: random.Random) -> Case:
    rows, depth, _ = _matrices(draw)
    attributes = {"threshold": draw.choice([0.0, 6.0])}
    return Case({"A": (*rows, depth)}, (), [(*rows, depth)], attributes)


def product_4bit(A, B, bias=None, shapeB=(), absmax=None, **_):
    """Codes that were looked up by the scale of their block, and a float product."""
    weight = B.view(shapeB) * absmax.view(-1, 1)
    done = A @ weight.transpose(0, 1)
    return done if bias is None else done + bias


def _draw_4bit(train: bool):
    def draw_call(draw: random.Random) -> Case:
        rows, depth, outputs = _matrices(draw)
        tensors = {"A": (*rows, depth), "B": (outputs * depth,), "absmax": (outputs,)}
        if draw.random() < 0.5:
            tensors["bias"] = (outputs,)
        attributes = {"shapeB": (outputs, depth)}
        return Case(tensors, (), [(*rows, outputs)], attributes)

    return draw_call


def scatter(src, indptr, kind="sum", **_):
    """Each element meets what is at its place in a field of zeros."""
    names = {"sum": "sum", "mul": "prod", "min": "amin", "max": "amax"}
    places = indptr.expand_as(src)
    zeros = torch.zeros(4, *src.shape[1:])
    return zeros.scatter_reduce(0, places, src, names[kind])


def _draw_scatter(draw: random.Random) -> Case:
    count, width = draw.randint(1, 5), draw.randint(1, 3)
    tensors = {"src": (count, width), "indptr": (count, 1)}
    places = tuple(draw.randrange(4) for _ in range(count))
    return Case(tensors, ("src",), [(4, width)], {}, {"indptr": places})


def sparse_product(col, value, mat, **_):
    """Each element that is stored by the row of the other matrix; rows are joined by a product.

    A row of the matrix with all elements stored is a product with as many rows as there are.
    """
    return value.view(-1, mat.shape[0]) @ mat


def _draw_sparse(draw: random.Random) -> Case:
    rows, depth, columns = (draw.randint(1, 4) for _ in range(3))
    tensors = {"col": (rows * depth,), "value": (rows * depth,), "mat": (depth, columns)}
    return Case(tensors, ("value", "mat"), [(rows, columns)])


def segment_product(input, other, lengths, **_):
    """The rows of each segment by its matrix."""
    parts = zip(input.split(list(lengths)), other.split(1), strict=True)
    return [rows @ matrix.squeeze(0) for rows, matrix in parts]


def _draw_segments(draw: random.Random) -> Case:
    lengths = tuple(draw.randint(1, 3) for _ in range(draw.randint(1, 3)))
    depth, columns = draw.randint(1, 4), draw.randint(1, 4)
    tensors = {"input": (sum(lengths), depth), "other": (len(lengths), depth, columns)}
    given = {"lengths": lengths}
    return Case(tensors, ("input", "other"), [(sum(lengths), columns)], {}, {}, given)


def nms_pairs(dets, first, second, **_):
    """All pairs of boxes, none of them suppressed; their order is sorted before."""
    left, top, right, bottom = dets.split(1, 1)
    areas = (right - left) * (bottom - top)
    (a, b) = (dets.index_select(0, index).split(1, 1) for index in (first, second))
    zero = torch.zeros(1)
    wide = torch.maximum(torch.minimum(a[2], b[2]) - torch.maximum(a[0], b[0]), zero)
    tall = torch.maximum(torch.minimum(a[3], b[3]) - torch.maximum(a[1], b[1]), zero)
    both = wide * tall
    union = areas.index_select(0, first) + areas.index_select(0, second) - both
    return both / union > 0.5


KERNELS = [
    Kernel("bitsandbytes::int8_linear_matmul", _draw_product(False), int8_product, False),
    Kernel("bitsandbytes::int8_scaled_mm", _draw_product(True), int8_product, False),
    Kernel("bitsandbytes::int8_mm_dequant", _draw_scales, int8_scales, False),
    Kernel("bitsandbytes::int8_vectorwise_quant", _draw_rows, int8_rows, False),
    Kernel("bitsandbytes::gemm_4bit", _draw_4bit(False), product_4bit, False),
    Kernel("bitsandbytes::gemv_4bit", _draw_4bit(False), product_4bit, False),
    Kernel("torch_scatter::segment_sum_csr", _draw_scatter, scatter),
    Kernel("torch_sparse::spmm_sum", _draw_sparse, sparse_product),
    Kernel("pyg::segment_matmul", _draw_segments, segment_product),
]
