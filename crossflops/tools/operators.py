"""Names that moved: see `layers` and `rules.site`. To be removed."""

from crossflops.rules.site import HOOKS, PRE_HOOK, VMAP
from crossflops.tools.layers import CONTRACTIONS

__all__ = ["CONTRACTIONS", "HOOKS", "PRE_HOOK", "VMAP"]
