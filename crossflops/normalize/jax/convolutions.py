"""Convolutions that jax2onnx has not: any number of axes in any order, in groups of a batch."""

import functools
from collections.abc import Sequence
from typing import Any

from crossflops.normalize.jax.inlining import Equal

NODES = {"onnx_conv": "Conv", "onnx_conv_transpose": "ConvTranspose"}


def convolved(eqn: Any) -> Equal:
    """A convolution whose axes stand in the order of ONNX, its groups of a batch as of channels.

    One that stands so already is a node of ONNX itself.
    """
    params, plain = eqn.params, tuple(range(eqn.invars[0].aval.ndim))
    numbers, groups = params["dimension_numbers"], params["batch_group_count"]
    orders = (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec)
    if all(tuple(order) == plain for order in orders) and groups == 1:
        return Equal(functools.partial(_as_node, eqn))

    def run(x: Any, weights: Any) -> Any:
        from jax import lax

        x, weights = lax.transpose(x, orders[0]), lax.transpose(weights, orders[1])
        more = {**params, "dimension_numbers": lax.ConvDimensionNumbers(plain, plain, plain)}
        if groups > 1:
            x = _batch_as_channels(x, groups)
            more |= {"batch_group_count": 1, "feature_group_count": groups}
        result = eqn.primitive.bind(x, weights, **more)
        return lax.transpose(result, sorted(plain, key=lambda axis: orders[2][axis]))

    return Equal(run)


def _batch_as_channels(x: Any, groups: int) -> Any:
    """[groups x n, c, ...] -> [n, groups x c, ...]."""
    from jax import lax

    batch, channels, *sizes = x.shape
    x = lax.reshape(x, (groups, batch // groups, channels, *sizes))
    x = lax.transpose(x, (1, 0, *range(2, x.ndim)))
    return lax.reshape(x, (batch // groups, groups * channels, *sizes))


def _as_node(eqn: Any, x: Any, weights: Any) -> Any:
    """Conv, or ConvTranspose where the input is dilated.

    A transposed one cannot be strided as well, nor be padded by more than its filter reaches:
    then the holes are made before.
    """
    from jax import lax

    params, result = eqn.params, eqn.outvars[0].aval
    if not params["window_strides"]:
        return _without_axes(eqn, x, weights)
    pads, steps = list(params["padding"]), tuple(params["lhs_dilation"])
    strides, dilations = tuple(params["window_strides"]), tuple(params["rhs_dilation"])
    x, weights = x.astype(result.dtype), weights.astype(result.dtype)
    reach = [(k - 1) * d for k, d in zip(weights.shape[2:], dilations, strict=True)]
    more = {"group": params["feature_group_count"], "dilations": dilations, "out": result.shape}
    begins = [far - low for (low, _), far in zip(pads, reach, strict=True)]
    ends = [far - high for (_, high), far in zip(pads, reach, strict=True)]
    more_than_reach = min((0, *begins)) < 0 or any(
        -end >= max(pair) for end, *pair in zip(ends, steps, dilations, strict=True)
    )
    if any(one > 1 for one in steps):
        if not more_than_reach and set(strides) == {1}:
            weights = _turned(weights, more["group"])
            return _primitive("onnx_conv_transpose").bind(
                x, weights, **more, strides=steps, begins=tuple(begins), ends=tuple(ends)
            )
        holes = [(low, high, step - 1) for (low, high), step in zip(pads, steps, strict=True)]
        x = lax.pad(x, x.dtype.type(0), [(0, 0, 0), (0, 0, 0), *holes])
        pads = [(0, 0)] * len(pads)
    sides = {"begins": tuple(low for low, _ in pads), "ends": tuple(high for _, high in pads)}
    return _primitive("onnx_conv").bind(x, weights, **more, strides=strides, **sides)


def _without_axes(eqn: Any, x: Any, weights: Any) -> Any:
    """A Conv of ONNX has an axis of space at least: one of a single place."""
    from jax import lax

    result = eqn.outvars[0].aval
    x, weights = (lax.expand_dims(one.astype(result.dtype), (2,)) for one in (x, weights))
    sides = {"strides": (1,), "dilations": (1,), "begins": (0,), "ends": (0,)}
    more = {"group": eqn.params["feature_group_count"], "out": (*result.shape, 1)}
    return lax.squeeze(_primitive("onnx_conv").bind(x, weights, **more, **sides), (2,))


def _turned(weights: Any, groups: int) -> Any:
    """[o, i, ...] -> [groups x i, o / groups, ...], every filter turned around."""
    from jax import lax

    outputs, inputs, *sizes = weights.shape
    weights = lax.rev(weights, range(2, weights.ndim))
    weights = lax.reshape(weights, (groups, outputs // groups, inputs, *sizes))
    weights = lax.transpose(weights, (0, 2, 1, *range(3, weights.ndim)))
    return lax.reshape(weights, (groups * inputs, outputs // groups, *sizes))


@functools.cache
def _primitive(name: str) -> Any:
    """A primitive of which only the shape of the result is known: it becomes a node."""
    from jax.core import ShapedArray
    from jax.extend.core import Primitive

    found = Primitive(name)
    found.def_abstract_eval(lambda x, _, *, out, **more: ShapedArray(out, x.dtype))
    return found


def lower(ctx: Any, eqn: Any) -> None:
    """The node of ONNX for one of these primitives."""
    import onnx_ir as ir

    params, (variable,) = eqn.params, eqn.outvars
    begins, ends = params["begins"], params["ends"]
    ints: dict[str, Sequence[int]] = {
        "strides": params["strides"],
        "dilations": params["dilations"],
        "pads": [max(one, 0) for one in (*begins, *ends)],
    }
    if any(one < 0 for one in ends):
        ints["output_padding"] = [max(-one, 0) for one in ends]
    node = ir.Node(
        "",
        NODES[eqn.primitive.name],
        [ctx.get_value_for_var(one) for one in eqn.invars],
        [ir.AttrInt64("group", params["group"]), *(ir.AttrInt64s(*one) for one in ints.items())],
        num_outputs=1,
    )
    (value,) = node.outputs
    value.name = ctx.fresh_name("conv_out")
    value.shape = ir.Shape(variable.aval.shape)
    value.type = ctx.get_value_for_var(eqn.invars[0]).type
    ctx.builder.add_node_obj(node)
    ctx.bind_value_for_var(variable, value)
