"""Write substitute nodes for the first versions of ai.onnx's operators.

Files of opsets 1 to 5 have them. Each is written in operators that such an opset has, and whose
shape ONNX infers there: its Cast and its constants of a shape came later.
"""

from collections.abc import Callable, Mapping, Sequence

from crossflops.frontends.onnx.stand_ins.draft import SubstituteDraft
from crossflops.frontends.onnx.values import value_from_tensor
from crossflops.load.payload import ELEMENT_TYPES

_KINDS = {name: number for number, name in ELEMENT_TYPES.items()} | {"float": 1, "double": 11}


def write_output_shape(draft: SubstituteDraft, index: int, dims: Sequence[int]) -> None:
    """Add to the draft a tensor of this shape, in the dtype of input 0, as the node's output at
    `index`.
    """
    if draft.output(index):
        kind = draft.dtype(0)
        draft.add_node("RandomNormal", (), draft.output(index), shape=tuple(dims), dtype=kind)


def write_shape_of_first_input(draft: SubstituteDraft) -> None:
    """Add to the draft an Identity of input 0: the output has its shape."""
    draft.add_node("Identity", (draft.input(0),), draft.output(0))


def write_old_dropout_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shapes of Dropout: result and mask
    are like the input.
    """
    for index in (0, 1):
        if draft.output(index):
            draft.add_node("Identity", (draft.input(0),), draft.output(index))


def write_old_batch_normalization_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shapes of BatchNormalization: the
    result, and its statistics.
    """
    for index, source in ((0, 0), (1, 3), (2, 4), (3, 3), (4, 4)):
        if draft.output(index) and draft.input(source):
            draft.add_node("Identity", (draft.input(source),), draft.output(index))


def write_old_cast_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of Cast, whose attribute `to`
    is the name of a dtype.
    """
    dims, kind = draft.shape(0), _KINDS.get(draft.text("to").lower(), 0)
    if dims is not None and kind:
        draft.add_node("RandomNormal", (), draft.output(0), shape=dims, dtype=kind)


def write_old_concat_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of Concat, which is along
    axis 1 by default.
    """
    parts = [draft.shape(index) for index in range(len(draft.node.input))]
    known = [part for part in parts if part is not None]
    axis = draft.integer("axis", 1)
    if len(known) == len(parts) and known and axis < len(known[0]):
        dims = list(known[0])
        dims[axis] = sum(part[axis] for part in known)
        write_output_shape(draft, 0, dims)


def write_old_gemm_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of Gemm: M x N."""
    left, right = draft.shape(0), draft.shape(1)
    if left and right and len(left) == len(right) == 2:
        rows = left[1 if draft.integer("transA") else 0]
        write_output_shape(draft, 0, (rows, right[0 if draft.integer("transB") else 1]))


def write_old_global_pool_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of GlobalLpPool: each spatial
    size is 1.
    """
    draft.add_node("GlobalMaxPool", (draft.input(0),), draft.output(0))


def write_old_lp_pool_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of LpPool: that
    of a MaxPool.
    """
    names = ("auto_pad", "kernel_shape", "pads", "strides")
    draft.add_node_with_attributes("MaxPool", (draft.input(0),), draft.output(0), names)


def write_old_recurrent_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shapes of GRU, LSTM or RNN: [T, D,
    B, H], and states [D, B, H].

    Without a direction ONNX infers no shape: the default of the first versions is misspelled.
    """
    data, weight = draft.shape(0), draft.shape(2)
    if data and weight and len(data) == len(weight) == 3:
        state = (weight[0], data[1], weight[2])
        write_output_shape(draft, 0, (data[0], *state))
        write_output_shape(draft, 1, state)
        write_output_shape(draft, 2, state)


