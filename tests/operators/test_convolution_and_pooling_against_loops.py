"""Every attribute of windows that slide: where they start, how far they reach, what they drop.

Shapes come from ONNX's own inference, work and values from loops that pad and slide by the page.
"""

import numpy as np
import onnx
from hypothesis import given
from hypothesis import strategies as st

from crossflops.testing.graphs import to_node
from tests.operators.scalars import (
    Tally,
    few,
    largest,
    numbers,
    reference,
    small,
    total,
    values,
    work,
)

AUTO = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def inferred(op, shapes, **attrs):
    """The shape of the first output as ONNX infers it."""
    names = [f"x{i}" for i in range(len(shapes))]
    inputs = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in zip(names, shapes, strict=True)
    ]
    out = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    made = onnx.helper.make_node(op, names, ["y"], **attrs)
    graph = onnx.helper.make_graph([made], "one", inputs, [out])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 22)])
    value = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.output[0]
    return tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)


def borders(extent, window, strides, dilations, attrs):
    """What is put before and behind each dimension, from `pads` or from `auto_pad`."""
    dims, auto = len(extent), attrs.get("auto_pad", "NOTSET")
    if auto in ("NOTSET", "VALID"):
        pads = attrs.get("pads", [0] * 2 * dims)
        return [(pads[i], pads[i + dims]) for i in range(dims)]
    sides = []
    for i in range(dims):
        out = -(-extent[i] // strides[i])
        more = max((out - 1) * strides[i] + dilations[i] * (window[i] - 1) + 1 - extent[i], 0)
        less = more // 2
        sides.append((less, more - less) if auto == "SAME_UPPER" else (more - less, less))
    return sides


@st.composite
def windows(draw, dilated=True):
    """A window of one or two dimensions, and every attribute that moves it."""
    dims = draw(st.integers(1, 2))
    window = [draw(small) for _ in range(dims)]
    strides = [draw(st.integers(1, 2)) for _ in range(dims)]
    auto = draw(st.sampled_from(AUTO))
    apart = dilated and auto in ("NOTSET", "VALID")
    dilations = [draw(st.integers(1, 2)) if apart else 1 for _ in range(dims)]
    attrs = {"strides": strides, "dilations": dilations}
    if auto == "NOTSET":
        attrs["pads"] = [draw(st.integers(0, window[i % dims] - 1)) for i in range(2 * dims)]
    else:
        attrs["auto_pad"] = auto
    extent = [dilations[i] * (window[i] - 1) + 1 + draw(st.integers(0, 3)) for i in range(dims)]
    return extent, window, attrs


def slid(padded, window, strides, dilations, out):
    """For every place of the result, the elements under the window, the same ones dropped."""
    for at in np.ndindex(*out):
        places = (
            tuple(at[i] * strides[i] + k[i] * dilations[i] for i in range(len(out)))
            for k in np.ndindex(*window)
        )
        yield at, [padded(place) for place in places]


@few
@given(windows(), st.integers(1, 2), st.integers(1, 2), st.integers(1, 2), st.data())
def test_conv_with_every_attribute(case, group, per_group, outs, data):
    """Conv: automatic padding, one-sided padding, dilations, strides and groups together."""
    extent, window, attrs = case
    x = numbers(data.draw, 1, group * per_group, *extent)
    w = numbers(data.draw, group * outs, per_group, *window)
    attrs = {**attrs, "group": group}
    around = borders(extent, window, attrs["strides"], attrs["dilations"], attrs)
    tally = Tally()
    wide = tally.array(np.pad(x, [(0, 0), (0, 0), *around]))
    shape = inferred("Conv", [x.shape, w.shape], **attrs)
    y, weights = np.empty(shape, dtype=object), tally.array(w)
    for m, c in np.ndindex(group * outs, per_group):
        source = wide[0, m // outs * per_group + c]
        row = list(weights[m, c].flat)
        for at, under in slid(
            source.__getitem__, window, attrs["strides"], attrs["dilations"], shape[2:]
        ):
            before = y[(0, m, *at)] if c else tally.number(0)
            for element, weight in zip(under, row, strict=True):
                before = tally.mac(before, element, weight)
            y[(0, m, *at)] = before
    assert np.allclose(values(y), reference("Conv", [x, w], **attrs), atol=1e-4)
    given_ = {name: tuple(v) if isinstance(v, list) else v for name, v in attrs.items()}
    assert work(to_node("Conv", [x.shape, w.shape], [shape], **given_)) == tally.cost


@few
@given(
    *(small, small, st.integers(1, 2), st.integers(1, 2), st.integers(1, 3), st.integers(1, 2)),
    *(st.sampled_from(("pads", "output_padding", "output_shape", "SAME_UPPER")), st.data()),
)
def test_conv_transpose_with_every_attribute(ins, outs, group, k, stride, dilation, how, data):
    """ConvTranspose: however the result is cropped or widened, each input meets its window."""
    x, w = (2, group * ins, 4, 3), (group * ins, outs, k, k)
    attrs = {"group": group, "strides": (stride,) * 2, "dilations": (dilation,) * 2}
    reach = dilation * (k - 1) + 1
    if how == "pads":
        attrs["pads"] = tuple(data.draw(st.integers(0, reach // 2)) for _ in range(4))
    elif how == "output_padding":
        attrs["output_padding"] = (max(stride, dilation) - 1,) * 2
    elif how == "output_shape":
        attrs["output_shape"] = (3 * stride + reach, 2 * stride + reach)
    else:
        attrs["auto_pad"] = how
    y = inferred("ConvTranspose", [x, w], **attrs)
    macs = 0
    for _ in np.ndindex(*x):
        for _ in np.ndindex(*w[1:]):
            macs += 1
    cost = work(to_node("ConvTranspose", [x, w, (outs * group,)], [y], **attrs))
    assert (cost.macs, cost.adds) == (macs, int(np.prod(y)))


@few
@given(
    *(st.sampled_from(["MaxPool", "AveragePool", "LpPool"]), windows()),
    *(st.booleans(), st.booleans(), st.data()),
)
def test_pooling_with_every_attribute(op, case, up, padding_counts, data):
    """Pooling: what lies beyond the border is looked at like any other element (dense)."""
    extent, window, attrs = case
    attrs = {**attrs, "kernel_shape": window}
    if "auto_pad" not in attrs:
        attrs["ceil_mode"] = int(up)
    if op == "AveragePool":
        attrs["count_include_pad"] = int(padding_counts)
    x = numbers(data.draw, 1, 2, *extent)
    shape = inferred(op, [x.shape], **attrs)
    around = borders(extent, window, attrs["strides"], attrs["dilations"], attrs)
    tally, edge = Tally(), -1e9 if op == "MaxPool" else 0.0
    scalars = tally.array(x)

    def element(channel):
        def at(place):
            where = tuple(p - around[i][0] for i, p in enumerate(place))
            inside = all(0 <= p < extent[i] for i, p in enumerate(where))
            return scalars[(0, channel, *where)] if inside else tally.number(edge)

        return at

    y = np.empty(shape, dtype=object)
    for channel in range(2):
        for at, under in slid(
            element(channel), window, attrs["strides"], attrs["dilations"], shape[2:]
        ):
            y[(0, channel, *at)] = POOLS[op](under)
    pads = attrs.get("pads", [0, 1])
    if op == "MaxPool" and pads[: len(window)] == pads[len(window) :]:
        # by onnx's reference, which pads wrongly where the two ends of an axis differ
        assert np.allclose(values(y), reference("MaxPool-22", [x], **attrs), atol=1e-4)
    given_ = {name: tuple(v) if isinstance(v, list) else v for name, v in attrs.items()}
    assert work(to_node(op, [x.shape], [shape], **given_)) == tally.cost


POOLS = {
    "MaxPool": largest,
    "AveragePool": lambda under: total(under) / len(under),
    "LpPool": lambda under: total([element * element for element in under]).sqrt(),
}


def neighbours(tally, place):
    """The four corners around a place: floors, fractions, complements, and their products."""
    low = [tally.number(np.floor(p.value)) for p in place]
    for _ in place:
        tally.kinds["specials"] += 1
    after = [p - base for p, base in zip(place, low, strict=True)]
    before = [1 - part for part in after]
    corners = []
    for corner in np.ndindex(2, 2):
        weight = (after if corner[0] else before)[0] * (after if corner[1] else before)[1]
        where = [int(base.value) + step for base, step in zip(low, corner, strict=True)]
        corners.append((weight, where))
    return corners


def deform_loop(tally, x, w, offset, mask, groups, group):
    """Each place is sampled between four neighbours, then convolved; pads and strides apart."""
    (channels, height, width), (outs, per, k, _) = x.shape[1:], w.shape
    rows, columns = offset.shape[2:]
    beyond = tally.number(0, graded=x.flat[0].graded)  # of the padding, which is data
    y = tally.array(np.zeros((1, outs, rows, columns)))
    for g, at, (ki, tap) in (
        (g, at, place)
        for g in range(groups)
        for at in np.ndindex(rows, columns)
        for place in enumerate(np.ndindex(k, k))
    ):
        row = 2 * (g * k * k + ki)
        place = [offset[(0, row + i, *at)] + (at[i] + tap[i]) for i in range(2)]
        corners = neighbours(tally, place)
        for c in range(g * channels // groups, (g + 1) * channels // groups):
            parts = []
            for weight, (i, j) in corners:
                inside = 0 <= i < height and 0 <= j < width
                parts.append(weight * (x[0, c, i, j] if inside else beyond))
            value = total(parts)
            if mask is not None:
                value = value * mask[(0, g * k * k + ki, *at)]
            for m in range(c // per * (outs // group), (c // per + 1) * (outs // group)):
                y[(0, m, *at)] = tally.mac(y[(0, m, *at)], value, w[(m, c % per, *tap)])
    return y


@few
@given(st.integers(1, 2), st.integers(1, 2), st.integers(1, 2), st.booleans(), st.data())
def test_deform_conv_is_its_loop(groups, group, per_group, masked, data):
    """DeformConv: each place is sampled between four neighbours, then convolved."""
    channels, outs, k, extent = groups * group * per_group, group * 2, 2, 3
    x, w = numbers(data.draw, 1, channels, 4, 4), numbers(data.draw, outs, channels // group, k, k)
    offset = numbers(data.draw, 1, groups * 2 * k * k, extent, extent)
    mask = numbers(data.draw, 1, groups * k * k, extent, extent) if masked else None
    tally = Tally()
    scalars = (None if a is None else tally.array(a) for a in (x, w, offset, mask))
    y = deform_loop(tally, *scalars, groups, group)
    attrs = {"group": group, "offset_group": groups, "kernel_shape": [k, k], "pads": [0] * 4}
    arrays = [x, w, offset, None, mask]
    assert np.allclose(values(y), reference("DeformConv", arrays, **attrs), atol=1e-4)
    shapes = [None if a is None else a.shape for a in arrays]
    given_ = {name: tuple(v) if isinstance(v, list) else v for name, v in attrs.items()}
    assert work(to_node("DeformConv", shapes, [y.shape], **given_)) == tally.cost
