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
        page="A layer has another number of input or output channels, or a product of two "
        "activations has other lengths.",
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
        page="The window of a convolution has another size, and so more or fewer weights for "
        "each pair of channels.",
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
        page="The window of a convolution has another dilation. The number of weights is the "
        "same; the number of results is smaller only if padding does not compensate for it.",
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
        title="another number of groups of channels",
        page="A convolution has another number of groups: with g groups each output channel "
        "depends on 1/g of the input channels.",
        recognise="The second axis of the weights differs, but the channels do not.",
        example=model_pair_example(
            "model = nn.Sequential(nn.Conv2d(8, 8, 1, bias=False))\n"
            "other = nn.Sequential(nn.Conv2d(8, 8, 1, groups=2, bias=False))\n"
            "inputs = torch.randn(1, 8, 4, 4)",
            -512,
        ),
    ),
    Cause(
        id="model.bias",
        title="a bias in only one model",
        page="A layer has a bias in only one model. A bias has no MACs, but an addition for each "
        "output, and a parameter for each channel. The convolutions of Keras's ResNet50 have a "
        "bias before each batch normalization, those of torchvision do not.",
        recognise="The numbers of parameters differ by the number of output channels.",
        example=model_pair_example(
            "model = nn.Sequential(nn.Conv2d(3, 8, 1, bias=False))\n"
            "other = nn.Sequential(nn.Conv2d(3, 8, 1))\ninputs = torch.randn(1, 3, 4, 4)",
            8,
            "parameters",
        ),
    ),
    Cause(
        id="model.layer-missing",
        title="a layer in only one model",
        page="A contraction has no counterpart in the other model. The amount includes the "
        "operations that follow it.",
        recognise="One model is deeper, or has one more branch.",
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
        page="One model has a batch normalization, and the other has a bias instead: a converter "
        "or an optimizer multiplied the weights by the scale of the normalization. The result is "
        "the same, with fewer operations and parameters.",
        recognise="In one model the convolutions have a bias, in the other they are followed by "
        "BatchNormalization.",
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
        page="One operator in one graph is several operators in the other: queries, keys and "
        "values in one product or in three, attention as one operator or decomposed, a batch "
        "normalization as multiplication and addition, or a decomposed activation. MACs and "
        "weights are the same; other operations may differ.",
        recognise="The other graph has equivalent nodes at the same position.",
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
        title="other operations outside of contractions",
        page="Operations without multiply-accumulates are in only one model, or have another "
        "size: an activation, a pool, or a softmax after the last layer.",
        recognise="The MACs are the same, but the FLOPs are not.",
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
        page="A layer has its own weights in one model, and shares the weights of another layer "
        "in the other model. The work is the same, and shared parameters are counted once.",
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
        page="A model has parameters that are not used in a computation on these inputs: "
        "parameters of heads that are used only in training, or tokens that are only "
        "concatenated with others. They are in no layer.",
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
        page="The two models got inputs with different batch sizes. All work is proportional to "
        "the batch size, but parameters are not.",
        recognise="The first axis of the inputs differs, and the work of each layer differs by "
        "the same ratio.",
        example=model_pair_example(
            "model = other = nn.Sequential(nn.Linear(8, 4, bias=False))\n"
            "inputs = torch.randn(1, 8)\nother_inputs = torch.randn(3, 8)",
            64,
        ),
    ),
    Cause(
        id="model.input-size",
        title="another input size",
        page="The two models got images or sequences of different sizes. For each layer the "
        "number of positions follows from its window, stride and padding, with the sizes before "
        "the layer scaled like the input.",
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
        page="The models reduce the size of the image in different layers. The layers between "
        "the two strides get images of different sizes. The ResNet-50 of torchvision has its "
        "stride in the 3x3 convolution of the first block of a stage; the ResNet-50 of Keras, "
        "like the first publication, has it in the 1x1 convolution before that. A layer whose "
        "stride and input differ, but whose output does not, has no amount.",
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
        page="A layer has other padding, so that its result has a few more or fewer pixels, "
        "which changes its work and that of the following layers. Padding at one end only "
        '(TensorFlow\'s "SAME" with a stride) often has no amount.',
        recognise="The sizes before or after a layer differ by a few pixels.",
        example=model_pair_example(
            "model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False))\n"
            "other = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False))\n"
            "inputs = torch.randn(1, 3, 8, 8)",
            3024,
        ),
    ),
    Cause(
        id="model.positions",
        title="the same layer at more or fewer positions",
        page="A layer with the same weights runs at more or fewer positions, such as the tokens "
        "of a sequence or the boxes of a detector. Neither the inputs of the model nor the "
        "stride of the layer explains the difference.",
        recognise="The layers are equal except for the number of rows.",
        example=model_pair_example(
            module_class_code("self.layer(x[:, :1])", "self.layer = nn.Linear(8, 8, bias=False)")
            + "model = Model()\nother = nn.Sequential(nn.Linear(8, 8, bias=False))\n"
            "inputs = torch.randn(1, 4, 8)",
            192,
        ),
    ),
)


CAUSES = (*_MODEL_CAUSES, *_MODEL_SIZES_CAUSES)
