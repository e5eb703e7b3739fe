"""What DeepSpeed's own profiler prints, and another tool, beside the profile of the same model."""

import pytest

import crossflops

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.tools

ROWS, TOKENS, WIDTH = 2, 8, 16
LINEAR = ROWS * TOKENS * 2 * WIDTH * WIDTH
PRODUCTS = 2 * ROWS * TOKENS * TOKENS * WIDTH


class Attention(torch.nn.Module):
    """Two linears, two products, and a softmax, which is no MAC."""

    def __init__(self):
        super().__init__()
        self.query, self.key = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, x):
        scores = torch.matmul(self.query(x), self.key(x).transpose(1, 2))
        return torch.matmul(torch.softmax(scores, -1), x)


def test_a_tool_is_run_and_every_difference_has_a_name():
    """By hand: DeepSpeed has the products of attention, thop modules alone, both at a word."""
    profile = crossflops.profile(
        Attention(), torch.ones(ROWS, TOKENS, WIDTH), seconds=0.05, peak_tflops=1,
        tools=["deepspeed-macs", "thop", "torchstat-memread"],
    )  # fmt: skip
    assert profile.work.forward_macs == LINEAR + PRODUCTS
    deepspeed, thop = profile.conventions
    assert (deepspeed.tool, deepspeed.printed) == ("deepspeed-macs", LINEAR + PRODUCTS)
    assert (deepspeed.differences, deepspeed.residual) == ((), 0)
    assert (thop.printed, thop.residual) == (LINEAR, 0)
    assert sum(cause.amount for cause in thop.differences) == -PRODUCTS
    assert thop.by_module["query"] == LINEAR // 2
    page = str(profile)
    assert f"printed {LINEAR // 1000} 192" in page
    assert any("torchstat-memread" in text for text in profile.warnings)


def test_what_is_no_tool_is_told_before_a_step():
    """By its id."""
    with pytest.raises(crossflops.errors.UnknownNameError, match="deepsped"):
        crossflops.profile("no_such_file.py:net", "1x2", tools=["deepsped"])
