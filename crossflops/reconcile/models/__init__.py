"""Two models, layer by layer: where one is another model than the other, and by how much.

In: two graphs with their ledgers. Out: an alignment, in which every difference has a cause.
May import: reconcile, frontends, ir.
"""

from crossflops.reconcile.models.alignment import align
from crossflops.reconcile.models.reading import AlignableModel, layers

__all__ = ["AlignableModel", "align", "layers"]
