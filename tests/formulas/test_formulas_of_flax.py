"""Formulas of modules of Flax: one node for each call, with the plain arguments of the call."""

from pathlib import Path

import pytest

import crossflops

pytestmark = pytest.mark.jax
pytest.importorskip("flax")

MODEL = """
from flax import linen, nnx


class Linen(linen.Module):
    mode: str = "stored"
    causal: bool = True

    @linen.compact
    def __call__(self, x, steps, mode=None, causal=False, scale=0.5, sizes=()):
        dense = linen.Dense(8)
        for _ in range(steps):
            x = dense(x) * scale
        return x


class LinenTwice(linen.Module):
    @linen.compact
    def __call__(self, x):
        layer = Linen()
        return layer(layer(x, 2), steps=3, mode="given", causal=False, sizes=[4, 5])


class Nnx(nnx.Module):
    def __init__(self):
        self.dense = nnx.Linear(8, 8, rngs=nnx.Rngs(0))
        self.mode, self.causal = "stored", True

    def run(self, x, scale):
        return self.dense(x) * scale

    def __call__(self, x, steps, mode=None, causal=False, scale=0.5, sizes=()):
        for _ in range(steps):
            x = self.run(x, scale)
        return x


class NnxTwice(nnx.Module):
    def __init__(self):
        self.layer = Nnx()

    def __call__(self, x):
        x = self.layer(x, 2)
        return self.layer(x, steps=3, mode="given", causal=False, sizes=[4, 5])
"""
FORMULA = """
import crossflops

@crossflops.operator("own::Steps", module="flax37:CLASS", backward="none")
def count_steps(call):
    seen = call.attributes
    first = "stored", True, 0.5, None
    second = "given", False, 0.5, (4, 5)
    found = seen["mode"], seen["causal"], seen["scale"], seen.get("sizes")
    assert found == (first if seen["steps"] == 2 else second), found
    return crossflops.Cost(macs=seen["steps"] * call.inputs[0].numel * 8)
"""


@pytest.mark.parametrize(("model", "layer"), [("LinenTwice", "Linen"), ("NnxTwice", "Nnx")])
def test_each_call_of_a_shared_module_is_one_node(model: str, layer: str, tmp_path: Path) -> None:
    """Two steps and three steps of 3 x 8 x 8."""
    (tmp_path / "flax37.py").write_text(MODEL)
    own = tmp_path / "own.py"
    own.write_text(FORMULA.replace("CLASS", layer))
    report = crossflops.count(f"{tmp_path / 'flax37.py'}:{model}", ["3x8"], formulas=[own])
    assert report.macs == 5 * 3 * 8 * 8
    assert [row.calls for row in report.custom_operators] == [2]
    assert [node.op for node in report.nodes] == ["own.Steps"] * 2
