"""Causes of the unit: what a tool counts for one operation."""

from crossflops.core.convention import Cause

CAUSES = (
    Cause(
        id="unit.mac-vs-flop",
        title="2 per multiply-accumulate",
        page="The tool counts a multiply-accumulate as two operations, a multiplication and an "
        "addition; the native MACs count it as one. The amount is (unit - 1) times the MACs that "
        "the tool sees. Many tools and papers write FLOPs where they mean MACs, so the word says "
        "nothing.",
        recognise="A ratio of exactly 2 on a model of convolutions and linear layers. Look at the "
        "number for one layer that you can count by hand.",
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
        page="A sum of K products needs K multiplications and K - 1 additions, 2K - 1 operations; "
        "the native FLOPs say 2K, as if the first product were added to a zero. The amount is -1 "
        "for each sum, which is each result of a convolution or a matrix product.",
        recognise="The number falls short of twice the MACs by the number of output elements.",
    ),
    Cause(
        id="unit.weighted-op-cost",
        title="an operation counts more than one",
        page="The tool gives an operation a weight of its own: onnx-tool 4 for a division, 24 for "
        "a square root, 32 for an exponential, 38 for tanh. The native FLOPs count each once. "
        "Such weights are estimates of hardware, and changed between releases of the tool.",
        recognise="A layer without any product counts tens of operations for each element.",
        references=("ThanatosShinji/onnx-tool#7",),
    ),
)
