"""Derivatives that functions of JAX bring themselves, and equations that have none.

Each count is that of the program of jax.value_and_grad, of what its results need; or it is named
why the derivative is not followed.
"""

import pytest

import crossflops
from tests.laws.jaxpr_macs import macs

pytestmark = pytest.mark.jax
jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")
lax = pytest.importorskip("jax.lax")
partial_eval = pytest.importorskip("jax.interpreters.partial_eval")

SPEC = jax.ShapeDtypeStruct((2, 3), "float32")
A, B = jnp.ones((3, 5)), jnp.ones((5, 5))


def own(forward, backward, function=None):
    """A jax.custom_vjp of these rules; the function is the first result of the forward one."""
    made = jax.custom_vjp(function or (lambda *given: forward(*given)[0]))
    made.defvjp(forward, backward)
    return made


def product_rule(kept, gradient):
    """A product of its own for the second operand."""
    x, w = kept
    return gradient @ w.T, x.T @ gradient + x.T @ (x @ w)


hidden = own(lambda x: (jnp.tanh(x), x), lambda x, g: ((g @ x.T) @ x,))
through = own(lambda x: (x, None), lambda _, g: (g,))
pair = own(lambda x: ((jnp.tanh(x), jnp.sin(x)), None), lambda _, g: (g[0] + g[1],))
product = own(lambda x, w: (x @ w, (x, w)), product_rule)
halved = own(lambda x, w: (x @ w, w), lambda w, g: (g @ w.T, None))
zeros = own(lambda x, w: (x @ w, w), lambda w, g: (g @ w.T, jnp.zeros_like(w)))
early = own(lambda x: (jnp.tanh(x), x @ x.T), lambda kept, g: (kept @ g,), jnp.tanh)
negated = jax.custom_gradient(lambda x: (jnp.tanh(x), lambda g: -g @ B))


@jax.custom_jvp
def pushed(x):
    """Two products in the derivative, and none in the function."""
    return jnp.tanh(x)


@pushed.defjvp
def _(given, tangents):
    [x], [tangent] = given, tangents
    return jnp.tanh(x), (tangent @ x.T) @ x


def elementwise(function):
    """x A, a function of that, and B."""
    return lambda x: function(x @ A) @ B


def twice(x):
    """One program, called twice."""
    layer = jax.jit(lambda h: hidden(h) @ B)
    return layer(layer(x @ A))


def again(**policy):
    """Two products in a checkpoint."""
    layer = jax.checkpoint(lambda h: jnp.sin(jnp.sin(h @ B) @ B), **policy)
    return lambda x: layer(x @ A)


EXACT = {
    "round": elementwise(jnp.round),
    "floor": elementwise(jnp.floor),
    "trunc": elementwise(jnp.trunc),
    "sign": elementwise(jnp.sign),
    "whole division": elementwise(lambda h: h // 2.0),
    "remainder": elementwise(lambda h: h % 2.0),
    "a cast": elementwise(lambda h: h.astype(int).astype("float32")),
    "stopped": lambda x: jnp.sin(lax.stop_gradient(jnp.sin(x @ A) @ B)) @ B,
    "hidden": elementwise(hidden),
    "through": elementwise(through),
    "pushed": elementwise(pushed),
    "negated": elementwise(negated),
    "early": elementwise(early),
    "one of two results": elementwise(lambda h: pair(h)[1]),
    "product": lambda x: product(jnp.tanh(x @ A), B) @ B,
    "product twice": lambda x: product(product(x @ A, B), B),
    "halved": lambda x: halved(x @ A, B),
    "zeros": lambda x: zeros(x @ A, B * 2.0),
    "a program in a program": lambda x: jax.jit(lambda h: jax.jit(hidden)(h) @ B)(x @ A),
    "a program twice": twice,
    "vmap": lambda x: jax.vmap(hidden)(jnp.stack([x @ A, x @ A])) @ B,
    "checkpoint": again(),
    "a policy": again(policy=jax.checkpoint_policies.dots_saveable),
    "second order": lambda x: jax.grad(lambda h: jnp.tanh(h @ B).sum())(x @ A),
}
NAMED = {
    "two results": (elementwise(lambda h: sum(pair(h))), "it has several results"),
    "in a checkpoint": (
        lambda x: jax.checkpoint(lambda h: jnp.sin(hidden(h) @ B))(x @ A),
        "it is in a checkpoint",
    ),
    "in a loop": (
        lambda x: lax.scan(lambda h, _: (hidden(h) @ B, None), x @ A, None, length=3)[0],
        "it is in a loop",
    ),
    "no rule": (elementwise(lambda h: jnp.nextafter(h, 1.0)), "JAX has no gradient of nextafter"),
}


def step_of_jax(function):
    """The products of the program of the summed results and of the gradients of A and B."""
    closed = jax.make_jaxpr(function)(SPEC)

    def summed(held, x):
        return jax.core.eval_jaxpr(closed.jaxpr, held, x)[0].sum()

    weights = [array for array in closed.consts if array.ndim]
    assert len(weights) == len(closed.consts)
    program = jax.make_jaxpr(jax.value_and_grad(summed))(weights, SPEC).jaxpr
    return macs(partial_eval.dce_jaxpr(program, [True] * len(program.outvars))[0])


@pytest.mark.parametrize("name", EXACT)
def test_derivatives_of_the_model_itself(name):
    """The step has the products of JAX's program, and nothing is left open."""
    step = crossflops.count(EXACT[name], (SPEC,), train=True).training
    assert not step.uncounted
    assert step.macs == step_of_jax(EXACT[name])


@pytest.mark.parametrize("name", NAMED)
def test_derivatives_that_are_not_followed(name):
    """They are named with the reason."""
    function, reason = NAMED[name]
    rows = crossflops.count(function, (SPEC,), train=True).training.uncounted
    assert any(reason in row.reason for row in rows)


def test_products_of_a_derivative_by_hand():
    """x A, a function, and B: forward 30 + 50; back 50 + 50, 40 of the function, and 30 for A."""
    step = crossflops.count(EXACT["hidden"], (SPEC,), train=True).training
    assert (step.forward_macs, step.macs) == (80, 80 + 100 + 40 + 30)
