"""JUnit: budgets as test cases, which every CI server shows: a suite for each model."""

from collections.abc import Iterable
from itertools import groupby
from xml.etree import ElementTree

from crossflops.render.pages.budgets import failure
from crossflops.render.terminal import inert
from crossflops.report.budgets import Check, Checks


def junit(noun: Checks) -> str:
    """The rules as XML that ends with a newline: a `testcase` each, with a `failure` if it fails.

    A target without a rule is a test case that was skipped.
    """
    root = ElementTree.Element("testsuites", name="crossflops check")
    for target, checks in groupby(noun.checks, key=lambda check: check.target):
        _suite(root, target, list(checks))
    for target in noun.unbudgeted:
        suite = ElementTree.SubElement(root, "testsuite", name=inert(target), tests="1",
                                       failures="0", skipped="1")  # fmt: skip
        case = ElementTree.SubElement(suite, "testcase", classname=inert(target), name="budget")
        ElementTree.SubElement(case, "skipped", message="there is no budget")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ElementTree.Element, target: str, checks: Iterable[Check]) -> None:
    rows = list(checks)
    failed = sum(not check.holds for check in rows)
    suite = ElementTree.SubElement(root, "testsuite", name=inert(target), tests=str(len(rows)),
                                   failures=str(failed))  # fmt: skip
    for check in rows:
        case = ElementTree.SubElement(
            suite, "testcase", classname=inert(target), name=inert(check.rule)
        )
        if not check.holds:
            ElementTree.SubElement(case, "failure", message=inert(failure(check)))
