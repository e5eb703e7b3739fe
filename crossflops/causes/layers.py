"""Causes of layers without contractions: norms, pools, activations, and elementwise work."""

from crossflops.ir.reconciliation import Cause, Example

_CONSTANT = "The amount is a small constant times the elements that the layers normalize."

_NORM_CAUSES = (
    Cause(
        id="norm.batch",
        title="batch normalization",
        page="The total includes a constant for each element of every batch norm, 1 to 5 "
        "depending on the tool, the mode and the affine parameters. This is elementwise work, "
        "and disappears if the batch norm is folded into the convolution. On a ResNet-50 it is "
        "most of the difference between 4.09 G, 4.11 G and 4.13 G.",
        recognise=f"{_CONSTANT} 11 113 984 elements on a ResNet-50 of 224 x 224.",
        example=Example(
            code="model = nn.BatchNorm2d(8)\ninputs = torch.randn(1, 8, 16, 16)",
            tool="thop",
            amount=8192,
        ),
        references=(
            "sovrasov/flops-counter.pytorch#76",
            "sovrasov/flops-counter.pytorch#94",
            "TylerYep/torchinfo#312",
        ),
    ),
    Cause(
        id="norm.layer",
        title="layer normalization",
        page="The total includes a constant for each element of every layer norm, 1 to 7 "
        "depending on the tool. A layer norm centres, squares, sums, divides and scales; tools "
        "count different parts of this.",
        recognise=_CONSTANT,
        example=Example(
            code="model = nn.LayerNorm(64)\ninputs = torch.randn(2, 10, 64)",
            tool="thop",
            amount=5120,
        ),
    ),
    Cause(
        id="norm.group",
        title="group normalization",
        page="The total includes a constant for each element of every group norm: 5 in fvcore (4 "
        "without affine parameters). Many tools that count batch norm have no rule for it.",
        recognise=_CONSTANT,
        example=Example(
            code="model = nn.GroupNorm(2, 8)\ninputs = torch.randn(1, 8, 16, 16)",
            tool="fvcore",
            amount=10240,
        ),
    ),
    Cause(
        id="norm.instance",
        title="instance normalization",
        page="The total includes a constant for each element of every instance norm, with or "
        "without affine parameters.",
        recognise=_CONSTANT,
        example=Example(
            code="model = nn.InstanceNorm2d(8, affine=True)\ninputs = torch.randn(1, 8, 16, 16)",
            tool="thop",
            amount=8192,
        ),
    ),
    Cause(
        id="norm.rms",
        title="RMS normalization",
        page="The total includes a constant for each element of every RMS norm, or the products "
        "of its decomposition. Models with their own code for it (most language models) show its "
        "operations one by one instead.",
        recognise=_CONSTANT,
        example=Example(
            code="model = nn.RMSNorm(64)\ninputs = torch.randn(2, 10, 64)",
            tool="ultralytics-thop",
            amount=5120,
        ),
    ),
)


# Causes of pooling, reductions and resampling, of which the native MACs have none.

