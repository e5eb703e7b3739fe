"""Convert each equation by jax2onnx, record it, and try alternatives if that fails.

jax2onnx/converter/lowering_dispatch.py: lower_jaxpr_with_plugins hands every equation to
lower_equation_with_plugin, also those in the bodies of loops and in functions.
"""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import msgspec
from msgspec.structs import replace

from crossflops.frontends.jax.convert import rewrites
from crossflops.frontends.jax.convert.devices import (
    SHARD_MAP,
    Mesh,
    lower_shard_map,
    primitive_name,
    single_device_equivalent,
)
from crossflops.frontends.jax.convert.kernels import KERNEL, kernel_as_jax_code, kernel_name
from crossflops.frontends.jax.convert.lost_parameters import (
    node_kind_of_lossy_equation,
    permuting_reshape_equivalent,
)
from crossflops.frontends.jax.convert.own_gradients import (
    DerivativesOfPrimitives,
    OwnEquation,
    add_custom_derivative_markers,
    has_custom_derivative,
    read_result_positions,
)
from crossflops.frontends.jax.convert.rewrites import FUNCTION as RESIZE
from crossflops.frontends.jax.convert.rewrites import (
    EquivalentCode,
    equivalent_code,
    lower_replacement,
    needs_several_conv_nodes,
    onnx_ordered_convolution_equivalent,
    resize_method_in_stack,
    single_product_equivalent,
    slice_update_equivalent,
    special_function_equivalent,
    whole_array_update_equivalent,
    without_resize_method,
)
from crossflops.ir.graph import TensorSpec
from crossflops.ir.trace import Scalar
from crossflops.operators.formula_sources import find_formula
from crossflops.operators.framework_functions import COMPLEX_MOVES
from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute

# Which equation of a JAX program each ONNX node was made for: written down while it is made.

_NOTE = "crossflops.equation"
_KINDS = ("fft_type",)  # parameters that are a member of an enumeration
_CALLS = ("jit", "pjit")
_SPARSE = ("bcoo_", "bcsr_")
_LOOPS = ("scan", "while", KERNEL, SHARD_MAP)
# functions of JAX that have no equation of their own, by the primitive that they are written in
_WRITTEN_IN = {"conv_general_dilated": ("lax/other.conv_general_dilated_patches",)}


class Equation(msgspec.Struct, frozen=True, kw_only=True):
    """An equation that jax2onnx converts: of a JAX primitive, or of one it inserts.

    `stack` is the whole name stack around it, including that of the enclosing equations, and
    `around` the number of the innermost of these. `function` is the JAX function that it calls, or
    that it was written in: "numpy/linalg.solve"; `code` is what a foreign call or a kernel runs:
    "ffi_call.my_scan". `saved` means that an enclosing checkpoint keeps its result, `is_own` that
    it has a custom derivative, which is not JAX's; `unfollowed` says why that is not followed.
    `ungraded` is "stopped" where no gradient flows through it, and "refused" where JAX has none.
    """

    primitive: str
    stack: str
    settings: dict[str, Scalar]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    function: str = ""
    code: str = ""
    around: int | None = None
    saved: bool = False
    is_own: bool = False
    unfollowed: str = ""
    ungraded: str = ""

    @property
    def cost_rule_names(self) -> tuple[str, ...]:
        """The names that may have a known cost: the function or the code that is called, where
        these are known, then the primitive.
        """
        return (*filter(None, (self.function, self.code)), self.primitive)


