"""Find functions with a custom derivative, and equations without a derivative.

A node is left behind each function of a jax.custom_vjp or a jax.custom_jvp: it hands the result
on, and notes what the function was given. Its backward pass is the program that JAX makes of it.
Sources: jax/_src/custom_derivatives.py, jax/_src/interpreters/ad.py.
"""

import importlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from crossflops.frontends.jax.record.function import isolating_jax_cache

CUSTOM = ("custom_vjp_call", "custom_jvp_call")
KINDS = {"custom_vjp_call": "a jax.custom_vjp", "custom_jvp_call": "a jax.custom_jvp"}
STOPPED, REFUSED = "stopped", "refused"
_DOMAIN, _HANDED, _NOTE = "jax", "handed_on", "crossflops.own"


class OwnEquation(msgspec.Struct, frozen=True):
    """An equation that applies a function with a custom derivative, with its number.

    `places` are the indices of the operands that may get a gradient.
    """

    number: int
    eqn: Any
    places: tuple[int, ...]

    @property
    def name(self) -> str:
        """A unique name of the function: its primitive and the equation's number."""
        return f"{self.eqn.primitive.name} {self.number}"


class MarkedResult(NamedTuple):
    """The node that passes a custom derivative's result on, and the inputs of its function."""

    node: Any
    inputs: list[Any]


class OwnFunction(msgspec.Struct, frozen=True):
    """A function with a custom derivative in a converted model, found by its result's node.

    `given` are its inputs, by the index of the operand.
    """

    number: int
    name: str
    kind: str
    home: str
    given: dict[int, str]


def has_custom_derivative(eqn: Any) -> bool:
    """Return whether an equation applies a user's function with a custom derivative.

    An activation of JAX or Flax with a rule of its own is not one.
    """
    if eqn.primitive.name not in CUSTOM:
        return False
    rule = eqn.params.get("jvp_jaxpr_fun")
    file = str(getattr(getattr(rule, "debug_info", None), "func_src_info", "")).replace("\\", "/")
    return not any(f"/site-packages/{library}/" in file for library in ("jax", "flax"))


def read_result_positions(eqn: Any) -> list[int]:
    """Return the positions of an equation's results that something reads."""
    from jax._src.core import DropVar

    return [index for index, stored in enumerate(eqn.outvars) if not isinstance(stored, DropVar)]


def add_custom_derivative_markers(ctx: Any, number: int, eqn: Any) -> OwnEquation | None:
    """Add a marker node to each used result of a custom derivative; return its record.

    Returns None, and adds no node, where no result is read.
    """
    import onnx_ir as ir
    from jax.extend.core import Literal

    indices = tuple(
        index
        for index, operand in enumerate(eqn.invars)
        if not isinstance(operand, Literal) and _has_float_or_complex_dtype(operand)
    )
    provided = [ctx.get_value_for_var(eqn.invars[index]) for index in indices]
    live = read_result_positions(eqn)
    for index in live:
        variable = eqn.outvars[index]
        value = ctx.get_value_for_var(variable)
        node = ir.Node(_DOMAIN, _HANDED, [value, *provided], num_outputs=1)
        node.metadata_props[_NOTE], provided = str(number), []
        (result,) = node.outputs
        result.name = ctx.fresh_name("handed_on")
        result.type, result.shape = value.type, value.shape
        ctx.builder.add_node_obj(node)
        ctx.bind_value_for_var(variable, result)
    return OwnEquation(number, eqn, indices) if live else None


def turn_markers_into_identity_nodes(model: Any) -> dict[int, MarkedResult]:
    """Turn marker nodes into Identity nodes, in place; return them by equation number.

    Of several markers of an equation, the first one is returned.
    """
    results: dict[int, MarkedResult] = {}
    for node in list(model.graph.all_nodes()):
        if node.op_type == _HANDED and node.domain == _DOMAIN:
            number = int(node.metadata_props[_NOTE])
            results.setdefault(number, MarkedResult(node, list(node.inputs[1:])))
            node.op_type, node.domain = "Identity", ""
            node.resize_inputs(1)
    return results


def own_gradient_functions(
    applied: Iterable[OwnEquation], results: Mapping[int, MarkedResult]
) -> tuple[OwnFunction, ...]:
    """Return the functions with custom derivatives, by names of their nodes and inputs."""
    return tuple(
        OwnFunction(
            number=own.number,
            name=own.name,
            kind=KINDS[own.eqn.primitive.name],
            home=results[own.number].node.name,
            given=dict(
                zip(
                    own.places, (stored.name for stored in results[own.number].inputs), strict=True
                )
            ),
        )
        for own in applied
        if own.number in results
    )


def _has_float_or_complex_dtype(variable: Any) -> bool:
    """Return whether a variable of a JAX program has a floating or complex dtype."""
    import jax.numpy as jnp

    return bool(jnp.issubdtype(variable.aval.dtype, jnp.inexact))


