"""Write substitute nodes for matrix products, and for convolutions and pools in any layout."""

from collections.abc import Callable, Mapping

from crossflops.frontends.onnx.stand_ins.draft import INT32, SubstituteDraft


def _matmul_operand(draft: SubstituteDraft, index: int, side: str) -> str | None:
    """Return the name of an input transposed as a MatMul needs it, or None if that is unknown."""
    name = draft.input(index)
    last, batch = draft.integer(f"trans{side}"), draft.integer(f"transBatch{side}")
    if not last and not batch:
        return name
    dims = draft.shape(index)
    if dims is None:
        if batch or draft.opset < 12:
            return None
        return draft.add_node("Einsum", (name,), equation="...ij->...ji")
    if len(dims) < 2:
        return name
    order = list(range(len(dims)))
    if batch:
        order = [*order[1:-1], order[0], order[-1]]
    if last:
        order[-2:] = reversed(order[-2:])
    return draft.add_node("Transpose", (name,), perm=order)


def write_fused_matmul_shape(draft: SubstituteDraft) -> None:
    """Add to the draft a MatMul with the output shape of FusedMatMul or a similar operator."""
    left, right = _matmul_operand(draft, 0, "A"), _matmul_operand(draft, 1, "B")
    if left is None or right is None:
        draft.nodes.clear()
        return
    draft.add_node("MatMul", (left, right), draft.output(0))


def matmul_shape_writer(
    right: int, dtype: Callable[[SubstituteDraft], int] | None = None
) -> Callable[[SubstituteDraft], None]:
    """Return a function that adds a MatMul of inputs 0 and `right`, cast to `dtype` if given."""

    def write_matmul_shape(draft: SubstituteDraft) -> None:
        """Add to the draft a MatMul with the output shape and element type of the draft's node."""
        operands = (draft.input(0), draft.input(right))
        if dtype is None:
            draft.add_node("MatMul", operands, draft.output(0))
        else:
            draft.add_cast(draft.add_node("MatMul", operands), draft.output(0), dtype(draft))

    return write_matmul_shape


def nbits_matmul_shape_writer(depth: str = "K", *widths: str) -> Callable[[SubstituteDraft], None]:
    """Return a function that adds products of input 0 with weights sized by attributes."""

    def write_nbits_matmul_shape(draft: SubstituteDraft) -> None:
        """Add to the draft a MatMul for each output, with weights whose sizes are attributes of
        the node.
        """
        for index, width in enumerate(widths):
            if draft.output(index):
                weights = draft.add_filled_tensor((draft.integer(depth), draft.integer(width)))
                draft.add_node("MatMul", (draft.input(0), weights), draft.output(index))
        if draft.output(len(widths)):
            draft.add_node("Identity", (draft.input(0),), draft.output(len(widths)))

    return write_nbits_matmul_shape


def write_bnb4_matmul_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of MatMulBnb4; its weights
    are [N, K] by default.
    """
    sizes = (draft.integer("K"), draft.integer("N"))
    weights = draft.add_filled_tensor(sizes if draft.integer("transB", 1) else sizes[::-1])
    draft.add_node("MatMul", (draft.input(0), weights), draft.output(0))


def write_block_quantized_matmul_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers MatMulBlockQuantized*'s output shape: [..., K]
    and [N, K] -> [..., N].
    """
    dims, weights = draft.shape(0), draft.shape(1)
    if dims is not None and weights is not None:
        draft.add_filled_tensor((*dims[:-1], weights[0]), draft.output(0), draft.dtype(0))


def gemm_shape_writer(
    left: int, right: int, dtype: Callable[[SubstituteDraft], int]
) -> Callable[[SubstituteDraft], None]:
    """Return a function that adds a Gemm of inputs `left` and `right`, cast to `dtype`."""

    def write_gemm_shape(draft: SubstituteDraft) -> None:
        """Add to the draft a Gemm with the output shape and element type of the draft's node."""
        operands = [draft.add_cast(draft.input(i), "", 1) for i in (left, right)]
        product = draft.add_node_with_attributes("Gemm", operands, "", ("transA", "transB"))
        draft.add_cast(product, draft.output(0), dtype(draft))

    return write_gemm_shape


def _input_dtype_reader(index: int) -> Callable[[SubstituteDraft], int]:
    """Return a function that gives the element type of a draft's input at this index."""
    return lambda draft: draft.dtype(index)


def _qgemm_dtype(draft: SubstituteDraft) -> int:
    """Return the element type of a QGemm's output: that of its zero point, or float."""
    return draft.dtype(8, 2) if draft.input(7) else 1


