"""Causes of calls: modules that are not found, not called, called again or registered more than
once, and work of functions and operators that no module stands for, or that is seen twice.
"""

from crossflops.ir.reconciliation import Cause, Example

_MODULE_CAUSES = (
    Cause(
        id="module.type-unmatched",
        title="subclasses of known modules",
        page="The tool looks up its rule by the exact class of a module. A subclass of nn.Conv2d "
        "has no rule and counts 0. The weight-standardized convolutions of timm are an example.",
        recognise="print(type(layer)) shows that the missing layer is not a class of torch.nn.",
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
        page="Hooks run in __call__. If the forward method of a module is called directly, the "
        "tool does not see its work.",
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
        page="A forward hook or pre-hook of the model does work, as spectral_norm of "
        "torch.nn.utils does. A tool that counts a module by a rule counts only the work of "
        "forward; it does not see the work of the hooks.",
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
        title="counted at another module than the one that ran it",
        page="A tool may count work at another module than the one that runs it. A rule for a "
        "whole layer includes the layers inside it. If a tool hooks calls, the work of a direct "
        "call of .forward() is counted at the caller. This cause moves work between modules and "
        "changes no total, so it appears only in tables of modules.",
        recognise="One module has too much, and another module has too little by the same amount.",
    ),
    Cause(
        id="module.unregistered",
        title="modules that are not registered",
        page="The model calls a module that it keeps in a plain list, a dict or a closure. Tools "
        "find modules through their parents, so they set no hooks on this module; .to() and "
        "state_dict() do not find it either.",
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
        page="The tool sums the counts of the model's children. If the model is itself a layer "
        "with a rule, such as a single nn.LSTM, nothing is counted.",
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
        page="The tool visits the children of modules to register hooks or to add up counts, and "
        "visits a module once for every path to it. In a table of modules, its count is in the "
        "number of each parent.",
        recognise="list(model.modules()) has fewer modules than a recursive visit of children().",
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
        title="work of a module outside its children",
        page="The tool counts only modules without children. It does not count the work that a "
        "module with children does itself, with parameters of its own (a class token, the "
        "projections of nn.MultiheadAttention).",
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
        page="A module that is called twice does its work twice. A tool that keeps one number "
        "for each module keeps the number of the last call.",
        recognise="Using a new layer for each call changes the tool's number.",
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
        page="The tool has a rule for a composite module, and the modules in it have rules, too. "
        "The number of the composite module replaces the numbers of the modules in it, or is "
        "added to them.",
        recognise="The module at which the count differs has a rule, and its children have "
        "rules, too.",
    ),
    Cause(
        id="module.parameter-elements",
        title="elements of parameters instead of operations",
        page="The tool multiplies the number of a layer's parameters by its output positions, or "
        "by the batch. For a convolution this is the correct work. For a normalization, an "
        "embedding table or an activation with a parameter the number has no meaning.",
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
        title="function calls instead of modules",
        page="The model calls a function (F.conv2d, F.linear, torch.matmul ...) and not a module "
        "that the tool hooks. The projections inside nn.MultiheadAttention are such calls; its "
        "out_proj is a module that is never called.",
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
        page="The tool replaces functions in their modules (torch.nn.functional.linear). A model "
        "that took a reference earlier, by `from torch.nn.functional import linear` or `self.act "
        "= F.relu`, calls the original function, which the tool does not see.",
        recognise="Writing F.linear(...) instead of linear(...) changes the tool's number.",
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
        page="The tool hooks the module, also replaces the function that the module calls, and "
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
        "are each one node in a trace of torch.jit (prim::PythonOp, prim::CallFunction). The "
        "tool does not look inside these nodes, so their work counts nothing. The reentrant form "
        "of torch.utils.checkpoint is such a function.",
        recognise="The missing work is in the forward of a torch.autograd.Function.",
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
        page="torch.vmap runs the Python code once for all examples and hides their axis. A hook "
        "on a layer reads the shapes of one example, but the layer does the work of all examples.",
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
        page="The model uses a TorchFunctionMode: `with torch.device(...)` is one, and "
        "FlexAttention runs score_mod and mask_mod under one. PyTorch then looks up the methods "
        "of a tensor by name, and passes the method to the mode. A tool that replaces functions "
        "sees a call of Tensor.mul for x * y, which it does not see elsewhere, and two calls for "
        "x.mul(y). Each further mode adds another call.",
        recognise="Without the mode the tool counts less. In FlexAttention the amount is B H L S "
        "for the scale of the scores, and 1 for each sum and product in score_mod, since "
        "torch.vmap shows only one score.",
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
        "operators, torchprofile warns, and other tools print nothing.",
        recognise="The missing call is not a convolution, a linear layer or a plain product.",
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
        title="operators without a rule, counted per element",
        page="The tool has no rule for the operator and counts 1 for each element of its first "
        "result: for MaxPool, Softmax and Sigmoid, and also for Concat, Flatten and Identity, "
        "which compute nothing.",
        recognise="The amount is the number of elements of the results of these operators.",
        example=Example(
            code="model = nn.MaxPool2d(2)\ninputs = torch.randn(1, 8, 16, 16)",
            tool="onnx-opcounter",
            amount=512,
        ),
    ),
    Cause(
        id="operator.custom-body",
        title="calls in the body of a custom operator",
        page="An operator of torch.library is one operator in an export. The native count uses a "
        "formula for it (`--formulas`), or counts the body of a kernel in Python that uses only "
        "PyTorch. Any other custom operator is listed as uncounted. A tool that replaces "
        "functions, hooks modules or observes dispatched operators counts the calls in the "
        "kernel. A tool that reads files counts the nodes of a module for which the native count "
        "uses one formula.",
        recognise="The amount is what the tool counts for the functions that the kernel calls.",
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
        title="your own formulas that were given to the tool",
        page="`compare --formulas FILE --teach-tools` gives a formula to the tool, by a "
        "mechanism of the tool: `custom_ops` of thop, `set_op_handle` of fvcore, "
        "`custom_mapping` of FlopCounterMode, `custom_modules_hooks` of ptflops. A tool that "
        "counts 2 for a MAC gets the other operations of the formula, too. The tool also applies "
        "the formula to calls that are not in the native count: calls that no output needs, or "
        "that the native count does not see as one operator.",
        recognise="The report lists the formulas that the tool was taught.",
    ),
    Cause(
        id="operator.custom-unseen",
        title="custom operators that the tool cannot count",
        page="The native count has work for an operator of torch.library, by a formula of the "
        "user, or because the operator is a composite that an export decomposes. The tool knows "
        "neither the operator nor the calls in its kernel, and counts nothing. An example of "
        "such a call is the operator @, which some tools that replace functions do not replace.",
        recognise="The missing call has a namespace that is not PyTorch's.",
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
        page="The tool raises an exception on such a model, and prints no number. There is no "
        "amount to explain: the comparison shows the message of the tool, and goes on with the "
        "other tools.",
        recognise="The message is in the table instead of a total.",
    ),
    Cause(
        id="embedding.lookup",
        title="embeddings",
        page="The tool counts the lookup of rows in a table: one operation for each element of "
        "the table, or of the result. A lookup multiplies nothing.",
        recognise="The amount is a multiple of the vocabulary times the width.",
        example=Example(
            code="model = nn.Embedding(100, 16)\ninputs = torch.zeros(1, 10, dtype=torch.int64)",
            tool="torchinfo",
            amount=1600,
        ),
    ),
    Cause(
        id="memory.layer-traffic",
        title="bytes instead of operations",
        page="The number is the bytes that each layer reads and writes, summed over the layers. "
        "It is not a count of work. It ignores caches, fusion and operations outside of modules.",
        recognise="The number is a multiple of 4 for a model of 32-bit floats, and does not grow "
        "if only the kernels grow.",
        example=Example(
            code="model = nn.Sequential(nn.ReLU())\ninputs = torch.randn(1, 8, 16, 16)",
            tool="torchstat-memread",
            amount=8192,
        ),
    ),
    Cause(
        id="op.estimated",
        title="sorts and decompositions, estimated",
        page="A sort counts n log2 n of all its elements, a Fourier transform 8 n log2 of its "
        "length, a Cholesky decomposition a third of n^3: estimates that do not depend on the "
        "actual algorithm.",
        recognise="The amount is not a multiple of the number of elements of any tensor in the "
        "model.",
    ),
    Cause(
        id="op.library-call",
        title="library calls, counted as -1",
        page="XLA's analysis does not know the work of a library call. It uses -1 for unknown, "
        "and adds it to the total like a count.",
        recognise="The total of a function that only calls a library is -1.",
        references=("jax-ml/jax#20184",),
    ),
)

CAUSES = (*_MODULE_CAUSES, *_FUNCTIONAL_CAUSES, *_OP_CAUSES)