class LoweringRecorder:
    """A record of the equations, in the order in which jax2onnx begins to convert them.

    A model that is `to_run` computes the same as JAX, also in parts that do not change a count.
    """

    def __init__(self, to_run: bool = False) -> None:
        """Begin with no equations; `to_run` is for a model that a runtime will run."""
        self.to_run = to_run
        self.equations: list[Equation] = []
        self._stack: list[str] = []
        self._open: list[int] = []
        self._policies: list[Any] = [None]  # of the checkpoints around
        self.mesh = Mesh()
        self.own: list[OwnEquation] = []
        self._derivatives = DerivativesOfPrimitives()

    @property
    def is_looped(self) -> bool:
        """Whether the equation being converted is inside a loop or runs on several devices."""
        return any(self.equations[number].primitive in _LOOPS for number in self._open)

    @contextmanager
    def recording_equation(self, eqn: Any, ctx: Any) -> Iterator[None]:
        """Return a context in which each new node is noted with the equation's number.

        A note of an inner equation is kept.
        """
        number = len(self.equations)
        builder = ctx.builder
        last = next(iter(reversed(builder.nodes)), None)
        is_outermost = not any(self.equations[index].is_own for index in self._open)
        stack = str(eqn.source_info.name_stack)
        method = resize_method_in_stack(stack)
        self._stack.append(without_resize_method(stack))
        enclosing = self._open[-1] if self._open else None
        full = "/".join(filter(None, self._stack))
        own = _to_equation(eqn, full, enclosing, method)
        settings = {**own.settings, **self.mesh.device_settings(eqn)}
        own = replace(
            own,
            saved=_is_saved_by_checkpoint(eqn, self._policies[-1]),
            settings=settings,
            unfollowed=self._derivative_obstacle(eqn) if own.is_own else "",
            ungraded=self._derivatives.gradient_verdict(eqn),
        )
        self.equations.append(own)
        self._open.append(number)
        self._policies.append(eqn.params.get("policy") or self._policies[-1])
        try:
            yield
        finally:
            self._stack.pop()
            self._open.pop()
            self._policies.pop()
        if own.is_own and is_outermost:
            applied = add_custom_derivative_markers(ctx, number, eqn)
            if applied is not None and not own.unfollowed:
                self.own.append(applied)
        for node in reversed(builder.nodes):
            if node is last:
                break
            node.metadata_props.setdefault(_NOTE, str(number))

    def _derivative_obstacle(self, eqn: Any) -> str:
        """Return a text on why a custom derivative is not followed, or "" if it is."""
        enclosing = {self.equations[number].primitive for number in self._open}
        if enclosing & {"remat2", "checkpoint"}:
            return "it is in a checkpoint"
        if enclosing & {*_LOOPS, "cond"}:
            return "it is in a loop or a branch"
        return "" if len(read_result_positions(eqn)) == 1 else "it has several results"


def _to_equation(
    eqn: Any, stack: str, enclosing: int | None, method: Mapping[str, Scalar]
) -> Equation:
    """Return the record of a JAX equation: primitive, name stack, settings and operands."""
    return Equation(
        primitive=node_kind_of_lossy_equation(eqn) or primitive_name(eqn),
        stack=stack,
        settings={
            **_equation_settings(eqn.params),
            **_ffi_call_arguments(eqn),
            **_sparse_product_axes(eqn),
            **method,
        },
        inputs=tuple(
            _variable_spec(f"input_{n}", variable) for n, variable in enumerate(eqn.invars)
        ),
        outputs=tuple(
            _variable_spec(f"output_{n}", variable) for n, variable in enumerate(eqn.outvars)
        ),
        function=_jax_function_name(eqn, method),
        code=name if (name := _jax_node_name(eqn)) != eqn.primitive.name else "",
        around=enclosing,
        is_own=has_custom_derivative(eqn),
    )


def _is_saved_by_checkpoint(eqn: Any, policy: Any) -> bool:
    """Return whether the policy of a checkpoint saves the result of an equation."""
    if policy is None or getattr(eqn.primitive, "multiple_results", False):
        return False
    verdict = policy(eqn.primitive, *(variable.aval for variable in eqn.invars), **eqn.params)
    return verdict is True or type(verdict).__name__ in ("SaveableType", "Offloadable")


def _jax_function_name(eqn: Any, method: Mapping[str, Scalar]) -> str:
    """Return the JAX function that an equation calls or was written in, or "" if unknown."""
    if eqn.primitive.name in _CALLS:
        inner = getattr(eqn.params.get("jaxpr"), "jaxpr", None)
        written = str(getattr(getattr(inner, "debug_info", None), "func_filename", None) or "")
        name = _name_in_jax(written, str(eqn.params.get("name")))
        return "" if name == RESIZE and not method else name
    if eqn.primitive.name in _WRITTEN_IN:
        frames = getattr(eqn.source_info.traceback, "frames", ())
        names = {_name_in_jax(frame.file_name, frame.function_name) for frame in frames}
        return next(
            (function for function in _WRITTEN_IN[eqn.primitive.name] if function in names), ""
        )
    return ""


def _name_in_jax(file: str, name: str) -> str:
    """Return a function's file in JAX and name, "numpy/linalg.solve", or "" if not in JAX."""
    index = file.replace("\\", "/").rpartition("/jax/_src/")[2] if "/jax/_src/" in file else ""
    return f"{index.removesuffix('.py')}.{name}" if index else ""


