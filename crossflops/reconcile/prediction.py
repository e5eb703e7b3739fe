"""A convention applied to a trace: every booking that the tool should make, before it runs."""

from collections.abc import Iterator

from crossflops.conventions.addition import batches
from crossflops.conventions.formulas import formulas
from crossflops.conventions.matching import matches, one_of
from crossflops.conventions.multiplicity import multiplicities
from crossflops.core.convention import Clause, Convention
from crossflops.core.cost import ZERO, Cost
from crossflops.core.ledger import Ledger
from crossflops.core.profile import Amount
from crossflops.core.trace import NESTED, OBSERVED, UNWATCHED, Call, Module, Setting, Trace
from crossflops.reconcile.bookings import Booking, Prediction, PredictionError, WatchError
from crossflops.reconcile.ownership import collector_of, home_of

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
            storey: [clause for clause in convention.clauses if clause.storey == storey]
            for storey in ("module", "function", "operator", *OBSERVED)
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
        found = [one for one in self.trace.observed if (one.storey, one.setting) == seen]
        if not found:
            raise ValueError(f"the trace holds no {self.convention.sees} calls ({self.setting})")
        failed = next((one for one in found if one.target == UNWATCHED), None)
        if failed is not None:
            raise WatchError(
                f"crossflops could not watch the run that {self.convention.tool} makes: "
                f"{failed.settings['reason']}",
                "its number is not explained, which is a failure of crossflops: please report it",
            )
        return found

    def _visit(self, call: Call, above: int | None) -> int | None:
        core = self._inherited(call, above)
        hidden = core == _SHADOWED and call.storey != "function"
        if self._counts(call) and not hidden and not self._is_opaque(core):
            core = self._apply(call, None if core == _SHADOWED else core)
        if call.storey == "operator":
            self._settle(call, core)
        return core

    def _apply(self, call: Call, core: int | None) -> int | None:
        """Book what the clauses say of the call. What speaks for the call from here on."""
        added = self.convention.rules_add and call.storey == "module"
        above, spoken = None if added else core, False
        for clause in self.clauses[call.storey]:
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
            if child.storey == "operator":
                yield child
            else:
                yield from self._beneath(child)

    def _is_counted(self, call: Call) -> bool:
        """Whether a rule books the module in whose forward the call is."""
        for one in self.trace.ancestors(call):
            if one.storey == "module" or one.via == "hook":
                return one.key in self.counted
        return False

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
        if self.convention.rules_add or call.storey != "module":
            return False
        if above is None or above == _SHADOWED:
            return False
        return self.bookings[above].clause.storey == "module"

    def _counts(self, call: Call) -> bool:
        kernel = call.fused.get(self.setting, NESTED)
        if call.storey == "function" and not kernel.startswith(NESTED):
            return False  # it ran in the place of the function
        stored = call.stored and self.convention.counts_stored
        return call.live or stored or self.convention.counts_dead

    def _matches(self, clause: Clause, call: Call) -> bool:
        said = matches(clause, call, self.trace, self.setting)
        return said and self._times(clause, call) > 0

    def _times(self, clause: Clause, call: Call) -> int:
        """How often it is booked: by its own module, or by that to which a function belongs."""
        if call.storey == "module":
            owner: Module | None = self.trace.modules[call.module]
        else:
            owner = self._owner(call)
        if owner is None:
            return 0
        return 1 if clause.times is None else self.times[clause.times][owner.id]

    def _book(self, clause: Clause, call: Call, again: bool = False) -> None:
        if call.storey == "module":
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
        if self.convention.sees == call.storey == "function":
            return collector_of(call, self.trace, self.counted)
        return home_of(call, self.trace)
