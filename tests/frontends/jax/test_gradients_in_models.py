"""Models that take gradients themselves: their work is counted, and XLA's number explained.

The MACs are held against a count over the equations of the program that JAX traces.
"""

import pytest

import crossflops
from crossflops.frontends.jax.record.function import to_pure_function
from tests.laws.jaxpr_macs import macs

jax = pytest.importorskip("jax")
pytest.importorskip("jax2onnx")
pytest.importorskip("crossflops_jax")
partial_eval = pytest.importorskip("jax.interpreters.partial_eval")

pytestmark = pytest.mark.jax
jnp, lax = jax.numpy, jax.lax


def spec(*shape):
    """An input."""
    return jax.ShapeDtypeStruct(shape, "float32")


W, X, SQUARE = spec(8, 3), spec(4, 8), spec(8, 8)


def loss(w, x):
    """4 x 8 x 3 = 96 MACs, and as many for each gradient."""
    return jnp.sum((x @ w) ** 2)


def bent(w, x):
    """A loss with a second derivative that is no constant."""
    return jnp.sum(jnp.tanh(x @ w) ** 2)


@jax.custom_vjp
def own(x, w):
    """A product whose backward pass is code of its own."""
    return x @ w


own.defvjp(lambda x, w: (x @ w, (x, w)), lambda kept, g: (g @ kept[1].T, kept[0].T @ g))


def repeated(w, x):
    """Five products in a loop."""
    return jnp.sum(lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, None, length=5)[0])


def image(w, x):
    """A strided convolution."""
    order = ("NHWC", "HWIO", "NHWC")
    return jnp.sum(lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=order) ** 2)


def adam(w, m, v, x):
    """A step of Adam, written out."""
    g = jax.grad(loss)(w, x)
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return w - m / (jnp.sqrt(v) + 1e-8), m, v


def checkpointed(w, x):
    """A checkpoint around two products."""
    return jax.checkpoint(lambda w: jnp.sum(jnp.tanh(jnp.tanh(x @ w) @ w.T) ** 2))(w)


GRADIENTS = {
    "step": (lambda w, x: w - 0.1 * jax.grad(loss)(w, x), W, X),
    "value and gradient": (lambda w, x: jax.value_and_grad(loss)(w, x), W, X),
    "for each sample": (
        lambda w, x: jax.vmap(jax.grad(loss), (None, 0))(w, x), W, spec(5, 4, 8),
    ),
    "hessian": (lambda w, x: jax.hessian(bent)(w, x), spec(8), X),
    "forward jacobian": (lambda w, x: jax.jacfwd(lambda w: jnp.tanh(x @ w))(w), W, X),
    "reverse jacobian": (lambda w, x: jax.jacrev(lambda w: jnp.tanh(x @ w))(w), W, X),
    "jvp": (lambda w, x: jax.jvp(loss, (w, x), (w, x)), W, X),
    "vjp": (lambda w, x: jax.vjp(lambda w, x: x @ w, w, x)[1](jnp.ones((4, 3))), W, X),
    "linearized": (lambda w, x: jax.linearize(lambda w: jnp.tanh(x @ w), w)[1](w), W, X),
    "of a gradient": (
        lambda w, x: jax.grad(lambda w: jnp.sum(jax.grad(bent)(w, x) ** 2))(w), W, X,
    ),
    "through a step": (
        lambda w, x: jax.grad(lambda w: loss(w - jax.grad(loss)(w, x), x))(w), W, X,
    ),
    "of a loop": (lambda w, x: jax.grad(repeated)(w, x), SQUARE, X),
    "in a loop": (
        lambda w, x: lax.scan(lambda w, x: (w - jax.grad(loss)(w, x), None), w, x)[0],
        W, spec(6, 4, 8),
    ),
    "of its own": (lambda w, x: jax.grad(lambda w: jnp.sum(own(x, w) ** 2))(w), W, X),
    "of a checkpoint": (lambda w, x: jax.grad(checkpointed)(w, x), W, X),
    "of a convolution": (lambda w, x: jax.grad(image)(w, x), spec(3, 3, 4, 6), spec(2, 8, 8, 4)),
    "of a condition": (
        lambda w, x: jax.grad(
            lambda w: lax.cond(x[0, 0] > 0, lambda w: loss(w, x), lambda w: jnp.sum(w), w)
        )(w), W, X,
    ),
    "adam": (adam, W, W, W, X),
    "jitted": (jax.jit(jax.grad(loss)), W, X),
}  # fmt: skip


def expected(model, specs):
    """The MACs of the equations on which a result depends."""
    seen = to_pure_function(model, specs, {}, training=False)
    jaxpr = jax.make_jaxpr(seen.function)(*seen.specs).jaxpr
    alive, *_ = partial_eval.dce_jaxpr_consts(jaxpr, [True] * len(jaxpr.outvars), instantiate=True)
    return macs(alive)


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_gradient_is_work_of_the_model(name):
    """The count is that of the equations, and both programs of XLA are explained."""
    model, *specs = GRADIENTS[name]
    report = crossflops.compare(
        model, tuple(specs), tools=["xla-lowered", "xla-compiled"], isolate=False
    )
    assert report.residuals == {"xla-lowered": 0, "xla-compiled": 0}
    assert not report.uncounted
    assert report.macs == expected(model, tuple(specs))
    causes = {row.cause for row in report.reconciliation("xla-lowered").explanations}
    assert "scope.backward" not in causes
    assert not {"graph.export-decomposition", "graph.one-side-alone"} & set(causes)


def test_a_step_of_what_takes_a_gradient():
    """Twice 96 forward; back through both, each 96 once more for every operand that is asked."""
    report = crossflops.compare(
        GRADIENTS["step"][0], (W, X), train=True, trainable=("0",), tools=["xla-lowered"],
        isolate=False,
    )  # fmt: skip
    assert report.macs == 192
    assert report.residuals == {"xla-lowered": 0}
