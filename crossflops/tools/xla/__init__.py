"""XLA's cost analysis: what one instruction counts, which ones it counts, how it adds up.

In: calls that are instructions of HLO. Out: two conventions (`rules`), whose instructions are
counted by `analysis`, chosen by `programs` and added up by `addition`.
May import: tools, rules, ir.
"""

from crossflops.tools.xla.rules import CONVENTIONS

__all__ = ["CONVENTIONS"]
