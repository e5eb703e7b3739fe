"""Causes of calls: modules that are not found, not called, called again or registered more than
once, and work of functions and operators that no module stands for, or that is seen twice.
"""

from crossflops.ir.reconciliation import Cause, Example

_MODULE_CAUSES = (
    Cause(
        id="module.type-unmatched",
        title="subclasses of known modules",
        page="The tool looks rules up by the exact class of a module. A subclass of nn.Conv2d "
        "has no rule and counts 0. timm's weight-standardized convolutions are such.",
        recognise="print(type(layer)) of what is missing is not a class of torch.nn.",
        example=Example(
            code="class MyLinear(nn.Linear): pass\n"
            "model = MyLinear(64, 32, bias=False)\n"
            "inputs = torch.randn(4, 64)",
            tool="thop",
            amount=-8192,
        ),
    ),
    Cause(
        id="module.direct-forward",
        title="modules called by .forward()",
        page="Hooks run in __call__. A module whose forward method is called directly does its "
        "work unseen.",
        recognise="Searching the model's code for `.forward(` finds the missing layers.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.layer = nn.Linear(64, 32, bias=False)\n"
            "    def forward(self, x):\n"
            "        return self.layer.forward(x)\n"
            "model = Model()\n"
            "inputs = torch.randn(4, 64)",
            tool="thop",
            amount=-8192,
        ),
    ),
    Cause(
        id="module.hook-work",
        title="work in the hooks of a module",
        page="A forward hook or pre-hook multiplies (spectral_norm of torch.nn.utils iterates "
        "on the weight in one). A tool that counts a module by its rule counts what forward does; "
        "what hooks of the model do beside it goes unseen.",
        recognise="The layers that differ have entries in _forward_hooks or _forward_pre_hooks.",
        example=Example(
            code="model = nn.Linear(64, 64, bias=False)\n"
            "model.register_forward_hook(lambda module, args, y: y @ module.weight)\n"
            "inputs = torch.randn(4, 64)",
            tool="thop",
            amount=-16384,
        ),
    ),
    Cause(
        id="module.booked-elsewhere",
        title="booked under another module than it ran in",
        page="A tool may count at a module what runs in another one: a rule of a whole layer "
        "stands for the layers inside, and what runs by a direct .forward() belongs to the caller "
        "for a tool that hooks calls. It moves work between paths and changes no total, so it "
        "stands only in tables of modules.",
        recognise="One module has too much by what another one has too little.",
    ),
    Cause(
        id="module.unregistered",
        title="modules that are registered nowhere",
        page="The model calls a module that it keeps in a plain list, a dict or a closure. Tools "
        "find modules through their parents, so hooks never reach this one; nor do .to() and "
        "state_dict().",
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
            amount=-8192,
        ),
    ),
    Cause(
        id="module.root-rule-ignored",
        title="the model is itself a layer",
        page="The tool sums the counts of the model's children: when the model passed is itself a "
        "layer with a rule (a lone nn.LSTM, say), nothing is counted.",
        recognise="Wrapping the layer in nn.Sequential changes the tool's number.",
        example=Example(
            code="model = nn.Linear(64, 32, bias=False)\ninputs = torch.randn(4, 64)",
            tool="thop@0.0.31",
            amount=-8192,
        ),
    ),
    Cause(
        id="module.shared-parents",
        title="modules registered under several parents",
        page="The tool walks the children of modules to register hooks, or to sum what they hold, "
        "and meets a module once for every way that leads to it. Module by module, what it counts "
        "there stands in the number of each parent.",
        recognise="list(model.modules()) is shorter than the modules met on a walk of children.",
        example=Example(
            code="layer = nn.Linear(64, 64, bias=False)\n"
            "model = nn.Sequential(nn.Sequential(layer), nn.Sequential(layer))\n"
            "inputs = torch.randn(4, 64)",
            tool="thop",
            amount=98304,
        ),
        references=("sovrasov/flops-counter.pytorch#106",),
    ),
    Cause(
        id="module.nonleaf-own-work",
        title="work of a module beside its children",
        page="The tool looks at modules that have no children. What another module does itself, "
        "with parameters of its own (a class token, the projections of nn.MultiheadAttention), "
        "is not counted.",
        recognise="The module at which the work is missing has both parameters and children.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.weight = nn.Parameter(torch.randn(32, 64))\n"
            "        self.last = nn.Identity()\n"
            "    def forward(self, x):\n"
            "        return F.relu(self.last(F.linear(x, self.weight)))\n"
            "model = Model()\n"
            "inputs = torch.randn(4, 64)",
            tool="torchinfo",
            amount=-8192,
        ),
        references=("TylerYep/torchinfo#39",),
    ),
    Cause(
        id="module.reused",
        title="a module that is called several times",
        page="A module called twice does its work twice. A tool that keeps one number for each "
        "module keeps that of its last call.",
        recognise="Building the layer anew for each call changes the tool's number.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.layer = nn.Conv2d(3, 3, 3, padding=1, bias=False)\n"
            "    def forward(self, x):\n"
            "        return self.layer(self.layer(x))\n"
            "model = Model()\n"
            "inputs = torch.randn(1, 3, 16, 16)",
            tool="torchstat",
            amount=-20736,
        ),
    ),
    Cause(
        id="module.rule-replaces-or-adds-children",
        title="a rule for a module that contains modules",
        page="The tool has a rule for a composite module and the modules in it have rules too: "
        "the composite's number stands for all of it, or is added to theirs.",
        recognise="The module at which the count differs has a rule, and so have its children.",
    ),
    Cause(
        id="module.parameter-elements",
        title="elements of parameters, not operations",
        page="The tool multiplies the number of a layer's parameters by its output positions, or "
        "by the batch. For a convolution that is its work; for a normalization, an embedding "
        "table or an activation with a parameter it is a number without a meaning.",
        recognise="The amount is a multiple of the layer's number of parameters.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.weight = nn.Parameter(torch.randn(64))\n"
            "    def forward(self, x):\n"
            "        return x * self.weight\n"
            "model = Model()\n"
            "inputs = torch.randn(4, 64)",
            tool="torchinfo",
            amount=256,
        ),
    ),
)


