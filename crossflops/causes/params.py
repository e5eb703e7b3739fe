"""Causes of parameter counts: which parameters a tool finds, and how often it counts them."""

from crossflops.ir.reconciliation import Cause, Example

CAUSES = (
    Cause(
        id="params.no-rule",
        title="parameters of layers without a rule",
        page="The tool counts only the parameters of layers for which it has a rule. For other "
        "classes it counts none: thop has no rule for nn.MultiheadAttention, for nn.Embedding or "
        "for a subclass of a layer that it knows.",
        recognise="type(layer) of the missing layer is not one of the classes with a rule.",
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
        page="An nn.Parameter of the model itself (a class token, a table of positions, a scale) "
        "is in no layer. A tool that adds up layers does not see it.",
        recognise="The missing names of model.named_parameters() belong to a module of your own "
        "class, not to a class of torch.nn.",
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
        page="The tool adds up all tensors that a file stores, including the running means and "
        "variances of batch normalizations. These are buffers, not parameters, and are not "
        "trained.",
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
        title="stored constants that are not parameters",
        page="The tool adds up all tensors that a file stores, including shapes, axes and "
        "indices of nodes, bounds, scalars, scales and zero points of quantizers, and masks. In "
        "the native count a parameter is a tensor of floats (or of quantized floats) that is "
        "used as a weight.",
        recognise="The listed names are initializers, but not parameters of a layer of the model.",
        example=Example(
            code="model = nn.Sequential(nn.Flatten(), nn.Linear(16, 8))\n"
            "inputs = torch.randn(2, 4, 4)",
            tool="onnx-tool",
            amount=2,
        ),
    ),
    Cause(
        id="params.unused",
        title="initializers that no node reads",
        page="The file stores tensors that no node of its main graph reads: an exporter left "
        "them there, or only a branch or a loop uses them. The tool adds up all stored tensors.",
        recognise="The listed names are not inputs of a node of the graph.",
    ),
    Cause(
        id="params.no-initializer",
        title="weights that are not initializers of the graph",
        page="The tool adds up the initializers of the graph. A weight may also be the value of "
        "a Constant node, the result of ConstantOfShape, an attribute of an operator, in a "
        "function, or in a branch or a loop. Some tools also count 0 elements for a scalar "
        "initializer.",
        recognise="The listed names are outputs of Constant nodes, or initializers of subgraphs.",
    ),
    Cause(
        id="params.packed",
        title="packed weights",
        page="Operators such as MatMulNBits store quantized weights of 2 or 4 bits in a tensor "
        "of bytes, several weights in one element. The native count counts every weight, the "
        "tool counts every byte.",
        recognise="An attribute of the operator is the number of bits of a weight.",
    ),
    Cause(
        id="params.exported",
        title="parameters that export leaves out or stores twice",
        page="The tool counts the file that was exported from the model. Parameters that no "
        "result depends on are not in it, weights that are folded into others have another size, "
        "and shared weights may be stored more than once. In a file, a buffer that is used as a "
        "weight cannot be distinguished from a parameter.",
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
        title="parameters of modules with submodules",
        page="The tool lists only modules without submodules, with the parameters of each. The "
        "own parameters of a module with submodules are not listed: a class token, or the "
        "projection of queries, keys and values in nn.MultiheadAttention.",
        recognise="list(owner.children()) is not empty for the module that owns the missing "
        "parameters.",
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
        page="The tool counts parameters in a hook that runs when a layer is called. A layer "
        "that the model does not call, or whose forward it calls directly, adds none.",
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
        title="parameters of a model that is itself a layer",
        page="The model is a single layer, and the tool counts the parameters of the modules in "
        "the model, not those of the model itself.",
        recognise="If the layer is in an nn.Sequential, the tool counts its parameters.",
        example=Example(
            code="model = nn.Linear(8, 8)\ninputs = torch.randn(2, 8)", tool="thop", amount=-72
        ),
    ),
    Cause(
        id="params.counted-again",
        title="shared parameters, counted once for each use",
        page="Two layers share one weight, or two parents share one layer. The weight is stored "
        "once, and the native count has it once. The tool counts it each time it finds it. The "
        "usual case is tied embeddings of language models.",
        recognise="sum(p.numel() for p in model.parameters()), which counts each parameter once, "
        "is smaller.",
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
        page="The tool counts only parameters that require a gradient. Frozen parameters are "
        "also stored and used, and are in the native count.",
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
        title="elements that a pruning mask removes",
        page="torch.nn.utils.prune keeps the whole weight as weight_orig, and adds a mask. The "
        "tool counts the ones in the mask; the native count has all stored elements.",
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
        title="parameters of modules that are not registered",
        page="The model calls a module that it keeps in a plain list, a dict or a closure. The "
        "model uses its parameters, so the native count has them, but model.parameters() does "
        "not return them.",
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
