"""The rules of crossflops-mycounter predict mycounter, in the release that is installed."""

from crossflops_mycounter import MyCounter

from crossflops.testing.conformance import Conformance


class TestConformance(Conformance):
    """The whole kit: probe models, and random small architectures."""

    adapter = MyCounter()