_FUNCTIONAL_CAUSES = (
    Cause(
        id="functional.invisible",
        title="functional calls, no module",
        page="The work runs through a function (F.conv2d, F.linear, torch.matmul ...) and not "
        "through a module that the tool hooks. So do the projections inside "
        "nn.MultiheadAttention, whose out_proj is a module that is never called.",
        recognise="Wrapping the function in a module changes the tool's number.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.weight = nn.Parameter(torch.randn(32, 64))\n"
            "    def forward(self, x):\n"
            "        return F.linear(x, self.weight)\n"
            "model = Model()\n"
            "inputs = torch.randn(4, 64)",
            tool="thop",
            amount=-8192,
        ),
        references=("Lyken17/pytorch-OpCounter#197", "Lyken17/pytorch-OpCounter#141"),
    ),
    Cause(
        id="functional.captured-reference",
        title="functions captured before they were replaced",
        page="The tool replaces functions where they live (torch.nn.functional.linear). A model "
        "that took a reference before, by `from torch.nn.functional import linear` or "
        "`self.act = F.relu`, calls the original, unseen.",
        recognise="Writing F.linear(...) in place of linear(...) changes the tool's number.",
        example=Example(
            code="from torch.nn.functional import linear\n"
            "class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.weight = nn.Parameter(torch.randn(32, 64))\n"
            "    def forward(self, x):\n"
            "        return linear(x, self.weight)\n"
            "model = Model()\n"
            "inputs = torch.randn(4, 64)",
            tool="deepspeed-macs",
            amount=-8192,
        ),
    ),
    Cause(
        id="functional.double-counted",
        title="a module, and the function that it calls",
        page="The tool hooks the module and replaces the function that the module calls, and "
        "counts both: nn.ReLU calls F.relu, nn.MaxPool2d calls F.max_pool2d.",
        recognise="A layer counts twice as much as the function of its name.",
        example=Example(
            code="model = nn.ReLU()\ninputs = torch.randn(1, 8, 16, 16)",
            tool="ptflops-pytorch",
            amount=2048,
        ),
        references=("sovrasov/flops-counter.pytorch#139",),
    ),
    Cause(
        id="function.opaque",
        title="custom autograd functions, scripted functions",
        page="A subclass of torch.autograd.Function and a function compiled by torch.jit.script "
        "are one node in a trace of torch.jit (prim::PythonOp, prim::CallFunction). The tool "
        "looks at the nodes of that trace and not into these, so whatever they compute counts "
        "nothing. The re-entrant form of torch.utils.checkpoint is such a function.",
        recognise="The missing work stands in the forward of a torch.autograd.Function.",
        example=Example(
            code="class Product(torch.autograd.Function):\n"
            "    @staticmethod\n"
            "    def forward(ctx, x):\n"
            "        return x @ x.transpose(-1, -2)\n"
            "class Model(nn.Module):\n"
            "    def forward(self, x):\n"
            "        return Product.apply(x)\n"
            "model = Model()\n"
            "inputs = torch.randn(4, 8)",
            tool="fvcore",
            amount=-128,
        ),
    ),
    Cause(
        id="function.vmap",
        title="layers under torch.vmap",
        page="torch.vmap runs Python once for all examples and hides their axis: a hook on a "
        "layer reads the shapes of one example, while the work of all of them is done.",
        recognise="The count does not depend on the size of the axis that vmap maps over.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.layer = nn.Linear(64, 32, bias=False)\n"
            "    def forward(self, x):\n"
            "        return torch.vmap(self.layer)(x)\n"
            "model = Model()\n"
            "inputs = torch.randn(4, 64)",
            tool="thop",
            amount=-6144,
        ),
    ),
    Cause(
        id="function.mode",
        title="functions that a TorchFunctionMode calls by their names",
        page="Under a TorchFunctionMode of the model's own (FlexAttention runs score_mod and "
        "mask_mod under one, `with torch.device(...)` is one) PyTorch looks the methods of a "
        "tensor up by their names, and hands the mode what it finds. A tool that replaces "
        "functions sees Tensor.mul there for x * y, which it does not see elsewhere, and for "
        "x.mul(y) the same call twice; under two modes once more.",
        recognise="Without the mode the tool counts less. In FlexAttention the amount is B H L S "
        "for the scale of the scores, and one for each sum and product in score_mod, which "
        "torch.vmap shows one score of.",
        example=Example(
            code="class Model(nn.Module):\n"
            "    def forward(self, x):\n"
            "        with torch.device('cpu'):\n"
            "            return x * x\n"
            "model = Model()\n"
            "inputs = torch.randn(1, 8, 16, 16)",
            tool="deepspeed",
            amount=2048,
        ),
    ),
)


