"""onnx-tool's convention predicts onnx-tool."""

import pytest
import torch
from crossflops_onnx_tool import OnnxTool
from torch import nn

import crossflops
from crossflops.testing.conformance import FileConformance

pytestmark = pytest.mark.tools


class TestConformance(FileConformance):
    """The whole kit, on the files of the probes."""

    adapter = OnnxTool()
    held_apart = frozenset({"onnx-tool.matmul.of-values"})


class Experts(nn.Module):
    """Two of four experts for each token, chosen by masks: 16 -> 8 -> 16."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(16, 4, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 16)) for _ in range(4)
        )

    def forward(self, x):
        """10 tokens of 16."""
        weights, chosen = self.router(x).softmax(-1).topk(2)
        result = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            token, place = (chosen == number).nonzero(as_tuple=True)
            result[token] += expert(x[token]) * weights[token, place, None]
        return result


def test_every_expert_gets_every_row():
    """The masks are all zeros or all ones to the tool: 20 rows for each expert, of 20 in all.

    A row is 16*8 + 8*16 MACs, the router 10*16*4.
    """
    report = crossflops.compare(Experts(), (torch.randn(10, 16),), tools=["onnx-tool"])
    assert report.macs == 10 * 16 * 4 + 20 * 256
    account = report.reconciliation("onnx-tool")
    amounts = {step.cause: step.amount for step in account.explanations}
    assert (account.residual, amounts["graph.unknown-shape"]) == (0, 3 * 20 * 256)
