"""Causes of training: why a step is not three times the forward pass."""

from crossflops.ir.cause import Cause

_RULE = (
    "The rule of thumb for a training step is 3 x forward: the backward pass multiplies each "
    "contraction twice more, once for the gradient of each operand. "
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
)