def _variable_spec(name: str, variable: Any) -> TensorSpec:
    """Return the spec of a variable of a JAX program under this name."""
    shape = tuple(map(int, variable.aval.shape)) if hasattr(variable.aval, "shape") else None
    return TensorSpec(name, str(getattr(variable.aval, "dtype", "")), shape)


def _equation_settings(params: dict[str, Any]) -> dict[str, Scalar]:
    """Return an equation's parameters by name that are numbers, texts or tuples of integers."""
    settings: dict[str, Scalar] = {}
    for name, value in params.items():
        if name in _KINDS:
            settings[name] = str(getattr(value, "name", value))
        elif isinstance(value, tuple) and value and all(isinstance(item, int) for item in value):
            settings[name] = list(value)
        elif value is None or isinstance(value, bool | int | float | str):
            settings[name] = value
    return settings


def _ffi_call_arguments(eqn: Any) -> dict[str, Scalar]:
    """Return the plain arguments of a call of `jax.ffi.ffi_call` by name; {} for others."""
    import numpy as np

    if eqn.primitive.name != FOREIGN_CALL:
        return {}
    named = dict(eqn.params.get("attributes") or ())
    plain = {name: v.item() if isinstance(v, np.generic) else v for name, v in named.items()}
    return {name: v for name, v in plain.items() if isinstance(v, bool | int | float | str)}


def _sparse_product_axes(eqn: Any) -> dict[str, Scalar]:
    """Return by name the contracted and batch axes of a sparse product; {} for others."""
    numbers = eqn.params.get("dimension_numbers")
    if not eqn.primitive.name.startswith(_SPARSE) or numbers is None:
        return {}
    names = ("lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch")
    axes = (axes for pair in numbers for axes in pair)
    return {name: [int(axis) for axis in own] for name, own in zip(names, axes, strict=True)}


def name_model_nodes(model: Any) -> dict[str, int]:
    """Give each node of a model a unique name, in place; return equation numbers by name.

    A node that jax2onnx made between equations belongs to the equation of its operands, or of its
    readers; one in a subgraph to that of its holder.
    """
    names: dict[str, int] = {}
    _name_graph_nodes(model.graph, None, names, {})
    for function in model.functions.values():
        _name_graph_nodes(function, None, names, {})
    return names


def _name_graph_nodes(
    graph: Any, enclosing: int | None, names: dict[str, int], used: dict[str, int]
) -> None:
    """Name the nodes of a graph and its bodies; add their equation numbers to `names`."""
    for node in graph:
        number = node_equation_number(node)
        if number is None:
            additional = (node_equation_number(neighbour) for neighbour in _neighbour_nodes(node))
            number = next(
                (neighbour for neighbour in additional if neighbour is not None), enclosing
            )
        kind = node.op_type
        used[kind] = used.get(kind, 0) + 1
        node.name = f"{kind}_{used[kind]}"
        if number is not None:
            names[node.name] = number
            node.metadata_props[_NOTE] = str(number)
        for attribute in node.attributes.values():
            for body in _graphs_in_attribute(attribute):
                _name_graph_nodes(body, number, names, used)


def node_equation_number(node: Any) -> int | None:
    """Return the number of the equation that a node was written for, or None if unknown."""
    note = node.metadata_props.get(_NOTE) if node is not None else None
    return int(note) if note is not None else None


def _neighbour_nodes(node: Any) -> Iterator[Any]:
    """Yield the nodes that produce the inputs of a node or read its outputs."""
    yield from (tensor.producer() for tensor in node.inputs if tensor is not None)
    yield from (reader for tensor in node.outputs for reader, _ in tensor.uses())


def _graphs_in_attribute(attribute: Any) -> list[Any]:
    """Return the graphs in a node's attribute, or [] if it has another type."""
    kind = getattr(attribute.type, "name", "")
    if kind == "GRAPH":
        return [attribute.value]
    return list(attribute.value) if kind == "GRAPHS" else []


