"""fvcore's convention predicts fvcore."""

from crossflops_fvcore import Fvcore

from crossflops.testing.conformance import Conformance


class TestConformance(Conformance):
    """The whole kit."""

    adapter = Fvcore()