_PRODUCTS_WRITERS: Mapping[str, Callable[[SubstituteDraft], None]] = {
    **dict.fromkeys(
        ("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation"), write_fused_matmul_shape
    ),
    **dict.fromkeys(("GemmFastGelu", "DynamicQuantizeMatMul"), matmul_shape_writer(1)),
    "MatMulIntegerToFloat": matmul_shape_writer(1, _input_dtype_reader(2)),
    "MatMulInteger16": matmul_shape_writer(1, lambda _: INT32),
    "QOrderedMatMul": matmul_shape_writer(2),
    "MatMulNBits": nbits_matmul_shape_writer("K", "N"),
    "MatMulNBitsMlp": nbits_matmul_shape_writer("K", "N"),
    "MatMulNBitsQkv": nbits_matmul_shape_writer("K", "Nq", "Nkv", "Nkv"),
    "MatMulBnb4": write_bnb4_matmul_shape,
    **dict.fromkeys(
        ("MatMulBlockQuantizedFp8Weight", "MatMulBlockQuantizedFp4Weight"),
        write_block_quantized_matmul_shape,
    ),
    "FusedGemm": gemm_shape_writer(0, 1, _input_dtype_reader(0)),
    "GemmFloat8": gemm_shape_writer(0, 1, lambda draft: draft.integer("dtype", 1)),
    "QGemm": gemm_shape_writer(0, 3, _qgemm_dtype),
}


# Stand-ins for convolutions and pools, in any layout.

_WINDOW = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")
_CONV = (*_WINDOW, "group")
_POOL = (*_WINDOW, "ceil_mode", "count_include_pad", "storage_order", "p")
_TRANSPOSED = (*_CONV, "output_padding", "output_shape")
_NHWC = "com.ms.internal.nhwc"
_BLOCK = 8  # channels in the shortest block; others are 16 long


def _spatial_rank(draft: SubstituteDraft, weight: int | None) -> int:
    """Return the number of spatial axes of a convolution or pool, 2 if it is unknown."""
    if kernel := draft.integers("kernel_shape"):
        return len(kernel)
    for index in (weight, 0):
        dims = draft.shape(index) if index is not None else None
        if dims is not None:
            return len(dims) - 2
    return 2


def _window_shape_writer(
    op: str, names: tuple[str, ...], weight: int | None = None, last: bool | None = None
) -> Callable[[SubstituteDraft], None]:
    """Return a function that adds a convolution or pool, also for channels-last data."""

    def write_convolution_or_pool_shape(draft: SubstituteDraft) -> None:
        """Add to the draft a convolution or pool; between transposes if the channels are the last
        axis.
        """
        data, indices = draft.input(0), _spatial_rank(draft, weight)
        turned = draft.integer("channels_last") != 0 if last is None else last
        turned = turned or draft.node.domain == _NHWC
        if turned:
            data = draft.add_node(
                "Transpose", (data,), perm=(0, indices + 1, *range(1, indices + 1))
            )
        operands = (data,) if weight is None else (data, draft.input(weight))
        if not turned:
            draft.add_node_with_attributes(op, operands, draft.output(0), names)
            return
        result = draft.add_node_with_attributes(op, operands, "", names)
        order = (0, *range(2, indices + 2), 1)
        draft.add_node("Transpose", (result,), draft.output(0), perm=order)

    return write_convolution_or_pool_shape


def write_nhwc_conv_shape(draft: SubstituteDraft) -> None:
    """Add to the draft a Conv between transposes with the output shape of NhwcConv, for both
    weight layouts.
    """
    data, weight = draft.shape(0), draft.shape(1)
    turned = draft.input(1)
    if data and weight and len(weight) > 2:
        window, kernel = weight[1:-1], draft.integers("kernel_shape")
        inside = weight[-1] * draft.integer("group", 1)
        if inside == data[-1] and kernel in ((), window):
            order = (0, len(weight) - 1, *range(1, len(weight) - 1))
            turned = draft.add_node("Transpose", (turned,), perm=order)
    indices = _spatial_rank(draft, 1)
    first = draft.add_node(
        "Transpose", (draft.input(0),), perm=(0, indices + 1, *range(1, indices + 1))
    )
    result = draft.add_node_with_attributes("Conv", (first, turned), "", _CONV)
    draft.add_node("Transpose", (result,), draft.output(0), perm=(0, *range(2, indices + 2), 1))


