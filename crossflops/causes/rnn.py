"""Causes of recurrent layers."""

from crossflops.core.convention import Cause, Example

CAUSES = (
    Cause(
        id="rnn.fused",
        title="recurrent layers",
        page="A fused recurrent operator is not taken apart: the tool has no rule for it, or one "
        "of its own that differs from the products of the gates (no projections, another number "
        "of steps, the input width of the first layer for all).",
        recognise="The difference vanishes without the RNN, GRU or LSTM layers.",
        example=Example(
            code="model = nn.LSTM(16, 32)\ninputs = torch.randn(5, 2, 16)",
            tool="fvcore",
            amount=-61440,
        ),
        references=(
            "facebookresearch/fvcore#98",
            "facebookresearch/fvcore#49",
            "ThanatosShinji/onnx-tool#64",
        ),
    ),
    Cause(
        id="rnn.gate-elementwise",
        title="gates of recurrent layers",
        page="The elementwise work of a cell, per step and sample, is in the total: H for an RNN, "
        "7 H for a GRU, 8 H for an LSTM in thop, other constants elsewhere.",
        recognise="The amount is a multiple of H x steps x batch.",
        example=Example(
            code="model = nn.LSTM(16, 32)\ninputs = torch.randn(5, 2, 16)",
            tool="thop",
            amount=2560,
        ),
    ),
)
