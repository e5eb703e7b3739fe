"""FlopCounterMode's convention predicts FlopCounterMode."""

import pytest
import torch
from crossflops_torch import TorchFlopCounter
from torch import nn

from crossflops.frontends.pytorch.load.model import reset_compiler
from crossflops.ir.trace import Setting
from crossflops.rules.prediction import predict
from crossflops.testing.conformance import Conformance, run_tool_in_process

pytestmark = pytest.mark.tools

# PyTorch takes the pairs of an equation in the order of opt_einsum where that is installed: here
# the last two first, 4 x 5 x 6 and then 2 x 3 x 4 x 6; else 2 x 3 x 4 x 5 and 2 x 3 x 5 x 6
ORDERED = 120 + 144 if torch.backends.opt_einsum.is_available() else 120 + 180


class Chain(nn.Module):
    """Three matrices in one equation."""

    def forward(self, a, b, c):
        """Two products, in either order."""
        return torch.einsum("abc,cd,de->abe", a, b, c)


class Inference(nn.Linear):
    """A layer in inference mode, where composites are dispatched whole."""

    def forward(self, x):
        """The layer."""
        with torch.inference_mode():
            return super().forward(x)


class Condition(nn.Module):
    """One layer in a branch, another one twice in the other."""

    def __init__(self, one, two, before=None):
        super().__init__()
        self.one, self.two = one, two
        self.before = before or nn.Identity()

    def forward(self, x):
        """The branch that the sum chooses."""
        x = self.before(x)
        return torch.cond(x.sum() > 0, self.one, lambda x: self.two(x) * self.two(x + 1), (x,))


class TestConformance(Conformance):
    """The whole kit, and what becomes of single operators."""

    adapter = TorchFlopCounter()
    # A training step is no setting of the kit: see tests/every_tool/test_training_steps.py.
    held_apart = frozenset(
        f"torch-flop-counter.{name}"
        for name in (
            *("product.branch", "added.branch"),
            *("convolution-backward", "convolution-backward.grouped"),
        )
    )

    @pytest.mark.parametrize(
        ("model", "shapes", "macs"),
        [
            (Chain(), ((2, 3, 4), (4, 5), (5, 6)), ORDERED),
            (Inference(4, 5), ((3, 4),), 60),
            # The larger branch, each layer 3 x 4 by 4 x 5; of each operator (aten.mm, aten.addmm)
            # the larger; once anything was counted before (3 x 4 by 4 x 4), the sum of both.
            (Condition(nn.Linear(4, 5), nn.Linear(4, 5)), ((3, 4),), 120),
            (Condition(nn.Linear(4, 5, bias=False), nn.Linear(4, 5)), ((3, 4),), 60 + 120),
            (
                Condition(*(nn.Linear(4, n).requires_grad_(n == 5) for n in (5, 5, 4))),
                ((3, 4),),
                48 + 60 + 120,
            ),
        ],
        ids=["einsum", "inference", "branch", "branches of others", "branches behind a layer"],
    )
    def test_what_is_dispatched_is_counted(self, model, shapes, macs):
        """Two for each multiply-accumulate of the operators that a dispatch mode sees."""
        inputs = tuple(map(torch.zeros, shapes))
        reset_compiler()  # torch.cond, of a run under a mode before
        seen = self.observe(model, inputs, {}, Setting())
        assert predict(self.convention, seen.trace, Setting(), seen.ledger).total == 2 * macs
        assert run_tool_in_process(self.adapter, model, inputs, {}, Setting()).total == 2 * macs

    def test_a_complex_convolution_is_three_real_ones(self):
        """7 x 7 positions, 8 x 4 x 3 x 3 weights; and each counts two."""
        model = nn.Conv2d(4, 8, 3).to(torch.complex64)
        image = torch.zeros(1, 4, 9, 9, dtype=torch.complex64)
        seen = self.observe(model, (image,), {}, Setting())
        figure = 2 * 3 * 49 * 8 * 4 * 9
        assert predict(self.convention, seen.trace, Setting(), seen.ledger).total == figure
        assert run_tool_in_process(self.adapter, model, (image,), {}, Setting()).total == figure
