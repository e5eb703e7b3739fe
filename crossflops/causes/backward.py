"""Causes of training: why a step is neither three times the forward pass nor 6 N D."""

from crossflops.ir.reconciliation import Cause, Example

_RULE = (
    "The rule of thumb for a training step is 3 x forward: the backward pass multiplies each "
    "contraction twice more, once for the gradient of each operand. "
)

_STEP = ("--train",)
_BY_TOKENS = (
    "6 N D assumes that each of N parameters takes part in one multiplication and one addition "
    "in the forward pass and in two of each in the backward pass, for each of D tokens. "
)

CAUSES = (
    Cause(
        id="backward.first-layer",
        title="operands that never need a gradient",
        page=f"{_RULE}An operand that depends on no parameter needs no gradient: the input of "
        "the model (so the first layer has one product instead of two), a constant such as a "
        "rotary table, or the initial state of a recurrent layer. A product of three operands "
        "has more than two gradients; the additional gradients are part of the amount, too.",
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
        title="operations without a path of gradients",
        page=f"{_RULE}An operation has no backward pass if its result is detached, if it runs "
        "under `torch.no_grad()`, or if no float output of the model depends on it.",
        recognise="The amount does not change if all parameters are trained.",
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
        page=f"{_RULE}A frozen weight needs no gradient. Its input still needs one if a trained "
        "parameter comes before it.",
        recognise="The amount is 0 if all parameters are trained.",
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
        title="attention scores that are recomputed",
        page=f"{_RULE}Fused attention does not keep the scores, so its backward pass multiplies "
        "queries and keys again. Attention written as products and a softmax keeps them.",
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
        title="work that checkpoints recompute",
        page=f"{_RULE}`torch.utils.checkpoint` keeps only the inputs of a part of the model, and "
        "runs that part again in the backward pass. A reentrant checkpoint runs all of it "
        "again; any other checkpoint stops when it has all tensors that the gradients need. "
        "`jax.checkpoint`, `keras.remat` and `tf.recompute_grad` recompute the values that the "
        "gradients need. With a policy, a dispatch mode receives and runs each operator of the "
        "part, in the forward pass and in the recomputation: `torch.profiler` sees two events "
        "for each operator, and counts both.",
        recognise="The amount is at most the forward work of the parts inside checkpoints.",
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
        title="custom autograd functions with their own backward pass",
        page=f"{_RULE}The backward pass of a `torch.autograd.Function` is written by its author. "
        "It may recompute a part of the forward pass, compute gradients that nothing needs, or "
        "compute no gradients.",
        recognise="The amount is the work of the function's `backward`, minus the work of the "
        "derivatives of its `forward`.",
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
        title="operators at which a checkpoint stops",
        page="A checkpoint that is not reentrant runs its part again until it has the last "
        "tensor that the gradients need. It stops inside the operator that keeps this tensor, "
        "before that operator computes. The profiler records operators when they begin, so it "
        "counts this operator in full. It also counts an operator whose result a policy saved, "
        "although that result is only returned.",
        recognise="The amount is the forward work of the last layer of each checkpoint. It is 0 "
        "with `torch.utils.checkpoint.set_checkpoint_early_stop(False)`.",
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
        title="parameters that are not used once for each token",
        page=f"{_BY_TOKENS}Embeddings are looked up and biases are added, without a "
        "multiplication. A tied head multiplies by a table that is counted only once. A router "
        "sends a token to only some of the experts. A convolution uses its weights once for "
        "each window.",
        recognise="The amount is 3 x (MACs of products with parameters - N D).",
    ),
    Cause(
        id="forward.attention",
        title="products without parameters",
        page=f"{_BY_TOKENS}Queries are multiplied by keys and scores by values: these products "
        "grow with the square of the number of tokens, and contain no parameter.",
        recognise="The amount is 3 x the MACs of attention.",
    ),
)
