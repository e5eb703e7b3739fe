"""Operators that onnxruntime adds to ONNX: com.microsoft, and the layouts of optimized graphs.

What they compute stands in docs/ContribOperators.md of onnxruntime, which every rule names.
"""

from collections.abc import Iterable

from crossflops.ops.contrib import (
    activation,
    fused,
    layout,
    normalization,
    products,
    quantized,
    recurrent,
)
from crossflops.ops.rule import Entry

FAMILIES: tuple[Iterable[Entry], ...] = (
    activation.ENTRIES,
    fused.ENTRIES,
    layout.ENTRIES,
    normalization.ENTRIES,
    products.ENTRIES,
    quantized.ENTRIES,
    recurrent.ENTRIES,
)
