"""Causes between two models: the same layers on other sizes."""

from crossflops.causes.model import of_class, pair
from crossflops.core.convention import Cause

CAUSES = (
    Cause(
        id="model.batch",
        title="another batch",
        page="The two models were given other numbers of examples at once. All work is in "
        "proportion to it, parameters are not.",
        recognise="The first axis of the inputs differs, and so does every layer by its ratio.",
        example=pair(
            "model = other = nn.Sequential(nn.Linear(8, 4, bias=False))\n"
            "inputs = torch.randn(1, 8)\nother_inputs = torch.randn(3, 8)",
            64,
        ),
    ),
    Cause(
        id="model.input-size",
        title="another input size",
        page="The two models were given images, or sequences, of another size. Each layer has as "
        "many more positions as the sizes before it, scaled like the input, give by its window, "
        "stride and padding.",
        recognise="The inputs differ in an axis other than the first.",
        example=pair(
            "model = other = nn.Sequential(nn.Conv2d(3, 4, 1, bias=False))\n"
            "inputs = torch.randn(1, 3, 8, 8)\nother_inputs = torch.randn(1, 3, 16, 16)",
            2304,
        ),
    ),
    Cause(
        id="model.stride",
        title="strides in other layers",
        page="Where an image gets smaller differs. The layers from one of the strides to the "
        "other see it at another size. ResNet-50 of torchvision strides in the 3x3 convolution of "
        "a stage's first block, that of Keras, like the first publication, in the 1x1 before it; "
        "a layer whose stride and input differ, but not its output, has no amount.",
        recognise="The stride of a layer, or the size before it, differs by a factor.",
        example=pair(
            "model = nn.Sequential(\n"
            "    nn.Conv2d(8, 4, 1, stride=2, bias=False),\n"
            "    nn.Conv2d(4, 4, 3, padding=1, bias=False),\n)\n"
            "other = nn.Sequential(\n"
            "    nn.Conv2d(8, 4, 1, bias=False),\n"
            "    nn.Conv2d(4, 4, 3, padding=1, stride=2, bias=False),\n)\n"
            "inputs = torch.randn(1, 8, 8, 8)",
            1536,
        ),
    ),
    Cause(
        id="model.padding",
        title="other padding",
        page="A window meets other padding, so that its results are more or fewer by some "
        "pixels, and with them the work of what follows. Padding at one end only (TensorFlow's "
        '"SAME" with a stride) often has no amount.',
        recognise="The sizes before or behind a layer differ by some pixels.",
        example=pair(
            "model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False))\n"
            "other = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False))\n"
            "inputs = torch.randn(1, 3, 8, 8)",
            3024,
        ),
    ),
    Cause(
        id="model.positions",
        title="the same layer at other positions",
        page="A layer with the same weights runs at more or fewer positions, such as the tokens "
        "of a sequence or the boxes of a detector, and neither the inputs nor a stride of its own "
        "says why.",
        recognise="The layers are alike but for the number of rows.",
        example=pair(
            of_class("self.layer(x[:, :1])", "self.layer = nn.Linear(8, 8, bias=False)")
            + "model = Model()\nother = nn.Sequential(nn.Linear(8, 8, bias=False))\n"
            "inputs = torch.randn(1, 4, 8)",
            192,
        ),
    ),
)