class DerivativesOfPrimitives:
    """A cache of whether primitives have derivatives, by the dtypes of their operands."""

    def __init__(self) -> None:
        """Begin with no known primitives."""
        self._known: dict[tuple[str, ...], str] = {}

    def gradient_verdict(self, eqn: Any) -> str:
        """Return "" if an equation passes gradients on, else STOPPED or REFUSED (JAX has none)."""
        if any(True for _ in _inner_programs(eqn)) or not any(
            map(_is_float_or_complex_array, eqn.invars)
        ):
            return ""
        types = (str(getattr(stored.aval, "dtype", "")) for stored in eqn.invars)
        key = (eqn.primitive.name, *types)
        if key not in self._known:
            self._known[key] = _derivative_verdict(eqn)
        return self._known[key]


def _is_float_or_complex_array(variable: Any) -> bool:
    """Return whether a variable is an array of a floating or complex dtype."""
    return hasattr(variable.aval, "dtype") and _has_float_or_complex_dtype(variable)


def _inner_programs(eqn: Any) -> Iterator[Any]:
    """Yield the programs inside an equation: bodies of loops, branches, called functions."""
    for value in eqn.params.values():
        for stored in value if isinstance(value, tuple | list) else (value,):
            if hasattr(stored, "eqns") or hasattr(stored, "jaxpr"):
                yield stored


def _derivative_verdict(eqn: Any) -> str:
    """Return "" if JAX has a derivative of an equation, else STOPPED or REFUSED."""
    from jax.extend.core import ClosedJaxpr

    derive: Any = importlib.import_module("jax._src.interpreters.ad")
    lax: Any = importlib.import_module("jax.lax")
    program = ClosedJaxpr(_single_equation_program(eqn), ())
    try:
        nonzero = derive.jvp_jaxpr(
            program, [_is_float_or_complex_array(v) for v in program.jaxpr.invars], False
        )
    except NotImplementedError:
        of_jax = getattr(lax, f"{eqn.primitive.name}_p", None) is eqn.primitive
        return REFUSED if of_jax else ""
    except Exception:
        return ""
    reals = [_is_float_or_complex_array(variable) for variable in eqn.outvars]
    return "" if not any(reals) or any(nonzero[1]) else STOPPED


def _single_equation_program(eqn: Any) -> Any:
    """Return a JAX program of this equation alone, with all operands as inputs."""
    from jax.api_util import debug_info
    from jax.extend.core import Jaxpr, Literal, Var

    operands = [
        Var(stored.aval) if isinstance(stored, Literal) or stored in eqn.invars[:index] else stored
        for index, stored in enumerate(eqn.invars)
    ]
    source = debug_info("one equation", _single_equation_program, (eqn,), {})._replace(
        arg_names=("",) * len(operands), result_paths=("",) * len(eqn.outvars)
    )
    return Jaxpr((), operands, eqn.outvars, [eqn.replace(invars=operands)], debug_info=source)


class BackwardProgram(msgspec.Struct, frozen=True):
    """A function that returns a result, and the gradients of the operands at `places`.

    `specs` are its input shapes. It may compute nothing at all.
    """

    function: Any
    specs: tuple[Any, ...]
    places: tuple[int, ...]
    is_empty: bool


def backward_program(own: OwnEquation) -> BackwardProgram:
    """Return the program of a custom derivative's backward pass, as JAX differentiates it."""
    import jax

    eqn = own.eqn
    program, (result,) = _single_equation_program(eqn), read_result_positions(eqn)
    indices = own.places
    specs = [
        jax.ShapeDtypeStruct(stored.aval.shape, stored.aval.dtype) for stored in program.invars
    ]
    back = jax.ShapeDtypeStruct(eqn.outvars[result].aval.shape, eqn.outvars[result].aval.dtype)

    def result_of_operands(*provided: Any) -> Any:
        """Return the used result of the program for these arrays."""
        return jax.core.eval_jaxpr(program, (), *provided)[result]

    def result_and_gradients(mark: Any, gradient: Any, *provided: Any) -> Any:
        """Return the result, and the gradient of each operand from the result's gradient."""

        def result_with_replaced_operands(*graded: Any) -> Any:
            """Return the result with the operands that get a gradient replaced by these."""
            filled = list(provided)
            for index, array in zip(indices, graded, strict=True):
                filled[index] = mark(array)
            return result_of_operands(*filled)

        value, pull = jax.vjp(
            result_with_replaced_operands, *(provided[index] for index in indices)
        )
        return value, *pull(gradient)

    with isolating_jax_cache():
        marked = jax.make_jaxpr(lambda *provided: result_and_gradients(lambda x: -x, *provided))(
            back, *specs
        ).jaxpr
    makers = {made: step.primitive.name for step in marked.eqns for made in step.outvars}
    ends = dict(zip(indices, marked.outvars[1:], strict=True))
    graded = tuple(p for p, end in ends.items() if makers.get(end) == "neg")

    def result_and_found_gradients(*provided: Any) -> Any:
        """Return the result, and the gradients of those operands that have one."""
        value, *gradients = result_and_gradients(lambda x: x, *provided)
        pairs = zip(indices, gradients, strict=True)
        return value, *(gradient for index, gradient in pairs if index in graded)

    with isolating_jax_cache():
        is_empty = not jax.make_jaxpr(result_and_found_gradients)(back, *specs).jaxpr.eqns
    return BackwardProgram(result_and_found_gradients, (back, *specs), graded, is_empty)
