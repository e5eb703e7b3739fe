"""What of a count is done in which precision."""

from crossflops.ir.ledger import Ledger


def by_precision(ledger: Ledger) -> dict[str, int]:
    """MACs by the precision of the contraction."""
    found: dict[str, int] = {}
    for one in ledger.counted:
        if one.cost.macs:
            found[one.precision] = found.get(one.precision, 0) + one.cost.macs
    return found
