"""Hold the causes that match some words of a user."""

import msgspec

from crossflops.ir.reconciliation import Cause


class Matches(msgspec.Struct, frozen=True):
    """The causes that match some words of a user, the best match first."""

    words: str
    causes: tuple[Cause, ...]
