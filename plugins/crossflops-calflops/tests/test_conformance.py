"""calflops' conventions predict both of its numbers."""

from crossflops_calflops import Calflops, CalflopsMacs

from crossflops.testing.conformance import Conformance


class TestFlops(Conformance):
    """The whole kit, on FLOPs."""

    adapter = Calflops()


class TestMacs(Conformance):
    """The whole kit, on MACs."""

    adapter = CalflopsMacs()
