"""The plugin of pytest: `flops_budget` holds a model against rules, and names what grew.

::

    def test_stays_small(flops_budget):
        flops_budget(make_model(), "macs <= 4.2G", "params <= +1%", inputs="1x3x224x224")

It imports nothing else of the package until a test asks for it.
"""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

if TYPE_CHECKING:
    from crossflops.report.budgets import Checks
    from crossflops.verbs.check import Budget

Hold: TypeAlias = "Callable[..., Checks]"
_UPDATE = "--update-flops"
_CALLS = pytest.StashKey[Counter[str]]()  # of a test: how often it checked a target
_OWNERS = pytest.StashKey[dict[tuple[Path, str], str]]()  # of a run: the test of each entry
_SAVED = "flops saved"  # a property of a test's report, which travels from the workers of xdist


def pytest_addoption(parser: pytest.Parser) -> None:
    """The switch that writes the baseline."""
    parser.getgroup("crossflops").addoption(
        _UPDATE, action="store_true", help="write the baseline of all budgets that the tests hold"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark. Raises UsageError where several processes would write one baseline."""
    config.addinivalue_line(
        "markers", "flops_budget(*rules): what the fixture flops_budget holds models against"
    )
    if config.getoption(_UPDATE) and hasattr(config, "workerinput"):
        raise pytest.UsageError(f"{_UPDATE} writes one file: run it without -n")


@pytest.fixture
def flops_budget(request: pytest.FixtureRequest) -> Hold:
    """A function of a model and rules, which fails the test where a rule does not hold.

    `flops_budget(model, *rules, name=..., **options)`: the model is an object or a target, the
    rules are those of `crossflops check`, of the mark where none is given, or of a target's
    configuration. `name` is the key in the baseline (the test and the target, unless said),
    options are those of the configuration: `inputs`, `dims` ... The value is what was checked.
    """

    def hold(model: Any, *rules: str, name: str = "", **options: Any) -> "Checks":
        from crossflops.errors import CrossflopsError
        from crossflops.render.pages.budgets import failures, savings

        marked = [rule for mark in request.node.iter_markers("flops_budget") for rule in mark.args]
        strays = [
            word for mark in request.node.iter_markers("flops_budget") for word in mark.kwargs
        ]
        if strays:
            pytest.fail(
                f"the mark flops_budget takes rules alone, and has {strays[0]}=\n"
                f"give {strays[0]}= to the fixture: flops_budget(model, {strays[0]}=...)",
                pytrace=False,
            )
        model = os.fspath(model) if isinstance(model, os.PathLike) else model
        try:
            checks = _checked(request, model, rules or marked, name, options)
        except CrossflopsError as error:
            pytest.fail(f"{error.message}\n{error.hint}", pytrace=False)
        request.node.user_properties += [(_SAVED, text) for text in savings(checks)]
        if not checks.hold:
            pytest.fail("\n".join(failures(checks)), pytrace=False)
        return checks

    return hold


def _checked(
    request: pytest.FixtureRequest, model: Any, rules: Any, name: str, options: dict[str, Any]
) -> "Checks":
    """Hold the rules. Raises what `check` raises."""
    from crossflops.plugins.elsewhere import settings
    from crossflops.verbs import check

    folder, update = request.config.rootpath, bool(request.config.getoption(_UPDATE))
    if not rules and isinstance(model, str):
        return check.check([model], update, _silent, folder)
    file, _ = settings("budgets", folder)
    budget = _budget(model, rules, name or _key(request, model), options)
    checks = check.hold_budgets([budget], file.parent / check.BASELINE, update, _silent)
    if update:
        _refuse_second(request, budget.name, file.parent / check.BASELINE)
    return checks


def _key(request: pytest.FixtureRequest, model: Any) -> str:
    """Return the key of a call in the baseline: its test, the target, and which call it is.

    Two calls of one test on one model have two entries, or the later would replace the earlier.
    """
    target = f" {model}" if isinstance(model, str) else ""
    calls = request.node.stash.setdefault(_CALLS, Counter())
    calls[target] += 1
    ordinal = f" #{calls[target]}" if calls[target] > 1 else ""
    return f"{request.node.nodeid}{target}{ordinal}"


def _refuse_second(request: pytest.FixtureRequest, name: str, path: Path) -> None:
    """Raise InputError where another test of this run has written the entry of that name."""
    from crossflops.errors import InputError

    owners = request.config.stash.setdefault(_OWNERS, {})
    owner = owners.setdefault((path, name), request.node.nodeid)
    if owner != request.node.nodeid:
        raise InputError(
            f"{request.node.nodeid} and {owner} both name their budget {name!r}",
            "give each a name= of its own",
        )


def _budget(model: Any, rules: Any, name: str, options: dict[str, Any]) -> "Budget":
    from crossflops.errors import InputError
    from crossflops.report.budgets import BudgetRule
    from crossflops.verbs.check import Budget, refuse_unknown

    if not rules:
        raise InputError("flops_budget has no rule to hold", 'write for example "macs <= 4.2G"')
    parsed = tuple(map(BudgetRule.of, rules))
    for rule in parsed:
        refuse_unknown(rule)
    target = os.fspath(model) if isinstance(model, str | os.PathLike) else name
    given = None if isinstance(model, str | os.PathLike) else model
    return Budget(name, target, parsed, options, given, origin="pytest")


def _silent(_: str) -> None:
    """Show no progress."""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """What smaller models saved, for tests that passed, too."""
    lines = dict.fromkeys(
        text
        for report in terminalreporter.getreports("passed")
        for key, text in report.user_properties
        if key == _SAVED
    )
    if lines:
        terminalreporter.section(_SAVED)
        for text in lines:
            terminalreporter.line(text)
