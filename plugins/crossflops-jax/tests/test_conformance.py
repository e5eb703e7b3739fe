"""The conventions of XLA's cost analysis predict XLA's cost analysis."""

import pytest

pytest.importorskip("jax")
pytest.importorskip("jax2onnx")
pytest.importorskip("flax")

from crossflops_jax import CompiledProgram, LoweredProgram

from crossflops.testing.jax import JaxConformance

pytestmark = pytest.mark.jax


class TestLowered(JaxConformance):
    """The whole kit, on the program that XLA is given."""

    adapter = LoweredProgram()
    held_apart = frozenset({"xla-lowered.other-branch"})  # of training steps: test_training.py


class TestCompiled(JaxConformance):
    """The whole kit, on the program that XLA makes of it."""

    adapter = CompiledProgram()
    held_apart = frozenset({"xla-compiled.other-branch"})
