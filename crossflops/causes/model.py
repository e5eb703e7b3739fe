"""Causes between two models: what makes one another model than the other, and their sizes."""

from crossflops.ir.reconciliation import Cause, Example


def model_pair_example(code: str, amount: int, unit: str = "MACs") -> Example:
    """Return an example of a cause: code that defines `model` and `other`, and by how many units
    (MACs or others) they differ.
    """
    return Example(code=code, tool="", amount=amount, unit=unit)


def module_class_code(forward: str, *layers: str, name: str = "Model") -> str:
    """Return Python source of a module class with these layers (one assignment each), whose
    forward returns the expression `forward`.
    """
    inits = "".join(f"        {layer}\n" for layer in layers)
    return (
        f"class {name}(nn.Module):\n    def __init__(self):\n        super().__init__()\n{inits}"
        f"    def forward(self, x):\n        return {forward}\n"
    )


_LAYERS = (
    Cause(
        id="model.width",
        title="other channels",
        page="A layer has other numbers of input or output channels; of a product of two "
        "activations, other lengths.",
        recognise="The shapes of the weights differ in their channels.",
        example=model_pair_example(
            "model = nn.Sequential(nn.Linear(8, 4, bias=False))\n"
            "other = nn.Sequential(nn.Linear(8, 6, bias=False))\ninputs = torch.randn(1, 8)",
            16,
        ),
    ),
    Cause(
        id="model.kernel",
        title="another window",
        page="The window of a convolution has another size, and so many more or fewer weights "
        "for every pair of channels.",
        recognise="The shapes of the weights differ in their last axes.",
        example=model_pair_example(
            "model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False))\n"
            "other = nn.Sequential(nn.Conv2d(3, 4, 1, bias=False))\n"
            "inputs = torch.randn(1, 3, 8, 8)",
            -6144,
        ),
    ),
    Cause(
        id="model.dilation",
        title="another dilation",
        page="The window of a convolution is spread out further. It has no more weights; only "
        "where padding does not make up for it are there fewer results.",
        recognise="The dilation of a layer differs.",
        example=model_pair_example(
            "model = nn.Sequential(nn.Conv2d(4, 4, 3, bias=False))\n"
            "other = nn.Sequential(nn.Conv2d(4, 4, 3, dilation=2, bias=False))\n"
            "inputs = torch.randn(1, 4, 8, 8)",
            -2880,
        ),
    ),
    Cause(
        id="model.groups",
        title="other groups of channels",
        page="A convolution joins other groups of its channels: with g groups every output "
        "channel sees 1/g of the input channels.",
        recognise="The second axis of the weights differs, and not the channels.",
        example=model_pair_example(
            "model = nn.Sequential(nn.Conv2d(8, 8, 1, bias=False))\n"
            "other = nn.Sequential(nn.Conv2d(8, 8, 1, groups=2, bias=False))\n"
            "inputs = torch.randn(1, 8, 4, 4)",
            -512,
        ),
    ),
    Cause(
        id="model.bias",
        title="a bias, or none",
        page="A layer has a bias in one model alone. That is no MAC, but an addition for each "
        "output, and a parameter for each channel. The convolutions of Keras's ResNet50 have one "
        "before each batch normalization, those of torchvision have none.",
        recognise="The numbers of parameters differ by output channels.",
        example=model_pair_example(
            "model = nn.Sequential(nn.Conv2d(3, 8, 1, bias=False))\n"
            "other = nn.Sequential(nn.Conv2d(3, 8, 1))\ninputs = torch.randn(1, 3, 4, 4)",
            8,
            "parameters",
        ),
    ),
    Cause(
        id="model.layer-missing",
        title="a layer of one model alone",
        page="A contraction that nothing in the other model stands for, with the operations that "
        "follow it.",
        recognise="One model is deeper, or has a branch more.",
        example=model_pair_example(
            "model = nn.Sequential(nn.Linear(8, 8, bias=False))\n"
            "other = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))\n"
            "inputs = torch.randn(1, 8)",
            64,
        ),
    ),
)

