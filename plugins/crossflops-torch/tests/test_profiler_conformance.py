"""torch.profiler's convention predicts torch.profiler."""

from crossflops_torch import TorchProfiler

from crossflops.testing.conformance import Conformance


class TestConformance(Conformance):
    """The whole kit."""

    adapter = TorchProfiler()