# jax2onnx writes out every step of these for every element: the nodes of a Cholesky factor of 40
# rows take it minutes, and say no more than the equation. Small ones can still be run so.
_SMALL = 8
UNROLLED = frozenset({
    "cholesky", "cholesky_update", "eig", "eigh", "geqrf", "hessenberg", "householder_product",
    "lu", "lu_pivots_to_permutation", "ormqr", "qr", "schur", "svd", "symmetric_product",
    "triangular_solve", "tridiagonal", "tridiagonal_solve",
})  # fmt: skip
FOREIGN_CALL = "ffi_call"  # the primitive of `jax.ffi.ffi_call`
DOMAIN = "jax"  # of nodes that stand for equations without an equal in ONNX
_DISPATCH = "jax2onnx.converter.lowering_dispatch"


class _NoRule:
    """A substitute for a missing rule of jax2onnx; it always fails."""

    def __init__(self, name: str) -> None:
        """Take the name of the primitive that jax2onnx has no rule for."""
        self._name = name

    def lower(self, ctx: Any, eqn: Any) -> None:
        """Raise NotImplementedError: jax2onnx has no rule for the primitive."""
        raise NotImplementedError(f"jax2onnx has no rule for {self._name}")


@contextmanager
def recording_and_fixing_lowering(recorder: LoweringRecorder, opaque: bool) -> Iterator[None]:
    """Return a context in which each JAX equation is recorded, and converted again in another way
    if its conversion fails.

    It is lowered first as equivalent equations, then, if `opaque`, as a node of the domain "jax",
    which names it and computes nothing in ONNX.
    """
    dispatch: Any = importlib.import_module(_DISPATCH)
    lower, rule = dispatch.lower_equation_with_plugin, dispatch.get_registered_lowering_plugin
    added_equations: dict[
        int, Any
    ] = {}  # the equations that are in no program but here, by their id

    def find_lowering_rule(registry: Any, name: str, **more: Any) -> Any:
        """Return jax2onnx's rule for a primitive, or one that always fails if it has none."""
        return rule(registry, name, **more) if name in registry else _NoRule(name)

    def lower_equation(plugin: Any, *, ctx: Any, eqn: Any, **more: Any) -> Any:
        """Convert an equation by jax2onnx's rule, by equivalent code, or to a JAX node."""
        if eqn.primitive.name in rewrites.NODES:
            return rewrites.lower_own_primitive(ctx, eqn)
        with (
            nullcontext() if id(eqn) in added_equations else recorder.recording_equation(eqn, ctx)
        ):
            if eqn.primitive.name == SHARD_MAP:
                return lower_shard_map(ctx, eqn, recorder.mesh, added_equations)
            if (kind := _kind_of_unconvertible_equation(eqn)) is not None:
                return _add_jax_node(ctx, eqn, kind, recorder.is_looped)
            better = _replacement_of_equation(eqn, recorder)
            if better is None and recorder.to_run and id(eqn) not in added_equations:
                better = special_function_equivalent(eqn)
            if better is not None:
                return lower_replacement(ctx, eqn, better, added_equations)
            last = next(iter(reversed(ctx.builder.nodes)), None)
            try:
                written = _with_bits_for_all_keys(_with_complex_literals_as_pairs(ctx, eqn))
                result = lower(plugin, ctx=ctx, eqn=written, **more)
                _append_complex_axis_to_shapes(ctx, eqn)
                if recorder.is_looped and eqn.primitive.name == "dynamic_slice":
                    _set_known_shape(ctx, eqn.outvars[0])
                return result
            except Exception:
                _remove_added_nodes(ctx.builder.nodes, last)
                instead = (
                    kernel_as_jax_code(eqn)
                    if eqn.primitive.name == KERNEL
                    else equivalent_code(eqn)
                )
                if instead is None and not opaque:
                    raise
            if instead is not None:
                try:
                    return lower_replacement(ctx, eqn, instead, added_equations)
                except Exception:
                    _remove_added_nodes(ctx.builder.nodes, last)
                    if not opaque:
                        raise
            return _add_jax_node(ctx, eqn, looped=recorder.is_looped)

    with (
        patching_attribute(
            dispatch, "lower_equation_with_plugin", lower_equation, inventory.EQUATIONS
        ),
        patching_attribute(
            dispatch, "get_registered_lowering_plugin", find_lowering_rule, inventory.EQUATIONS
        ),
    ):
        yield


