"""Operators that onnxruntime adds to ONNX: com.microsoft, and the layouts of optimized graphs.

What they compute stands in docs/ContribOperators.md of onnxruntime, which every rule names.
"""

from collections.abc import Iterable

from crossflops.ops.contrib import (
    activation,
    attention,
    elementwise,
    experts,
    fused,
    grouped,
    layout,
    normalization,
    packed,
    position,
    products,
    qordered,
    quantized,
    recurrent,
)
from crossflops.ops.rule import Entry

FAMILIES: tuple[Iterable[Entry], ...] = (
    activation.ENTRIES,
    attention.ENTRIES,
    elementwise.ENTRIES,
    experts.ENTRIES,
    fused.ENTRIES,
    grouped.ENTRIES,
    layout.ENTRIES,
    normalization.ENTRIES,
    packed.ENTRIES,
    position.ENTRIES,
    products.ENTRIES,
    qordered.ENTRIES,
    quantized.ENTRIES,
    recurrent.ENTRIES,
)
