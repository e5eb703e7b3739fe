"""A convention applied to a trace: every booking that the tool should make, and their sum."""

from collections.abc import Container, Iterable, Iterator

import msgspec

from crossflops.errors import CrossflopsError
from crossflops.ir.convention import Clause, Convention
from crossflops.ir.cost import ZERO, Cost
from crossflops.ir.ledger import Ledger
from crossflops.ir.profile import Amount
from crossflops.ir.trace import NESTED, OBSERVED, UNWATCHED, Call, Module, Setting, Trace
from crossflops.tools.addition import Share, batches, exact_sum, sums
from crossflops.tools.formulas import formulas, readings
from crossflops.tools.matching import matches, one_of
from crossflops.tools.multiplicity import multiplicities
from crossflops.tools.operators import PRE_HOOK

# Every booking that a tool should make for a model, and what it makes of them.


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


# Under which module a tool sees a call.


def home_of(call: Call, trace: Trace) -> Module:
    """The module that a tool with hooks sees it in: one in the model, by its `__call__`.

    What runs by `.forward`, or in a module that is registered nowhere, is its caller's.
    """
    for one in (call, *trace.ancestors(call)):
        if one.level == "module" and one.via == "call":
            module = trace.modules[one.module]
            if module.names:
                return module
    return trace.modules[0]


def collector_of(call: Call, trace: Trace, ruled: Container[str]) -> Module | None:
    """The module at which a tool that replaces functions adds this call up; None: nowhere.

    A hook of the tool's own begins and ends the list of a module. Pre-hooks that the model had
    before run ahead of it, and belong to the module around; calls with a rule (`ruled`, by key)
    have no list. deepspeed/profiling/flops_profiler/profiler.py: start_profile.
    """
    early = passed = False
    for one in trace.ancestors(call):
        if one.target == PRE_HOOK:
            early = True
        elif one.level == "module" and one.via == "call":
            module = trace.modules[one.module]
            if module.names and not early and one.key not in ruled:
                return module
            passed |= bool(module.names)
            early = False
    return None if passed else trace.modules[0]


_SHADOWED = -1  # in the place of a core booking: what lies inside a ruled module is not looked at