def _kind_of_unconvertible_equation(eqn: Any) -> str | None:
    """Return the type of JAX node for an equation that must not be converted, or None."""
    name: str = eqn.primitive.name
    if _moves_complex(eqn):
        return f"complex_{name}"
    if (kind := node_kind_of_lossy_equation(eqn)) is not None:
        return kind
    if name == KERNEL and find_formula(DOMAIN, code := _jax_node_name(eqn)) is not None:
        return code  # a formula goes over the body
    return (
        name
        if (_has_axis_longer_than_8(eqn) if name in UNROLLED else _is_complex_fft(eqn))
        else None
    )


def _replacement_of_equation(eqn: Any, recorder: LoweringRecorder) -> EquivalentCode | None:
    """Return equivalent JAX code if jax2onnx would convert an equation wrongly, or None."""
    for rewrite in (
        single_product_equivalent,
        permuting_reshape_equivalent,
        whole_array_update_equivalent,
    ):
        if (same := rewrite(eqn)) is not None:
            return same
    if (same := single_device_equivalent(eqn, recorder.mesh)) is not None:
        return same
    if _makes_complex_from_real(eqn):
        return EquivalentCode(_to_complex64)
    if eqn.primitive.name == "abs" and _is_complex_variable(eqn.invars[0]):
        return EquivalentCode(_complex_absolute_value)
    if needs_several_conv_nodes(eqn):
        return onnx_ordered_convolution_equivalent(eqn)
    is_update = eqn.primitive.name == "dynamic_update_slice"
    return slice_update_equivalent(eqn) if is_update and recorder.is_looped else None


def _set_known_shape(ctx: Any, variable: Any) -> None:
    """Give an equation's result in a loop the shape that JAX knows, by added nodes."""
    value = _add_nodes_that_fix_shape(ctx, ctx.get_value_for_var(variable), variable.aval.shape)
    ctx.bind_value_for_var(variable, value)


def _is_complex_fft(eqn: Any) -> bool:
    """Return whether an equation is an FFT of complex numbers.

    jax2onnx ignores that the two parts of such numbers are an axis.
    """
    return eqn.primitive.name == "fft" and bool(eqn.invars[0].aval.dtype.kind == "c")


def _moves_complex(eqn: Any) -> bool:
    """Return whether an equation moves complex numbers, such as a slice.

    jax2onnx's rules for movements ignore the axis of the two parts.
    """
    return eqn.primitive.name in COMPLEX_MOVES and any(map(_is_complex_variable, eqn.outvars))


def _is_complex_variable(variable: Any) -> bool:
    """Return whether a variable of a JAX program is complex."""
    return has_complex_elements(variable.aval)


def has_complex_elements(array: Any) -> bool:
    """Return whether the elements of an array, or of its shape object, are complex numbers."""
    return str(getattr(array, "dtype", "")).startswith("complex")


def _makes_complex_from_real(eqn: Any) -> bool:
    """Return whether an equation makes complex numbers of real ones.

    jax2onnx gives such a result no axis of the two parts.
    """
    if eqn.primitive.name != "convert_element_type":
        return False
    return _is_complex_variable(eqn.outvars[0]) and not _is_complex_variable(eqn.invars[0])


def _to_complex64(x: Any) -> Any:
    """Return a real array as complex64, with 0 as its imaginary part."""
    from jax import lax

    real = lax.convert_element_type(x, "float32")
    return lax.complex(real, lax.full_like(real, 0))


def _complex_absolute_value(x: Any) -> Any:
    """Return the absolute value of complex numbers, computed from both of their parts."""
    from jax import lax

    real, imaginary = lax.real(x), lax.imag(x)
    return lax.sqrt(real * real + imaginary * imaginary)


def _with_complex_literals_as_pairs(ctx: Any, eqn: Any) -> Any:
    """Return an equation whose complex literals are stored as (real, imaginary) pairs.

    A number beside an array has as many axes: the rules look for the pairs after these.
    """
    import numpy as np
    from jax.core import ShapedArray
    from jax.extend.core import Literal, Var

    rank = max((len(variable.aval.shape) for variable in eqn.outvars), default=0)

    def store_complex_literal(variable: Any) -> Any:
        """Return a stored pair of parts for a complex literal; other variables unchanged."""
        if not (isinstance(variable, Literal) and _is_complex_variable(variable)):
            return variable
        value = np.asarray(variable.val)
        value = value.reshape((1,) * (rank - value.ndim) + value.shape)
        stored = Var(ShapedArray(value.shape, variable.aval.dtype))
        ctx.bind_const_for_var(stored, np.stack([value.real, value.imag], -1).astype(np.float32))
        return stored

    provided = [store_complex_literal(variable) for variable in eqn.invars]
    same = all(operand is two for operand, two in zip(provided, eqn.invars, strict=True))
    return eqn if same else eqn.replace(invars=provided)


