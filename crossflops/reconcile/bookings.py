"""Every booking that a tool should make for a model, and what it makes of them."""

from collections.abc import Iterable

import msgspec

from crossflops.conventions.addition import Share, exact_sum, sums
from crossflops.core.convention import Clause, Convention
from crossflops.core.profile import Amount
from crossflops.core.trace import Call
from crossflops.errors import CrossflopsError


class PredictionError(CrossflopsError):
    """The tool fails on this model, so there is no number to predict."""


class WatchError(PredictionError):
    """The run that the tool makes could not be watched: the tool may well answer."""


class Booking(msgspec.Struct, frozen=True, kw_only=True):
    """An amount that a clause books for a call: MACs of a core clause, the tool's unit of a part.

    It is booked `times` times. `path` is the module under which the tool sees it. `again` says
    that the tool has counted the call already, by a rule about the module around it. An amount is
    no integer where the tool computes with floats.
    """

    clause: Clause
    about: Call
    path: str
    amount: Amount
    times: int = 1
    again: bool = False

    @property
    def call(self) -> str:
        """The key of the call."""
        return self.about.key


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool should print for a model, and where it comes from.

    `covered` says, for every operator call, which core booking (a place in `bookings`) or which
    "unseen" clause speaks for it, `divisors` what the formulas of the batch give.
    """

    convention: Convention
    setting: str
    bookings: tuple[Booking, ...]
    covered: dict[str, int]
    unseen: dict[str, Clause]
    divisors: dict[str, int] = {}

    @property
    def total(self) -> Amount:
        """The number that the tool should print."""
        return self.sum(self.bookings)

    def sum(self, bookings: Iterable[Booking]) -> Amount:
        """What the tool makes of these bookings, in the order of the calls."""
        add = sums()[self.convention.adds_up] if self.convention.adds_up else exact_sum
        return add([self._share(booking) for booking in bookings])

    def worth(self, booking: Booking) -> int:
        """A booking in the tool's own unit, before any division, a fraction cut off."""
        return int(self._share(booking).amount)

    def divided(self) -> tuple[int, ...]:
        """What is left of the worth of every booking: it adds up to the divided sum, floored."""
        sums = dict.fromkeys(self.divisors, 0)
        found = []
        for booking in self.bookings:
            worth, batch = self.worth(booking), booking.clause.batch
            if batch is not None:
                before, divisor = sums[batch], self.divisors[batch]
                sums[batch] += worth
                worth = sums[batch] // divisor - before // divisor
            found.append(worth)
        return tuple(found)

    def _share(self, booking: Booking) -> Share:
        unit = self.convention.unit if booking.clause.kind == "core" else 1
        return Share(
            booking.clause,
            booking.amount * booking.times * unit,
            booking.about,
            self.divisors[booking.clause.batch] if booking.clause.batch else 1,
        )
