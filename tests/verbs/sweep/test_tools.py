"""A sweep that runs tools on a model of PyTorch."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import crossflops

pytestmark = pytest.mark.torch

# 4 x 6 x 6 outputs of 3 x 3 x 3 products each: 3888 MACs; thop adds 4 for each of 144 elements.
MODEL = """from torch import nn
def net():
    return nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4))
"""


def test_a_tool_has_the_memory_that_is_allowed(tmp_path, monkeypatch):
    """128 MiB are too few to import PyTorch; the row is tried again without a limit."""
    (tmp_path / "m.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    suite = {"tools": ["thop"], "model": [{"target": "m.py:net", "input": "1x3x8x8"}]}

    def count(**options):
        with ThreadPoolExecutor(1) as executor:
            result = crossflops.sweep(suite, store="store", executor=executor, **options)
        return {row.tool: row.total for row in result.rows}

    assert count(memory=2**27) == {"native": 3888, "thop": None}
    assert count(retry_failures=True) == {"native": 3888, "thop": 4464}


def test_the_number_of_each_tool_has_its_causes(tmp_path, monkeypatch):
    """The additions of thop are named; a tool that prints FLOPs has twice the exact count."""
    (tmp_path / "m.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    suite = {
        "tools": ["thop", "torch-flop-counter"],
        "model": [{"target": "m.py:net", "input": "1x3x8x8"}],
    }
    with ThreadPoolExecutor(1) as executor:
        result = crossflops.sweep(suite, store="store", executor=executor)
    native, thop, torch = result.rows
    assert (native.total, native.shapes, native.is_exact) == (3888, ("1x3x8x8",), True)
    assert (thop.total, thop.causes, thop.residual) == (4464, {"norm.batch": 576}, 0)
    assert not thop.is_exact
    assert (torch.total, torch.causes) == (7776, {"unit.mac-vs-flop": 3888})
    assert torch.is_exact
    assert torch.version
    assert native.macs + sum(torch.causes.values()) + torch.residual == torch.total
