"""What the equations of a JAX program say of gradients: where none flow, what runs again.

Sources: jax/_src/ad_checkpoint.py, jax/_src/custom_derivatives.py.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from crossflops.frontends.jax.lowering import Equation
from crossflops.ir.graph import Checkpoint, Node

_CHECKPOINTS = ("remat2", "checkpoint")
_OWN = {
    "custom_vjp_call": (
        "in a jax.custom_vjp, whose backward is code of its own: counted as derived"
    ),
    "while": "JAX has no gradient of a loop whose length depends on data",
}
_OWN_PRODUCTS = "in a jax.custom_jvp, whose derivative is code of its own: counted as derived"
_PRODUCTS = ("MatMul", "Gemm", "Einsum", "Conv", "ConvTranspose")


def marks(node: Node, number: int | None, equations: Sequence[Equation]) -> dict[str, Any]:
    """The fields of a node that say how its gradients are made; `number` is that of its equation.

    A checkpoint in another one runs again with it and once more by itself, which is not followed.
    """
    fields: dict[str, Any] = {}
    around = [] if number is None else list(_around(number, equations))
    checkpoints = [place for place in around if equations[place].primitive in _CHECKPOINTS]
    if checkpoints:
        saved = any(equations[place].saved for place in around)
        fields["checkpoint"] = Checkpoint(
            checkpoints[-1] + 1,
            "needed" if len(checkpoints) == 1 else "unknown",
            "saved" if saved else "results",
        )
    for place in around:
        primitive = equations[place].primitive
        if primitive == "stop_gradient":
            fields["severed"] = tuple(range(len(node.inputs)))
        if primitive in _OWN:
            fields["own_backward"] = _OWN[primitive]
        if (
            primitive == "custom_jvp_call"
            and not equations[place].of_jax
            and node.op.type in _PRODUCTS
        ):
            fields["own_backward"] = _OWN_PRODUCTS
    return fields


def _around(number: int, equations: Sequence[Equation]) -> Iterator[int]:
    """The equation and those that hold it, the innermost first."""
    place: int | None = number
    while place is not None:
        yield place
        place = equations[place].around