_REST = (
    Cause(
        id="model.norm-folded",
        title="a batch normalization folded into its layer",
        page="One model has a batch normalization, the other a bias in its place: a converter or "
        "an optimizer multiplied the weights by its scale. The result is the same, at fewer "
        "operations and parameters.",
        recognise="The convolutions of one model have a bias where those of the other are "
        "followed by BatchNormalization.",
        example=model_pair_example(
            "model = nn.Sequential(nn.Conv2d(3, 4, 1, bias=False), nn.BatchNorm2d(4))\n"
            "other = nn.Sequential(nn.Conv2d(3, 4, 1))\ninputs = torch.randn(1, 3, 8, 8)",
            -4,
            "parameters",
        ),
    ),
    Cause(
        id="model.representation",
        title="the same work in other nodes",
        page="What is one operator in one graph is several in the other: queries, keys and "
        "values in one product or in three, an attention whole or in parts, a batch normalization "
        "as multiplication and addition, an activation spelled out. MACs and weights are the "
        "same; what each form takes beside them need not be.",
        recognise="The other graph has, in the same place, nodes that come to the same.",
        example=model_pair_example(
            "model = nn.Sequential(nn.Linear(8, 24, bias=False))\n"
            + module_class_code(
                "torch.cat([layer(x) for layer in self.layers], 1)",
                "layers = [nn.Linear(8, 8, bias=False) for _ in range(3)]",
                "self.layers = nn.ModuleList(layers)",
                name="Three",
            )
            + "other = Three()\ninputs = torch.randn(1, 8)",
            0,
        ),
    ),
    Cause(
        id="model.elementwise",
        title="other operations beside the contractions",
        page="Operations that hold no multiply-accumulates are in one model alone, or of another "
        "size: an activation, a pool, a softmax behind the last layer.",
        recognise="The MACs are the same and the FLOPs are not.",
        example=model_pair_example(
            "model = nn.Sequential(nn.Linear(8, 4))\n"
            "other = nn.Sequential(nn.Linear(8, 4), nn.ReLU())\ninputs = torch.randn(1, 8)",
            4,
            "FLOPs",
        ),
    ),
    Cause(
        id="model.weight-sharing",
        title="weights that several layers share",
        page="A layer has weights of its own in one model, and uses those of another layer in "
        "the other. The work is the same, the parameters are counted once.",
        recognise="The number of parameters differs, and the layers do not.",
        example=model_pair_example(
            module_class_code("self.a(self.a(x))", "self.a = nn.Linear(8, 8, bias=False)")
            + "model = Model()\n"
            "other = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))\n"
            "inputs = torch.randn(1, 8)",
            64,
            "parameters",
        ),
    ),
    Cause(
        id="model.parameters-unused",
        title="parameters that no layer uses",
        page="A model has parameters with which nothing is computed on these inputs: of heads "
        "that serve in training alone, of tokens that are only joined to others. They are in no "
        "layer.",
        recognise="The number of parameters differs, and the layers do not.",
        example=model_pair_example(
            module_class_code(
                "self.layer(x)",
                "self.layer = nn.Linear(8, 4)",
                "self.spare = nn.Parameter(torch.zeros(5))",
                name="Spare",
            )
            + "model = nn.Sequential(nn.Linear(8, 4))\nother = Spare()\n"
            "inputs = torch.randn(1, 8)",
            5,
            "parameters",
        ),
    ),
)

_MODEL_CAUSES = (*_LAYERS, *_REST)


# Causes between two models: the same layers on other sizes.

_MODEL_SIZES_CAUSES = (
    Cause(
        id="model.batch",
        title="another batch",
        page="The two models were given other numbers of examples at once. All work is in "
        "proportion to it, parameters are not.",
        recognise="The first axis of the inputs differs, and so does every layer by its ratio.",
        example=model_pair_example(
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
        example=model_pair_example(
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
        example=model_pair_example(
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
        example=model_pair_example(
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
        example=model_pair_example(
            module_class_code("self.layer(x[:, :1])", "self.layer = nn.Linear(8, 8, bias=False)")
            + "model = Model()\nother = nn.Sequential(nn.Linear(8, 8, bias=False))\n"
            "inputs = torch.randn(1, 4, 8)",
            192,
        ),
    ),
)


CAUSES = (*_MODEL_CAUSES, *_MODEL_SIZES_CAUSES)
