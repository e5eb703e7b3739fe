"""torchprofile's convention predicts torchprofile."""

import pytest
import torch
from crossflops_torchprofile import Torchprofile
from torch import nn

from crossflops.ir.profile import Failure
from crossflops.ir.trace import Setting
from crossflops.rules.prediction import PredictionError, predict
from crossflops.testing.conformance import Conformance, run_tool_in_process

pytestmark = pytest.mark.tools


class ByKeyword(nn.Module):
    """Its input cannot go by position."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, *, rows):
        return self.layer(rows)


class TestConformance(Conformance):
    """The whole kit, and a model that it cannot trace.

    That one is no probe: other tools fail on it in ways of their own.
    """

    adapter = Torchprofile()
    held_apart = frozenset({"torchprofile.not-traced", "torchprofile.complex-constant"})

    def test_what_is_not_traced_is_predicted_to_fail(self):
        """It passes inputs by position, and the convention says beforehand that it raises."""
        model, rows = ByKeyword(), {"rows": torch.zeros(2, 8)}
        seen = self.observe(model, (), rows, Setting())
        with pytest.raises(PredictionError, match="only by keyword"):
            predict(self.convention, seen.trace, Setting(), seen.ledger)
        answer = run_tool_in_process(self.adapter, model, (), rows, Setting())
        assert isinstance(answer, Failure)
        assert "only by keyword" in answer.message

    def test_a_complex_constant_is_predicted_to_fail(self):
        """A convolution of complex numbers has one in its trace, which it cannot read."""
        model = nn.Conv2d(4, 8, 3).to(torch.complex64)
        image = torch.zeros(1, 4, 9, 9, dtype=torch.complex64)
        seen = self.observe(model, (image,), {}, Setting())
        with pytest.raises(PredictionError, match="no attribute 'cs'"):
            predict(self.convention, seen.trace, Setting(), seen.ledger)
        answer = run_tool_in_process(self.adapter, model, (image,), {}, Setting())
        assert isinstance(answer, Failure)
        assert "has no attribute 'cs'" in answer.message
