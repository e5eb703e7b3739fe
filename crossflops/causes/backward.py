"""Causes of training: why a step is neither three times the forward pass nor 6 N D."""

from crossflops.ir.cause import Cause

_RULE = (
    "The rule of thumb for a training step is 3 x forward: the backward pass multiplies each "
    "contraction twice more, once for the gradient of each operand. "
)

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
    ),
    Cause(
        id="backward.cut",
        title="gradients that go nowhere",
        page=f"{_RULE}What is detached, what runs under `torch.no_grad()`, and what does not "
        "reach a float output of the model has no backward pass.",
        recognise="It stays when all parameters are trained.",
    ),
    Cause(
        id="backward.frozen",
        title="frozen weights",
        page=f"{_RULE}A frozen weight needs no gradient. Its input still needs one where "
        "something trained lies before it, and none where nothing does.",
        recognise="It is 0 when all parameters are trained.",
    ),
    Cause(
        id="backward.attention-recomputed",
        title="attention that is computed again",
        page=f"{_RULE}A fused attention keeps no scores: its backward pass multiplies queries and "
        "keys once more. Attention by products and a softmax keeps them.",
        recognise="The amount is the product of queries and keys of every fused attention.",
    ),
    Cause(
        id="backward.checkpoint",
        title="what checkpoints run again",
        page=f"{_RULE}`torch.utils.checkpoint` keeps what goes into a part of the model, and runs "
        "that part again in the backward pass: all of it where it is reentrant, else until all "
        "is there that the gradients need. `jax.checkpoint`, `keras.remat` and "
        "`tf.recompute_grad` run again what the gradients need, and what leads there.",
        recognise="At most the forward work of the parts that stand in checkpoints.",
    ),
    Cause(
        id="backward.checkpoint-begun",
        title="operators in which a checkpoint stops",
        page="A checkpoint that is not reentrant runs its part again until the last tensor is "
        "kept that the gradients need. It stops in the operator that keeps it, before that "
        "computes. The profiler notes operators as they begin: this one counts in full.",
        recognise="The amount is the forward work of the last layer of each checkpoint. It goes "
        "away with `torch.utils.checkpoint.set_checkpoint_early_stop(False)`.",
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
