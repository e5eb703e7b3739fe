"""Rewrite equations that jax2onnx cannot convert as other equations that it can."""

import functools
import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import gcd, prod
from typing import Any, NamedTuple

from crossflops.patches import inventory
from crossflops.patches.patching import original_attribute, patching_attribute

# Other equations in place of one.


class EquivalentCode(NamedTuple):
    """A function that computes the same as an equation from the same arrays.

    With `own` its equations are part of the model's program. Otherwise they are not, and those
    that only move values are the converter's.
    """

    function: Callable[..., Any]
    own: bool = False


def lower_replacement(
    ctx: Any, eqn: Any, instead: EquivalentCode, added_equations: dict[int, Any]
) -> None:
    """Convert equivalent JAX code instead of an equation, and bind its results."""
    import jax
    import numpy as np

    control: Any = importlib.import_module("jax2onnx.plugins.jax.lax._control_flow_utils")
    provided = [
        jax.ShapeDtypeStruct(variable.aval.shape, variable.aval.dtype) for variable in eqn.invars
    ]
    closed = jax.make_jaxpr(instead.function)(*provided)
    if not instead.own:
        added_equations.update((id(equation), equation) for equation in closed.jaxpr.eqns)
    for variable, value in zip(closed.jaxpr.constvars, closed.consts, strict=True):
        ctx.bind_const_for_var(variable, np.asarray(value))
    for inner, outer in zip(closed.jaxpr.invars, eqn.invars, strict=True):
        ctx.bind_value_for_var(inner, ctx.get_value_for_var(outer))
    control.lower_jaxpr_eqns(ctx, closed.jaxpr, source=eqn.primitive.name)
    for outer, inner in zip(eqn.outvars, closed.jaxpr.outvars, strict=True):
        ctx.bind_value_for_var(outer, ctx.get_value_for_var(inner))


# Products.


def single_product_equivalent(eqn: Any) -> EquivalentCode | None:
    """Return a dot_general over axes of size 1 as a matrix product, or None for others.

    An Einsum would only show that nothing is summed along them. For JAX it is a product like any
    other: a gradient of weights for a batch of 1 has the work of any sample.
    """
    if eqn.primitive.name != "dot_general":
        return None
    (along, along_other), (batch, other_batch) = eqn.params["dimension_numbers"]
    left, right = (operand.aval for operand in eqn.invars)
    indices = (len(batch) + 1,), (len(batch),)
    matrices = left.ndim == right.ndim == len(batch) + 2
    stands = matrices and (tuple(along), tuple(along_other)) == indices
    if not along or stands or any(left.shape[axis] != 1 for axis in along):
        return None

    def multiply_as_batched_matrices(x: Any, y: Any) -> Any:
        """Return a dot_general by transposing and reshaping to one batched matrix product."""
        from jax import lax

        kept = [axis for axis in range(left.ndim) if axis not in (*batch, *along)]
        others = [axis for axis in range(right.ndim) if axis not in (*other_batch, *along_other)]
        sizes = [left.shape[axis] for axis in batch]
        rows = prod(left.shape[axis] for axis in kept)
        columns = prod(right.shape[axis] for axis in others)
        x = lax.reshape(lax.transpose(x, (*batch, *kept, *along)), (*sizes, rows, 1))
        y = lax.transpose(y, (*other_batch, *along_other, *others))
        y = lax.reshape(y, (*sizes, 1, columns))
        indices = tuple(range(len(sizes)))
        numbers = (((len(sizes) + 1,), (len(sizes),)), (indices, indices))
        result = eqn.primitive.bind(x, y, **{**eqn.params, "dimension_numbers": numbers})
        return lax.reshape(result, eqn.outvars[0].aval.shape)

    return EquivalentCode(multiply_as_batched_matrices)


# Convolutions that jax2onnx has not: any number of axes in any order, in groups of a batch.

NODES = {
    "onnx_conv": "Conv",
    "onnx_conv_transpose": "ConvTranspose",
    "onnx_gather": "Gather",
    "onnx_scatter": "ScatterND",
}


def needs_several_conv_nodes(eqn: Any) -> bool:
    """Return whether a convolution needs several ONNX nodes: cropped, or dilated and strided.

    jax2onnx writes a crop as negative pads, and turns the holes of a dilation into elements.
    """
    if eqn.primitive.name != "conv_general_dilated":
        return False
    params = eqn.params
    pairs = zip(params["lhs_dilation"], params["window_strides"], strict=True)
    return any(min(pair) < 0 for pair in params["padding"]) or any(
        step > 1 and stride > 1 for step, stride in pairs
    )


