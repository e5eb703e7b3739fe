"""Each formula agrees with its reference on 50 random small calls, forwards and backwards."""

import pytest

pytest.importorskip("torch")

from tests.operators.kernels import attention_kernels
from tests.operators.kernels.calls import check_against_reference

KERNELS = [*attention_kernels.KERNELS]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.operator)
def test_a_formula_agrees_with_its_reference(kernel):
    """What we count of the reference is what the formula says, and so its gradients."""
    check_against_reference(kernel)