def predict(
    convention: Convention, trace: Trace, asked: Setting, ledger: Ledger | None = None
) -> Prediction:
    """Walk the call tree and book what every clause says.

    The ledger is needed only by clauses with weights. Raises PredictionError where the tool itself
    would fail, WatchError where it is unknown what the tool sees.
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
        named = dict.fromkeys(one.times for one in convention.clauses if one.times)
        self.times = {name: multiplicities()[name](trace.modules) for name in named}
        self.counted: set[str] = set()  # calls of modules that a rule books
        self.bookings: list[Booking] = []
        self.covered: dict[str, int] = {}
        self.unseen: dict[str, Clause] = {}
        self.clauses = {
            level: [clause for clause in convention.clauses if clause.level == level]
            for level in ("module", "function", "operator", *OBSERVED)
        }

    def prediction(self) -> Prediction:
        # Calls come parents first, so what covers a parent is known before its children.
        core: dict[str, int | None] = {}
        for call in self.trace.calls:
            above = core.get(call.parent or "")
            core[call.key] = self._visit(call, above)
        for call in self._observed():
            self._apply(call, None)
        return Prediction(
            convention=self.convention,
            setting=self.setting,
            bookings=tuple(self.bookings),
            covered=self.covered,
            unseen=self.unseen,
            divisors=self._divisors(),
        )

    def _divisors(self) -> dict[str, int]:
        named = dict.fromkeys(one.batch for one in self.convention.clauses if one.batch)
        found = {}
        for name in named:
            try:
                found[name] = batches()[name](self.trace)
            except (LookupError, ValueError, TypeError) as error:
                raise self._fails("the model", error, name) from error
            if not found[name]:
                raise self._fails("the model", ZeroDivisionError("a batch of 0"), name)
        return found

    def _observed(self) -> list[Call]:
        """The calls of the real run that the convention looks at: all that the tool sees there.

        None for a model of another framework. Raises WatchError when the model does not run
        while it is watched, ValueError when the trace was recorded for other tools.
        """
        foreign = self.convention.framework != self.trace.framework
        if self.convention.sees not in OBSERVED or not self.trace.calls or foreign:
            return []
        seen = (self.convention.sees, self.setting)
        found = [one for one in self.trace.observed if (one.level, one.setting) == seen]
        if not found:
            raise ValueError(f"the trace holds no {self.convention.sees} calls ({self.setting})")
        failed = next((one for one in found if one.target == UNWATCHED), None)
        if failed is not None:
            raise WatchError(
                f"crossflops could not watch the run that {self.convention.tool} makes: "
                f"{failed.settings['reason']}",
                "its number is not explained, which is a failure of crossflops: please report it",
            )
        reads = self.convention.reads
        return list(readings()[reads](found, self.trace)) if reads else found

    def _visit(self, call: Call, above: int | None) -> int | None:
        core = self._inherited(call, above)
        hidden = core == _SHADOWED and call.level != "function"
        if self._counts(call) and not hidden and not self._is_opaque(core):
            core = self._apply(call, None if core == _SHADOWED else core)
        if call.level == "operator":
            self._settle(call, core)
        return core

    def _apply(self, call: Call, core: int | None) -> int | None:
        """Book what the clauses say of the call. What speaks for the call from here on."""
        added = self.convention.rules_add and call.level == "module"
        above, spoken = None if added else core, False
        for clause in self.clauses[call.level]:
            if clause.kind == "unseen" or not self._matches(clause, call):
                continue
            if clause.kind == "fails":
                reason = call.settings.get("reason", f"it raises on {call.target}")
                raise self._fails(call.key, reason, f"{clause.id} ({clause.reference})")
            if clause.kind == "part":
                self._book(clause, call, bool(clause.again) and self._is_counted(call))
            elif not spoken:
                again = bool(clause.again) and above is not None and self._stands(above, call)
                if above is not None and not clause.again:
                    continue
                self._book(clause, call, again)
                spoken = True
                core = above if again else len(self.bookings) - 1
                self._cover(call, len(self.bookings) - 1)
        return core

    def _cover(self, call: Call, core: int) -> None:
        """A call of a real run speaks for the operator calls whose work it does."""
        for key in call.of:
            self.covered.setdefault(key, core)
            self.unseen.pop(key, None)

    def _stands(self, core: int, call: Call) -> bool:
        """Whether the booking speaks for an operator beneath the call."""
        stands_for = self.bookings[core].clause.stands_for
        return any(one_of(one.target, stands_for) for one in self._beneath(call))

    def _beneath(self, call: Call) -> Iterator[Call]:
        for child in self.trace.children.get(call.key, ()):
            if child.level == "operator":
                yield child
            else:
                yield from self._beneath(child)

    def _is_counted(self, call: Call) -> bool:
        """Whether a rule books the module in whose forward the call is."""
        for one in self.trace.ancestors(call):
            if one.level == "module" or one.via == "hook":
                return one.key in self.counted
        return False

    def _inherited(self, call: Call, above: int | None) -> int | None:
        """What speaks for the call before its own clauses are looked at."""
        if call.via == "hook" and above != _SHADOWED:
            return None  # what a hook does is not what the module around it stands for
        return _SHADOWED if self._is_shadowed(call, above) else above

    def _is_opaque(self, core: int | None) -> bool:
        """Whether a function encloses the call of which the tool books nothing but the whole."""
        return core is not None and self.bookings[core].clause.level == "function"

    def _is_shadowed(self, call: Call, above: int | None) -> bool:
        """A module inside one with a rule (a parametrization, say), which the rule ignores."""
        if self.convention.rules_add or call.level != "module":
            return False
        if above is None or above == _SHADOWED:
            return False
        return self.bookings[above].clause.level == "module"

    def _counts(self, call: Call) -> bool:
        kernel = call.fused.get(self.setting, NESTED)
        if call.level == "function" and not kernel.startswith(NESTED):
            return False  # it ran in the place of the function
        stored = call.stored and self.convention.counts_stored
        return call.live or stored or self.convention.counts_dead

    def _matches(self, clause: Clause, call: Call) -> bool:
        said = matches(clause, call, self.trace, self.setting)
        return said and self._times(clause, call) > 0

    def _times(self, clause: Clause, call: Call) -> int:
        """How often it is booked: by its own module, or by that to which a function belongs."""
        if call.level == "module":
            owner: Module | None = self.trace.modules[call.module]
        else:
            owner = self._owner(call)
        if owner is None:
            return 0
        return 1 if clause.times is None else self.times[clause.times][owner.id]

    def _book(self, clause: Clause, call: Call, again: bool = False) -> None:
        if call.level == "module":
            self.counted.add(call.key)
        self.bookings.append(
            Booking(
                clause=clause,
                about=call,
                path="" if clause.in_total_only else getattr(self._owner(call), "path", ""),
                amount=clause.factor * self._amount(clause, call),
                times=self._times(clause, call),
                again=again,
            )
        )

    def _amount(self, clause: Clause, call: Call) -> Amount:
        if clause.formula is None:
            cost = self._cost(call)
            weighed = (getattr(cost, kind) * weight for kind, weight in clause.weights.items())
            return int(sum(weighed))
        module = self.trace.modules[call.module]
        try:
            amount: Amount = formulas()[clause.formula](call, module)
            return amount
        except (LookupError, ValueError, TypeError, ArithmeticError) as error:
            rule = f"{clause.id} ({clause.reference})"
            raise self._fails(call.key, error, rule) from error

    def _fails(self, what: str, error: object, rule: str) -> PredictionError:
        return PredictionError(
            f"{self.convention.tool} cannot count {what}: {error}", f"see its rule {rule}"
        )

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

    def _owner(self, call: Call) -> Module | None:
        """The module under which the tool sees the call; None where it sees it under none."""
        if self.convention.sees == call.level == "function":
            return collector_of(call, self.trace, self.counted)
        return home_of(call, self.trace)
