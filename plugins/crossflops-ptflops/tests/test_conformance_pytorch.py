"""The convention of the backend "pytorch" predicts it."""

from crossflops_ptflops import PtflopsPytorch

from crossflops.testing.conformance import Conformance


class TestConformance(Conformance):
    """The whole kit."""

    adapter = PtflopsPytorch()
