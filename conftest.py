"""Which tests an environment runs, for those of the package and of all plugins.

`-m MARKER` names an environment's tests (tests/selection.py). Files in which no test bears the
marker are not imported then, since what they import is another environment's.
"""

import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.selection import CORE, cases_of, files_of_part, files_of_tests, markers

MISSING = ("could not import", "is not installed", "are not installed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The switch that every environment of tox sets."""
    parser.addoption(
        "--all-installed",
        action="store_true",
        help="all that the tests need is to be installed: one that is skipped without it fails",
    )
    parser.addoption(
        "--one-of",
        type=int,
        default=1,
        metavar="N",
        help="of the cases of each test, run the first of every N, and deselect the others",
    )
    parser.addoption(
        "--part",
        default="1/1",
        metavar="K/N",
        help="run the files of the K-th of N parts, so that N processes can share the tests",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Reject a part that does not exist, before a file is left out."""
    try:
        files_of_part(config.option.part)
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a file of tests without any that bears the marker, or of another part."""
    if not collection_path.match("test_*.py"):
        return None
    others = frozenset(files_of_tests()) - files_of_part(config.option.part)
    if collection_path in others:
        return True
    marker = config.option.markexpr
    if marker not in markers():
        return None
    return all(marker not in test.marks for test in cases_of(collection_path)) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark a test that names no environment as one of the core, before `-m` selects."""
    for item in items:
        if not any(mark.name in markers() for mark in item.iter_markers()):
            item.add_marker(CORE)
    if config.option.one_of > 1:
        _deselect_cases(config, items)


def _deselect_cases(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one of every so many cases of each test, the first among them."""
    seen: Counter[str] = Counter()
    kept, left = [], []
    for item in items:
        test = item.nodeid.partition("[")[0]
        (left if seen[test] % config.option.one_of else kept).append(item)
        seen[test] += 1
    items[:] = kept
    config.hook.pytest_deselected(items=left)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Keep the garbage collector from what the files until now have imported.

    A framework is a million objects, which would be looked through again and again: two thirds of
    the time of a conformance kit.
    """
    if item.session.stash.get(_FILE, None) != item.path:
        item.session.stash[_FILE] = item.path
        gc.collect()
        gc.freeze()


_FILE = pytest.StashKey[Path]()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Iterator[None]:
    """Let a file that is skipped for want of a package fail."""
    report = yield
    _insist(report, collector.config)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Let a test that is skipped for want of a package fail."""
    report = yield
    _insist(report, item.config)
    return report


def _insist(report: pytest.CollectReport | pytest.TestReport, config: pytest.Config) -> None:
    if not (config.option.all_installed and report.skipped and isinstance(report.longrepr, tuple)):
        return
    path, line, reason = report.longrepr
    if any(words in reason for words in MISSING):
        report.outcome = "failed"
        report.longrepr = f"{path}:{line}: {reason}, and this environment is to have it"
