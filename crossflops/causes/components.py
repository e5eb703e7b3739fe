"""Causes of work that is no contraction and that a tool adds to its total."""

from crossflops.core.convention import Cause

CAUSES = (
    Cause(
        id="bias.conv",
        title="biases of convolutions",
        page="The addition of a convolution's bias, one per output element, is in the total. "
        "thop 0.0.31 counts it, thop 0.1.1 does not. Absent where batch norm follows, since such "
        "convolutions have no bias.",
    ),
    Cause(
        id="bias.rnn",
        title="biases of recurrent layers",
        page="Both bias vectors of every gate, 2 g H per step and sample (g = 1, 3, 4 for RNN, "
        "GRU, LSTM), are in the total. thop counts them although it ignores the biases of "
        "convolutions and linear layers.",
    ),
    Cause(
        id="norm.batch",
        title="batch normalization",
        page="A constant per element of every batch norm: thop 4 (2 without affine parameters; 2 "
        "in 0.0.31), fvcore 2 in evaluation and 5 in training (1 and 4 without affine). The "
        "native MACs hold none: it is elementwise work, and vanishes when folded into the "
        "convolution. It is most of what parts 4.09 G from 4.11 G and 4.13 G on a ResNet-50.",
        references=("sovrasov/flops-counter.pytorch#76", "TylerYep/torchinfo#312"),
    ),
    Cause(
        id="norm.layer",
        title="layer normalization",
        page="A constant per element of every layer norm: thop 4 (2 without affine parameters), "
        "fvcore 5 (4 without).",
    ),
    Cause(
        id="norm.group",
        title="group normalization",
        page="A constant per element of every group norm: fvcore 5 (4 without affine "
        "parameters). thop has no rule for it.",
    ),
    Cause(
        id="norm.instance",
        title="instance normalization",
        page="A constant per element of every instance norm: thop 4 (2 without affine "
        "parameters), fvcore 5 (4 without).",
    ),
    Cause(
        id="act.piecewise-other",
        title="PReLU and its kin",
        page="One per element of an activation made of pieces: PReLU in thop 0.1.1, LeakyReLU in "
        "thop 0.0.31. ReLU itself counts nothing in either.",
    ),
    Cause(
        id="softmax",
        title="softmax modules",
        page="thop counts 3 f - 1 per row of f features for every nn.Softmax: f exponentials, "
        "f - 1 additions, f divisions. F.softmax and nn.LogSoftmax count nothing there.",
    ),
    Cause(
        id="pool.avg",
        title="average pooling",
        page="thop counts one per output element of an average pooling, whatever the window.",
    ),
    Cause(
        id="pool.adaptive",
        title="adaptive average pooling",
        page="thop counts (r + 1) per output element, r the product of input over output extents "
        "(0.0.31: floored); fvcore one per input element of the two-dimensional form.",
    ),
    Cause(
        id="upsample.nearest",
        title="nearest-neighbour upsampling",
        page="One per output element (thop 0.1.1, fvcore), although nothing is computed.",
    ),
    Cause(
        id="upsample.linear",
        title="interpolating upsampling",
        page="A constant per output element: thop 5 linear, 11 bilinear, 259 bicubic; fvcore 4 "
        "bilinear. Trilinear is a warning and 0 in thop.",
    ),
    Cause(
        id="resample.grid",
        title="grid sampling",
        page="fvcore counts 4 per output element of grid_sample, as if it were always bilinear.",
    ),
    Cause(
        id="rnn.gate-elementwise",
        title="gates of recurrent layers",
        page="The elementwise work of a cell, per step and sample: thop H for an RNN, 7 H for a "
        "GRU, 8 H for an LSTM.",
    ),
)
