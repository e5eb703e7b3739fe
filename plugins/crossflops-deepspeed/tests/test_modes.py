"""What the profiler sees under a TorchFunctionMode of the model's own, FlexAttention's among them.

PyTorch looks a tensor's methods up by their names there: `x * y` reaches the function that
DeepSpeed put in the place of Tensor.mul, and `x.mul(y)` reaches it twice.
"""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import flex_attention as library
from torch.overrides import TorchFunctionMode

from crossflops import compare

pytestmark = pytest.mark.tools

MODE = "function.mode"


class Pass(TorchFunctionMode):
    """Hands every call on."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Do what was asked for."""
        return func(*args, **(kwargs or {}))


class Under(nn.Module):
    """Calls a function under one mode, or under two."""

    def __init__(self, function, modes):
        super().__init__()
        self.function, self.modes = function, modes

    def forward(self, x):
        """On two rows of four channels of eight."""
        if not self.modes:
            return self.function(x)
        with torch.device("cpu"):
            if self.modes == 1:
                return self.function(x)
            with Pass():
                return self.function(x)


def printed(model, x):
    """What DeepSpeed prints, explained to the last one, and what of it is for a mode."""
    (account,) = compare(model, x, tools=["deepspeed"], isolate=False).reconciliations
    assert account.residual == 0
    assert all(row.theirs == row.predicted for row in account.by_path)
    amounts = {explanation.cause: explanation.amount for explanation in account.explanations}
    return account.theirs, amounts.get(MODE, 0)


@pytest.mark.parametrize(
    ("function", "amount", "unit", "seen"),
    [
        # 64 elements, or 2 x 4 x 4 x 8 multiply-accumulates; how often under 0, 1 and 2 modes
        (lambda x: x * x, 64, 1, (0, 1, 2)),
        (lambda x: 2 + x, 64, 1, (0, 1, 2)),
        (lambda x: x.add(x), 64, 1, (1, 2, 3)),
        (lambda x: torch.mul(x, x), 64, 1, (1, 1, 1)),
        (lambda x: x @ x.mT, 256, 2, (1, 2, 3)),
        (lambda x: x.bmm(x.mT), 256, 2, (1, 2, 3)),
        (lambda x: functional.relu(x), 64, 1, (1, 2, 3)),
    ],
)
def test_modes_show_a_method_by_its_name(function, amount, unit, seen):
    """Each mode shows it once more, as the profiler prints it: products at 2 FLOPs per MAC.

    The second of these is explained by the unit, as everywhere.
    """
    x = torch.randn(2, 4, 8)
    for modes, times in enumerate(seen):
        total, by_mode = printed(Under(function, modes), x)
        assert total == times * amount * unit
        assert by_mode == (times - seen[0]) * amount


LENGTH = 128
SLOPES = torch.tensor([0.5, 0.25])


class Attention(nn.Module):
    """Two heads of queries on as many, or on one, of keys."""

    def __init__(self, score, mask=None, key_heads=2, inside=False):
        super().__init__()
        self.score, self.mask, self.key_heads, self.inside = score, mask, key_heads, inside
        self.blocks = None if mask is None or inside else self.made()

    def made(self):
        """The blocks of the mask."""
        return library.create_block_mask(self.mask, None, None, LENGTH, LENGTH, device="cpu")

    def forward(self, q):
        """The keys are the first heads of the queries."""
        k = q[:, : self.key_heads]
        blocks = self.made() if self.inside else self.blocks
        return library.flex_attention(
            q, k, k, score_mod=self.score, block_mask=blocks, enable_gqa=self.key_heads != 2
        )


@pytest.mark.parametrize(
    ("options", "operations"),
    [
        ({"score": None}, 0),
        ({"score": lambda s, _b, h, i, j: s + SLOPES[h] * (j - i)}, 2),
        ({"score": lambda s, _b, h, i, j: s + SLOPES[h] * (j - i), "key_heads": 1}, 2),
        ({"score": lambda s, _b, _h, i, _j: s.add(i.mul(2))}, 4),
        ({"score": lambda s, _b, _h, _i, _j: 20 * torch.tanh(s / 20)}, 1),
        ({"score": None, "mask": lambda _b, _h, i, j: (i >= j) & (i - j < 32)}, 0),
        ({"score": None, "mask": lambda _b, _h, i, j: i + 3 >= j}, 1),
        ({"score": None, "mask": lambda _b, _h, i, j: i + 3 >= j, "inside": True}, 2),
    ],
)
def test_flexible_attention_shows_its_scale_and_each_operation_on_a_score(options, operations):
    """2 x 2 x 128 x 128 x 8 MACs, a scale of 2 x 128 x 128 scores, and one for each + and *.

    torch.vmap shows one score of all to them. A mask that the model makes runs once more.
    """
    scores = 2 * LENGTH * LENGTH
    total, _ = printed(Attention(**options), torch.randn(1, 2, LENGTH, 8))
    assert total == 2 * 2 * scores * 8 + scores + operations
