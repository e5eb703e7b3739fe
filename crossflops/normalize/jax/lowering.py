"""How jax2onnx lowers one equation, and what is done where it cannot.

jax2onnx/converter/lowering_dispatch.py: lower_jaxpr_with_plugins hands every equation to
lower_equation_with_plugin, also those in the bodies of loops and in functions.
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from crossflops.normalize.jax import convolutions
from crossflops.normalize.jax.equals import equal
from crossflops.normalize.jax.equations import Recorder
from crossflops.normalize.jax.inlining import Equal, inlined
from crossflops.ops.framework_functions import COMPLEX_MOVES

# jax2onnx writes out every step of these for every element: the nodes of a Cholesky factor of 40
# rows take it minutes, and say no more than the equation. Small ones can still be run so.
_SMALL = 8
UNROLLED = frozenset({
    "cholesky", "cholesky_update", "eig", "eigh", "geqrf", "hessenberg", "householder_product",
    "lu", "lu_pivots_to_permutation", "ormqr", "qr", "schur", "svd", "symmetric_product",
    "triangular_solve", "tridiagonal", "tridiagonal_solve",
})  # fmt: skip
DOMAIN = "jax"  # of nodes that stand for equations without an equal in ONNX
_DISPATCH = "jax2onnx.converter.lowering_dispatch"


class _NoRule:
    """In place of a rule that jax2onnx has not."""

    def __init__(self, name: str) -> None:
        self._name = name

    def lower(self, ctx: Any, eqn: Any) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError(f"jax2onnx has no rule for {self._name}")


@contextmanager
def lowering(recorder: Recorder, opaque: bool) -> Iterator[None]:
    """While this is open, every equation is recorded, and one that fails gets another chance.

    First as its equal in other equations. Then, if `opaque`, as a node of the domain "jax",
    which says what it is and computes nothing that ONNX knows.
    """
    dispatch: Any = importlib.import_module(_DISPATCH)
    lower, rule = dispatch.lower_equation_with_plugin, dispatch.get_registered_lowering_plugin
    ours: dict[int, Any] = {}  # the equations that are in no program but here, by their id

    def found(registry: Any, name: str, **more: Any) -> Any:
        return rule(registry, name, **more) if name in registry else _NoRule(name)

    def lowered(plugin: Any, *, ctx: Any, eqn: Any, **more: Any) -> Any:
        if eqn.primitive.name in convolutions.NODES:
            return convolutions.lower(ctx, eqn)
        with nullcontext() if id(eqn) in ours else recorder.within(eqn, ctx.builder):
            if _moves_complex(eqn):
                return _opaque(ctx, eqn, f"complex_{eqn.primitive.name}")
            if _is_large(eqn) if eqn.primitive.name in UNROLLED else _is_complex(eqn):
                return _opaque(ctx, eqn)
            if _makes_complex(eqn):
                return inlined(ctx, eqn, Equal(_as_complex), ours)
            last = next(iter(reversed(ctx.builder.nodes)), None)
            try:
                return lower(plugin, ctx=ctx, eqn=_with_parts(ctx, eqn), **more)
            except Exception:
                instead = equal(eqn)
                if instead is None and not (opaque and _is_simple(eqn)):
                    raise
                _undo(ctx.builder.nodes, last)
            if instead is not None:
                return inlined(ctx, eqn, instead, ours)
            return _opaque(ctx, eqn)

    dispatch.lower_equation_with_plugin = lowered
    dispatch.get_registered_lowering_plugin = found
    try:
        yield
    finally:
        dispatch.lower_equation_with_plugin = lower
        dispatch.get_registered_lowering_plugin = rule


def _is_complex(eqn: Any) -> bool:
    """Whether it transforms complex numbers: jax2onnx forgets that their parts are an axis."""
    return eqn.primitive.name == "fft" and bool(eqn.invars[0].aval.dtype.kind == "c")


def _moves_complex(eqn: Any) -> bool:
    """Whether it moves complex numbers, whose two parts jax2onnx's rules for movements forget."""
    return eqn.primitive.name in COMPLEX_MOVES and any(map(_holds_complex, eqn.outvars))


def _holds_complex(variable: Any) -> bool:
    return str(getattr(variable.aval, "dtype", "")).startswith("complex")


def _makes_complex(eqn: Any) -> bool:
    """Whether real numbers become complex ones: jax2onnx gives them no axis of the two parts."""
    if eqn.primitive.name != "convert_element_type":
        return False
    return _holds_complex(eqn.outvars[0]) and not _holds_complex(eqn.invars[0])


def _as_complex(x: Any) -> Any:
    from jax import lax

    real = lax.convert_element_type(x, "float32")
    return lax.complex(real, lax.full_like(real, 0))


def _with_parts(ctx: Any, eqn: Any) -> Any:
    """The equation with its complex literals stored as pairs, which jax2onnx's rules read."""
    import numpy as np
    from jax.extend.core import Literal, Var

    def stored(one: Any) -> Any:
        if not (isinstance(one, Literal) and _holds_complex(one)):
            return one
        value, held = np.asarray(one.val), Var(one.aval)
        ctx.bind_const_for_var(held, np.stack([value.real, value.imag], -1).astype(np.float32))
        return held

    given = [stored(one) for one in eqn.invars]
    same = all(one is two for one, two in zip(given, eqn.invars, strict=True))
    return eqn if same else eqn.replace(invars=given)


def _is_large(eqn: Any) -> bool:
    return any(max(one.aval.shape, default=0) > _SMALL for one in (*eqn.invars, *eqn.outvars))


def _is_simple(eqn: Any) -> bool:
    """Whether no other equations are in it."""
    values = eqn.params.values()
    held = [one for value in values for one in (value if isinstance(value, tuple) else (value,))]
    return not any(hasattr(one, "eqns") or hasattr(one, "jaxpr") for one in held)


def _undo(nodes: Any, last: Any) -> None:
    """Take away the nodes behind `last`, which nothing reads but one another."""
    made = []
    for node in reversed(nodes):
        if node is last:
            break
        made.append(node)
    for node in made:
        nodes.remove(node)


def _opaque(ctx: Any, eqn: Any, name: str = "") -> None:
    """A node that says what the equation is; its results have the shapes that JAX knows.

    Complex ones have, as everywhere in jax2onnx, a last axis of their two parts.
    """
    import onnx_ir as ir

    inputs = [ctx.get_value_for_var(one) for one in eqn.invars]
    node = ir.Node(DOMAIN, name or eqn.primitive.name, inputs, num_outputs=len(eqn.outvars))
    for variable, value in zip(eqn.outvars, node.outputs, strict=True):
        parts = (2,) if _holds_complex(variable) else ()
        value.name = ctx.fresh_name(eqn.primitive.name)
        value.shape = ir.Shape((*variable.aval.shape, *parts))
        value.type = ir.TensorType(ir.DataType.FLOAT if parts else _dtype(variable.aval.dtype))
        ctx.bind_value_for_var(variable, value)
    ctx.builder.add_node_obj(node)


def _dtype(dtype: Any) -> Any:
    import numpy as np
    import onnx_ir as ir

    try:
        return ir.DataType.from_numpy(np.dtype(dtype))
    except TypeError:  # a random key
        return ir.DataType.UINT32
