"""The convention of the backend "aten" predicts it."""

from crossflops_ptflops import PtflopsAten

from crossflops.testing.conformance import Conformance


class TestConformance(Conformance):
    """The whole kit."""

    adapter = PtflopsAten()
