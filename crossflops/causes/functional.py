"""Causes of functions and operators: work that no module stands for, or that is seen twice."""

from crossflops.ir.reconciliation import Cause, Example

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


CAUSES = (*_FUNCTIONAL_CAUSES, *_OP_CAUSES)
