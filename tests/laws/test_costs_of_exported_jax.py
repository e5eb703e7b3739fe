"""A file of a JAX function costs what the function does, whatever jax2onnx wrote for it.

Some of the models of the other laws, and of the probes of the kit; with
CROSSFLOPS_EVERY_EXPORT=1 all.
"""

import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("jax2onnx")
pytest.importorskip("flax.nnx")
pytest.importorskip("onnxruntime")

from crossflops.testing.jax import PROBES  # noqa: E402
from tests.exported import differences, some  # noqa: E402
from tests.laws import test_jax_macs as laws  # noqa: E402
from tests.laws import test_same_function as same  # noqa: E402

pytestmark = pytest.mark.jax
jnp, lax = jax.numpy, jax.lax
ROWS = jax.ShapeDtypeStruct((3, 16), "float32")
SPECIAL = {
    "erf_inv": lax.erf_inv,
    "lgamma": lax.lgamma,
    "digamma": lax.digamma,
    "bessel_i0e": lax.bessel_i0e,
    "bessel_i1e": lax.bessel_i1e,
    "igamma": lambda x: lax.igamma(jnp.abs(x) + 1, x * x),
    "polygamma": lambda x: jax.scipy.special.polygamma(1, jnp.abs(x) + 1),
    "histogram": lambda x: jnp.histogram(x, 5)[0],
    "product at places": lambda x: x.at[:, 1].mul(2.0),
    "largest at places": lambda x: x.at[:, 1].max(2.0),
    "determinant": lambda x: jnp.linalg.slogdet(x[:, :3])[1],
    "quantile": lambda x: jnp.quantile(x, 0.3),
    "largest so far": lambda x: lax.cummax(x, 1),
    "windows": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3), (1, 2), "SAME"),
    "interpolation": lambda x: jnp.interp(x, x[0], x[1]),
}


def inputs_of(name):
    """The inputs of a function that every framework has."""
    return tuple(
        jnp.zeros(6, jnp.int32) if shape == same.PLACES else jnp.ones(shape)
        for shape in same.INPUTS[name]
    )


def _probe(probe):
    model, args, kwargs = probe.build()
    return model, (args, kwargs)


MODELS = {
    **{f"special {name}": lambda f=f: (f, (ROWS,)) for name, f in SPECIAL.items()},
    **{
        f"layer {name}": lambda make=make, given=given: (make(), tuple(given))
        for name, (make, *given) in laws.MODULES.items()
    },
    **{
        f"function {name}": lambda f=f, given=given: (f, tuple(given))
        for name, (f, *given) in laws.FUNCTIONS.items()
    },
    **{
        f"same {name}": lambda name=name, f=f: (f, inputs_of(name))
        for name, f in same.jax_functions().items()
    },
    **{
        f"probe {name}": lambda probe=probe: _probe(probe)
        for name, probe in PROBES.items()
        if name != "nothing"  # which is refused
    },
}
ALWAYS = ("layer GRU", "function branches of a switch", "function a key", "same bilinear",
          "same qr", "same unique", "special digamma", "special largest at places")  # fmt: skip


@pytest.mark.parametrize("name", some(MODELS, ALWAYS, 60))
def test_a_file_costs_what_the_function_does(name, tmp_path):
    """All kinds of work, parameters, and what has no count."""
    model, inputs = MODELS[name]()
    assert differences(model, inputs, tmp_path) == {}
