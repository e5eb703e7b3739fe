"""The cost of operators that onnxruntime adds to ONNX: com.microsoft, and the layouts of optimized
graphs.

In: a node. Out: the kinds of work, by rules as those of ONNX's own operators; what each computes
stands in docs/ContribOperators.md of onnxruntime, which every rule names.
May import: operators, ir.
"""

from crossflops.operators.contrib import (
    attention,
    elementwise,
    fake_quantized,
    fused,
    grouped,
    normalization,
    products,
    quantized,
    recurrent,
)

FAMILIES = (
    *(elementwise, attention, products, fused, grouped, normalization, quantized, recurrent),
    fake_quantized,
)
