"""torchinfo's convention predicts torchinfo."""

from crossflops_torchinfo import Torchinfo

from crossflops.testing.conformance import Conformance


class TestConformance(Conformance):
    """The whole kit."""

    adapter = Torchinfo()
