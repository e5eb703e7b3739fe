"""calflops' conventions predict both of its numbers."""

import pytest
from crossflops_calflops import Calflops, CalflopsMacs

from crossflops.testing.conformance import Conformance

pytestmark = pytest.mark.tools


class TestFlops(Conformance):
    """The whole kit, on FLOPs."""

    adapter = Calflops()
    # held by test_padding_that_an_encoder_drops
    held_apart = frozenset(
        f"calflops.{name}.nested" for name in ("linear", "relu", "transcendental", "layer_norm")
    )


class TestMacs(Conformance):
    """The whole kit, on MACs."""

    adapter = CalflopsMacs()
    # held by test_padding_that_an_encoder_drops
    held_apart = frozenset(f"calflops-macs.{name}.nested" for name in ("linear",))
