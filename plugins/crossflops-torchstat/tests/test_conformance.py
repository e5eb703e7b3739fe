"""torchstat's conventions predict torchstat, column by column."""

import pytest
from crossflops_torchstat import Flops, MAdd, MemRead, MemWrite
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from crossflops.testing.architectures import Architecture, random_architectures
from crossflops.testing.conformance import EXAMPLES, GRAD, Conformance, predict_amount, tool_amount

pytestmark = pytest.mark.tools


class Columns(Conformance):
    """The whole kit. Random models get one image, and torchstat fails on some of them."""

    __test__ = False

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.differing_executors],
    )
    @given(
        architecture=random_architectures().map(
            lambda architecture: replace(architecture, batch=1)
        )
    )
    def test_random_architecture_is_predicted(self, architecture: Architecture) -> None:
        """The convention gives the tool's number or its failure on a model that nobody wrote."""
        model, args = architecture.build()
        prediction = predict_amount(self.convention, self.observe(model, args, {}, GRAD), GRAD)
        amount = tool_amount(self.adapter, model, args, {}, GRAD)
        assert amount == prediction, f"printed {amount}, predicted {prediction}"


class TestFlops(Columns):
    """The column "Flops"."""

    __test__ = True
    adapter = Flops()


class TestMAdd(Columns):
    """The column "MAdd"."""

    __test__ = True
    adapter = MAdd()


class TestMemRead(Columns):
    """The column "MemRead(B)"."""

    __test__ = True
    adapter = MemRead()


class TestMemWrite(Columns):
    """The column "MemWrite(B)"."""

    __test__ = True
    adapter = MemWrite()
