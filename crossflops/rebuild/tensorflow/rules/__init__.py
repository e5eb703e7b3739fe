"""One short rule for each operator of ONNX: how it is written in TensorFlow.

In: a node, and its operands as tensors. Out: the results as tensors.
May import: rebuild, load, ir.
"""

from crossflops.rebuild.tensorflow.rules import elementwise, products, shapes
from crossflops.rebuild.tensorflow.rules.given import NodeInputs, Rule, UnfitError

RULES: dict[str, Rule] = {
    **products.RULES,
    **elementwise.RULES,
    **shapes.RULES,
}

__all__ = ["RULES", "NodeInputs", "Rule", "UnfitError"]
