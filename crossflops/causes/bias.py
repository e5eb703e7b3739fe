"""Causes of the additions of biases, which the native MACs have none of."""

from crossflops.core.convention import Cause, Example

_FINE = "The amount is the number of output elements of the layers that have a bias."

CAUSES = (
    Cause(
        id="bias.conv",
        title="biases of convolutions",
        page="The addition of a convolution's bias, one per output element, is in the total. "
        "thop 0.0.31 counts it, thop 0.1.1 does not. Absent where batch norm follows, since such "
        "convolutions have no bias.",
        recognise=_FINE,
        example=Example(
            code="model = nn.Conv2d(3, 8, 3, padding=1)\ninputs = torch.randn(1, 3, 16, 16)",
            tool="torchinfo",
            amount=2048,
        ),
    ),
    Cause(
        id="bias.linear",
        title="biases of linear layers",
        page="The addition of a linear layer's bias, one per output element, is in the total: "
        "1000 on a classifier of 1000 classes. Some tools count it for convolutions and not here.",
        recognise=f"{_FINE} A ResNet-50 that differs by exactly 1000 from another count.",
        example=Example(
            code="model = nn.Linear(64, 32)\ninputs = torch.randn(4, 64)",
            tool="ptflops-aten",
            amount=128,
        ),
    ),
    Cause(
        id="bias.rnn",
        title="biases of recurrent layers",
        page="Both bias vectors of every gate, 2 g H per step and sample (g = 1, 3, 4 for RNN, "
        "GRU, LSTM), are in the total. Some tools count these although they ignore the biases of "
        "convolutions and linear layers.",
        recognise="The amount is 2 g H x steps x batch for each layer and direction.",
        example=Example(
            code="model = nn.LSTM(16, 32)\ninputs = torch.randn(5, 1, 16)",
            tool="thop",
            amount=1280,
        ),
    ),
    Cause(
        id="bias.attention-proj",
        title="biases of the projections of attention",
        page="The biases of the query, key, value and output projections inside "
        "nn.MultiheadAttention, one per element of each projection, are in the total.",
        recognise="The amount is 4 x length x width for each block of self-attention, or 3 x or 1 "
        "x where only the input or the output projection is counted so.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.layer = nn.MultiheadAttention(32, 4, batch_first=True)\n"
            "    def forward(self, x):\n"
            "        return self.layer(x, x, x, need_weights=False)[0]\n"
            "model = Model()\n"
            "inputs = torch.randn(1, 10, 32)",
            tool="ptflops-pytorch",
            amount=1280,
        ),
    ),
)
