"""XLA's cost analysis: `rules` has its two conventions, `analysis` what one instruction counts,
`programs` which instructions it counts, and `addition` how it adds up.
"""

from crossflops.tools.xla.rules import CONVENTIONS

__all__ = ["CONVENTIONS"]
