"""Kernels of Pallas: their body for every place of the grid, and what they compute."""

import numpy as np
import pytest

import crossflops
from crossflops.frontends import build_model_program
from crossflops.ir.profile import Failure
from crossflops.ir.trace import Setting
from crossflops.targets import source_from_object

jax = pytest.importorskip("jax")
pytest.importorskip("jax2onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pl = pytest.importorskip("jax.experimental.pallas")

pytestmark = pytest.mark.jax
jnp, lax = jax.numpy, jax.lax


def spec(*shape):
    """An input."""
    return jax.ShapeDtypeStruct(shape, "float32")


def add(a, b, out):
    """128 adds."""
    out[...] = a[...] + b[...]


def product(a, b, out):
    """A block of a product."""
    out[...] = a[...] @ b[...]


def summed(a, b, out):
    """A block of a product that is summed along the last axis of the grid."""

    @pl.when(pl.program_id(2) == 0)
    def _():
        out[...] = jnp.zeros_like(out)

    out[...] += a[...] @ b[...]


def either(a, b, out):
    """One product at the first place, two at the others."""

    @pl.when(pl.program_id(0) == 0)
    def _():
        out[...] = a[...] @ b[...]

    @pl.when(pl.program_id(0) != 0)
    def _():
        out[...] = a[...] @ b[...] @ b[...]


def attention(q, k, v, out):
    """Four queries beside four times four keys."""

    def step(place, state):
        most, weight, mean = state
        keys, values = (array[pl.ds(place * 4, 4), :] for array in (k, v))
        scores = q[...] @ keys.T
        now = jnp.maximum(most, scores.max(-1))
        part, before = jnp.exp(scores - now[:, None]), jnp.exp(most - now)
        mean = mean * before[:, None] + part @ values
        return now, weight * before + part.sum(-1), mean

    start = (jnp.full(4, -1e9), jnp.zeros(4), jnp.zeros((4, 8)))
    _, weight, mean = lax.fori_loop(0, 4, step, start)
    out[...] = mean / weight[:, None]


ROWS, WHOLE = pl.BlockSpec((4, 4), lambda i: (i, 0)), pl.BlockSpec((4, 4), lambda i: (0, 0))
TILES = {
    "grid": (2, 2, 4),
    "in_specs": [
        pl.BlockSpec((4, 4), lambda i, j, k: (i, k)), pl.BlockSpec((4, 4), lambda i, j, k: (k, j)),
    ],
    "out_specs": pl.BlockSpec((4, 4), lambda i, j, k: (i, j)),
}  # fmt: skip
STRIPES = {"grid": (4,), "in_specs": [ROWS, WHOLE], "out_specs": ROWS}
QUERIES = pl.BlockSpec((4, 8), lambda i: (i, 0))
KEYS = pl.BlockSpec((16, 8), lambda i: (0, 0))
KERNELS = {  # kernel, its grid, its result, its inputs, and its MACs by hand
    "whole": (product, {}, spec(8, 8), (spec(8, 16), spec(16, 8)), 8 * 8 * 16),
    "tiles": (summed, TILES, spec(8, 8), (spec(8, 16), spec(16, 8)), 8 * 8 * 16),
    "a last block that is not full": (
        product, STRIPES, spec(14, 4), (spec(14, 4), spec(4, 4)), 4 * 4 * 4 * 4,
    ),
    "attention": (
        attention, {"grid": (4,), "in_specs": [QUERIES, KEYS, KEYS], "out_specs": QUERIES},
        spec(16, 8), (spec(16, 8),) * 3, 2 * 16 * 16 * 8,
    ),
}  # fmt: skip


@pytest.mark.parametrize("interpret", [True, False])
@pytest.mark.parametrize("name", KERNELS)
def test_a_body_for_every_place(name, interpret):
    """The work of the grid; the graph computes what the interpreter does."""
    kernel, grid, result, specs, macs = KERNELS[name]
    model = pl.pallas_call(kernel, out_shape=result, interpret=interpret, **grid)
    report = crossflops.count(model, specs)
    assert not report.uncounted
    assert report.macs == macs
    if interpret:
        data, _, _ = build_model_program(source_from_object(model, specs), Setting())
        random = np.random.default_rng(0)
        arrays = [random.uniform(0.1, 1, array.shape).astype("float32") for array in specs]
        session = onnxruntime.InferenceSession(data)
        names = [value.name for value in session.get_inputs()]
        (output,) = session.run(None, dict(zip(names, arrays, strict=True)))
        np.testing.assert_allclose(output, jax.jit(model)(*arrays), rtol=1e-4)


def test_a_kernel_beside_other_work():
    """8 x 16 adds in the kernel, 8 x 16 x 4 MACs beside it, and XLA explained."""
    call = pl.pallas_call(add, out_shape=spec(8, 16), interpret=True)
    report = crossflops.compare(
        lambda a, b, w: call(a, b) @ w,
        (spec(8, 16), spec(8, 16), spec(16, 4)),
        tools=["xla-lowered", "xla-compiled"],
        isolate=False,
    )
    assert not report.uncounted
    assert report.macs == 512
    assert report.flops == 2 * 512 + 128
    assert report.residuals == {"xla-lowered": 0, "xla-compiled": 0}


def test_a_kernel_that_this_processor_has_not():
    """XLA cannot lower it here: both tools fail, and the count stands."""
    call = pl.pallas_call(product, out_shape=spec(8, 8))
    report = crossflops.compare(
        call, (spec(8, 16), spec(16, 8)), tools=["xla-lowered", "xla-compiled"], isolate=False
    )
    assert report.macs == 1024
    assert all(isinstance(answer, Failure) for answer in report.profiles)


@pytest.mark.parametrize("interpret", [True, False])
def test_what_depends_on_the_place_runs_where_it_does(interpret):
    """One product of 4 x 4 x 4 at the first place, two at each of the three others."""
    model = pl.pallas_call(either, out_shape=spec(16, 4), interpret=interpret, **STRIPES)
    report = crossflops.count(model, (spec(16, 4), spec(4, 4)))
    assert report.macs == 64 + 3 * 2 * 64
    assert {node.exactness for node in report.nodes} == {"exact"}


def last(a, b, out):
    """A product that is summed along the last axis of the grid, and its tanh at the end of it."""
    summed(a, b, out)

    @pl.when(pl.program_id(2) == 3)
    def _():
        out[...] = jnp.tanh(out[...])


def test_what_is_done_at_the_end_of_an_axis():
    """8 x 8 of tanh once and not at each of 4 places of the last axis, and XLA explained."""
    model = pl.pallas_call(last, out_shape=spec(8, 8), interpret=True, **TILES)
    report = crossflops.compare(
        model,
        (spec(8, 16), spec(16, 8)),
        tools=["xla-lowered", "xla-compiled"],
        isolate=False,
    )
    assert (report.macs, report.totals.specials) == (8 * 8 * 16, 8 * 8)
    assert report.residuals == {"xla-lowered": 0, "xla-compiled": 0}


def test_a_grid_of_too_many_places_is_a_bound():
    """Of 1 024 places the first runs one product, and any other two: at most three at each."""
    grid = {**STRIPES, "grid": (1024,)}
    model = pl.pallas_call(either, out_shape=spec(4096, 4), **grid)
    report = crossflops.count(model, (spec(4096, 4), spec(4, 4)))
    assert 64 + 1023 * 128 <= report.macs <= 1024 * 192
    assert "bound" in {node.exactness for node in report.nodes}


def test_a_grid_that_depends_on_data_is_named():
    """How often the body runs is not known: the kernel is named, the product beside it counted."""

    def model(n, a, b):
        call = pl.pallas_call(
            product, grid=(n,), in_specs=[ROWS, WHOLE], out_specs=ROWS, out_shape=spec(16, 4)
        )
        return call(a, b) @ b

    given = (jax.ShapeDtypeStruct((), "int32"), spec(16, 4), spec(4, 4))
    report = crossflops.count(model, given)
    assert [gap.op for gap in report.uncounted] == ["jax.pallas_call.product"]
    assert '@crossflops.operator("jax::product")' in report.uncounted[0].stub
    assert report.macs == 16 * 4 * 4


def own_formulas(folder, **macs):
    """A file in which each of these kernels has as many MACs."""
    lines = ["import crossflops\n\n"]
    for name, count in macs.items():
        lines += [
            f'@crossflops.operator("jax::{name}")',
            f"def count_{name}(call):",
            '    assert call.attributes["interpret"] in (True, False)',
            f"    return crossflops.Cost(macs={count})\n\n",
        ]
    file = folder / "own.py"
    file.write_text("\n".join(lines))
    return file


def test_a_formula_goes_over_the_body_of_a_kernel(tmp_path):
    """By the name of its function, once for each of three runs of a loop; XLA is explained."""
    call = pl.pallas_call(product, out_shape=spec(8, 8), interpret=True)

    def model(a, b):
        return lax.scan(lambda carry, _: (call(carry, b), None), a, None, length=3)[0]

    own = own_formulas(tmp_path, product=7)
    report = crossflops.count(model, (spec(8, 8), spec(8, 8)), formulas=[own])
    assert (report.macs, report.uncounted) == (3 * 7, ())
    assert [(row.by, row.calls, row.macs) for row in report.custom_operators] == [
        ("formula", 3, 3 * 7)
    ]
    compared = crossflops.compare(
        call, (spec(8, 8), spec(8, 8)), formulas=[own], isolate=False, tools=["xla-lowered"]
    )
    assert compared.macs == 7
    assert compared.residuals == {"xla-lowered": 0}


def test_the_name_of_a_call_goes_over_that_of_its_function(tmp_path):
    """`name=` of `pallas_call`."""
    model = pl.pallas_call(product, out_shape=spec(8, 8), name="renamed")
    own = own_formulas(tmp_path, renamed=9)
    assert crossflops.count(model, (spec(8, 16), spec(16, 8)), formulas=[own]).macs == 9


def test_a_kernel_of_a_gradient_has_a_formula(tmp_path):
    """Forward 8 x 16 x 8; back 5 by the formula, and 16 x 8 x 8 beside the kernel."""
    forward = pl.pallas_call(product, out_shape=spec(8, 8))

    def product_back(g, b, out):
        out[...] = g[...] @ b[...].T

    back = pl.pallas_call(product_back, out_shape=spec(8, 16))
    call = jax.custom_vjp(forward)
    call.defvjp(
        lambda a, b: (forward(a, b), (a, b)), lambda kept, g: (back(g, kept[1]), kept[0].T @ g)
    )
    step = crossflops.count(
        lambda w, x: call(x, w).sum(),
        (spec(16, 8), spec(8, 16)),
        train=True,
        trainable=["0", "1"],
        formulas=[own_formulas(tmp_path, product_back=5)],
    ).training
    assert not step.uncounted
    assert step.forward_macs == 1024
    assert step.backward_input_macs + step.backward_weight_macs == 5 + 1024
