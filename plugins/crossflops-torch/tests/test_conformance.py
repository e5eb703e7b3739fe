"""FlopCounterMode's convention predicts FlopCounterMode."""

from crossflops_torch import TorchFlopCounter

from crossflops.testing.conformance import Conformance


class TestConformance(Conformance):
    """The whole kit."""

    adapter = TorchFlopCounter()