def write_old_pad_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of Pad: `paddings` are all
    begins, then all ends.
    """
    dims, pads = draft.shape(0), draft.integers("paddings") or draft.integers("pads")
    if dims is not None and len(pads) == 2 * len(dims):
        both = zip(dims, pads, pads[len(dims) :], strict=False)
        write_output_shape(draft, 0, [size + before + behind for size, before, behind in both])


def write_old_reshape_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of Reshape, by its attribute
    `shape` (0 keeps, -1 fits).
    """
    dims, requested = draft.shape(0), list(draft.integers("shape"))
    if dims is None or not requested:
        return
    requested = [
        dims[at] if size == 0 and at < len(dims) else size for at, size in enumerate(requested)
    ]
    if requested.count(-1) == 1:
        count, rest = 1, 1
        for size in dims:
            count *= size
        for size in requested:
            rest *= 1 if size == -1 else size
        if not rest or count % rest:
            return
        requested[requested.index(-1)] = count // rest
    write_output_shape(draft, 0, requested)


def write_old_split_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shapes of Split: by its attribute
    `split`, or equal parts.
    """
    dims, axis, count = draft.shape(0), draft.integer("axis"), len(draft.node.output)
    if dims is None or not count or not -len(dims) <= axis < len(dims) or draft.input(1):
        return
    parts = draft.integers("split")
    if not parts and dims[axis] % count == 0:
        parts = (dims[axis] // count,) * count
    for index, part in enumerate(parts[:count]):
        shape = list(dims)
        shape[axis] = part
        write_output_shape(draft, index, shape)


def write_old_tile_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers Tile's output shape: `tiles` (input 1) times
    along `axis` (input 2).
    """
    dims, times, axis = (
        draft.shape(0),
        _constant_input_number(draft, 1),
        _constant_input_number(draft, 2),
    )
    if dims is None or times is None or axis is None or not -len(dims) <= axis < len(dims):
        return
    sizes = list(dims)
    sizes[axis] *= times
    write_output_shape(draft, 0, sizes)


def _constant_input_number(draft: SubstituteDraft, index: int) -> int | None:
    """Return the integer that a stored input holds, also as a float, or None if unknown."""
    name = draft.input(index)
    tensors = (tensor for tensor in draft.graph.initializer if tensor.name == name)
    made = (
        attribute.t
        for node in draft.graph.node
        if node.op_type == "Constant" and name in node.output
        for attribute in node.attribute
        if attribute.name == "value"
    )
    value = next((value_from_tensor(tensor) for tensor in (*tensors, *made)), None)
    if value is None or len(value.items) != 1 or int(value.items[0]) != value.items[0]:
        return None
    return int(value.items[0])


def write_old_upsample_shape(draft: SubstituteDraft) -> None:
    """Add nodes to the draft from which ONNX infers the output shape of Upsample: [N, C, H, W]
    times its two scales.
    """
    dims = draft.shape(0)
    if dims is not None and len(dims) == 4:
        high, wide = draft.number("height_scale", 1.0), draft.number("width_scale", 1.0)
        write_output_shape(draft, 0, (*dims[:2], int(dims[2] * high), int(dims[3] * wide)))


WRITERS: Mapping[str, Callable[[SubstituteDraft], None]] = {
    **dict.fromkeys(
        (
            *("Abs", "Add", "Ceil", "Clip", "Div", "Elu", "Exp", "Floor", "HardSigmoid"),
            *("InstanceNormalization", "LeakyRelu", "Log", "Max", "Mean", "Min", "Mul", "Neg"),
            *("PRelu", "Reciprocal", "Relu", "Selu", "Sigmoid", "Sqrt", "Sub", "Sum", "Tanh"),
        ),
        write_shape_of_first_input,
    ),
    "BatchNormalization": write_old_batch_normalization_shape,
    "Cast": write_old_cast_shape,
    "Concat": write_old_concat_shape,
    "Dropout": write_old_dropout_shape,
    **dict.fromkeys(("GRU", "LSTM", "RNN"), write_old_recurrent_shape),
    "Gemm": write_old_gemm_shape,
    "GlobalLpPool": write_old_global_pool_shape,
    "LpPool": write_old_lp_pool_shape,
    "Pad": write_old_pad_shape,
    "Reshape": write_old_reshape_shape,
    "Split": write_old_split_shape,
    "Tile": write_old_tile_shape,
    "Upsample": write_old_upsample_shape,
}
