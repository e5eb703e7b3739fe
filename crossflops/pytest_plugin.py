"""The pytest plugin: the fixture `flops_budget` checks a model against budget rules and names what
grew.

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
    from crossflops.verbs.budget_configuration import Budget

Hold: TypeAlias = "Callable[..., Checks]"
_UPDATE = "--update-flops"
_OWNERS = pytest.StashKey[dict[tuple[Path, str], str]]()  # of a run: the call of each entry
_RULES_HINT = 'write the rules after the model: flops_budget(model, "macs <= 4.2G")'
_REMEDIES = {  # of `check`: what does the same for tests
    "run `crossflops check --update` with no target to write it again": "remove the file, and run "
    f"`pytest {_UPDATE}`",
    "crossflops check --update": f"pytest {_UPDATE}",
}
_SAVED = "flops saved"  # a property of a test's report, which travels from the workers of xdist


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option --update-flops, which writes the baseline of all budgets."""
    parser.getgroup("crossflops").addoption(
        _UPDATE, action="store_true", help="write the baseline of all budgets that the tests check"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark flops_budget; raise UsageError if --update-flops is combined with several
    test processes.
    """
    config.addinivalue_line(
        "markers", "flops_budget(*rules): the rules that the fixture flops_budget checks"
    )
    if config.getoption(_UPDATE) and hasattr(config, "workerinput"):
        raise pytest.UsageError(
            f"{_UPDATE} writes one file and cannot be used with -n; leave out -n"
        )


@pytest.fixture
def flops_budget(request: pytest.FixtureRequest) -> Hold:
    """Return a function that checks a model against budget rules, and fails the test if a rule is
    broken.

    `flops_budget(model, *rules, name=..., **options)`: the model is an object or a target, the
    rules are those of `crossflops check`, of the mark where none is given, or of a target's
    configuration. `name` is the key in the baseline (the test and the target, unless said),
    options are those of the configuration: `inputs`, `dims` ... The value is what was checked.
    """
    calls: Counter[str] = Counter()  # of this run of the test: how often it checked a target

    def check_model_against_budget(
        model: Any, *rules: str, name: str = "", **options: Any
    ) -> "Checks":
        """Check the count of a model against budget rules and return the checks; fail the test if
        a rule is broken.
        """
        from crossflops.errors import CrossflopsError
        from crossflops.render.pages.budgets import (
            budget_failure_sentences,
            budget_saving_sentences,
        )

        marked = [rule for mark in request.node.iter_markers("flops_budget") for rule in mark.args]
        strays = [
            word for mark in request.node.iter_markers("flops_budget") for word in mark.kwargs
        ]
        if strays:
            pytest.fail(
                f"the mark flops_budget accepts only rules, got {strays[0]}=\ngive "
                f"{strays[0]}= to the fixture: flops_budget(model, {strays[0]}=...)",
                pytrace=False,
            )
        model = os.fspath(model) if isinstance(model, os.PathLike) else model
        refused = ""
        try:
            calls[_target_suffix(model)] += 1
            call = _test_call_name(request, model, calls)
            checks = _check_budget_rules(
                request, model, rules or marked, name or call, call, options
            )
        except CrossflopsError as error:
            refused = f"{error.message}\n{error.hint}"
        if refused:  # outside of the handler, or pytest shows the error twice
            pytest.fail(_with_test_remedies(refused), pytrace=False)
        request.node.user_properties += [
            (_SAVED, text) for text in budget_saving_sentences(checks)
        ]
        if not checks.hold:
            pytest.fail(
                _with_test_remedies("\n".join(budget_failure_sentences(checks))), pytrace=False
            )
        return checks

    return check_model_against_budget


def _with_test_remedies(text: str) -> str:
    """Return the text of an error with its `crossflops check` commands replaced by pytest
    commands.
    """
    for remedy, own in _REMEDIES.items():
        text = text.replace(remedy, own)
    return text


def _check_budget_rules(
    request: pytest.FixtureRequest,
    model: Any,
    rules: Any,
    name: str,
    call: str,
    options: dict[str, Any],
) -> "Checks":
    """Check the rules of one call of the fixture and return the checks; write the baseline if
    --update-flops is given.
    """
    from crossflops.plugins.elsewhere import find_config_table
    from crossflops.verbs import check

    folder, update = request.config.rootpath, bool(request.config.getoption(_UPDATE))
    if not rules and not options and isinstance(model, str):
        return check.check_budgets([model], update, _ignore_progress, folder)
    file, _ = find_config_table("budgets", folder)
    budget = _make_call_budget(model, rules, name, options)
    _refuse_used_name(request, budget.name, call, file.parent / check.BASELINE)
    return check.check_against_baseline(
        [budget], file.parent / check.BASELINE, update, _ignore_progress
    )


def _target_suffix(model: Any) -> str:
    """Return a space and the target if the model is given as a target text, else ""."""
    return f" {model}" if isinstance(model, str) else ""


def _test_call_name(request: pytest.FixtureRequest, model: Any, calls: Counter[str]) -> str:
    """Return the name of one call of the fixture: the test's id, the target, and " #2" for the
    second call on this target.

    Two calls of one test on one model have two entries, or the later would replace the earlier.
    """
    target = _target_suffix(model)
    ordinal = f" #{calls[target]}" if calls[target] > 1 else ""
    return f"{request.node.nodeid}{target}{ordinal}"


def _refuse_used_name(request: pytest.FixtureRequest, name: str, call: str, path: Path) -> None:
    """Raise InputError if another call in this test run already uses the budget name in the same
    baseline file.
    """
    from crossflops.errors import InputError

    owners = request.config.stash.setdefault(_OWNERS, {})
    owner = owners.setdefault((path, name), call)
    if owner != call:
        raise InputError(
            f"{call} and {owner} use the same budget name {name!r}",
            'give each budget its own name, such as name="decoder"',
        )


def _make_call_budget(model: Any, rules: Any, name: str, options: dict[str, Any]) -> "Budget":
    """Return the budget of one call of the fixture, from its rules and options. Raises InputError
    if they are invalid.
    """
    import msgspec

    from crossflops.errors import InputError
    from crossflops.verbs.budget_configuration import make_budget

    strays = [repr(rule) for rule in rules if not isinstance(rule, str)]
    if strays or "rules" in options:
        wrong = (
            f"a rule must be a text, got {strays[0]}"
            if strays
            else "flops_budget has no argument rules="
        )
        raise InputError(wrong, _RULES_HINT)
    is_target = isinstance(model, str)
    has_parts = any(key in options for key in ("modules", "operators"))
    if not rules and not has_parts:
        raise InputError("flops_budget has no rule to check", _RULES_HINT)
    provided = {**({"rules": rules} if rules else {}), **options}
    budget = make_budget(name, model if is_target else name, provided, "the call of flops_budget")
    return msgspec.structs.replace(budget, model=None if is_target else model, origin="pytest")


def _ignore_progress(_: str) -> None:
    """Do nothing with a progress message."""


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Write, after the tests, how much each passed budget saved since its baseline."""
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