_POOL_CAUSES = (
    Cause(
        id="pool.max",
        title="max pooling",
        page="The total includes the comparisons of max pooling: 1 for each element of the input "
        "or of the result, or k for each result. k - 1 are needed.",
        recognise="802 816 elements go into the max pooling of a ResNet-50, 200 704 come out.",
        example=Example(
            code="model = nn.MaxPool2d(2)\ninputs = torch.randn(1, 8, 16, 16)",
            tool="deepspeed",
            amount=2048,
        ),
    ),
    Cause(
        id="pool.avg",
        title="average pooling",
        page="The total includes the additions of average pooling: 1 for each element of the "
        "input, or of the result for any window, or k for each result.",
        recognise="The amount is a multiple of the number of elements of the inputs or of the "
        "results of these layers.",
        example=Example(
            code="model = nn.AvgPool2d(2)\ninputs = torch.randn(1, 8, 16, 16)",
            tool="thop",
            amount=512,
        ),
    ),
    Cause(
        id="pool.adaptive",
        title="adaptive average pooling",
        page="The total includes the additions and divisions of adaptive pooling. The sizes of "
        "input and result determine the windows: thop counts r + 1 for each result, where r is "
        "the ratio of input to output elements; other tools count 1 for each element of the "
        "input.",
        recognise="102 400 on a ResNet-50 in thop (50 x 2048), 100 352 in fvcore (49 x 2048).",
        example=Example(
            code="model = nn.AdaptiveAvgPool2d(1)\ninputs = torch.randn(1, 8, 16, 16)",
            tool="thop",
            amount=2056,
        ),
    ),
    Cause(
        id="reduce.mean",
        title="means and sums over axes",
        page="The total includes the additions of a mean or a sum that is not a pooling layer, "
        "such as x.mean((2, 3)).",
        recognise="Replacing a mean by AdaptiveAvgPool2d(1) changes the tool's number.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def forward(self, x):\n"
            "        return x.mean((2, 3))\n"
            "model = Model()\n"
            "inputs = torch.randn(1, 8, 16, 16)",
            tool="torchprofile",
            amount=8,
        ),
    ),
    Cause(
        id="upsample.nearest",
        title="nearest-neighbour upsampling",
        page="The total includes 1 or more for each output element, although nothing is computed.",
        recognise="The amount is a multiple of the elements that upsampling produces.",
        example=Example(
            code="model = nn.Upsample(scale_factor=2)\ninputs = torch.randn(1, 8, 16, 16)",
            tool="thop",
            amount=8192,
        ),
    ),
    Cause(
        id="upsample.linear",
        title="interpolating upsampling",
        page="The total includes a constant for each output element: 4, 5 or 11 for linear and "
        "bilinear interpolation, 259 for bicubic.",
        recognise="The amount is a multiple of the elements that upsampling produces.",
        example=Example(
            code='model = nn.Upsample(scale_factor=2, mode="bilinear")\n'
            "inputs = torch.randn(1, 8, 16, 16)",
            tool="thop",
            amount=90112,
        ),
    ),
    Cause(
        id="resample.grid",
        title="grid sampling",
        page="The total includes a constant for each output element of grid_sample, often as if "
        "it were always bilinear.",
        recognise="The amount is a multiple of the elements that grid_sample produces.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def forward(self, x, grid):\n"
            "        return F.grid_sample(x, grid, align_corners=False)\n"
            "model = Model()\n"
            "inputs = torch.randn(1, 8, 16, 16), torch.rand(1, 4, 4, 2)",
            tool="fvcore",
            amount=512,
        ),
    ),
)


# Causes of activations, elementwise work of which the native MACs have none.

_ACT_CAUSES = (
    Cause(
        id="act.relu",
        title="ReLU",
        page="The total includes a comparison for each element. Some tools count it, most do "
        "not, and one counts it twice (see functional.double-counted).",
        recognise="The amount is the number of elements of all ReLUs: 9 608 704 on a ResNet-50.",
        example=Example(
            code="model = nn.ReLU()\ninputs = torch.randn(1, 8, 16, 16)",
            tool="deepspeed",
            amount=2048,
        ),
        references=("sovrasov/flops-counter.pytorch#139",),
    ),
    Cause(
        id="act.piecewise-other",
        title="PReLU and similar activations",
        page="The total includes 1 or more for each element of a piecewise activation (PReLU, "
        "LeakyReLU, ReLU6, Hardswish, clamp ...). Each tool knows only some of them.",
        recognise="The amount is a small multiple of the elements of these activations.",
        example=Example(
            code="model = nn.PReLU()\ninputs = torch.randn(1, 8, 16, 16)", tool="thop", amount=2048
        ),
    ),
    Cause(
        id="act.transcendental",
        title="GELU, SiLU, Sigmoid, Tanh and similar activations",
        page="The total includes 1 for each element of an activation with an exponential, or a "
        "weighted cost. Each tool knows only some of them, for example GELU and SiLU, but not "
        "Sigmoid.",
        recognise="The amount is a multiple of the elements of these activations.",
        example=Example(
            code="model = nn.GELU()\ninputs = torch.randn(1, 8, 16, 16)",
            tool="deepspeed",
            amount=2048,
        ),
    ),
    Cause(
        id="softmax",
        title="softmax",
        page="The total includes the exponentials, the sum and the divisions of a softmax: about "
        "3 for each element in one tool, 1 in another, 36 in onnx-tool.",
        recognise="The amount is a multiple of the number of elements that the softmax layers "
        "read.",
        example=Example(
            code="model = nn.Softmax(dim=-1)\ninputs = torch.randn(2, 10, 64)",
            tool="thop",
            amount=3820,
        ),
    ),
)


