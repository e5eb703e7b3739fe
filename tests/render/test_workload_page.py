"""The page of a workload with amounts of 18 and 19 digits."""

import pytest

from crossflops.render.page import Page
from crossflops.render.pages.workload import workload_blocks
from tests.workloads import phase_of, round_workload

MACS, FLOPS = 876_768_073_526_927_225, 1_753_536_147_177_311_239


@pytest.mark.parametrize("width", [60, 80, 120])
def test_large_amounts_and_their_names_stay_whole(width, monkeypatch):
    """The table breaks between phases, and neither in a number nor in a name."""
    from crossflops.render import terminal

    moved = {"bytes_read": 10**17, "bytes_written": 10**15, "cache_written": 1_052_770_304}
    decode = phase_of(
        255, 2040, 806_000_000_000, macs=MACS, flops=FLOPS, cache_read=10**15, **moved
    )
    workload = round_workload(decode=decode, macs=MACS, flops=FLOPS)
    monkeypatch.setattr(
        terminal, "page_without_figures", lambda *_: Page(tuple(workload_blocks(workload)))
    )
    text = terminal.terminal(None, width)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert "876 768 073 526 927 225" in text
    assert "1 753 536 147 177 311 239" in text
    [written, *_] = [line for line in lines if line.startswith(" cache written")]
    assert written.startswith(" cache written, bytes ")
    heads = [word for line in lines for word in line.split() if word in ("decode", "total")]
    assert heads == ["decode", "total"]
