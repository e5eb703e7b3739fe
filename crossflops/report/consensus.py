"""Which number to publish for a model, how to word it, and what each tool makes of it."""

from typing import Literal, TypeAlias

import msgspec

Stand: TypeAlias = Literal["agrees", "agrees after", "differs", "unexplained", "failed"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Where a tool stands, and why in one line.

    It "agrees" when its total is the number at what it counts for a MAC, "agrees after" when it is
    once its operations outside of contractions are taken away, and "differs" where it counts
    other MACs.
    """

    tool: str
    version: str
    stand: Stand
    why: str


class Consensus(msgspec.Struct, frozen=True, kw_only=True):
    """The native MACs as one sentence that can be cited, and a reason in one line.

    `flops` is 2 x MACs. With `caveats` that no sentence may leave out the number is not `citable`
    without them.
    """

    macs: int
    flops: int
    citable: bool
    sentence: str
    reason: str
    caveats: tuple[str, ...]
    verdicts: tuple[Verdict, ...]