# Causes of operators for which a tool has no rule, or a rule where nothing is computed.

_OP_CAUSES = (
    Cause(
        id="op.unregistered-zero",
        title="operators without a rule",
        page="The tool has no rule for the operator and counts nothing. fvcore lists such "
        "operators, torchprofile warns, the others say nothing.",
        recognise="The call that is missing is no convolution, linear layer or plain product.",
        example=Example(
            code="model = nn.Bilinear(4, 5, 6, bias=False)\n"
            "inputs = torch.randn(2, 4), torch.randn(2, 5)",
            tool="calflops-macs",
            amount=-300,
        ),
        references=("facebookresearch/fvcore#143", "pytorch/pytorch#82951"),
    ),
    Cause(
        id="op.unregistered-nonzero",
        title="operators without a rule, counted all the same",
        page="The tool has no rule for the operator and counts one for each element of its first "
        "result, whatever it does: for MaxPool, Softmax and Sigmoid, and for Concat, Flatten and "
        "Identity, which compute nothing.",
        recognise="The amount is the number of elements of what these operators return.",
        example=Example(
            code="model = nn.MaxPool2d(2)\ninputs = torch.randn(1, 8, 16, 16)",
            tool="onnx-opcounter",
            amount=512,
        ),
    ),
    Cause(
        id="operator.custom-body",
        title="what the body of a custom operator calls",
        page="An operator of torch.library is one operator to an export. The native count has its "
        "formula (`--formulas`), or opens a kernel in Python that computes by PyTorch alone; "
        "any other operator is named and not counted. A tool that replaces functions, hooks "
        "modules or observes every dispatched operator counts what the kernel calls. A tool of "
        "files counts the nodes of a module that a formula counts whole.",
        recognise="The amount is what the tool makes of the functions that the kernel calls.",
        example=Example(
            code="@torch.library.custom_op('example::linear', mutates_args=())\n"
            "def linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:\n"
            "    return torch.from_numpy(F.linear(x, w).detach().numpy().copy())\n"
            "@linear.register_fake\n"
            "def _(x, w):\n"
            "    return x.new_empty(x.shape[0], w.shape[0])\n"
            "class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.weight = nn.Parameter(torch.randn(4, 6))\n"
            "    def forward(self, x):\n"
            "        return linear(x, self.weight)\n"
            "model = Model()\n"
            "inputs = torch.randn(8, 6)",
            tool="calflops-macs",
            amount=192,
        ),
    ),
    Cause(
        id="operator.taught",
        title="formulas of your own that the tool was handed",
        page="`compare --formulas FILE --teach-tools` hands a formula to the tool, by a mechanism "
        "of the tool: `custom_ops` of thop, `set_op_handle` of fvcore, `custom_mapping` of "
        "FlopCounterMode, `custom_modules_hooks` of ptflops. A tool that counts 2 for a MAC gets "
        "the other operations of the formula, too. It also uses it for calls that the native "
        "count has not: those that no output needs, or that it does not see as one operator.",
        recognise="The report lists the tool under the formulas that tools were handed.",
    ),
    Cause(
        id="operator.custom-unseen",
        title="custom operators that the tool does not look into",
        page="The native count has work of an operator of torch.library: by a formula of the "
        "user's own, or because the operator is a composite that an export takes apart. The tool "
        "knows neither the operator nor what its kernel calls (the operator @, say, which some "
        "tools that replace functions leave as it is), and counts nothing.",
        recognise="The call that is missing stands under a namespace that is not PyTorch's.",
        example=Example(
            code="torch.library.define('example::at', '(Tensor x, Tensor w) -> Tensor')\n"
            "torch.library.impl('example::at', 'CompositeImplicitAutograd')(\n"
            "    lambda x, w: x @ w.t()\n"
            ")\n"
            "class Model(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.weight = nn.Parameter(torch.randn(4, 6))\n"
            "    def forward(self, x):\n"
            "        return torch.ops.example.at(x, self.weight)\n"
            "model = Model()\n"
            "inputs = torch.randn(8, 6)",
            tool="calflops-macs",
            amount=-192,
        ),
    ),
    Cause(
        id="tool.error",
        title="the tool fails",
        page="The tool raises on such a model, and prints nothing. What it would have counted is "
        "no amount of anything: the comparison shows its message, and goes on with the others.",
        recognise="The message stands where the total would.",
    ),
    Cause(
        id="embedding.lookup",
        title="embeddings",
        page="Looking up rows of a table is counted: as many operations as the table has "
        "elements, or as the result has. Nothing is multiplied.",
        recognise="The amount is a multiple of the vocabulary times the width.",
        example=Example(
            code="model = nn.Embedding(100, 16)\ninputs = torch.zeros(1, 10, dtype=torch.int64)",
            tool="torchinfo",
            amount=1600,
        ),
    ),
    Cause(
        id="memory.layer-traffic",
        title="bytes, not operations",
        page="What a layer reads and writes, summed over the layers: no count of work. It knows "
        "neither caches nor fusion, and nothing of what happens between modules.",
        recognise="The number is a multiple of 4 for a model of 32-bit floats, and does not grow "
        "with the size of kernels alone.",
        example=Example(
            code="model = nn.Sequential(nn.ReLU())\ninputs = torch.randn(1, 8, 16, 16)",
            tool="torchstat-memread",
            amount=8192,
        ),
    ),
    Cause(
        id="op.estimated",
        title="sorts and decompositions by an estimate",
        page="A sort counts n log2 n of all its elements, a Fourier transform 8 n log2 of its "
        "length, a Cholesky decomposition a third of n^3: estimates, whatever the program does.",
        recognise="The amount is no multiple of the elements of any tensor in the model alone.",
    ),
    Cause(
        id="op.library-call",
        title="calls of a library, counted -1",
        page="What a call of a library costs is not known to XLA's analysis. It counts -1 for it, "
        "which is added to the sum like any other count.",
        recognise="The total of a function that does nothing but call a library is -1.",
        references=("jax-ml/jax#20184",),
    ),
)

CAUSES = (*_MODULE_CAUSES, *_FUNCTIONAL_CAUSES, *_OP_CAUSES)
