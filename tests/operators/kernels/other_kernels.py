"""Products of few bits, sums along indices, and boxes that suppress each other."""

# ruff: noqa: N803  the names that the operators have for their operands

import random
from functools import partial
from math import gcd, prod

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


def scatter_extreme_gradient(src, gradient, **_):
    """To the element that was chosen, and nothing to others."""
    chosen = torch.zeros(gradient.shape, dtype=torch.int64)
    return torch.zeros(src.shape).scatter(0, chosen, gradient)


def scatter_product_gradient(src, indptr, result, gradient, **_):
    """dY Y of the place of each element, by the element."""
    return (gradient * result).gather(0, indptr.expand_as(src)) / src


def sparse_rows(col, mat, rows, places, value=None, kind="sum", **_):
    """Rows of the other matrix that the elements name, by their values if there are any."""
    named = mat.index_select(0, places)
    if value is not None:
        named = named * value[:, None]
    index = (torch.arange(col.shape[0]) // (col.shape[0] // rows))[:, None].expand_as(named)
    return torch.zeros(rows, mat.shape[1]).scatter_reduce(0, index, named, kind)


def sparse_extreme_gradient(col, mat, gradient, chosen, value=None, **_):
    """Of each result to the element that was chosen: to its value, and to what that multiplied."""
    named = torch.zeros(gradient.shape, dtype=torch.int64)
    done = []
    to_matrix = gradient
    if value is not None:
        to_value = mat.gather(0, named) * gradient
        places = chosen.flatten()
        done.append(torch.zeros(value.shape).scatter_add(0, places, to_value.flatten()))
        to_matrix = value.index_select(0, places).view(gradient.shape) * gradient
    return *done, torch.zeros(mat.shape).scatter_add(0, named, to_matrix)


def sparse_product(col, value, mat, **_):
    """Each element that is stored by the row of the other matrix; rows are joined by a product.

    A row of the matrix with all elements stored is a product with as many rows as there are.
    """
    return value.view(-1, mat.shape[0]) @ mat


def _draw_sparse(draw: random.Random) -> Case:
    rows, depth, columns = (draw.randint(1, 4) for _ in range(3))
    tensors = {"col": (rows * depth,), "value": (rows * depth,), "mat": (depth, columns)}
    return Case(tensors, ("value", "mat"), [(rows, columns)])


def _draw_extremes(draw: random.Random) -> Case:
    return _draw_rows_of_matrix(draw, valued=draw.random() < 0.5)


def _draw_rows_of_matrix(draw: random.Random, valued: bool = False) -> Case:
    rows, each, depth, columns = (draw.randint(1, 4) for _ in range(4))
    stored = rows * each
    tensors = {"col": (stored,), "mat": (depth, columns)}
    if valued:
        tensors["value"] = (stored,)
    given = {
        "rows": rows,
        "places": torch.tensor([draw.randrange(depth) for _ in range(stored)]),
        "chosen": torch.tensor([draw.randrange(stored) for _ in range(rows * columns)])
        .view(rows, columns),
    }  # fmt: skip
    wanted = ("value", "mat") if valued else ("mat",)
    return Case(tensors, wanted, [(rows, columns)], {}, {}, given)


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


def int8_linear(A, B, SCB, row_stats, bias=None, **_):
    """Rows that are quantized, and their product with a matrix that is stored so."""
    rows = torch.round(A * torch.reciprocal(A.abs().amax(-1, keepdim=True)))
    return int8_product(rows, B, bias, row_stats, SCB)


def int8_linear_gradient(A, B, SCB, gradient, bias=None, **_):
    """dY by the matrix with its scales, which are multiplied again; rows summed for a bias."""
    done = gradient @ (B * SCB[:, None] * (1 / 127))
    rows = tuple(range(gradient.dim() - 1))
    return done if bias is None else (done, gradient.sum(rows))


def _draw_int8_linear(draw: random.Random) -> Case:
    rows, depth, outputs = _matrices(draw)
    tensors = {
        "A": (*rows, depth),
        "B": (outputs, depth),
        "SCB": (outputs,),
        "row_stats": (prod(rows),),
    }
    biased = draw.random() < 0.5
    if biased:
        tensors["bias"] = (outputs,)
    wanted = ("A", "bias") if biased else ("A",)
    return Case(tensors, wanted, [(*rows, outputs)], {"threshold": 0.0})


def region_maxima(input, rois, spatial_scale, pooled_height, pooled_width, **_):
    """Regions that are the whole picture; cells next to each other share a row and a column."""
    left, top, right, bottom = torch.round(rois * spatial_scale).split(1, 1)
    one = torch.ones(1)
    sides = [
        torch.maximum(last - first + 1, one) / float(cells)
        for first, last, cells in ((top, bottom, pooled_height), (left, right, pooled_width))
    ]
    least = torch.full(input.shape[1:2], -3.4e38)
    cells = [
        torch.maximum(input[0, :, rows, columns].amax((1, 2)), least)
        for _ in range(rois.shape[0])
        for rows in _cells(input.shape[2], pooled_height)
        for columns in _cells(input.shape[3], pooled_width)
    ]
    return sides, cells


def _cells(size: int, count: int) -> list[slice]:
    """Return the pixels of each of so many cells of a side: from its floor to its ceiling."""
    return [
        slice(index * size // count, -(-(index + 1) * size // count)) for index in range(count)
    ]


def region_maxima_gradient(input, gradient, chosen, **_):
    """Added at the pixel that was chosen."""
    zeros = torch.zeros(input.numel())
    return zeros.scatter_add(0, chosen, gradient.flatten())


def _draw_region_maxima(draw: random.Random) -> Case:
    """Sizes of a picture of which no cell but the last ends at a whole pixel."""
    sides = [(size, cells) for size in range(1, 6) for cells in range(1, 5)
             if gcd(size, cells) == 1]  # fmt: skip
    (height, tall), (width, wide) = draw.choice(sides), draw.choice(sides)
    channels, regions = draw.randint(1, 3), draw.randint(1, 3)
    shape = draw.randint(1, 2), channels, height, width
    results = regions, channels, tall, wide
    attributes = {"spatial_scale": 0.5, "pooled_height": tall, "pooled_width": wide}
    chosen = torch.tensor([draw.randrange(prod(shape)) for _ in range(prod(results))])
    tensors = {"input": shape, "rois": (regions, 4)}
    return Case(tensors, ("input",), [results], attributes, {}, {"chosen": chosen})


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


_INDEX = {"indptr": "index"}
_PACKED = {
    "_C::awq_gemm": "_in_feats",
    "_C::gptq_gemm": "a",
    "_C::marlin_gemm": "a",
    "_C::machete_mm": "A",
    "_C::allspark_w8a16_gemm": "a",
    "_C::ggml_mul_mat_a8": "X",
    "_C::ggml_mul_mat_vec_a8": "X",
    "torchao::quant_llm_linear": "fpx_input",
    "torchao::rowwise_scaled_linear_cutlass_s8s4": "Xq",
    "torchao::rowwise_scaled_linear_cutlass_s4s4": "Xq",
    "torchao::marlin_24_gemm": "x",
    "torchao::marlin_qqq_gemm": "x",
    "fbgemm::f8f8bf16_rowwise": "XQ",
    "fbgemm::f8f8bf16_blockwise": "XQ",
    "fbgemm::i8i8bf16": "XQ",
}


def plain_product(input, weight, bias=None, **_):
    """A float product of what few bits mean; scales are in the weight."""
    done = input @ weight.transpose(0, 1)
    return done if bias is None else done + bias


def _draw_plain(draw: random.Random) -> Case:
    rows, depth, outputs = _matrices(draw)
    tensors = {"input": (*rows, depth), "weight": (outputs, depth)}
    if draw.random() < 0.5:
        tensors["bias"] = (outputs,)
    return Case(tensors, (), [(*rows, outputs)])


def codes_by_scale(A, absmax, **_):
    """The values of codes, by the scale of their block."""
    return A * absmax


def rows_by_scale(A, absmax, **_):
    """Whole numbers by the scale of their row and 1/127."""
    return A * absmax * (1 / 127)


def _draw_codes(draw: random.Random) -> Case:
    rows, columns = draw.randint(1, 5), draw.randint(1, 5)
    return Case({"A": (rows, columns), "absmax": (rows, 1)}, (), [(rows, columns)])


class FrozenProduct(torch.autograd.Function):
    """A product with a weight that is scaled in both passes, and not trained."""

    @staticmethod
    def forward(ctx, rows, codes, scales):
        """Return x (codes * scales)^T."""
        ctx.save_for_backward(codes, scales)
        return rows @ (codes * scales).transpose(0, 1)

    @staticmethod
    def backward(ctx, gradient):
        """Scale the weight again."""
        codes, scales = ctx.saved_tensors
        return gradient @ (codes * scales), None, None


def trained_4bit(A, B, scales, bias=None, **_):
    """The function of bitsandbytes."""
    done = FrozenProduct.apply(A, B, scales)
    return done if bias is None else done + bias


def _draw_trained_4bit(draw: random.Random) -> Case:
    rows, depth, outputs = _matrices(draw)
    tensors = {"A": (*rows, depth), "B": (outputs, depth), "scales": (outputs, 1)}
    wanted = ["A"]
    if draw.random() < 0.5:
        tensors["bias"] = (outputs,)
        wanted.append("bias")
    return Case(tensors, tuple(wanted), [(*rows, outputs)])


def grouped_product(first, second, **_):
    """A product for each group."""
    return first @ second


def _draw_groups(draw: random.Random) -> Case:
    groups, rows, depth, columns = (draw.randint(1, 4) for _ in range(4))
    tensors = {"first": (groups, rows, depth), "second": (groups, depth, columns)}
    return Case(tensors, (), [(groups, rows, columns)])


def gather_rows(src, indptr, **_):
    """Rows by their indices; a gradient is added where its row was."""
    return src.index_select(0, indptr.flatten())


def _draw_gather(draw: random.Random) -> Case:
    count, width = draw.randint(1, 5), draw.randint(1, 3)
    tensors = {"src": (4, width), "indptr": (count, 1)}
    places = tuple(draw.randrange(4) for _ in range(count))
    return Case(tensors, ("src",), [(count, width)], {}, {"indptr": places})


def int8_mixed(A, B, bias=None, row_stats=None, col_stats=None, **_):
    """As int8_product, with all columns once more in float."""
    done = int8_product(A, B, None, row_stats, col_stats) + A @ B.transpose(0, 1)
    return done if bias is None else done + bias


def mean_of_segments(src, indptr, counts, **_):
    """The sum at each place by the number of its elements."""
    return scatter(src, indptr) / counts


def _draw_means(draw: random.Random) -> Case:
    case = _draw_scatter(draw)
    return case._replace(given={"counts": torch.ones(case.results[0])})


def mean_of_rows(col, value, mat, **_):
    """The product, by how many elements a row has."""
    return sparse_product(col, value, mat) / float(mat.shape[0])


def sparse_convolution(features, filters, places, height, indice_pair_num=None, bias=None, **_):
    """For each offset of the kernel a product of the rows that have a pair, added to theirs.

    All rows are gathered and added at once, as features are read once by a kernel.
    """
    outputs, channels = filters.shape[0], filters.shape[-1]
    weights = filters.view(outputs, -1, channels).split(1, 1)
    taken, added = (torch.tensor([at for pair in places for at in pair[k]]) for k in (0, 1))
    rows = features.index_select(0, taken).split([len(pair[0]) for pair in places])
    done = [
        part @ weight.squeeze(1).transpose(0, 1)
        for part, weight in zip(rows, weights, strict=True)
    ]
    total = torch.zeros(height, outputs).index_add(0, added, torch.cat(done))
    return total if bias is None else total + bias


def _draw_pairs(draw: random.Random) -> Case:
    count, height, offsets = draw.randint(1, 4), draw.randint(1, 4), draw.randint(1, 3)
    channels, outputs = draw.randint(1, 3), draw.randint(1, 3)
    numbers = tuple(draw.randint(1, 4) for _ in range(offsets))
    places = [
        ([draw.randrange(count) for _ in range(n)], [draw.randrange(height) for _ in range(n)])
        for n in numbers
    ]
    tensors = {
        "features": (count, channels),
        "filters": (outputs, offsets, channels),
        "indice_pair_num": (offsets,),
    }
    wanted = ["features", "filters"]
    if draw.random() < 0.5:
        tensors["bias"] = (outputs,)
        wanted.append("bias")
    given = {"places": places, "height": height}
    values = {"indice_pair_num": numbers}
    return Case(tensors, tuple(wanted), [(height, outputs)], {}, values, given)


KERNELS = [
    Kernel(
        "bitsandbytes::int8_linear_matmul",
        _draw_product(False),
        int8_product,
        False,
        {"aten::_scaled_mm_v2": {}},
    ),
    Kernel(
        "aten::_mixed_dtypes_linear",
        _draw_plain,
        plain_product,
        False,
        {name: {"input": first} for name, first in _PACKED.items()},
    ),
    Kernel(
        "bitsandbytes::dequantize_4bit",
        _draw_codes,
        codes_by_scale,
        False,
        {"bitsandbytes::dequantize_blockwise": {}},
    ),
    Kernel("bitsandbytes::int8_vectorwise_dequant", _draw_codes, rows_by_scale, False),
    Kernel("bitsandbytes::MatMul4Bit", _draw_trained_4bit, trained_4bit),
    Kernel(
        "aten::_scaled_grouped_mm",
        _draw_groups,
        grouped_product,
        False,
        {"aten::_scaled_grouped_mm_v2": {}},
    ),
    Kernel("bitsandbytes::int8_scaled_mm", _draw_product(True), int8_product, False),
    Kernel("bitsandbytes::int8_mm_dequant", _draw_scales, int8_scales, False),
    Kernel("bitsandbytes::int8_vectorwise_quant", _draw_rows, int8_rows, False),
    Kernel("bitsandbytes::gemm_4bit", _draw_4bit(False), product_4bit, False),
    Kernel("bitsandbytes::gemv_4bit", _draw_4bit(False), product_4bit, False),
    Kernel(
        "torch_scatter::segment_sum_csr",
        _draw_scatter,
        scatter,
        others={"torch_scatter::segment_sum_coo": _INDEX, "torch_scatter::scatter_sum": _INDEX},
    ),
    Kernel("bitsandbytes::int8_mixed_scaled_mm", _draw_product(True), int8_mixed, False),
    Kernel(
        "torch_scatter::segment_mean_csr",
        _draw_means,
        mean_of_segments,
        others={"torch_scatter::segment_mean_coo": _INDEX, "torch_scatter::scatter_mean": _INDEX},
    ),
    *(
        Kernel(
            f"torch_scatter::scatter_{kind}",
            _draw_scatter,
            partial(scatter, kind=kind),
            others={
                f"torch_scatter::segment_{kind}_coo": _INDEX,
                f"torch_scatter::segment_{kind}_csr": {},
            },
            gradient=scatter_extreme_gradient,
        )
        for kind in ("min", "max")
    ),
    Kernel(
        "torch_scatter::scatter_mul",
        _draw_scatter,
        partial(scatter, kind="mul"),
        gradient=scatter_product_gradient,
    ),
    *(
        Kernel(
            f"torch_sparse::spmm_{kind}",
            _draw_extremes,
            partial(sparse_rows, kind=f"a{kind}"),
            gradient=sparse_extreme_gradient,
        )
        for kind in ("min", "max")
    ),
    Kernel("torch_sparse::spmm_sum", _draw_rows_of_matrix, sparse_rows),
    Kernel(
        "bitsandbytes::MatMul8bitLt",
        _draw_int8_linear,
        int8_linear,
        gradient=int8_linear_gradient,
    ),
    Kernel(
        "torchvision::roi_pool",
        _draw_region_maxima,
        region_maxima,
        gradient=region_maxima_gradient,
    ),
    Kernel("torch_sparse::spmm_mean", _draw_sparse, mean_of_rows),
    Kernel(
        "spconv::SubMConvFunction",
        _draw_pairs,
        sparse_convolution,
        others={
            "spconv::SparseConvFunction": {},
            "spconv::SparseInverseConvFunction": {},
            "spconv::SparseImplicitGemmFunction": {},
        },
    ),
    Kernel(
        "torch_scatter::gather_csr",
        _draw_gather,
        gather_rows,
        others={"torch_scatter::gather_coo": _INDEX},
    ),
    Kernel("torch_sparse::spmm_sum", _draw_sparse, sparse_product),
    Kernel("pyg::segment_matmul", _draw_segments, segment_product),
]
