"""Causes of functions: work that no module stands for, or that is seen twice through one."""

from crossflops.core.convention import Cause, Example

CAUSES = (
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
