"""Causes of the unit: what a tool counts for one multiply-accumulate."""

from crossflops.core.convention import Cause

CAUSES = (
    Cause(
        id="unit.mac-vs-flop",
        title="2 per multiply-accumulate",
        page="The tool counts a multiply-accumulate as two operations, a multiplication and an "
        "addition; the native MACs count it as one. The amount is (unit - 1) times the MACs that "
        "the tool sees. Recognise it by a ratio of 2 on a model of convolutions and linear "
        "layers. Many tools and papers write FLOPs where they mean MACs, so the word says "
        "nothing: look at the number for a layer that you can count by hand.",
        references=(
            "facebookresearch/fvcore#69",
            "facebookresearch/fvcore#133",
            "sovrasov/flops-counter.pytorch#16",
            "Lyken17/pytorch-OpCounter#15",
        ),
    ),
)
