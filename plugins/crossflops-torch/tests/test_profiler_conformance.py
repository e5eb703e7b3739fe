"""torch.profiler's convention predicts torch.profiler."""

import pytest
import torch
from crossflops_torch import TorchProfiler
from torch import nn

from crossflops.frontends.pytorch.load.model import reset_compiler
from crossflops.ir.trace import Setting
from crossflops.rules.prediction import predict
from crossflops.testing.conformance import Conformance, run_tool_in_process

pytestmark = pytest.mark.tools


class Condition(nn.Module):
    """A layer in one branch, its square in the other."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, x):
        """The branch that the sum chooses, once PyTorch's compiler has traced both."""
        return torch.cond(x.sum() > 0, self.layer, lambda x: self.layer(x) * self.layer(x), (x,))


class TestConformance(Conformance):
    """The whole kit."""

    adapter = TorchProfiler()
    # A training step is no setting of the kit: see tests/every_tool/test_training_steps.py. Bodies
    # of custom operators need a run with values: see tests/end_to_end/test_custom_bodies.py.
    held_apart = frozenset(
        f"torch-profiler.{name}"
        for name in (
            "conv2d.begun",
            "conv2d.body",
            *(
                f"{product}.{way}"
                for product in ("mm", "addmm", "bmm", "baddbmm")
                for way in ("stopped", "twice")
            ),
        )
    )

    def test_what_the_compiler_traces_is_seen_whole(self):
        """As in a process that has compiled nothing, where it runs every operator once more."""
        model, inputs = Condition(), (torch.zeros(3, 4),)
        seen = self.observe(model, inputs, {}, Setting())
        predicted = predict(self.convention, seen.trace, Setting(), seen.ledger).total
        reset_compiler()
        assert run_tool_in_process(self.adapter, model, inputs, {}, Setting()).total == predicted
