"""Operators that onnxruntime adds to ONNX: com.microsoft, and the layouts of optimized graphs.

What they compute stands in docs/ContribOperators.md of onnxruntime, which every rule names.
"""

from crossflops.operators.contrib import (
    attention,
    elementwise,
    fused,
    grouped,
    normalization,
    products,
    quantized,
    recurrent,
)

FAMILIES = (
    elementwise,
    attention,
    products,
    fused,
    grouped,
    normalization,
    quantized,
    recurrent,
)
