"""One short rule for each operator of ONNX: how it is written in TensorFlow."""

from crossflops.rebuild.tensorflow.rules import elementwise, products, shapes
from crossflops.rebuild.tensorflow.rules.given import Given, Rule, UnfitError

RULES: dict[str, Rule] = {
    **products.RULES,
    **elementwise.RULES,
    **shapes.RULES,
}

__all__ = ["RULES", "Given", "Rule", "UnfitError"]
