"""The conventions of XLA's cost analysis predict XLA's cost analysis."""

import pytest

pytest.importorskip("jax")
pytest.importorskip("jax2onnx")
pytest.importorskip("flax")

from crossflops_jax import CompiledProgram, LoweredProgram

from crossflops.testing.jax import JaxConformance

pytestmark = pytest.mark.jax


# Of training steps: test_training_steps.py, tests/frontends/jax/test_training.py; of several
# devices: tests/frontends/jax/test_devices.py.
_APART = ("other-branch", "backward", "per-device")


class TestLowered(JaxConformance):
    """The whole kit, on the program that XLA is given."""

    adapter = LoweredProgram()
    held_apart = frozenset(f"xla-lowered.{name}" for name in _APART)


class TestCompiled(JaxConformance):
    """The whole kit, on the program that XLA makes of it."""

    adapter = CompiledProgram()
    held_apart = frozenset(f"xla-compiled.{name}" for name in _APART)
