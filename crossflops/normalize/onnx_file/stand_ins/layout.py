"""Stand-ins for convolutions and pools, in any layout."""

from collections.abc import Callable, Mapping

from crossflops.normalize.onnx_file.stand_ins.draft import Draft

_WINDOW = ("auto_pad", "dilations", "kernel_shape", "pads", "strides")
_CONV = (*_WINDOW, "group")
_POOL = (*_WINDOW, "ceil_mode", "count_include_pad", "storage_order", "p")
_TRANSPOSED = (*_CONV, "output_padding", "output_shape")
_NHWC = "com.ms.internal.nhwc"
_BLOCK = 8  # channels in the shortest block; others are 16 long


def _places(draft: Draft, weight: int | None) -> int:
    """Number of spatial dimensions: of the window, of the weight or of the data; else 2."""
    if kernel := draft.integers("kernel_shape"):
        return len(kernel)
    for index in (weight, 0):
        dims = draft.shape(index) if index is not None else None
        if dims is not None:
            return len(dims) - 2
    return 2


def _window(
    op: str, names: tuple[str, ...], weight: int | None = None, last: bool | None = None
) -> Callable[[Draft], None]:
    """A Conv or a pool; `last` says whether channels are last, None that an attribute does."""

    def write(draft: Draft) -> None:
        data, places = draft.input(0), _places(draft, weight)
        turned = draft.integer("channels_last") != 0 if last is None else last
        turned = turned or draft.node.domain == _NHWC
        if turned:
            data = draft.put("Transpose", (data,), perm=(0, places + 1, *range(1, places + 1)))
        operands = (data,) if weight is None else (data, draft.input(weight))
        if not turned:
            draft.take_over(op, operands, draft.output(0), names)
            return
        result = draft.take_over(op, operands, "", names)
        order = (0, *range(2, places + 2), 1)
        draft.put("Transpose", (result,), draft.output(0), perm=order)

    return write


def reorder_input(draft: Draft) -> None:
    """ReorderInput: [N, C, H, W] in blocks of channels, as many as its convolution takes.

    Without one, the channels already fill their blocks; how long these are is the processor's.
    """
    dims = draft.shape(0)
    if dims is None or len(dims) < 2:
        return
    last = draft.integer("channels_last") != 0
    channels = dims[-1] if last else dims[1]
    places = dims[1:-1] if last else dims[2:]
    taken = _taken(draft) or (channels if channels % _BLOCK == 0 else None)
    if taken is not None:
        draft.filled((dims[0], taken, *places), draft.output(0), draft.dtype(0))


def _taken(draft: Draft) -> int | None:
    """Channels that a convolution of the result has: a filter of one group says how many."""
    for node in draft.graph.node:
        if node.op_type == "Conv" and node.input[:1] == [draft.output(0)]:
            weight = draft.shape_of(node.input[1])
            group = next((one.i for one in node.attribute if one.name == "group"), 1)
            if weight is not None:
                return weight[1] if group == 1 else weight[0]
    return None


def reorder_output(draft: Draft) -> None:
    """ReorderOutput: the `channels` that there are, without those that fill the last block."""
    ends = draft.ints((draft.integer("channels"),))
    operands = (draft.input(0), draft.ints((0,)), ends, draft.ints((1,)))
    if not draft.integer("channels_last"):
        draft.put("Slice", operands, draft.output(0))
        return
    dims = draft.shape(0)
    places = len(dims) - 2 if dims is not None else 2
    order = (0, *range(2, places + 2), 1)
    draft.put("Transpose", (draft.put("Slice", operands),), draft.output(0), perm=order)


def upsample(draft: Draft) -> None:
    """Upsample in blocks: whole factors for every dimension. Resize says it in floats."""
    dims, scales = draft.shape(0), draft.integers("scales")
    if dims is not None and len(dims) == len(scales):
        sizes = [size * scale for size, scale in zip(dims, scales, strict=True)]
        draft.filled(sizes, draft.output(0), draft.dtype(0))


def same(draft: Draft) -> None:
    """BatchNormalization, InstanceNormalization, LRN: as the input."""
    draft.put("Identity", (draft.input(0),), draft.output(0))


def turned(draft: Draft) -> None:
    """DepthToSpace, SpaceToDepth with channels last."""
    data = draft.put("Transpose", (draft.input(0),), perm=(0, 3, 1, 2))
    names = ("blocksize", "mode")
    result = draft.take_over(draft.node.op_type, (data,), "", names)
    draft.put("Transpose", (result,), draft.output(0), perm=(0, 2, 3, 1))


WRITERS: Mapping[str, Callable[[Draft], None]] = {
    "FusedConv": _window("Conv", _CONV, weight=1, last=False),
    "Conv": _window("Conv", _CONV, weight=1, last=False),
    **dict.fromkeys(("NhwcConv", "NhwcFusedConv"), _window("Conv", _CONV, weight=1, last=True)),
    "QLinearConv": _window("Conv", _CONV, weight=3),
    "ConvTranspose": _window("ConvTranspose", _TRANSPOSED, weight=1, last=False),
    "QLinearConvTranspose": _window("ConvTranspose", _TRANSPOSED, weight=3, last=False),
    "MaxpoolWithMask": _window("MaxPool", _POOL, last=False),
    "MaxPool": _window("MaxPool", _POOL, last=False),
    "AveragePool": _window("AveragePool", _POOL, last=False),
    "LpPool": _window("LpPool", _POOL, last=False),
    "NhwcMaxPool": _window("MaxPool", _POOL, last=True),
    "QLinearAveragePool": _window("AveragePool", _POOL),
    "QLinearGlobalAveragePool": _window("GlobalAveragePool", ()),
    **{
        name: _window(name, (), last=False)
        for name in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
    },
    "ReorderInput": reorder_input,
    "ReorderOutput": reorder_output,
    "Upsample": upsample,
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization", "LRN"), same),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), turned),
}