def write_reorder_input_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers ReorderInput's output shape: [N, C, H, W] with
    C padded for its Conv.

    Without a convolution the channels must fill their blocks, whose length depends on the
    processor.
    """
    dims = draft.shape(0)
    if dims is None or len(dims) < 2:
        return
    last = draft.integer("channels_last") != 0
    channels = dims[-1] if last else dims[1]
    indices = dims[1:-1] if last else dims[2:]
    taken = _convolution_channels(draft) or (channels if channels % _BLOCK == 0 else None)
    if taken is not None:
        draft.add_filled_tensor((dims[0], taken, *indices), draft.output(0), draft.dtype(0))


def _convolution_channels(draft: SubstituteDraft) -> int | None:
    """Return the number of channels that a Conv of the output takes, or None without a Conv."""
    for node in draft.graph.node:
        if node.op_type == "Conv" and node.input[:1] == [draft.output(0)]:
            weight = draft.shape_of(node.input[1])
            group = next(
                (attribute.i for attribute in node.attribute if attribute.name == "group"), 1
            )
            if weight is not None:
                return weight[1] if group == 1 else weight[0]
    return None


def write_reorder_output_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers ReorderOutput's output shape: `channels` of
    the padded channels.
    """
    ends = draft.add_integers((draft.integer("channels"),))
    operands = (draft.input(0), draft.add_integers((0,)), ends, draft.add_integers((1,)))
    if not draft.integer("channels_last"):
        draft.add_node("Slice", operands, draft.output(0))
        return
    dims = draft.shape(0)
    indices = len(dims) - 2 if dims is not None else 2
    order = (0, *range(2, indices + 2), 1)
    draft.add_node("Transpose", (draft.add_node("Slice", operands),), draft.output(0), perm=order)


def write_blocked_upsample_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of a blocked Upsample: each
    size x its integer scale.
    """
    dims, scales = draft.shape(0), draft.integers("scales")
    if dims is not None and len(dims) == len(scales):
        sizes = [size * scale for size, scale in zip(dims, scales, strict=True)]
        draft.add_filled_tensor(sizes, draft.output(0), draft.dtype(0))


def write_same_shape_as_input(draft: SubstituteDraft) -> None:
    """Add to the draft an Identity of input 0, for normalizations whose output has its shape."""
    draft.add_node("Identity", (draft.input(0),), draft.output(0))


def write_channels_last_depth_shape(draft: SubstituteDraft) -> None:
    """Add to the draft a channels-last DepthToSpace or SpaceToDepth: ai.onnx's, between
    transposes.
    """
    data = draft.add_node("Transpose", (draft.input(0),), perm=(0, 3, 1, 2))
    names = ("blocksize", "mode")
    result = draft.add_node_with_attributes(draft.node.op_type, (data,), "", names)
    draft.add_node("Transpose", (result,), draft.output(0), perm=(0, 2, 3, 1))


_LAYOUT_WRITERS: Mapping[str, Callable[[SubstituteDraft], None]] = {
    "FusedConv": _window_shape_writer("Conv", _CONV, weight=1, last=False),
    "Conv": _window_shape_writer("Conv", _CONV, weight=1, last=False),
    "NhwcFusedConv": _window_shape_writer("Conv", _CONV, weight=1, last=True),
    "NhwcConv": write_nhwc_conv_shape,
    "QLinearConv": _window_shape_writer("Conv", _CONV, weight=3),
    "ConvTranspose": _window_shape_writer("ConvTranspose", _TRANSPOSED, weight=1, last=False),
    "QLinearConvTranspose": _window_shape_writer(
        "ConvTranspose", _TRANSPOSED, weight=3, last=False
    ),
    "MaxpoolWithMask": _window_shape_writer("MaxPool", _POOL, last=False),
    "MaxPool": _window_shape_writer("MaxPool", _POOL, last=False),
    "AveragePool": _window_shape_writer("AveragePool", _POOL, last=False),
    "LpPool": _window_shape_writer("LpPool", _POOL, last=False),
    "NhwcMaxPool": _window_shape_writer("MaxPool", _POOL, last=True),
    "QLinearAveragePool": _window_shape_writer("AveragePool", _POOL),
    "QLinearGlobalAveragePool": _window_shape_writer("GlobalAveragePool", ()),
    **{
        name: _window_shape_writer(name, (), last=False)
        for name in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
    },
    "ReorderInput": write_reorder_input_shape,
    "ReorderOutput": write_reorder_output_shape,
    "Upsample": write_blocked_upsample_shape,
    **dict.fromkeys(
        ("BatchNormalization", "InstanceNormalization", "LRN"), write_same_shape_as_input
    ),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), write_channels_last_depth_shape),
}


WRITERS: Mapping[str, Callable[[SubstituteDraft], None]] = {**_PRODUCTS_WRITERS, **_LAYOUT_WRITERS}
