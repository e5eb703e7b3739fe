"""Where a formula of one's own comes from, so that a report can say by whose words it counts."""

from typing import Literal, TypeAlias

import msgspec

OriginKind: TypeAlias = Literal["file", "module", "distribution", "crossflops"]


class FormulaOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a formula: a file, a module that was imported, or an installed distribution.

    `name` is the path, the module or the distribution, `version` that of a distribution.
    `digest` is the sha256 of the source that has the formula.
    """

    kind: OriginKind
    name: str
    version: str = ""
    digest: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()
