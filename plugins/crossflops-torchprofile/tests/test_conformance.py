"""torchprofile's convention predicts torchprofile."""

from crossflops_torchprofile import Torchprofile

from crossflops.testing.conformance import Conformance


class TestConformance(Conformance):
    """The whole kit."""

    adapter = Torchprofile()
