"""Causes of what XLA's compilation does to a program, and with it to what is counted."""

from crossflops.core.convention import Cause

_BOTH = "The tool counts the program that is compiled, not the one that is given to the compiler. "
_SEE = "Print both: jax.jit(f).lower(*args).as_text() and the same after .compile()."

CAUSES = (
    Cause(
        id="xla.computed-again",
        title="work that fusion repeats",
        page=f"{_BOTH}Where several fused loops need one value, each computes it anew instead of "
        "reading it: a normalization whose result goes two ways counts twice.",
        recognise=_SEE,
    ),
    Cause(
        id="xla.computed-once",
        title="equal work that is merged",
        page=f"{_BOTH}Instructions that compute the same value are merged into one.",
        recognise=_SEE,
    ),
    Cause(
        id="xla.rewritten-arithmetic",
        title="arithmetic that is simplified",
        page=f"{_BOTH}A division by a constant becomes a multiplication, a maximum with minus "
        "infinity goes, what is known beforehand is folded.",
        recognise=_SEE,
    ),
    Cause(
        id="xla.rewritten-reduction",
        title="sums that are cut differently",
        page=f"{_BOTH}A sum over a long axis is cut into windows, a running sum into blocks, the "
        "gradient of a pool into a search and a scatter.",
        recognise=_SEE,
    ),
    Cause(
        id="xla.rewritten-contraction",
        title="products and convolutions that are rewritten",
        page=f"{_BOTH}A convolution over groups may become one over all channels with zeros in "
        "between, a convolution a product, or the other way round.",
        recognise=_SEE,
    ),
    Cause(
        id="xla.rewritten-algorithm",
        title="sorts and decompositions that are rewritten",
        page=f"{_BOTH}A sort, a Fourier transform or a decomposition is replaced by another one.",
        recognise=_SEE,
    ),
    Cause(
        id="xla.type-conversion",
        title="conversions of types",
        page=f"{_BOTH}What a processor cannot compute in bfloat16 is computed in float32, with a "
        "conversion before and after, and each counts one per element.",
        recognise=_SEE,
    ),
    Cause(
        id="xla.library-call",
        title="calls of a library that come or go",
        page=f"{_BOTH}Some work is handed to a library, and the analysis counts -1 for the call, "
        "which stands for unknown and is added up all the same.",
        recognise=_SEE,
    ),
)
