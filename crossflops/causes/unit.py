"""Causes of the unit and the precision: what a tool counts for one operation."""

from crossflops.ir.reconciliation import Cause, Example

_UNIT_CAUSES = (
    Cause(
        id="unit.mac-vs-flop",
        title="2 per multiply-accumulate",
        page="The tool counts a multiply-accumulate as two operations, a multiplication and an "
        "addition; the native MACs count it as one. The amount is (unit - 1) times the MACs that "
        "the tool sees. Many tools and papers write FLOPs for MACs, so the word does not show "
        "which unit is used.",
        recognise="The ratio is exactly 2 on a model of convolutions and linear layers. Check "
        "the number of one layer that you can count by hand.",
        example=Example(
            code="model = nn.Linear(64, 32, bias=False)\ninputs = torch.randn(4, 64)",
            tool="torch-flop-counter",
            amount=8192,
        ),
        references=(
            "facebookresearch/fvcore#69",
            "facebookresearch/fvcore#133",
            "sovrasov/flops-counter.pytorch#16",
            "Lyken17/pytorch-OpCounter#15",
            "ultralytics/ultralytics#19773",
        ),
    ),
    Cause(
        id="unit.first-add-omitted",
        title="K - 1 additions in a sum of K",
        page="A sum of K products needs K multiplications and K - 1 additions, 2K - 1 "
        "operations; the native FLOPs count 2K, as if the first product were added to a zero. "
        "The amount is -1 for each sum, that is for each result element of a convolution or a "
        "matrix product.",
        recognise="The number is twice the MACs minus the number of output elements.",
        example=Example(
            code="model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False))\n"
            "inputs = torch.randn(1, 3, 16, 16)",
            tool="torchstat-madd",
            amount=-2048,
        ),
    ),
    Cause(
        id="unit.weighted-op-cost",
        title="operations with weights of their own",
        page="The tool counts some operations with a weight: onnx-tool 4 for a division, 24 for "
        "a square root, 32 for an exponential, 38 for tanh. The native FLOPs count each "
        "operation once. Such weights are estimates for some hardware, and change between "
        "releases of the tool.",
        recognise="A layer without any product counts tens of operations for each element.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def forward(self, x):\n"
            "        return x / 3\n"
            "model = Model()\n"
            "inputs = torch.randn(1, 8, 16, 16)",
            tool="onnx-tool",
            amount=8192,
        ),
        references=("ThanatosShinji/onnx-tool#7",),
    ),
)


# Causes of numbers that a tool cannot hold exactly.

_PRECISION_CAUSES = (
    Cause(
        id="precision.rounded",
        title="rounded or truncated",
        page="The tool computes with floats or truncates fractions, and its number differs from "
        "the exact value of its own formula.",
        recognise="The amount is less than 1 for each layer, or much less than a millionth of "
        "the total.",
    ),
    Cause(
        id="precision.float32",
        title="added up in single precision",
        page="The tool adds up in 32-bit floats, which hold whole numbers exactly up to 2^24. "
        "Beyond that every addition rounds, and the order of the operations matters. The amount "
        "is exact: crossflops repeats the additions in the order of the tool.",
        recognise="The total is above 16 777 216 and is a multiple of a power of two: 138 077 011 "
        "968 for a product of 138 077 003 866 operations.",
    ),
)


CAUSES = (*_UNIT_CAUSES, *_PRECISION_CAUSES)
