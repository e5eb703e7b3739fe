"""A mixture of experts: all parameters, and those that one token uses."""

import msgspec
import pytest

import crossflops
from crossflops.render.page import Table
from crossflops.render.pages.summary import summary
from tests.onnx_files import saved, with_weights

MS = "com.microsoft"
# 4 experts of 8 x 6 and 6 x 8 weights with 6 biases; a router of 8 x 4.
TEXT = f"""
g (float[tokens,8] x, float[8,4] r, float[4,6,8] f, float[4,6] b, float[4,8,6] o) => (y) {{
  p = MatMul (x, r) y = {MS}.MoE <k = CHOSEN> (x, p, f, b, o)
}}"""
EXPERT, ROUTER = 48 + 6 + 48, 32


@pytest.mark.parametrize(("tokens", "used"), [(1, 2), (9, 2), (9, 4)])
def test_experts_that_a_token_does_not_choose_are_not_active(tokens, used, tmp_path):
    """A token chooses 2 of 4 experts, or all of them, however many tokens there are."""
    text = TEXT.replace("CHOSEN", str(used))
    path = saved(tmp_path, with_weights(text, "r", "f", "b", "o"))
    report = crossflops.count(path, dims={"tokens": tokens})
    assert report.totals.macs == tokens * (32 + used * 96)
    assert report.totals.params == 4 * EXPERT + ROUTER
    active = used * EXPERT + ROUTER
    shown = any("are active" in str(block) for block in summary(report).blocks)
    if used == 4:
        assert report.totals.active_params is msgspec.UNSET
        assert "active_params" not in msgspec.to_builtins(report.totals)
        assert not shown
    else:
        assert msgspec.to_builtins(report.totals)["active_params"] == active
        assert any(
            str(active) in row.cells[1]
            for block in summary(report).blocks
            if isinstance(block, Table)
            for row in block.rows
        )
        assert shown
