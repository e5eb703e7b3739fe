"""Causes of training: why a step is neither three times the forward pass nor 6 N D."""

from crossflops.ir.reconciliation import Cause, Example

_RULE = (
    "The rule of thumb for a training step is 3 x forward: the backward pass multiplies each "
    "contraction twice more, once for the gradient of each operand. "
)

_STEP = ("--train",)
_BY_TOKENS = (
    "6 N D takes each of N parameters for one multiplication and one addition forward and two "
    "backward, for each of D tokens. "
)

CAUSES = (
    Cause(
        id="backward.first-layer",
        title="operands that need no gradient, whatever is trained",
        page=f"{_RULE}An operand that depends on no parameter needs none: the input of the model "
        "(so the first layer has one product instead of two), a constant such as a rotary table, "
        "the initial state of a recurrent layer. A product of three operands has more than two "
        "gradients, and these are in the amount as well.",
        recognise="The amount is the forward work of the first layer, and of products with "
        "constants.",
        example=Example(
            code="model = nn.Linear(4, 3)\ninputs = torch.ones(2, 4)",
            tool="calflops-macs",
            amount=24,
            options=_STEP,
        ),
    ),
    Cause(
        id="backward.cut",
        title="gradients that go nowhere",
        page=f"{_RULE}What is detached, what runs under `torch.no_grad()`, and what does not "
        "reach a float output of the model has no backward pass.",
        recognise="It stays when all parameters are trained.",
        example=Example(
            code="class Cut(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)\n"
            "    def forward(self, x):\n"
            "        return self.second(self.first(x).detach())\n"
            "model = Cut()\n"
            "inputs = torch.ones(2, 4)",
            tool="calflops-macs",
            amount=56,
            options=_STEP,
        ),
    ),
    Cause(
        id="backward.frozen",
        title="frozen weights",
        page=f"{_RULE}A frozen weight needs no gradient. Its input still needs one where "
        "something trained lies before it, and none where nothing does.",
        recognise="It is 0 when all parameters are trained.",
        example=Example(
            code="model = nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 3))\n"
            "inputs = torch.ones(2, 4)",
            tool="calflops-macs",
            amount=56,
            options=_STEP,
        ),
    ),
    Cause(
        id="backward.attention-recomputed",
        title="attention that is computed again",
        page=f"{_RULE}A fused attention keeps no scores: its backward pass multiplies queries and "
        "keys once more. Attention by products and a softmax keeps them.",
        recognise="The amount is the product of queries and keys of every fused attention.",
        example=Example(
            code="class Attention(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.layer = nn.Linear(4, 4)\n"
            "    def forward(self, x):\n"
            "        x = self.layer(x)\n"
            "        return F.scaled_dot_product_attention(x, x, x)\n"
            "model = Attention()\n"
            "inputs = torch.ones(1, 1, 3, 4)",
            tool="calflops-macs",
            amount=-36,
            options=_STEP,
        ),
    ),
    Cause(
        id="backward.checkpoint",
        title="what checkpoints run again",
        page=f"{_RULE}`torch.utils.checkpoint` keeps what goes into a part of the model, and runs "
        "that part again in the backward pass: all of it where it is reentrant, else until all "
        "is there that the gradients need. `jax.checkpoint`, `keras.remat` and "
        "`tf.recompute_grad` run again what the gradients need, and what leads there. With a "
        "policy a dispatch mode takes each operator in it, forward and again, and runs it: "
        "`torch.profiler` sees it as two events, and counts both.",
        recognise="At most the forward work of the parts that stand in checkpoints.",
        example=Example(
            code="from torch.utils.checkpoint import checkpoint\n"
            "class Block(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)\n"
            "    def forward(self, x):\n"
            "        return checkpoint(self.second, self.first(x), use_reentrant=True)\n"
            "model = Block()\n"
            "inputs = torch.ones(2, 4)",
            tool="calflops-macs",
            amount=-24,
            options=_STEP,
        ),
    ),
    Cause(
        id="backward.custom-function",
        title="custom autograd functions with a backward pass of their own",
        page=f"{_RULE}The backward pass of a `torch.autograd.Function` is code of its own. It may "
        "compute a part of its forward pass again, gradients that nobody asks for, or none.",
        recognise="What the `backward` of the function runs, minus what the derivatives of its "
        "`forward` would cost.",
        example=Example(
            code="class Product(torch.autograd.Function):\n"
            "    @staticmethod\n"
            "    def forward(ctx, x, w):\n"
            "        ctx.save_for_backward(x, w)\n"
            "        return x @ w\n"
            "    @staticmethod\n"
            "    def backward(ctx, grad):\n"
            "        x, w = ctx.saved_tensors\n"
            "        return grad @ w.t(), x.t() @ grad\n"
            "class Layer(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.weight = nn.Parameter(torch.ones(4, 3))\n"
            "    def forward(self, x):\n"
            "        return Product.apply(x, self.weight)\n"
            "model = Layer()\n"
            "inputs = torch.ones(2, 4)",
            tool="calflops-macs",
            amount=-24,
            options=_STEP,
        ),
    ),
    Cause(
        id="backward.checkpoint-begun",
        title="operators in which a checkpoint stops",
        page="A checkpoint that is not reentrant runs its part again until the last tensor is "
        "kept that the gradients need. It stops in the operator that keeps it, before that "
        "computes. The profiler notes operators as they begin: this one counts in full. So does "
        "one whose result a policy saved, which is handed out.",
        recognise="The amount is the forward work of the last layer of each checkpoint. It goes "
        "away with `torch.utils.checkpoint.set_checkpoint_early_stop(False)`.",
        example=Example(
            code="from torch.utils.checkpoint import checkpoint\n"
            "class Block(nn.Module):\n"
            "    def __init__(self):\n"
            "        super().__init__()\n"
            "        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)\n"
            "    def forward(self, x):\n"
            "        return checkpoint(self.second, self.first(x), use_reentrant=False)\n"
            "model = Block()\n"
            "inputs = torch.ones(2, 4)",
            tool="torch-profiler",
            amount=24,
            options=_STEP,
        ),
    ),
    Cause(
        id="forward.parameters",
        title="parameters that do not meet every token once",
        page=f"{_BY_TOKENS}Embeddings are looked up and biases are added, which multiplies "
        "nothing; a tied head multiplies a table that is there once; a router sends a token to "
        "some of its experts; a convolution meets every window.",
        recognise="It is 3 x (MACs of products with parameters - N D).",
    ),
    Cause(
        id="forward.attention",
        title="products without parameters",
        page=f"{_BY_TOKENS}Queries meet keys and scores meet values: these products grow with "
        "the square of the tokens, and no parameter is in them.",
        recognise="It is 3 x the MACs of attention.",
    ),
)
