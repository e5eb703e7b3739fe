"""Causes of convolutions that are counted by another formula than their true MACs, or not."""

from crossflops.core.convention import Cause, Example

CAUSES = (
    Cause(
        id="conv.transpose-output-size",
        title="transposed convolutions by output size",
        page="A transposed convolution does Ci x Co/g x K multiplications per *input* position. "
        "The tool uses the formula of the forward convolution, per output position, and with it a "
        "factor of about stride^2 too many.",
        recognise="A decoder with ConvTranspose of stride 2 counts about 4 times too much.",
        example=Example(
            code="model = nn.ConvTranspose2d(8, 4, 2, stride=2, bias=False)\n"
            "inputs = torch.randn(1, 8, 8, 8)",
            tool="thop",
            amount=24576,
        ),
        references=(
            "Lyken17/pytorch-OpCounter#20",
            "Lyken17/pytorch-OpCounter#93",
            "ThanatosShinji/onnx-tool#32",
        ),
    ),
    Cause(
        id="conv.transpose-groups",
        title="groups of transposed convolutions",
        page="The weight of a transposed convolution is [Ci, Co/g, k...]: its groups are in it. A "
        "tool that divides by the groups once more counts g times too few; one that takes Co for "
        "Co/g counts g times too many.",
        recognise="Only transposed convolutions with groups differ, by the factor g.",
        example=Example(
            code="model = nn.ConvTranspose2d(8, 4, 3, stride=2, groups=2, bias=False)\n"
            "inputs = torch.randn(1, 8, 8, 8)",
            tool="calflops-macs",
            amount=-4608,
        ),
        references=("deepspeedai/DeepSpeed#8323",),
    ),
    Cause(
        id="conv.output-size-recomputed",
        title="an output size computed anew",
        page="The tool does not look at the result of a convolution but computes its size from "
        "padding, stride and dilation. For what its formula does not know, such as "
        'padding="same" with an even kernel, it is off.',
        recognise="A single convolution with unusual padding differs by a few rows or columns.",
        example=Example(
            code='model = nn.Conv2d(3, 8, 4, padding="same", bias=False)\n'
            "inputs = torch.randn(1, 3, 16, 16)",
            tool="deepspeed-macs",
            amount=-11904,
        ),
    ),
    Cause(
        id="conv.string-padding-unsupported",
        title='convolutions with padding="same"',
        page='A convolution with padding="same" or "valid" is traced as another operator '
        "(aten::_convolution_mode), for which the tool has no formula.",
        recognise='The layers that are missing have padding="same" or padding="valid".',
        example=Example(
            code='model = nn.Conv2d(3, 8, 3, padding="same", bias=False)\n'
            "inputs = torch.randn(1, 3, 16, 16)",
            tool="fvcore",
            amount=-55296,
        ),
    ),
    Cause(
        id="conv.dim-unsupported",
        title="convolutions of one or three dimensions",
        page="The tool knows two-dimensional convolutions alone. Those of one dimension (audio, "
        "text), of three (video, volumes) and transposed ones count nothing.",
        recognise="A Conv1d or Conv3d model has nearly no cost.",
        example=Example(
            code="model = nn.Conv1d(4, 8, 3, padding=1, bias=False)\n"
            "inputs = torch.randn(1, 4, 10)",
            tool="torch-profiler",
            amount=-960,
        ),
    ),
    Cause(
        id="conv.by-class-name",
        title="a convolution by its class name",
        page='The tool takes every class for a convolution whose name contains "Conv", and no '
        "other. A subclass of nn.Conv2d with another name then counts like a linear layer, and "
        "the linear layer that transformers calls Conv1D like a convolution: GPT-2 comes out 3.9 "
        "times too large.",
        recognise="Renaming the class changes the tool's number.",
        example=Example(
            code="class Filter(nn.Conv2d): pass\nmodel = Filter(3, 8, 3, padding=1, bias=False)\n"
            "inputs = torch.randn(1, 3, 16, 16)",
            tool="torchinfo",
            amount=-55080,
        ),
    ),
    Cause(
        id="conv.unbatched-axis",
        title="channels read from the wrong axis",
        page="The tool takes the second axis of the input for the channels, or the first for the "
        "batch. An unbatched input (C, H, W) has its height, or its channels, there.",
        recognise="The count of a single image changes when a batch axis of 1 is put before it.",
        example=Example(
            code="model = nn.Conv2d(3, 8, 3, padding=1, bias=False)\n"
            "inputs = torch.randn(3, 16, 16)",
            tool="thop",
            amount=239616,
        ),
        references=("Lyken17/pytorch-OpCounter#212",),
    ),
    Cause(
        id="conv.dilation-by-batches",
        title="dilated convolutions on cut images",
        page="TensorFlow runs a dilated convolution as one without dilation on an image that was "
        "padded and cut into as many as the rate has steps (SpaceToBatchND). The cuts are of "
        "equal size, so there are up to a step more results than the convolution has, and these "
        "are counted.",
        recognise="The graph has SpaceToBatchND before the convolution, and the sizes of the "
        "image are no multiples of the rate.",
    ),
    Cause(
        id="conv.padding-valid-taps",
        title="taps on padding and in holes, left out",
        page="The tool counts a multiplication only where the filter meets an element of the "
        "image: taps that fall on padding are left out, and in a transposed convolution those "
        "that fall in the holes between elements. The native count has every tap, as a kernel "
        "that runs over a padded image does.",
        recognise="Without padding the counts agree. With padding the border of the image makes "
        "the difference, the larger the smaller the image is.",
    ),
)
