"""Causes of modules: found or not, called or not, called again, registered more than once."""

from crossflops.ir.reconciliation import Cause, Example

CAUSES = (
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
