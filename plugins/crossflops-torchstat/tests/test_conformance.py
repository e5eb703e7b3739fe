"""torchstat's conventions predict torchstat, column by column."""

from crossflops_torchstat import Flops, MAdd, MemRead, MemWrite

from crossflops.testing.conformance import Conformance


class TestFlops(Conformance):
    """The whole kit."""

    adapter = Flops()


class TestMAdd(Conformance):
    """The whole kit."""

    adapter = MAdd()


class TestMemRead(Conformance):
    """The whole kit."""

    adapter = MemRead()


class TestMemWrite(Conformance):
    """The whole kit."""

    adapter = MemWrite()
