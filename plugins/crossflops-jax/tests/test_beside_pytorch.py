"""The adapters of XLA's cost analysis where PyTorch is installed, too."""

import pytest
from crossflops_jax import LoweredProgram

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.frameworks


def test_models_of_others_are_not_taken():
    """Wherever their classes are defined; functions are, since any may be of JAX."""

    class Own(torch.nn.Module):
        """A module of PyTorch."""

    assert not LoweredProgram().accepts(Own())
    assert not LoweredProgram().accepts("a file")
    assert LoweredProgram().accepts(lambda x: x)
