"""fvcore's convention predicts fvcore."""

from dataclasses import dataclass

import pytest
import torch
from crossflops_fvcore import Fvcore
from torch import nn

from crossflops.ir.profile import Failure
from crossflops.ir.trace import Setting
from crossflops.rules.prediction import PredictionError, predict
from crossflops.testing.conformance import Conformance, run_tool_in_process

pytestmark = pytest.mark.tools


@dataclass
class Rows:
    """A result that torch.jit does not take."""

    rows: torch.Tensor


class Layer(nn.Linear):
    """Its input goes by keyword alone."""

    def forward(self, *, rows):
        """The layer."""
        return super().forward(rows)


class Wrapped(nn.Linear):
    """Its result is an object."""

    def forward(self, rows):
        """The layer."""
        return Rows(super().forward(rows))


class Counted(nn.Linear):
    """It gives a number beside its result."""

    def forward(self, rows):
        """The layer."""
        return super().forward(rows), len(rows)


class Ensemble(nn.Module):
    """Three layers of one input at once."""

    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(3, 5, 4))

    def forward(self, x):
        """Every layer on all rows."""
        return torch.vmap(nn.functional.linear, (None, 0))(x, self.weights)


class Row(nn.Module):
    """A linear layer whose weight is a vector."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4))

    def forward(self, x):
        """The product."""
        return nn.functional.linear(x, self.weight)


ROWS = torch.zeros(2, 4)
COMPLEX = torch.zeros(1, 4, 9, 9, dtype=torch.complex64)


class TestConformance(Conformance):
    """The whole kit, and models that it cannot trace.

    These are no probes: other tools fail on them in ways of their own.
    """

    adapter = Fvcore()
    held_apart = frozenset({"fvcore.not-traced"})

    @pytest.mark.parametrize(
        ("model", "args", "kwargs", "said"),
        [
            (Layer(4, 5), (), {"rows": ROWS}, "only by keyword"),
            (Wrapped(4, 5), (ROWS,), {}, "input of unsupported type: Rows"),
            (Counted(4, 5), (ROWS,), {}, "did not have observable data dependence"),
        ],
        ids=["keyword", "object", "number"],
    )
    def test_what_is_not_traced_is_predicted_to_fail(self, model, args, kwargs, said):
        """The convention says beforehand that it raises, and with which words."""
        seen = self.observe(model, args, kwargs, Setting())
        answer = run_tool_in_process(self.adapter, model, args, kwargs, Setting())
        assert isinstance(answer, Failure)
        with pytest.raises(PredictionError) as caught:
            predict(self.convention, seen.trace, Setting(), seen.ledger)
        assert said in answer.message.replace("\n", " ")
        assert said.partition(" observ")[0] in str(caught.value)

    @pytest.mark.parametrize(
        ("model", "x", "figure"),
        [
            # one product of 2 x 4 and 4 x 5; that there are three is lost
            (Ensemble(), ROWS, 40),
            # n(x) times the vector's only axis
            (Row(), ROWS, 2 * 4 * 4),
            # three convolutions of real numbers, 7 x 7 positions
            (nn.Conv2d(4, 8, 3).to(torch.complex64), COMPLEX, 3 * 49 * 8 * 4 * 9),
        ],
        ids=["vmap", "vector", "complex"],
    )
    def test_what_becomes_of_an_operator_is_counted(self, model, x, figure):
        """The node of the trace counts, not the operator that the model called."""
        seen = self.observe(model, (x,), {}, Setting())
        assert predict(self.convention, seen.trace, Setting(), seen.ledger).total == figure
        assert run_tool_in_process(self.adapter, model, (x,), {}, Setting()).total == figure
