"""thop's convention predicts thop, in the edition that is installed."""

import pytest
from crossflops_thop import Thop

from crossflops.testing.conformance import Conformance

pytestmark = pytest.mark.tools


class TestConformance(Conformance):
    """The whole kit."""

    adapter = Thop()
    # held by test_padding_that_an_encoder_drops: others have no rules for such a probe
    held_apart = frozenset(
        {"thop@0.1.1.linear.nested", "thop@0.1.1.layer_norm.nested", "thop@0.0.31.linear.nested"}
    )