def onnx_ordered_convolution_equivalent(eqn: Any) -> EquivalentCode:
    """Return a convolution with the axes in ONNX's order, and batch groups as channel groups.

    A convolution in this order is a node of ONNX itself.
    """
    params, plain = eqn.params, tuple(range(eqn.invars[0].aval.ndim))
    numbers, groups = params["dimension_numbers"], params["batch_group_count"]
    orders = (numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec)
    if all(tuple(order) == plain for order in orders) and groups == 1:
        return EquivalentCode(functools.partial(_convolve_by_one_node, eqn))

    def convolve_in_onnx_order(x: Any, weights: Any) -> Any:
        """Return a convolution on operands transposed to ONNX's order of axes."""
        from jax import lax

        x, weights = lax.transpose(x, orders[0]), lax.transpose(weights, orders[1])
        more = {**params, "dimension_numbers": lax.ConvDimensionNumbers(plain, plain, plain)}
        if groups > 1:
            x = _batch_as_channels(x, groups)
            more |= {"batch_group_count": 1, "feature_group_count": groups}
        result = eqn.primitive.bind(x, weights, **more)
        return lax.transpose(result, sorted(plain, key=lambda axis: orders[2][axis]))

    return EquivalentCode(convolve_in_onnx_order)


def _batch_as_channels(x: Any, groups: int) -> Any:
    """Return an array [groups x n, c, ...] as [n, groups x c, ...]."""
    from jax import lax

    batch, channels, *sizes = x.shape
    x = lax.reshape(x, (groups, batch // groups, channels, *sizes))
    x = lax.transpose(x, (1, 0, *range(2, x.ndim)))
    return lax.reshape(x, (batch // groups, groups * channels, *sizes))


def _convolve_by_one_node(eqn: Any, x: Any, weights: Any) -> Any:
    """Return a convolution as one ONNX Conv, or a ConvTranspose if the input is dilated.

    For a transposed one that is padded by more than its filter reaches, the holes are made before.
    """
    from jax import lax

    params, result = eqn.params, eqn.outvars[0].aval
    if not params["window_strides"]:
        return _convolve_without_spatial_axes(eqn, x, weights)
    pads, steps = list(params["padding"]), tuple(params["lhs_dilation"])
    strides, dilations = tuple(params["window_strides"]), tuple(params["rhs_dilation"])
    x, weights = x.astype(result.dtype), weights.astype(result.dtype)
    if min((0, *(side for pair in pads for side in pair))) < 0 and set(steps) == {1}:
        cut = [(min(low, 0), min(high, 0), 0) for low, high in pads]
        x = lax.pad(x, x.dtype.type(0), [(0, 0, 0), (0, 0, 0), *cut])
        pads = [(max(low, 0), max(high, 0)) for low, high in pads]
    reach = [(k - 1) * d for k, d in zip(weights.shape[2:], dilations, strict=True)]
    more = {"group": params["feature_group_count"], "dilations": dilations, "out": result.shape}
    begins = [far - low for (low, _), far in zip(pads, reach, strict=True)]
    ends = [far - high for (_, high), far in zip(pads, reach, strict=True)]
    more_than_reach = min((0, *begins)) < 0 or any(
        -end >= max(pair) for end, *pair in zip(ends, steps, dilations, strict=True)
    )
    if any(step > 1 and stride > 1 for step, stride in zip(steps, strides, strict=True)):
        return _convolve_by_phases(eqn, x, weights)
    if any(step > 1 for step in steps):
        if not more_than_reach and set(strides) == {1}:
            weights = _flip_filters(weights, more["group"])
            return _define_primitive("onnx_conv_transpose").bind(
                x, weights, **more, strides=steps, begins=tuple(begins), ends=tuple(ends)
            )
        holes = [(low, high, step - 1) for (low, high), step in zip(pads, steps, strict=True)]
        x = lax.pad(x, x.dtype.type(0), [(0, 0, 0), (0, 0, 0), *holes])
        pads = [(0, 0)] * len(pads)
    sides = {"begins": tuple(low for low, _ in pads), "ends": tuple(high for _, high in pads)}
    return _define_primitive("onnx_conv").bind(x, weights, **more, strides=strides, **sides)


class _Phase(NamedTuple):
    """Every n-th element of a result along an axis, which meet the same filter elements.

    `taps` are these, `at` the input element that the first tap meets first.
    """

    number: int
    size: int
    taps: slice
    at: int
    stride: int
    dilation: int


def _filter_elements_by_phase(
    sizes: tuple[int, int], step: int, stride: int, dilation: int, low: int
) -> list[Any]:
    """Return, for each phase of a strided result, its filter elements; None if it has none.

    Output o and tap k meet element i where o * stride + k * dilation - low = step * i.
    """
    indices, taps = sizes
    period = step // gcd(stride, step)
    phases: list[Any] = []
    for number in range(min(period, indices)):
        met = [k for k in range(taps) if (number * stride + k * dilation - low) % step == 0]
        every = step // gcd(dilation, step)
        phases.append(
            _Phase(
                number,
                -(-(indices - number) // period),
                slice(met[0], None, every),
                (number * stride + met[0] * dilation - low) // step,
                period * stride // step,
                every * dilation // step,
            )
            if met
            else None
        )
    return phases


def _convolve_by_phases(eqn: Any, x: Any, weights: Any) -> Any:
    """Return a dilated and strided convolution, computed by phases without products with 0.

    The outputs that meet the same taps are a convolution without holes.
    """
    params, result = eqn.params, eqn.outvars[0].aval
    axes = [
        _filter_elements_by_phase((indices, taps), *numbers)
        for indices, taps, *numbers in zip(
            result.shape[2:],
            weights.shape[2:],
            params["lhs_dilation"],
            params["window_strides"],
            params["rhs_dilation"],
            (low for low, _ in params["padding"]),
            strict=True,
        )
    ]
    return _convolve_chosen_phases(eqn, x, weights, axes, ())


def _convolve_chosen_phases(
    eqn: Any, x: Any, weights: Any, axes: list[Any], chosen: tuple[Any, ...]
) -> Any:
    """Return the convolution's results for the `chosen` phases along the first axes."""
    from jax import lax

    if len(chosen) == len(axes):
        return _convolve_one_phase(eqn, x, weights, chosen)
    axis, indices = len(chosen) + 2, eqn.outvars[0].aval.shape[len(chosen) + 2]
    phases = axes[len(chosen)]
    longest = -(-indices // len(phases)) if phases else 0
    parts = [
        _convolve_chosen_phases(eqn, x, weights, axes, (*chosen, phase))
        if phase is not None
        else None
        for phase in phases
    ]
    known = next(part for part in parts if part is not None)
    filled = []
    for part in parts:
        part = lax.full_like(known, 0) if part is None else part
        sides = [(0, longest - part.shape[axis] if n == axis else 0, 0) for n in range(part.ndim)]
        filled.append(lax.expand_dims(lax.pad(part, part.dtype.type(0), sides), (axis + 1,)))
    joined = lax.collapse(lax.concatenate(filled, axis + 1), axis, axis + 2)
    return lax.slice_in_dim(joined, 0, indices, axis=axis)


def _convolve_one_phase(eqn: Any, x: Any, weights: Any, phases: tuple[Any, ...]) -> Any:
    """Return the convolution result for one phase along every axis."""
    for axis, phase in enumerate(phases):
        weights = weights[(slice(None),) * (axis + 2) + (phase.taps,)]
    pads = []
    for size, taps, phase in zip(x.shape[2:], weights.shape[2:], phases, strict=True):
        reach = phase.at + (taps - 1) * phase.dilation + (phase.size - 1) * phase.stride + 1
        pads.append((-phase.at, reach - size))
    plain = {
        "window_strides": tuple(phase.stride for phase in phases),
        "lhs_dilation": (1,) * len(phases),
        "rhs_dilation": tuple(phase.dilation for phase in phases),
        "padding": tuple(pads),
    }
    return eqn.primitive.bind(x, weights, **{**eqn.params, **plain})


def _convolve_without_spatial_axes(eqn: Any, x: Any, weights: Any) -> Any:
    """Return a convolution without spatial axes by a Conv with one axis of size 1."""
    from jax import lax

    result = eqn.outvars[0].aval
    x, weights = (lax.expand_dims(operand.astype(result.dtype), (2,)) for operand in (x, weights))
    sides = {"strides": (1,), "dilations": (1,), "begins": (0,), "ends": (0,)}
    more = {"group": eqn.params["feature_group_count"], "out": (*result.shape, 1)}
    return lax.squeeze(_define_primitive("onnx_conv").bind(x, weights, **more, **sides), (2,))


def _flip_filters(weights: Any, groups: int) -> Any:
    """Return weights [o, i, ...] as [groups x i, o / groups, ...] with flipped filters."""
    from jax import lax

    outputs, inputs, *sizes = weights.shape
    weights = lax.rev(weights, range(2, weights.ndim))
    weights = lax.reshape(weights, (groups, outputs // groups, inputs, *sizes))
    weights = lax.transpose(weights, (0, 2, 1, *range(3, weights.ndim)))
    return lax.reshape(weights, (groups * inputs, outputs // groups, *sizes))


@functools.cache
def _define_primitive(name: str) -> Any:
    """Return a JAX primitive of this name that has only a shape rule, for one ONNX node."""
    from jax.core import ShapedArray
    from jax.extend.core import Primitive

    primitive = Primitive(name)
    primitive.def_abstract_eval(lambda x, *_, out, **more: ShapedArray(out, x.dtype))
    return primitive


def gather_along_axis(x: Any, indices: Any, axis: int) -> Any:
    """Return the elements of an array at indices along an axis, as ONNX's Gather."""
    out = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    return _define_primitive("onnx_gather").bind(x, indices, axis=axis, out=out)


def scatter_block(x: Any, indices: Any, block: Any) -> Any:
    """Return an array with a block written at indices, as ONNX's ScatterND."""
    return _define_primitive("onnx_scatter").bind(x, indices, block, out=x.shape)


def lower_own_primitive(ctx: Any, eqn: Any) -> None:
    """Add the ONNX node of a primitive that this module defines, and bind its result."""
    import onnx_ir as ir

    (variable,) = eqn.outvars
    provided = [ctx.get_value_for_var(operand) for operand in eqn.invars]
    if eqn.primitive.name in ("onnx_gather", "onnx_scatter"):
        # ONNX takes indices of the type int64 in a ScatterND
        cast = ir.Node("", "Cast", [provided[1]], [ir.AttrInt64("to", 7)], num_outputs=1)
        (provided[1],) = cast.outputs
        provided[1].name = ctx.fresh_name("places")
        provided[1].shape = ir.Shape(eqn.invars[1].aval.shape)
        provided[1].type = ir.TensorType(ir.DataType.INT64)
        ctx.builder.add_node_obj(cast)
        axis = eqn.params.get("axis")
        attributes = [] if axis is None else [ir.AttrInt64("axis", axis)]
    else:
        attributes = _convolution_attributes(eqn)
    node = ir.Node("", NODES[eqn.primitive.name], provided, attributes, num_outputs=1)
    (value,) = node.outputs
    value.name = ctx.fresh_name(eqn.primitive.name)
    value.shape = ir.Shape(variable.aval.shape)
    value.type = provided[0].type
    ctx.builder.add_node_obj(node)
    ctx.bind_value_for_var(variable, value)


def _convolution_attributes(eqn: Any) -> list[Any]:
    """Return the ONNX attributes for an equation of this module's Conv or ConvTranspose."""
    import onnx_ir as ir

    params = eqn.params
    begins, ends = params["begins"], params["ends"]
    ints: dict[str, Sequence[int]] = {
        "strides": params["strides"],
        "dilations": params["dilations"],
        "pads": [max(pad, 0) for pad in (*begins, *ends)],
    }
    if any(end < 0 for end in ends):
        ints["output_padding"] = [max(-end, 0) for end in ends]
    return [
        ir.AttrInt64("group", params["group"]),
        *(ir.AttrInt64s(*pair) for pair in ints.items()),
    ]


def equivalent_code(eqn: Any) -> EquivalentCode | None:
    """Return JAX code that computes the same as an equation, or None."""
    known = _KNOWN.get(eqn.primitive.name)
    return known(eqn) if known is not None else None


def _comparison_rule(name: str) -> Callable[[Any], EquivalentCode]:
    """Return a function that gives lax.NAME (lt, le, eq) for a total-order comparison.

    `lt_to` and its like in jax/_src/lax/lax.py also order NaN and the two zeros.
    """

    def equivalent_comparison(eqn: Any) -> EquivalentCode:
        """Return the plain comparison of JAX that replaces a total-order comparison."""
        from jax import lax

        return EquivalentCode(getattr(lax, name))

    return equivalent_comparison


def _platform_index_equivalent(eqn: Any) -> EquivalentCode:
    """Return the number of the CPU's branch as the result of a `platform_index` equation."""
    import numpy as np

    platforms = eqn.params["platforms"]
    named = [
        n for n, platform in enumerate(platforms) if platform is not None and "cpu" in platform
    ]
    indices = named or [n for n, platform in enumerate(platforms) if platform is None]
    return EquivalentCode(lambda: np.int32(indices[0]))


def _switch_equivalent(eqn: Any) -> EquivalentCode | None:
    """Return a `cond` of three or more branches as nested ones of two, or None for others."""
    branches = eqn.params.get("branches", ())
    if len(branches) < 3:
        return None

    def choose_branch(index: Any, *operands: Any) -> Any:
        """Return the results of the branch at an index."""
        return _select_branch(list(branches), index, operands)

    return EquivalentCode(choose_branch)


def _select_branch(branches: list[Any], index: Any, operands: Sequence[Any]) -> Any:
    """Return the results of the branch at an index, by nested two-way conditionals."""
    from jax import lax
    from jax.extend.core import jaxpr_as_fun

    *others, last = branches
    if not others:
        return jaxpr_as_fun(last)(*operands)

    def results_of_branch_before_last(*provided: Any) -> Any:
        """Return the results of the chosen branch among those before the last."""
        return _select_branch(others, index, provided)

    return lax.cond(
        index >= len(others), jaxpr_as_fun(last), results_of_branch_before_last, *operands
    )


def _linear_solve_equivalent(eqn: Any) -> EquivalentCode:
    """Return a `custom_linear_solve` as its solving program alone."""
    from jax.extend.core import jaxpr_as_fun

    lengths, solve = eqn.params["const_lengths"], eqn.params["jaxprs"].solve
    first = lengths.matvec + lengths.vecmat
    behind = first + lengths.solve + lengths.transpose_solve

    def solve_system(*provided: Any) -> Any:
        """Return the solution of a linear system by the equation's own solve program."""
        return jaxpr_as_fun(solve)(*provided[first : first + lengths.solve], *provided[behind:])

    return EquivalentCode(solve_system, own=True)


def _reverse_scan_equivalent(eqn: Any) -> EquivalentCode | None:
    """Return a reversed `scan` as a forward one on reversed arrays; None for others."""
    params = eqn.params
    if not params.get("reverse"):
        return None
    stacked = params["num_consts"] + params["num_carry"]

    def scan_reversed_arrays(*provided: Any) -> Any:
        """Run a reverse scan as a forward one on reversed inputs, and reverse its outputs."""
        from jax import lax

        turned = [lax.rev(array, (0,)) for array in provided[stacked:]]
        results = eqn.primitive.bind(*provided[:stacked], *turned, **{**params, "reverse": False})
        carried = params["num_carry"]
        return [*results[:carried], *(lax.rev(array, (0,)) for array in results[carried:])]

    return EquivalentCode(scan_reversed_arrays)


def _interior_padding_equivalent(eqn: Any) -> EquivalentCode | None:
    """Return a `pad` between elements by reshapes and edge padding; None for others."""
    sides = eqn.params["padding_config"]
    if not any(inner for *_, inner in sides):
        return None

    def pad_array(x: Any, value: Any) -> Any:
        """Return an array padded at the edges and between its elements."""
        from jax import lax

        for axis, (*_, inner) in enumerate(sides):
            if inner and x.shape[axis]:
                x = _pad_between_elements(x, axis, inner, value)
        return lax.pad(x, value, [(low, high, 0) for low, high, _ in sides])

    return EquivalentCode(pad_array)


def _pad_between_elements(x: Any, axis: int, inner: int, value: Any) -> Any:
    """Return the array with `inner` copies of the value between neighbours along an axis."""
    from jax import lax

    size = x.shape[axis]
    x = lax.expand_dims(x, (axis + 1,))
    x = lax.pad(x, value, [(0, inner * (n == axis + 1), 0) for n in range(x.ndim)])
    x = lax.collapse(x, axis, axis + 2)
    return lax.slice_in_dim(x, 0, size * (inner + 1) - inner, axis=axis)


def _multi_axis_fft_equivalent(eqn: Any) -> EquivalentCode | None:
    """Return an `fft` over several axes as one for each axis, or None for one axis."""
    lengths = tuple(eqn.params["fft_lengths"])
    if len(lengths) < 2:
        return None
    from jax import lax

    kind = lax.FftType(eqn.params["fft_type"])
    halved = {lax.FftType.RFFT: lax.FftType.FFT, lax.FftType.IRFFT: lax.FftType.IFFT}
    last = functools.partial(lax.fft, fft_type=kind, fft_lengths=lengths[-1:])
    inner = halved.get(kind, kind)

    def transform_all_axes_but_last(x: Any) -> Any:
        """Return an array after the FFT over all axes of the transform but the last."""
        for index, length in enumerate(reversed(lengths[:-1])):
            order = list(range(x.ndim))
            order[-1], order[-2 - index] = order[-2 - index], order[-1]
            x = lax.fft(lax.transpose(x, order), inner, (length,)).transpose(order)
        return x

    inverse = kind == lax.FftType.IRFFT
    return EquivalentCode(
        (lambda x: last(transform_all_axes_but_last(x)))
        if inverse
        else (lambda x: transform_all_axes_but_last(last(x)))
    )


def _stack_equivalent(eqn: Any) -> EquivalentCode:
    """Return `stack` as a join along a new axis of every array."""
    axis = eqn.params["axis"]

    def stack_arrays(*provided: Any) -> Any:
        """Return arrays stacked along a new axis, by a concatenation."""
        from jax import lax

        return lax.concatenate([lax.expand_dims(array, (axis,)) for array in provided], axis)

    return EquivalentCode(stack_arrays)


def _unstack_equivalent(eqn: Any) -> EquivalentCode:
    """Return `unstack` as one slice for each index on an axis, without that axis."""
    axis = eqn.params["axis"]

    def unstack_array(x: Any) -> Any:
        """Return the slices of an array along an axis, without that axis."""
        from jax import lax

        return [lax.index_in_dim(x, n, axis, keepdims=False) for n in range(x.shape[axis])]

    return EquivalentCode(unstack_array)


def _tile_equivalent(eqn: Any) -> EquivalentCode:
    """Return `tile` as repetitions along every axis in turn."""

    def tile_array(x: Any) -> Any:
        """Return an array repeated along each axis, by concatenations."""
        from jax import lax

        for axis, times in enumerate(eqn.params["reps"]):
            x = lax.concatenate([x] * times, axis) if times != 1 else x
        return x

    return EquivalentCode(tile_array)


_SCATTERS = ("scatter", *(f"scatter-{name}" for name in ("add", "sub", "mul", "min", "max")))


def whole_array_update_equivalent(eqn: Any) -> EquivalentCode | None:
    """Return a scatter over a whole array as its update alone, or None for others.

    It has no indices, and jax2onnx makes an empty shape of them.
    """
    if eqn.primitive.name not in _SCATTERS:
        return None
    operand, indices, updates = (variable.aval for variable in eqn.invars)
    name = eqn.primitive.name.removeprefix("scatter").removeprefix("-")
    applied = not name and eqn.params["update_jaxpr"] is not None  # a function of one argument
    if indices.shape != (0,) or operand.shape != updates.shape or applied:
        return None

    def update_whole_array(x: Any, _: Any, block: Any) -> Any:
        """Return the update of a whole array: the new block, or both combined by an operation."""
        from jax import lax

        return getattr(lax, name)(x, block) if name else block

    return EquivalentCode(update_whole_array)


def _empty_equivalent(eqn: Any) -> EquivalentCode:
    """Return an array without defined values (`empty`) as zeros.

    Results of other branches are such arrays.
    """
    result = eqn.outvars[0].aval

    def empty_array() -> Any:
        """Return an array of zeros of the result's shape and dtype."""
        from jax import lax

        return lax.full(result.shape, 0, result.dtype)

    return EquivalentCode(empty_array)


def _call_equivalent(eqn: Any) -> EquivalentCode:
    """Return a call equation as the equations of the called program."""
    from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

    stored = eqn.params.get("call_jaxpr", eqn.params.get("jaxpr"))
    return EquivalentCode(
        jaxpr_as_fun(stored if hasattr(stored, "consts") else ClosedJaxpr(stored, ())), own=True
    )


def slice_update_equivalent(eqn: Any) -> EquivalentCode:
    """Return a `dynamic_update_slice` as a scatter with computed indices."""
    size = eqn.invars[1].aval.shape

    def write_block(x: Any, block: Any, *begin: Any) -> Any:
        """Return an array with a block written at start indices, by a scatter."""
        from jax import lax

        along = []
        for axis, (first, wide, narrow) in enumerate(zip(begin, x.shape, size, strict=True)):
            last = lax.full_like(first, wide - narrow)
            first = lax.clamp(lax.full_like(first, 0), first, last)
            indices = lax.iota(first.dtype, narrow) + first
            along.append(lax.broadcast_in_dim(indices, (*size, 1), (axis,)))
        return scatter_block(x, lax.concatenate(along, len(size)), block)

    return EquivalentCode(write_block) if size else EquivalentCode(lambda x, block: block)


def special_function_equivalent(eqn: Any) -> EquivalentCode | None:
    """Return lgamma, digamma or erf_inv with JAX's values at its poles, or None for others.

    jax2onnx writes `lgamma` and `digamma` by the sine of values near a multiple of pi. Their poles
    are 0 and the negative whole numbers: lgamma is infinite there and at infinity, digamma is NaN.
    `erf_inv` is infinite at 1 and -1.
    """
    if eqn.primitive.name not in ("lgamma", "digamma", "erf_inv"):
        return None

    def function_with_poles(x: Any) -> Any:
        """Return the special function of x, with JAX's values at its poles."""
        from jax import lax

        infinity, name = lax.full_like(x, float("inf")), eqn.primitive.name
        if name == "erf_inv":
            is_one = lax.eq(lax.abs(x), lax.full_like(x, 1))
            return lax.select(is_one, lax.mul(x, infinity), eqn.primitive.bind(x))
        is_pole = lax.le(x, lax.full_like(x, 0)) & lax.eq(lax.floor(x), x)
        if name == "digamma":
            return lax.select(is_pole, lax.full_like(x, float("nan")), eqn.primitive.bind(x))
        return lax.select(is_pole | lax.eq(x, infinity), infinity, eqn.primitive.bind(x))

    return EquivalentCode(function_with_poles)


_KNOWN: dict[str, Callable[[Any], EquivalentCode | None]] = {
    **dict.fromkeys(("closed_call", "core_call"), _call_equivalent),
    **{f"{name}_to": _comparison_rule(name) for name in ("lt", "le", "eq")},
    "platform_index": _platform_index_equivalent,
    **dict.fromkeys(("empty", "empty2"), _empty_equivalent),
    "cond": _switch_equivalent,
    "custom_linear_solve": _linear_solve_equivalent,
    "scan": _reverse_scan_equivalent,
    "pad": _interior_padding_equivalent,
    "fft": _multi_axis_fft_equivalent,
    "conv_general_dilated": onnx_ordered_convolution_equivalent,
    "stack": _stack_equivalent,
    "unstack": _unstack_equivalent,
    "tile": _tile_equivalent,
}


# How an image is resized: JAX takes the method as a static argument, which no equation shows.
#
# jax/_src/image/scale.py: `_resize` multiplies by a matrix of weights for each axis, most of which
# are 0.

FUNCTION = "image/scale._resize"
_MODES = {"NEAREST": "nearest", "LINEAR": "linear", "CUBIC": "cubic", "CUBIC_PYTORCH": "cubic"}
_MARK = re.compile(r"/?crossflops\.resize\.(\w*)\.([01])")


@contextmanager
def naming_resize_methods() -> Iterator[None]:
    """Return a context in which each resize is in a name scope that says its method."""
    import jax

    module: Any = importlib.import_module("jax._src.image.scale")
    resize = original_attribute(module, "_resize", inventory.RESIZES)

    def resize_in_scope(image: Any, shape: Any, method: Any, antialias: Any, *more: Any) -> Any:
        """Resize an image in a named scope that records the method and antialiasing."""
        kind = module.ResizeMethod.from_string(method) if isinstance(method, str) else method
        mode = _MODES.get(kind.name, "")
        with jax.named_scope(f"crossflops.resize.{mode}.{int(bool(antialias))}"):
            return resize(image, shape, method, antialias, *more)

    with patching_attribute(module, "_resize", resize_in_scope, inventory.RESIZES):
        yield


def resize_method_in_stack(stack: str) -> dict[str, str | int]:
    """Return "mode" and "antialias" of a resize from its name stack; {} if unknown."""
    mark = _MARK.search(stack)
    return {"mode": mark[1], "antialias": int(mark[2])} if mark and mark[1] else {}


def without_resize_method(stack: str) -> str:
    """Return the name stack without the scope of the method."""
    return _MARK.sub("", stack).strip("/")
