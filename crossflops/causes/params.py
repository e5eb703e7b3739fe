"""Causes of parameter counts: which parameters a tool finds, and how often it counts them."""

from crossflops.ir.reconciliation import Cause, Example

CAUSES = (
    Cause(
        id="params.no-rule",
        title="parameters of layers without a rule",
        page="The tool counts the parameters of the layers that it has a rule for, and a layer of "
        "another class has none: nn.MultiheadAttention and nn.Embedding for thop, and every "
        "subclass of a layer that it knows.",
        recognise="type(layer) of what is missing is not among the classes with a rule.",
        example=Example(
            code="model = nn.Sequential(nn.Linear(8, 8), nn.Embedding(10, 8))\n"
            "model.forward = lambda x: model[0](model[1](x))\n"
            "inputs = torch.zeros(1, 4, dtype=torch.int64)",
            tool="thop",
            amount=-80,
        ),
        references=("Lyken17/pytorch-OpCounter#197",),
    ),
    Cause(
        id="params.bare",
        title="parameters that belong to no layer",
        page="An nn.Parameter that the model itself holds (a class token, a table of positions, "
        "a scale) stands in no layer. A tool that adds layers up does not see it.",
        recognise="The names in model.named_parameters() that are missing end at a module of your "
        "own, not at one of torch.nn.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.layer = nn.Linear(8, 8)\n"
            "        self.scale = nn.Parameter(torch.ones(8))\n"
            "    def forward(self, x):\n"
            "        return self.layer(x) * self.scale\n"
            "model = Model()\n"
            "inputs = torch.randn(2, 8)",
            tool="thop",
            amount=-8,
        ),
    ),
    Cause(
        id="params.statistics",
        title="statistics of batch normalizations",
        page="The tool adds up what a file stores, and with it the running means and variances of "
        "batch normalizations. They are buffers, not parameters, and nothing trains them.",
        recognise="The difference is twice the number of channels of all batch normalizations.",
        example=Example(
            code="model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8))\n"
            "inputs = torch.randn(1, 3, 4, 4)",
            tool="onnx-tool",
            amount=16,
        ),
    ),
    Cause(
        id="params.constant",
        title="stored constants that are no parameters",
        page="The tool adds up what a file stores: shapes, axes and indices of nodes, bounds, "
        "scalars, scales and zero points of quantizers, masks. Natively a parameter is a tensor "
        "of floats (or of quantized ones) that is used as a weight.",
        recognise="The names are initializers that no layer of the model has as a parameter.",
        example=Example(
            code="model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8))\n"
            "inputs = torch.randn(2, 4, 4)",
            tool="onnx-tool",
            amount=2,
        ),
    ),
    Cause(
        id="params.unused",
        title="initializers that no node takes",
        page="The file stores tensors that no node of its graph takes: an exporter left them, or "
        "only a branch or a loop uses them. The tool adds up all that is stored.",
        recognise="The names occur in no input of a node of the graph.",
    ),
    Cause(
        id="params.no-initializer",
        title="weights that are no initializers of the graph",
        page="The tool adds up initializers of the graph. A weight may also be the value of a "
        "Constant node, be made by ConstantOfShape, stand in the attributes of an operator, in a "
        "function, or be taken by a branch or a loop alone; and some tools see no element in an "
        "initializer without axes.",
        recognise="The names are outputs of Constant nodes, or initializers of subgraphs.",
    ),
    Cause(
        id="params.packed",
        title="weights of which several share an element",
        page="Quantized weights of 2 or 4 bits lie in a tensor of bytes (MatMulNBits and its "
        "like). Natively every weight counts, for the tool every byte.",
        recognise="The operator says how many bits a weight has.",
    ),
    Cause(
        id="params.exported",
        title="parameters that export leaves out or stores twice",
        page="The tool counts the file that was exported from the model. Parameters that no "
        "result depends on are not in it, weights that are folded into others have another size, "
        "and what several places share may be stored at each. A buffer that is used as a weight "
        "cannot be told from one in a file.",
        recognise="The names in model.named_parameters() and those of the initializers differ.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 4)\n"
            "    def forward(self, x):\n"
            "        return self.one(x)\n"
            "model = Model()\n"
            "inputs = torch.randn(2, 8)",
            tool="onnx-tool",
            amount=-36,
        ),
    ),
    Cause(
        id="params.nonleaf",
        title="parameters beside modules",
        page="The tool lists the modules that have no modules in them, with what each of them "
        "holds. The parameters of a module with others in it are on no line: a class token, the "
        "projection of queries, keys and values in nn.MultiheadAttention.",
        recognise="list(owner.children()) is not empty for the module that owns what is missing.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.layer = nn.Conv2d(3, 4, 1)\n"
            "        self.scale = nn.Parameter(torch.ones(4, 1, 1))\n"
            "    def forward(self, x):\n"
            "        return self.layer(x) * self.scale\n"
            "model = Model()\n"
            "inputs = torch.randn(1, 3, 8, 8)",
            tool="torchstat",
            amount=-4,
        ),
    ),
    Cause(
        id="params.uncalled",
        title="parameters of layers that were not called",
        page="The tool counts parameters in a hook that runs when a layer is called. A layer that "
        "the model owns and does not call, or whose forward it calls by hand, adds none.",
        recognise="A print in the forward of the layer does not appear, or it appears without "
        "the layer's hooks.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.one, self.other = nn.Linear(8, 8), nn.Linear(8, 4)\n"
            "    def forward(self, x):\n"
            "        return self.one(x)\n"
            "model = Model()\n"
            "inputs = torch.randn(2, 8)",
            tool="thop",
            amount=-36,
        ),
    ),
    Cause(
        id="params.root",
        title="parameters of the model that is itself a layer",
        page="The model that was given is a single layer, and the tool counts the parameters of "
        "what is in the model, not of the model.",
        recognise="Put into an nn.Sequential, the same layer has its parameters.",
        example=Example(
            code="model = nn.Linear(8, 8)\ninputs = torch.randn(2, 8)", tool="thop", amount=-72
        ),
    ),
    Cause(
        id="params.counted-again",
        title="shared parameters, counted once for each place",
        page="Two layers have one weight, or two parents one layer: it is stored once, and "
        "the native count has it once. The tool counts it wherever it comes across it. Tied "
        "embeddings of language models are the usual case.",
        recognise="sum(p.numel() for p in model.parameters()), which has each once, is smaller.",
        example=Example(
            code="layer = nn.Linear(8, 8)\n"
            "model = nn.Sequential(nn.Sequential(layer), nn.Sequential(layer))\n"
            "inputs = torch.randn(2, 8)",
            tool="thop",
            amount=72,
        ),
    ),
    Cause(
        id="params.frozen",
        title="frozen parameters are left out",
        page="The tool counts parameters that require a gradient. Those that were frozen, for "
        "fine-tuning or since they are fixed, are stored and used all the same.",
        recognise="The difference is the number of elements with requires_grad=False.",
        example=Example(
            code="model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))\n"
            "model[0].requires_grad_(False)\n"
            "inputs = torch.randn(2, 8)",
            tool="calflops",
            amount=-72,
        ),
    ),
    Cause(
        id="params.pruned",
        title="elements that a mask prunes",
        page="torch.nn.utils.prune keeps the whole weight as weight_orig, and a mask beside it. "
        "The tool counts the ones of the mask; the native count has what is stored.",
        recognise="The layer has a parameter weight_orig and a buffer weight_mask.",
        example=Example(
            code="model = nn.Sequential(nn.Linear(8, 8, bias=False))\n"
            'torch.nn.utils.prune.random_unstructured(model[0], "weight", amount=16)\n'
            "inputs = torch.randn(2, 8)",
            tool="torchinfo",
            amount=-16,
        ),
    ),
    Cause(
        id="params.unregistered",
        title="parameters of modules that are registered nowhere",
        page="The model calls a module that it keeps in a plain list, a dict or a closure. Its "
        "parameters work, so the native count has them; model.parameters() does not give them.",
        recognise="The layer's parameters are missing in model.state_dict().",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.layers = (nn.Linear(64, 32, bias=False),)\n"
            "    def forward(self, x):\n"
            "        return self.layers[0](x)\n"
            "model = Model()\n"
            "inputs = torch.randn(4, 64)",
            tool="thop",
            amount=-2048,
        ),
    ),
)
