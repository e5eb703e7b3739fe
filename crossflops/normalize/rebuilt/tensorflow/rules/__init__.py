"""One short rule for each operator of ONNX: how it is written in TensorFlow."""

from crossflops.normalize.rebuilt.tensorflow.rules import (
    convolutions,
    elementwise,
    gathers,
    pools,
    products,
    reductions,
    shapes,
)
from crossflops.normalize.rebuilt.tensorflow.rules.given import Given, Rule, UnfitError

RULES: dict[str, Rule] = {
    **convolutions.RULES,
    **elementwise.RULES,
    **gathers.RULES,
    **pools.RULES,
    **products.RULES,
    **reductions.RULES,
    **shapes.RULES,
}

__all__ = ["RULES", "Given", "Rule", "UnfitError"]
