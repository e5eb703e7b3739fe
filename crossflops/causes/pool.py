"""Causes of pooling, reductions and resampling, of which the native MACs have none."""

from crossflops.core.convention import Cause, Example

CAUSES = (
    Cause(
        id="pool.max",
        title="max pooling",
        page="Comparisons of max pooling are in the total: one for each element of the input, or "
        "of the result, or k for each result. k - 1 are needed.",
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
        page="Additions of average pooling are in the total: one for each element of the input, "
        "or of the result whatever the window, or k for each result.",
        recognise="The amount is a multiple of what goes into, or comes out of, these layers.",
        example=Example(
            code="model = nn.AvgPool2d(2)\ninputs = torch.randn(1, 8, 16, 16)",
            tool="thop",
            amount=512,
        ),
    ),
    Cause(
        id="pool.adaptive",
        title="adaptive average pooling",
        page="Additions and divisions of adaptive pooling are in the total. Its windows follow "
        "from the sizes: thop counts r + 1 for each result, r the ratio of input to output "
        "elements; others one for each element of the input.",
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
        page="The additions of a mean or a sum that is no pooling layer, x.mean((2, 3)) say, are "
        "in the total.",
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
        page="One or more per output element are in the total, although nothing is computed.",
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
        page="A constant per output element is in the total: 4, 5 or 11 for linear and bilinear "
        "interpolation, 259 for bicubic.",
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
        page="A constant per output element of grid_sample is in the total, often as if it were "
        "always bilinear.",
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
