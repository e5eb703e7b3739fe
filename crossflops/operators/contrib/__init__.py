"""Operators that onnxruntime adds to ONNX: com.microsoft, and the layouts of optimized graphs.

What they compute stands in docs/ContribOperators.md of onnxruntime, which every rule names.
"""

from collections.abc import Iterable

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
from crossflops.operators.rule import Entry

FAMILIES: tuple[Iterable[Entry], ...] = (
    elementwise.ENTRIES,
    attention.ENTRIES,
    products.ENTRIES,
    fused.ENTRIES,
    grouped.ENTRIES,
    normalization.ENTRIES,
    quantized.ENTRIES,
    recurrent.ENTRIES,
)
