"""Hold the results of comparing a user's formulas with their references."""

import msgspec


class FormulaCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A formula, on how many random cases it was held against its reference, and what differs.

    `unchecked` says why it was held against nothing.
    """

    formula: str
    cases: int
    problems: tuple[str, ...] = ()
    unchecked: str = ""


class FormulaChecks(msgspec.Struct, frozen=True):
    """The checks of all formulas of a file."""

    checks: tuple[FormulaCheck, ...]

    @property
    def holds(self) -> bool:
        """Whether every formula was checked and none has a problem."""
        return not any(check.problems or check.unchecked for check in self.checks)
