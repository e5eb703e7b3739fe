"""Causes of normalization layers, elementwise work of which the native MACs have none."""

from crossflops.core.convention import Cause, Example

_CONSTANT = "The amount is a small constant times the elements that the layers normalize."

CAUSES = (
    Cause(
        id="norm.batch",
        title="batch normalization",
        page="A constant per element of every batch norm, 1 to 5 by tool, mode and whether it has "
        "affine parameters, is in the total. It is elementwise work, and vanishes when folded "
        "into the convolution. It is most of what parts 4.09 G from 4.11 G and 4.13 G on a "
        "ResNet-50.",
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
        page="A constant per element of every layer norm, 1 to 7 by tool, is in the total. It "
        "centres, squares, sums, divides and scales; tools differ in what of this they count.",
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
        page="A constant per element of every group norm is in the total: 5 in fvcore (4 without "
        "affine parameters). Many tools that count batch norm have no rule for it.",
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
        page="A constant per element of every instance norm, with and without affine parameters, "
        "is in the total.",
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
        page="A constant per element of every RMS norm is in the total, or the products of which "
        "it is composed. Models that write their own (most language models do) show its "
        "operations one by one instead.",
        recognise=_CONSTANT,
        example=Example(
            code="model = nn.RMSNorm(64)\ninputs = torch.randn(2, 10, 64)",
            tool="ultralytics-thop",
            amount=5120,
        ),
    ),
)
