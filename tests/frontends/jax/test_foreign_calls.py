"""Calls of `jax.ffi`: by the name of their target, with the arguments that the call has."""

import numpy as np
import pytest

import crossflops

jax = pytest.importorskip("jax")

pytestmark = pytest.mark.jax
SCAN, PRODUCT = 5 * 3 * 8 * 8, 3 * 8 * 8
INPUTS = np.zeros((3, 8), np.float32), np.zeros((8, 8), np.float32)


def scan_product(x, w):
    """A call of a library that is not there, after a product."""
    shape = jax.ShapeDtypeStruct((3, 8), np.float32)
    return jax.ffi.ffi_call("my_scan", shape)(x @ w, w, steps=np.int32(5)) + 1


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("jax::my_scan", "call.attributes['steps'] == 5"),
        ("jax::ffi_call", "call.attributes['target_name']"),
    ],
)
def test_a_formula_of_a_target(name, needs, tmp_path):
    """3 x 8 by 8 x 8 in 5 steps: by the target, or for all targets."""
    own = tmp_path / "own.py"
    own.write_text(
        "import crossflops\n\n\n"
        f'@crossflops.operator("{name}")\n'
        "def scan(call):\n"
        f"    assert {needs}\n"
        "    n, d = call.inputs[0].shape\n"
        "    return crossflops.Cost(macs=5 * n * d * d)\n"
    )
    report = crossflops.count(scan_product, INPUTS, formulas=[own])
    assert (report.macs, report.uncounted) == (PRODUCT + SCAN, ())
    assert [(row.by, row.macs) for row in report.custom_operators] == [("formula", SCAN)]


def test_the_lines_to_write_name_the_target(tmp_path):
    """It is named, and counted after the lines are pasted."""
    report = crossflops.count(scan_product, INPUTS)
    (row,) = report.uncounted
    assert report.macs == PRODUCT
    assert '@crossflops.operator("jax::my_scan")' in row.stub
    own = tmp_path / "own.py"
    own.write_text(row.stub.replace("macs=...", "macs=5 * a * b * b"))
    assert crossflops.count(scan_product, INPUTS, formulas=[own]).macs == PRODUCT + SCAN


def test_a_formula_of_a_target_in_a_branch_sees_its_arguments(tmp_path):
    """The converter writes other nodes for the call before the call itself."""
    own = tmp_path / "own.py"
    own.write_text(
        "import crossflops\n\n\n"
        '@crossflops.operator("jax::my_scan")\n'
        "def scan(call):\n"
        "    return crossflops.Cost(macs=100 * int(call.attributes['steps']))\n"
    )

    def choose(x, w):
        """The larger branch has the product of `scan_product`, and the call."""
        return jax.lax.cond(x.sum() > 0, scan_product, lambda x, w: x, x, w)

    assert crossflops.count(choose, INPUTS, formulas=[own]).macs == PRODUCT + 500
