"""A convention applied to a trace: every booking that the tool should make, before it runs."""

import msgspec

from crossflops.conventions.formulas import formulas
from crossflops.conventions.matching import matches, one_of
from crossflops.conventions.multiplicity import TIMES
from crossflops.core.convention import Clause, Convention
from crossflops.core.cost import ZERO, Cost
from crossflops.core.ledger import Ledger
from crossflops.core.trace import Call, Setting, Trace
from crossflops.errors import CrossflopsError

_SHADOWED = -1  # in the place of a core booking: what lies inside a ruled module is not looked at


class PredictionError(CrossflopsError):
    """The tool fails on this model, so there is no number to predict."""


class Booking(msgspec.Struct, frozen=True, kw_only=True):
    """An amount that a clause books for a call: MACs of a core clause, the tool's unit of a part.

    It is booked `times` times. `path` is the module under which the tool sees it.
    """

    clause: Clause
    call: str
    path: str
    amount: int
    times: int = 1


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool should print for a model, and where it comes from.

    `covered` says, for every operator call, which core booking (a place in `bookings`) or which
    "unseen" clause speaks for it.
    """

    convention: Convention
    setting: str
    bookings: tuple[Booking, ...]
    covered: dict[str, int]
    unseen: dict[str, Clause]

    @property
    def total(self) -> int:
        """The number that the tool should print."""
        return sum(self.worth(booking) for booking in self.bookings)

    def worth(self, booking: Booking) -> int:
        """A booking in the tool's own unit."""
        unit = self.convention.unit if booking.clause.kind == "core" else 1
        return booking.amount * booking.times * unit


def predict(
    convention: Convention, trace: Trace, asked: Setting, ledger: Ledger | None = None
) -> Prediction:
    """Walk the call tree and book what every clause says.

    The ledger is needed only by clauses with weights. Raises PredictionError where the tool itself
    would fail.
    """
    return _Walk(convention, trace, convention.setting(asked).id, ledger).prediction()


class _Walk:
    """One walk over a call tree; holds what the steps share."""

    def __init__(
        self, convention: Convention, trace: Trace, setting: str, ledger: Ledger | None
    ) -> None:
        self.convention = convention
        self.trace = trace
        self.setting = setting
        self.costs = ledger.by_call if ledger else {}
        self.times = {name: times(trace.modules) for name, times in TIMES.items()}
        self.bookings: list[Booking] = []
        self.covered: dict[str, int] = {}
        self.unseen: dict[str, Clause] = {}
        self.clauses = {
            storey: [clause for clause in convention.clauses if clause.storey == storey]
            for storey in ("module", "function", "operator")
        }

    def prediction(self) -> Prediction:
        # Calls come parents first, so what covers a parent is known before its children.
        core: dict[str, int | None] = {}
        for call in self.trace.calls:
            above = core.get(call.parent or "")
            core[call.key] = self._visit(call, above)
        return Prediction(
            convention=self.convention,
            setting=self.setting,
            bookings=tuple(self.bookings),
            covered=self.covered,
            unseen=self.unseen,
        )

    def _visit(self, call: Call, above: int | None) -> int | None:
        core = self._inherited(call, above)
        if self._counts(call) and core != _SHADOWED and not self._is_opaque(core):
            for clause in self.clauses[call.storey]:
                taken = clause.kind == "core" and core is not None
                if clause.kind == "unseen" or taken or not self._matches(clause, call):
                    continue
                self._book(clause, call)
                if clause.kind == "core":
                    core = len(self.bookings) - 1
        if call.storey == "operator":
            self._settle(call, core)
        return core

    def _inherited(self, call: Call, above: int | None) -> int | None:
        """What speaks for the call before its own clauses are looked at."""
        if call.via == "hook" and above != _SHADOWED:
            return None  # what a hook does is not what the module around it stands for
        return _SHADOWED if self._is_shadowed(call, above) else above

    def _is_opaque(self, core: int | None) -> bool:
        """Whether a function encloses the call of which the tool books nothing but the whole."""
        return core is not None and self.bookings[core].clause.storey == "function"

    def _is_shadowed(self, call: Call, above: int | None) -> bool:
        """A module inside one with a rule (a parametrization, say), which the rule ignores."""
        if call.storey != "module" or above is None or above == _SHADOWED:
            return False
        return self.bookings[above].clause.storey == "module"

    def _counts(self, call: Call) -> bool:
        stored = call.stored and self.convention.counts_stored
        return call.live or stored or self.convention.counts_dead

    def _matches(self, clause: Clause, call: Call) -> bool:
        registered = clause.times is None or self.times[clause.times][call.module] > 0
        return registered and matches(clause, call, self.trace, self.setting)

    def _book(self, clause: Clause, call: Call) -> None:
        self.bookings.append(
            Booking(
                clause=clause,
                call=call.key,
                path=self._path(call),
                amount=clause.factor * self._amount(clause, call),
                times=self.times[clause.times][call.module] if clause.times else 1,
            )
        )

    def _amount(self, clause: Clause, call: Call) -> int:
        if clause.formula is None:
            cost = self._cost(call)
            return sum(getattr(cost, kind) * weight for kind, weight in clause.weights.items())
        module = self.trace.modules[call.module]
        try:
            return formulas()[clause.formula](call, module)
        except (LookupError, ValueError, TypeError, ArithmeticError) as error:
            raise PredictionError(
                f"{self.convention.tool} cannot count {call.key}: {error}",
                f"see its rule {clause.id} ({clause.reference})",
            ) from error

    def _cost(self, call: Call) -> Cost:
        own = self.costs.get(call.key, ZERO)
        below = (self._cost(child) for child in self.trace.children.get(call.key, ()))
        return sum(below, own)

    def _settle(self, call: Call, core: int | None) -> None:
        if core is not None and core != _SHADOWED:
            stands_for = self.bookings[core].clause.stands_for
            if one_of(call.target, stands_for):
                self.covered[call.key] = core
                return
        for clause in self.convention.clauses:
            if clause.kind == "unseen" and matches(clause, call, self.trace, self.setting):
                self.unseen[call.key] = clause
                return

    def _path(self, call: Call) -> str:
        """Tools see a module by its `__call__`: what runs by `.forward` is its caller's."""
        around = (call, *self.trace.ancestors(call))
        inner = next((c for c in around if c.storey == "module" and c.via == "call"), None)
        return self.trace.modules[inner.module].path if inner else ""
