"""Causes of layers that are counted in a unit of their own."""

from crossflops.core.convention import Cause

CAUSES = (
    Cause(
        id="unit.first-add-omitted",
        title="K - 1 additions in a sum of K",
        page="A sum of K products needs K multiplications and K - 1 additions, 2K - 1 operations; "
        "the native FLOPs say 2K, as if the first product were added to a zero. The amount is -1 "
        "for each sum, which is each result of a convolution or a matrix product.",
    ),
    Cause(
        id="elementwise.native",
        title="work outside of contractions",
        page="Additions, multiplications, comparisons and functions that belong to no sum of "
        "products. The native MACs have none of them; the native FLOPs count each once.",
    ),
    Cause(
        id="act.relu",
        title="ReLU modules",
        page="A comparison for each element. Some tools count it, most do not.",
    ),
    Cause(
        id="pool.max",
        title="max pooling",
        page="k - 1 comparisons for each result. torchstat's MAdd counts these, its Flops one for "
        "each element of the input.",
    ),
    Cause(
        id="memory.layer-traffic",
        title="bytes, not operations",
        page="What a layer reads and writes, summed over the layers: no count of work. It knows "
        "neither caches nor fusion, and nothing of what happens between modules.",
    ),
)
