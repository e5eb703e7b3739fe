"""Convert equations that run on every device of a mesh: shard_map and collectives.

The body of a shard_map runs once on each device, on its part of every array: it is a scan over the
devices, or stands for itself where there is one alone.

Sources: jax/_src/shard_map.py, jax/_src/lax/parallel.py.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

from crossflops.frontends.jax.convert.rewrites import EquivalentCode
from crossflops.ir.trace import Scalar

SHARD_MAP = "shard_map"
# They change in JAX's types where a value lies, and move or compute nothing.
PLACEMENTS = (
    *("pvary", "reshard", "mesh_cast", "preduced", "vary_unreduced_cast_p", "reduced_vary_cast"),
    *("sharding_constraint", "layout_constraint", "optimization_barrier"),
)
# Collectives by what they give on one device: what they were given, in another shape at most.
COLLECTIVES = (
    *("psum", "psum_invariant", "unreduced_psum", "pmax", "pmin", "ppermute", "pbroadcast"),
    *("all_gather", "all_gather_invariant", "all_gather_reduced", "all_to_all"),
    *("reduce_scatter", "unreduced_reduce_scatter"),
)
_OVER_AXES = {"psum": "reduce_sum", "pmax": "reduce_max", "pmin": "reduce_min"}


class Mesh:
    """The axes of devices, with their sizes, around the equation being converted."""

    def __init__(self) -> None:
        """Begin outside of any device mesh."""
        self._sizes: list[dict[str, int]] = [{}]

    @contextmanager
    def entering_device_axes(self, axes: Mapping[str, int]) -> Iterator[None]:
        """Return a context whose equations run on devices along these further axes."""
        self._sizes.append({**self._sizes[-1], **axes})
        try:
            yield
        finally:
            self._sizes.pop()

    def device_settings(self, eqn: Any) -> dict[str, Scalar]:
        """Return by name an equation's number of `devices`, and a collective's `group` size."""
        devices = prod(self._sizes[-1].values())
        own: dict[str, Scalar] = {"devices": devices} if devices > 1 else {}
        return own | (
            {"group": self.collective_group_size(eqn)} if eqn.primitive.name in COLLECTIVES else {}
        )

    def collective_group_size(self, eqn: Any) -> int:
        """Return the number of devices that take part in a collective."""
        groups = eqn.params.get("axis_index_groups")
        if groups:
            return len(groups[0])
        return prod(self._sizes[-1].get(name, 1) for name in _collective_axis_names(eqn))


def _collective_axis_names(eqn: Any) -> tuple[Any, ...]:
    """Return the axes of a collective equation: mesh axis names and array axis numbers."""
    named = eqn.params.get("axes", eqn.params.get("axis_name", ()))
    return tuple(named) if isinstance(named, tuple | list) else (named,)


def single_device_equivalent(eqn: Any, mesh: Mesh) -> EquivalentCode | None:
    """Return what a collective computes on one device, or None if several take part.

    The device's number decides no count: `axis_index` is 0.
    """
    import numpy as np

    name = eqn.primitive.name
    if name == "axis_index":
        return EquivalentCode(lambda: np.int32(0))
    if name in PLACEMENTS:
        return EquivalentCode(lambda *provided: list(provided))
    if name not in COLLECTIVES:
        return None
    return _array_axis_reduction(eqn) or (
        _reshaping_equivalent(eqn) if mesh.collective_group_size(eqn) == 1 else None
    )


def primitive_name(eqn: Any) -> str:
    """Return the name of an equation's primitive; of psum over array axes "reduce_sum", ...

    vmap makes these of a collective over its own axis.
    """
    name: str = eqn.primitive.name
    return _OVER_AXES.get(name, name) if _array_axes_of_collective(eqn) else name


def _array_axes_of_collective(eqn: Any) -> tuple[int, ...]:
    """Return the array axes (integers) of a collective equation, without its mesh axes."""
    return tuple(name for name in _collective_axis_names(eqn) if isinstance(name, int))


def _array_axis_reduction(eqn: Any) -> EquivalentCode | None:
    """Return a reduction over array axes for such a collective, or None for others."""
    indices = _array_axes_of_collective(eqn)
    if not indices or eqn.primitive.name not in _OVER_AXES:
        return None
    from jax import lax

    reduce = getattr(lax, _OVER_AXES[eqn.primitive.name])
    return EquivalentCode(lambda *provided: [reduce(array, indices) for array in provided])


def _reshaping_equivalent(eqn: Any) -> EquivalentCode:
    """Return a replacement for a collective operation (such as all_gather) on one device: it
    returns the operands in the shapes of the results, or zeros if the device receives nothing.
    """
    shapes = [variable.aval.shape for variable in eqn.outvars]
    sent = eqn.primitive.name != "ppermute" or (0, 0) in eqn.params["perm"]

    def operands_as_results(*provided: Any) -> list[Any]:
        """Return the operands of the collective in the shapes of its results, or zeros if the
        device receives nothing.
        """
        from jax import lax

        pairs = zip(provided, shapes, strict=True)
        kept = [array if array.shape == to else lax.reshape(array, to) for array, to in pairs]
        return kept if sent else [lax.full_like(array, 0) for array in kept]

    return EquivalentCode(operands_as_results)


def lower_shard_map(ctx: Any, eqn: Any, mesh: Mesh, added_equations: dict[int, Any]) -> None:
    """Convert a shard_map: its body itself for one device, a scan over several devices."""
    params = eqn.params
    manual = params.get("newly_manual_axes", params.get("manual_axes"))
    sizes = params["mesh"].shape
    axes = {name: sizes[name] for name in params["mesh"].axis_names if name in manual}
    body = _to_closed_jaxpr(params["jaxpr"])
    with mesh.entering_device_axes(axes):
        if prod(axes.values()) == 1:
            _inline_device_body(ctx, body, eqn.invars, eqn.outvars)
            return
        specs = tuple(zip(eqn.invars, params["in_specs"], strict=True))
        parts = _lower_function(
            ctx,
            lambda *provided: [
                _split_by_device(array, spec, axes)
                for array, (_, spec) in zip(provided, specs, strict=True)
            ],
            eqn.invars,
            added_equations,
        )
        results = _scan_devices(ctx, eqn, body, parts, prod(axes.values()), added_equations)
    out_specs = params["out_specs"]
    merged = _lower_function(
        ctx,
        lambda *provided: [
            _merge_devices(array, spec, axes)
            for array, spec in zip(provided, out_specs, strict=True)
        ],
        results,
        added_equations,
    )
    for outer, inner in zip(eqn.outvars, merged, strict=True):
        ctx.bind_value_for_var(outer, ctx.get_value_for_var(inner))


def _to_closed_jaxpr(jaxpr: Any) -> Any:
    """Return a JAX program together with its constants, which are () if it has none."""
    from jax.extend.core import ClosedJaxpr

    return jaxpr if hasattr(jaxpr, "consts") else ClosedJaxpr(jaxpr, ())


def _jax2onnx_control_flow_module() -> Any:
    """Return jax2onnx's module for lowering control flow."""
    return importlib.import_module("jax2onnx.plugins.jax.lax._control_flow_utils")


