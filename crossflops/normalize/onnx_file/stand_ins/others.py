"""Stand-ins for operators whose shape is a small sum of known sizes."""

from collections.abc import Callable, Mapping

from crossflops.normalize.onnx_file.stand_ins.draft import BOOL, INT8, Draft


def unfold(draft: Draft) -> None:
    """UnfoldTensor: windows of `size` along `dim` become a dimension of their own, the last."""
    dims, size, step = draft.shape(0), draft.integer("size"), draft.integer("step", 1)
    dim = draft.integer("dim", -1)
    if dims is not None and -len(dims) <= dim < len(dims) and step > 0:
        left = list(dims)
        left[dim] = max((left[dim] - size) // step + 1, 0)
        draft.filled((*left, size), draft.output(0), draft.dtype(0))


def crop(draft: Draft) -> None:
    """Crop: [N, C, H, W] without its border, left, top, right and bottom, or of the size `scale`.

    https://github.com/microsoft/onnxruntime/blob/main/onnxruntime/core/providers/cpu/tensor/crop.h
    """
    dims, border, scale = draft.shape(0), draft.integers("border"), draft.integers("scale")
    if dims is not None and len(dims) == 4 and len(border) == 4:
        left, top, right, bottom = border
        size = scale or (dims[2] - top - bottom, dims[3] - left - right)
        draft.filled((*dims[:2], *size), draft.output(0), draft.dtype(0))


def rfft(draft: Draft) -> None:
    """Rfft: n real elements -> n // 2 + 1 complex ones, onesided or not."""
    dims = draft.shape(0)
    if dims:
        last = dims[-1] // 2 + 1 if draft.integer("onesided", 1) else dims[-1]
        draft.filled((*dims[:-1], last, 2), draft.output(0), draft.dtype(0))


def irfft(draft: Draft) -> None:
    """Irfft: m complex elements -> 2 * (m - 1) real ones, or m."""
    dims = draft.shape(0)
    if dims is not None and len(dims) >= 2:
        last = 2 * (dims[-2] - 1) if draft.integer("onesided", 1) else dims[-2]
        draft.filled((*dims[:-2], last), draft.output(0), draft.dtype(0))


def distances(draft: Draft) -> None:
    """CDist: [M, K] and [N, K] -> [M, N]."""
    left, right = draft.shape(0), draft.shape(1)
    if left is not None and right is not None and len(left) == len(right) == 2:
        draft.filled((left[0], right[0]), draft.output(0), draft.dtype(0))


def all_finite(draft: Draft) -> None:
    """IsAllFinite: one truth value."""
    draft.filled((), draft.output(0), BOOL)


def restored(draft: Draft) -> None:
    """RestorePadding: [tokens, H], token_offset [B, S] -> [B, S, H]."""
    tokens, offsets = draft.shape(0), draft.shape(1)
    if tokens is not None and offsets is not None and len(tokens) == len(offsets) == 2:
        draft.filled((*offsets, tokens[1]), draft.output(0), draft.dtype(0))


def sampled(draft: Draft) -> None:
    """GridSample: [N, C, H, W] at [N, h, w, 2] -> [N, C, h, w]; or all with channels last."""
    data, grid = draft.shape(0), draft.shape(1)
    if data is None or grid is None or len(data) != len(grid):
        return
    last = draft.node.domain != "com.microsoft"
    dims = (data[0], *grid[1:-1], data[-1]) if last else (*data[:2], *grid[1:-1])
    draft.filled(dims, draft.output(0), draft.dtype(0))


def pre_mix(draft: Draft) -> None:
    """HyperConnectionPreMix: [..., C, H] or [..., C * H] -> [..., H]."""
    dims, branches = draft.shape(0), draft.integer("num_branches")
    if dims is not None and len(dims) > 1:
        left = (*dims[:-1], dims[-1] // branches) if branches > 0 else (*dims[:-2], dims[-1])
        draft.filled(left, draft.output(0), draft.dtype(0))


def gated_delta_net(draft: Draft) -> None:
    """GatedDeltaNet: as the value, or [tokens, Hv, dv] of the state [B, Hv, dv, dk]."""
    query, state = draft.shape(0), draft.shape(6)
    if draft.input(2):
        draft.put("Identity", (draft.input(2),), draft.output(0))
    elif query is not None and state is not None:
        draft.filled((*query[:-1], *state[1:3]), draft.output(0), draft.dtype(0))
    if draft.output(1) and draft.input(6):
        draft.put("Identity", (draft.input(6),), draft.output(1))


def ordered(draft: Draft) -> None:
    """QuantizeWithOrder to eight bits, DequantizeWithOrder to the type `to`."""
    there = draft.node.op_type == "QuantizeWithOrder"
    draft.cast(draft.input(0), draft.output(0), INT8 if there else draft.integer("to", 1))


def state_of_convolution(draft: Draft) -> None:
    """CausalConvWithState: as the input; the state [B, C, (k - 1) * dilation]."""
    draft.put("Identity", (draft.input(0),), draft.output(0))
    dims, weight = draft.shape(0), draft.shape(1)
    if not draft.output(1) or dims is None or weight is None or draft.integer("state_window"):
        return
    steps = (weight[-1] - 1) * draft.integer("dilation", 1)
    if draft.integer("channels_last"):
        draft.filled((dims[0], steps, *dims[2:]), draft.output(1), draft.dtype(0))
    elif len(dims) == 3:
        draft.filled((*dims[:2], steps), draft.output(1), draft.dtype(0))


WRITERS: Mapping[str, Callable[[Draft], None]] = {
    "UnfoldTensor": unfold,
    "Crop": crop,
    "Rfft": rfft,
    "Irfft": irfft,
    "CDist": distances,
    "IsAllFinite": all_finite,
    "RestorePadding": restored,
    "GridSample": sampled,
    "HyperConnectionPreMix": pre_mix,
    "GatedDeltaNet": gated_delta_net,
    **dict.fromkeys(("QuantizeWithOrder", "DequantizeWithOrder"), ordered),
    "CausalConvWithState": state_of_convolution,
}