def _with_bits_for_all_keys(eqn: Any) -> Any:
    """Return an equation that draws random bits for all keys at once.

    jax2onnx draws those of one key.
    """
    if eqn.primitive.name != "random_bits":
        return eqn
    return eqn.replace(params={**eqn.params, "shape": tuple(eqn.outvars[0].aval.shape)})


def _has_axis_longer_than_8(eqn: Any) -> bool:
    """Return whether an axis of an operand or a result is longer than 8."""
    return any(
        max(variable.aval.shape, default=0) > _SMALL for variable in (*eqn.invars, *eqn.outvars)
    )


def _append_complex_axis_to_shapes(ctx: Any, eqn: Any) -> None:
    """Add a last axis of 2, for the real and the imaginary part, to the shape that `ctx` has of
    each complex result of an equation.
    """
    import onnx_ir as ir

    for variable in filter(_is_complex_variable, eqn.outvars):
        value = ctx.get_value_for_var(variable)
        if value.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
            value.shape = ir.Shape((*variable.aval.shape, 2))


def _remove_added_nodes(nodes: Any, last: Any) -> None:
    """Remove the nodes that were added after `last`."""
    made = []
    for node in reversed(nodes):
        if node is last:
            break
        made.append(node)
    for node in made:
        nodes.remove(node)


def _add_jax_node(ctx: Any, eqn: Any, name: str = "", looped: bool = False) -> None:
    """Add one JAX node for an equation, with the result shapes that JAX knows.

    Complex ones have, as everywhere in jax2onnx, a last axis of their two parts. In the body of a
    loop, where jax2onnx keeps only ranks, a Cast and a Reshape restore type and shape.
    """
    import onnx_ir as ir

    inputs = [ctx.get_value_for_var(variable) for variable in eqn.invars]
    kind = name or _jax_node_name(eqn)
    node = ir.Node(DOMAIN, kind, inputs, num_outputs=len(eqn.outvars))
    ctx.builder.add_node_obj(node)
    for variable, value in zip(eqn.outvars, node.outputs, strict=True):
        parts = (2,) if _is_complex_variable(variable) else ()
        shape = (*variable.aval.shape, *parts)
        value.name = ctx.fresh_name(eqn.primitive.name)
        value.shape = ir.Shape(shape)
        value.type = ir.TensorType(
            ir.DataType.FLOAT if parts else _onnx_element_type(variable.aval.dtype)
        )
        ctx.bind_value_for_var(
            variable, _add_nodes_that_fix_shape(ctx, value, shape) if looped else value
        )


def _jax_node_name(eqn: Any) -> str:
    """Return the name for the nodes of an equation: that of its primitive, and for a call of
    `jax.ffi` or a Pallas kernel "PRIMITIVE.CALLED".
    """
    kind = str(eqn.primitive.name)
    called = kernel_name(eqn) if kind == KERNEL else None
    if kind == FOREIGN_CALL:
        called = eqn.params.get("target_name")
    return f"{kind}.{called}" if isinstance(called, str) and called else kind


def _add_nodes_that_fix_shape(ctx: Any, value: Any, shape: Sequence[int]) -> Any:
    """Return the value after a Cast and a Reshape to its own type and shape."""
    import numpy as np
    import onnx_ir as ir

    sizes = ctx.bind_const_for_var(object(), np.asarray(shape, np.int64))
    kind = value.type
    cast = ir.Node("", "Cast", [value], [ir.AttrInt64("to", kind.dtype.value)], num_outputs=1)
    node = ir.Node("", "Reshape", [cast.outputs[0], sizes], num_outputs=1)
    for step in (cast, node):
        (result,) = step.outputs
        result.name, result.type = ctx.fresh_name(f"{value.name}_known"), kind
        result.shape = ir.Shape(shape)
        ctx.builder.add_node_obj(step)
    return node.outputs[0]


def _onnx_element_type(dtype: Any) -> Any:
    """Return the ONNX element type of a JAX dtype; uint32 for random keys."""
    import numpy as np
    import onnx_ir as ir

    try:
        return ir.DataType.from_numpy(np.dtype(dtype))
    except TypeError:  # a random key
        return ir.DataType.UINT32