# Causes of recurrent layers.

_RNN_CAUSES = (
    Cause(
        id="rnn.fused",
        title="recurrent layers",
        page="A recurrent layer is one fused operator in the graph. The tool has no rule for it, "
        "or a rule that differs from the products of the gates (no projections, another number "
        "of steps, the input width of the first layer for all layers).",
        recognise="The amount is 0 without RNN, GRU or LSTM layers.",
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
        page="The total includes the elementwise work of a cell, for each step and sample: H for "
        "an RNN, 7 H for a GRU, 8 H for an LSTM in thop, other constants in other tools.",
        recognise="The amount is a multiple of H x steps x batch.",
        example=Example(
            code="model = nn.LSTM(16, 32)\ninputs = torch.randn(5, 2, 16)",
            tool="thop",
            amount=2560,
        ),
    ),
)


# Causes of elementwise work that is no layer: additions and products of tensors.

_ELEMENTWISE_CAUSES = (
    Cause(
        id="elementwise.native",
        title="work outside of contractions",
        page="The total includes additions, multiplications, comparisons and functions outside "
        "of sums of products. The native MACs do not include them; the native FLOPs count each "
        "once.",
        recognise="The model has layers other than convolutions and products.",
        example=Example(
            code="model = nn.Sigmoid()\ninputs = torch.randn(1, 8, 16, 16)",
            tool="elementwise-1",
            amount=2048,
        ),
    ),
    Cause(
        id="elementwise.add-function",
        title="additions and products of tensors",
        page="The total includes 1 for each result element of an addition or a multiplication of "
        "tensors, such as the residual connections of a ResNet or a transformer. A tool that "
        "replaces functions sees torch.add(x, y) and not x + y; a tool that observes operators "
        "sees both.",
        recognise="The amount is the number of elements of the sums: 5 519 360 on a ResNet-50.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def forward(self, x):\n"
            "        return x + x\n"
            "model = Model()\n"
            "inputs = torch.randn(1, 8, 16, 16)",
            tool="torch-profiler",
            amount=2048,
        ),
        references=("deepspeedai/DeepSpeed#3087", "pytorch/pytorch#82951"),
    ),
    Cause(
        id="elementwise.broadcast-shape",
        title="the shape of a broadcast result",
        page="If the operands of an addition or a multiplication have different shapes, they are "
        "broadcast, and the result can have more elements than each operand. The tool uses the "
        "number of elements of one operand, or aligns the shapes from the left.",
        recognise="Exchanging the operands changes the tool's number.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def forward(self, x, y):\n"
            "        return torch.add(x, y)\n"
            "model = Model()\n"
            "inputs = torch.randn(2, 3, 4), torch.randn(4)",
            tool="ptflops-pytorch",
            amount=24,
        ),
    ),
    Cause(
        id="elementwise.type-conversion",
        title="conversions of types",
        page="The tool counts 1 for each element that is converted from one type to another. The "
        "native count does not count conversions as arithmetic.",
        recognise="The amount grows when the model is run in bfloat16 or in integers.",
    ),
)


CAUSES = (*_NORM_CAUSES, *_POOL_CAUSES, *_ACT_CAUSES, *_RNN_CAUSES, *_ELEMENTWISE_CAUSES)
