"""A second model beside the one of a report, and what is between the two."""

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.core.alignment import Alignment
from crossflops.core.contrast import Contrast
from crossflops.core.profile import Failure, Profile
from crossflops.core.provenance import Asked, named
from crossflops.core.reconciliation import Reconciliation
from crossflops.core.totals import ModelInfo, Totals
from crossflops.core.trace import Setting


class Against(msgspec.Struct, frozen=True, kw_only=True):
    """The second model: its totals, what tools printed for it, and why all of it differs.

    `alignment` goes from the first model to the second, layer by layer. `tools` are contrasts
    whose first number is for the first model and whose second for the second: of one tool, or of
    two where each can take one of the models alone.
    """

    model: ModelInfo
    totals: Totals
    alignment: Alignment
    setting: Setting | UnsetType = UNSET
    profiles: tuple[Profile | Failure, ...] = ()
    reconciliations: tuple[Reconciliation, ...] = ()
    tools: tuple[Contrast, ...] = ()
    request: Asked | UnsetType = UNSET
    made_with: dict[str, str] | UnsetType = UNSET

    @property
    def name(self) -> str:
        """What tells the second model from others: see `provenance.named`."""
        return named(self.model.name, self.model.digest, self.request)
