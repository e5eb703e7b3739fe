"""thop's convention predicts thop, in the edition that is installed."""

from crossflops_thop import Thop

from crossflops.testing.conformance import Conformance


class TestConformance(Conformance):
    """The whole kit."""

    adapter = Thop()
