"""A count as a convention folds it."""

import msgspec

from crossflops.core.profile import Amount
from crossflops.core.trace import Storey


class FoldedRow(msgspec.Struct, frozen=True):
    """What a convention books for one call or one node, in its own unit.

    `at` is the key of the call or of the node, `path` the module under which it is booked.
    """

    at: str
    path: str
    amount: int


class Folded(msgspec.Struct, frozen=True, kw_only=True):
    """The model counted by a convention: a tool's, without the tool, or one that is no tool.

    `assumed` is true when the tool could not have run this model, or when the calls that it
    looks at were inferred from the graph. `sees` says what the rows are about, and `uncounted`
    names nodes about which the convention cannot say anything.
    """

    tool: str
    edition: str
    total: Amount
    assumed: bool
    sees: Storey = "module"
    rows: tuple[FoldedRow, ...] = ()
    uncounted: tuple[str, ...] = ()