def _inline_device_body(
    ctx: Any, body: Any, provided: Iterable[Any], results: Iterable[Any]
) -> None:
    """Convert the equations of a shard_map body in the current graph; bind its results."""
    import numpy as np

    for variable, value in zip(body.jaxpr.constvars, body.consts, strict=True):
        ctx.bind_const_for_var(variable, np.asarray(value))
    for inner, outer in zip(body.jaxpr.invars, provided, strict=True):
        ctx.bind_value_for_var(inner, ctx.get_value_for_var(outer))
    _jax2onnx_control_flow_module().lower_jaxpr_eqns(ctx, body.jaxpr, source=SHARD_MAP)
    for outer, inner in zip(results, body.jaxpr.outvars, strict=True):
        ctx.bind_value_for_var(outer, ctx.get_value_for_var(inner))


def _lower_function(
    ctx: Any,
    function: Callable[..., Any],
    provided: Sequence[Any],
    added_equations: dict[int, Any],
) -> list[Any]:
    """Convert a function in the current graph; return the JAX variables of its results."""
    import jax

    shapes = [jax.ShapeDtypeStruct(other.aval.shape, other.aval.dtype) for other in provided]
    closed = jax.make_jaxpr(function)(*shapes)
    added_equations.update((id(equation), equation) for equation in closed.jaxpr.eqns)
    for inner, outer in zip(closed.jaxpr.invars, provided, strict=True):
        ctx.bind_value_for_var(inner, ctx.get_value_for_var(outer))
    _jax2onnx_control_flow_module().lower_jaxpr_eqns(ctx, closed.jaxpr, source=SHARD_MAP)
    return list(closed.jaxpr.outvars)


