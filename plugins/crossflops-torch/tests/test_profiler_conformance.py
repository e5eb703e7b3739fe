"""torch.profiler's convention predicts torch.profiler."""

import pytest
from crossflops_torch import TorchProfiler

from crossflops.testing.conformance import Conformance

pytestmark = pytest.mark.tools


class TestConformance(Conformance):
    """The whole kit."""

    adapter = TorchProfiler()