def _scan_devices(
    ctx: Any, eqn: Any, body: Any, parts: list[Any], devices: int, added_equations: dict[int, Any]
) -> list[Any]:
    """Convert a shard_map to a scan over its devices; return the variables of the results."""
    from jax.core import ShapedArray
    from jax.extend.core import Jaxpr, Var

    loops: Any = importlib.import_module("jax._src.lax.control_flow.loops")
    results = [
        Var(ShapedArray((devices, *variable.aval.shape), variable.aval.dtype))
        for variable in body.jaxpr.outvars
    ]
    params = {
        "jaxpr": body,
        "length": devices,
        "num_consts": 0,
        "num_carry": 0,
        "reverse": False,
        "unroll": 1,
    }
    loop = eqn.replace(primitive=loops.scan_p, params=params, invars=parts, outvars=results)
    added_equations[id(loop)] = loop
    full = Jaxpr((), parts, results, [loop], debug_info=body.jaxpr.debug_info)
    _jax2onnx_control_flow_module().lower_jaxpr_eqns(ctx, full, source=SHARD_MAP)
    return results


# The parts of an array: [*devices, *local], and back.


def _mesh_axes_by_array_axis(
    spec: Any, rank: int, axes: Mapping[str, int]
) -> list[tuple[str, ...]]:
    """Return, for each array axis, the mesh axes that split it, outermost first."""
    cut: list[Any] = [*spec, *(None,) * rank][:rank]
    named = (names if isinstance(names, tuple) else (names,) for names in cut)
    return [tuple(name for name in names if name in axes) for names in named]


def _split_by_device(array: Any, spec: Any, axes: Mapping[str, int]) -> Any:
    """Return an array split by device: [...] to [devices, *local shape].

    An array that is not split along a mesh axis is copied.
    """
    from jax import lax

    shape: list[int] = []
    index: dict[str, int] = {}
    for size, names in zip(
        array.shape, _mesh_axes_by_array_axis(spec, array.ndim, axes), strict=True
    ):
        for name in names:
            index[name] = len(shape)
            shape.append(axes[name])
        shape.append(size // prod(axes[name] for name in names))
    cut = [index[name] for name in axes if name in index]
    kept = [axis for axis in range(len(shape)) if axis not in cut]
    array = lax.transpose(lax.reshape(array, shape), (*cut, *kept))
    local = array.shape[len(cut) :]
    filled = [axis for axis, name in enumerate(axes) if name in index]
    behind = range(len(axes), len(axes) + len(local))
    array = lax.broadcast_in_dim(array, (*axes.values(), *local), (*filled, *behind))
    return lax.reshape(array, (prod(axes.values()), *local))


def _merge_devices(array: Any, spec: Any, axes: Mapping[str, int]) -> Any:
    """Return an array merged from parts by device: [devices, *local shape] to [...].

    Of equal copies the first one is used.
    """
    from jax import lax

    local = array.shape[1:]
    parts = _mesh_axes_by_array_axis(spec, len(local), axes)
    cut = [name for name in axes if any(name in names for names in parts)]
    array = lax.reshape(array, (*axes.values(), *local))
    ends = [size if name in cut else 1 for name, size in axes.items()]
    array = lax.slice(array, (0,) * array.ndim, (*ends, *local))
    array = lax.reshape(array, (*(axes[name] for name in cut), *local))
    order: list[int] = []
    shape: list[int] = []
    for axis, (size, names) in enumerate(zip(local, parts, strict=True)):
        order += [*(cut.index(name) for name in names), len(cut) + axis]
        shape.append(size * prod(axes[name] for name in names))
    return lax.reshape(lax.transpose(array, order), shape)
