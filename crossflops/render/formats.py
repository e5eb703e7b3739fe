"""Write a result in a file format: one function for each format.

`@file_format(".md")` over a function is all that a format needs: `-o FILE.md` then has it write.
"""

import hashlib
import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from csv import writer
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar
from xml.etree import ElementTree

import msgspec

from crossflops.errors import UnknownNameError
from crossflops.files import COMPRESSED, gzip_bytes
from crossflops.ir.device import Derivation, DeviceList, DeviceSheet
from crossflops.ir.measurement import Measurement
from crossflops.ir.profile import Failure
from crossflops.ir.profile import Profile as Answer
from crossflops.ir.reconciliation import Cause
from crossflops.render.latex import latex
from crossflops.render.layout import ShowableResult, page_without_figures
from crossflops.render.page import Block, Code, Command, Figure, Heading, Table, Text, Title
from crossflops.render.pages.against import COLUMNS, layer_pair_csv_rows
from crossflops.render.pages.bench import BenchView
from crossflops.render.pages.budgets import budget_failure_text, budget_rule_text
from crossflops.render.pages.inventory import ToolList
from crossflops.render.pages.papers import paper_table_heads, paper_table_rows
from crossflops.render.pages.places import ComparisonView
from crossflops.render.pages.profile import ProfileView
from crossflops.render.pages.summary import Unit
from crossflops.render.pages.sweep import SWEEP_HEADS, sweep_cells
from crossflops.render.pages.view import ReportTable
from crossflops.render.terminal import escape_control_chars, plain_page_text
from crossflops.report.audit import Audit
from crossflops.report.bench import Bench
from crossflops.report.budgets import Check, Checks
from crossflops.report.comparison import Against
from crossflops.report.difference import Difference
from crossflops.report.efficiency import EfficiencyReport, rooflines
from crossflops.report.identification import Identification
from crossflops.report.machine import Machine
from crossflops.report.matches import Matches
from crossflops.report.papers import PaperTable
from crossflops.report.profile import TrainingProfile
from crossflops.report.recorded import UNCOUNTED
from crossflops.report.report import Report
from crossflops.report.sweep import Sweep
from crossflops.report.view import view as view_table
from crossflops.rules.conditions import Condition
from crossflops.rules.rule import Convention, formula_equation


class Renderer(Protocol):
    """A function that returns a result as text in one format; `unit` sorts the operators."""

    def __call__(self, content: ShowableResult, /, unit: Unit = "macs") -> str:
        """Return a result as the text of a file, ending with a newline."""
        ...


FORMATS: dict[str, Renderer] = {}
PARQUET = ".parquet"  # which is no text
_Renderer = TypeVar("_Renderer", bound=Renderer)


def file_format(suffix: str) -> Callable[[_Renderer], _Renderer]:
    """Return a decorator that registers a function as the writer of files with this suffix."""

    def register_renderer(renderer: _Renderer) -> _Renderer:
        """Register the function as the writer of files with this suffix, and return it."""
        FORMATS[suffix] = renderer
        return renderer

    return register_renderer


def file_suffixes() -> tuple[str, ...]:
    """Return the suffixes of all files that a result can be written to."""
    return (*FORMATS, PARQUET)


def format_suffix(file: Path) -> str:
    """Return the part of a file name that decides its format, in lower case, such as ".json.gz".

    >>> format_suffix(Path("a.b/resnet.v2.JSON.gz"))
    '.json.gz'
    >>> format_suffix(Path("resnet.v2.md")), format_suffix(Path("resnet"))
    ('.md', '')
    """
    ends = file.suffixes[-2:] if file.suffix.lower() == COMPRESSED else file.suffixes[-1:]
    return "".join(ends).lower()


def content_file_bytes(content: ShowableResult, file: Path, unit: Unit = "macs") -> bytes:
    """Return a result as the bytes of a file, in the format of the file name's suffix."""
    end = format_suffix(file)
    if end == PARQUET:
        from crossflops.render.parquet import encode_parquet

        table = main_table(content, unit)
        return encode_parquet(table.heads, table.rows)
    data = FORMATS[end](content, unit=unit).encode()
    return gzip_bytes(data) if end.endswith(COMPRESSED) else data


# JSON: the contract `crossflops/1` of a report, and the plain values of every other noun.


@file_format(".json")
def json(content: ShowableResult, unit: Unit = "macs") -> str:
    """Return a result as indented JSON, with counts as exact integers and a newline at the end.

    `unit` has no effect: the schema fixes the order of the rows, and every row has all units.
    """
    if isinstance(content, ComparisonView | BenchView):
        content = content.report if isinstance(content, ComparisonView) else content.bench
    if isinstance(content, ProfileView):
        content = content.profile
    if isinstance(content, Report | ReportTable | Bench | EfficiencyReport | TrainingProfile):
        return content.to_json()
    plain = msgspec.json.encode(content, enc_hook=_encode_rule_value)
    return msgspec.json.format(plain, indent=2).decode() + "\n"


def _encode_rule_value(value: object) -> str:
    """Return a rule's condition or formula as text, which JSON can contain."""
    if isinstance(value, Condition):
        return str(value)
    if callable(value):
        return formula_equation(value)
    raise NotImplementedError(f"{type(value).__name__} has no place in JSON")


# Markdown, with tables as GitHub reads them.

_SPECIAL = re.compile(r"(https?://[^\s|<>]+)|([\\`*_\[\]<>|#~])")


@file_format(".md")
def markdown(content: ShowableResult, unit: Unit = "macs") -> str:
    """Return the page of a result as Markdown, with all columns and a newline at the end."""
    blocks = [
        block for block in page_without_figures(content, unit).blocks if _is_nonempty_block(block)
    ]
    return "\n\n".join(map(_block_to_markdown, blocks)) + "\n"


def _is_nonempty_block(block: Block) -> bool:
    """Return whether a block of a page has content: False only for a table without rows."""
    return not isinstance(block, Table) or bool(block.rows)


def _block_to_markdown(block: Block) -> str:
    """Return a block of a page as Markdown."""
    match block:
        case Title(parts):
            return (
                f"# {_escape_markdown(parts[0])}\n\n{' · '.join(map(_escape_markdown, parts[1:]))}"
            )
        case Heading(text):
            return f"## {_escape_markdown(text)}"
        case Text(text, mark):
            bullet = mark.strip() == "-"
            lead = "- " if bullet else f"{_escape_markdown(mark)} " if mark.strip() else ""
            return f"{lead}{_escape_markdown(text)}"
        case Code(text):
            return f"```python\n{text.strip()}\n```"
        case Command(text, mark):
            lead = f"{_escape_markdown(mark)}\n\n" if mark.strip() else ""
            return f"{lead}```\n{escape_control_chars(text)}\n```"
        case Table():
            return _table_to_markdown(block)
        case Figure(instead=words):
            return "\n\n".join(map(_block_to_markdown, words))


def _table_to_markdown(table: Table) -> str:
    """Return a table as Markdown, with "

    " between its columns.
    """
    heads = [_escape_markdown(column.head) for column in table.columns]
    rules = ["---:" if column.right else "---" for column in table.columns]
    rows = [[_markdown_cell(cell) for cell in row.cells] for row in table.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rules, *rows))


def _markdown_cell(cell: str) -> str:
    """Return a table cell as Markdown, in which leading spaces stay visible."""
    return "&nbsp;" * (len(cell) - len(cell.lstrip(" "))) + _escape_markdown(cell)


def _escape_markdown(text: str) -> str:
    """Return the text with the characters of Markdown syntax escaped, except in links."""
    plain = escape_control_chars(" ".join(text.split()))
    return _SPECIAL.sub(lambda match: match[1] or f"\\{match[2]}", plain)


file_format(".txt")(plain_page_text)


@file_format(".tex")
def tex(content: ShowableResult, unit: Unit = "macs") -> str:
    """Return the page of a result as LaTeX: tables (booktabs), with the texts as notes below."""
    return latex(page_without_figures(content, unit))


# HTML: a document by itself.


@file_format(".html")
def html_page_file(content: ShowableResult, unit: Unit = "macs") -> str:
    """Return a result as an HTML file that works offline, with pictures and expandable tables."""
    from crossflops.render.html import html_document  # figures, which no other format needs

    return html_document(content, unit)


# CSV: one table, with the raw integers, as RFC 4180 has it but for the line ends of Unix.

_COMPARISON = (
    "tool", "version", "printed_as", "total", "native_macs", "delta", "residual", "failure",
)  # fmt: skip


@file_format(".csv")
def csv(content: ShowableResult, unit: Unit = "macs") -> str:
    """Return a result's main table as CSV, as `main_table` has it.

    Raises UnknownNameError for a noun that is no one table.
    """
    table = main_table(content, unit)
    return _csv_text(table.heads, table.rows)


class MainTable(NamedTuple):
    """The heads of the columns, and the cells of each row: texts and numbers, exact."""

    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]


def main_table(content: ShowableResult, unit: Unit = "macs") -> MainTable:
    """Return a result's main table: operators of a report, tools of a comparison, ...

    With a convention that looks at calls, a report gives its modules.

    There is no line for the whole model: the reader adds up. Raises UnknownNameError for a
    noun that is no one table.
    """
    match content:
        case ReportTable(view=view):
            return _build_table(view.columns, view.rows)
        case ComparisonView(report=report):
            return main_table(report, unit)
        case Report(against=Against(alignment=aligned)):
            return _build_table(COLUMNS, layer_pair_csv_rows(aligned))
        case Report(profiles=tuple(profiles)):
            return _build_table(
                _COMPARISON, (_tool_csv_cells(content, answer) for answer in profiles)
            )
        case Report():
            nodes = all(fold.sees == "node" for fold in content.folds)
            table = view_table(content, "op" if nodes else "module", unit=unit)
            return _build_table(table.columns, table.rows)
        case BenchView(bench=bench) | (Bench() as bench):
            return _struct_table(
                bench.profile.kernels if bench.profile else _bench_measurements(bench)
            )
        case ProfileView(profile=profile) | (TrainingProfile() as profile):
            return _struct_table(profile.modules)
        case EfficiencyReport():
            bounds = [node for roof in rooflines(content) for node in roof.nodes]
            return _struct_table(bounds or content.phases or content.efficiency)
        case DeviceSheet():
            return _struct_table(content.peaks)
        case DeviceList():
            return _struct_table([row.device for row in content.devices])
        case Derivation():
            return _struct_table(content.factors)
        case ToolList():
            return _struct_table(content.tools)
        case Checks():
            return _struct_table(content.checks)
        case Identification():
            return _struct_table(content.candidates)
        case Audit():
            return _struct_table(content.rows)
        case Difference():
            return _struct_table(content.modules or content.nodes)
        case Cause():
            return _struct_table([content])
        case Matches(causes=causes):
            return _struct_table(causes)
        case Convention(rules=rules):
            return _struct_table(rules)
        case Machine():
            return _build_table(("device", "precision", "peak"), _machine_peak_rows(content))
        case Sweep():
            return _build_table(SWEEP_HEADS, map(sweep_cells, content.rows))
        case PaperTable():
            return _build_table(paper_table_heads(content), paper_table_rows(content))
    raise UnknownNameError(
        "a .csv or .parquet file contains one table, and a "
        f"{type(content).__name__.lower()} has more than one table",
        "choose a file name that ends in .md, .txt or .json",
    )


def _tool_csv_cells(report: Report, answer: Answer | Failure) -> tuple[Any, ...]:
    """Return the CSV cells of a tool: name, version, totals, difference, residual, error."""
    if isinstance(answer, Failure):
        return (
            answer.tool,
            "",
            "",
            "",
            report.compared,
            "",
            "",
            f"{answer.stage}: {answer.message}",
        )
    account = report.reconciliation(answer.tool)
    figures = (answer.total, account.ours, account.delta, account.residual)
    return (answer.tool, answer.version, answer.printed_as, *figures, "")


def _bench_measurements(bench: Bench) -> tuple[Measurement, ...]:
    """Return the batch sizes of a bench report that ran, with their times."""
    return tuple(timing for timing in bench.curve if isinstance(timing, Measurement))


def _machine_peak_rows(machine: Machine) -> Iterable[tuple[str, str, float]]:
    """Yield (device, precision, peak in FLOP/s) of each device of a machine, then the measured
    peaks.
    """
    measured = {"measured": machine.measured.peaks} if machine.measured else {}
    for device, peaks in {**machine.peaks, **measured}.items():
        for precision, peak in peaks.items():
            yield device, precision, peak


def _build_table(heads: Iterable[str], rows: Iterable[Iterable[Any]]) -> MainTable:
    """Return a table of these heads and rows."""
    return MainTable(tuple(heads), [tuple(row) for row in rows])


def _struct_table(rows: Sequence[msgspec.Struct]) -> MainTable:
    """Return structs of one class as a table: a row for each, a column for each field.

    What is a list stands in one cell, what has parts as JSON.
    """
    plain = [msgspec.to_builtins(row, enc_hook=_encode_rule_value) for row in rows]
    heads = list(dict.fromkeys(head for row in plain for head in row))
    return _build_table(heads, ([_csv_value(row.get(head)) for head in heads] for row in plain))


def _csv_value(value: Any) -> Any:
    """Return a value as a CSV cell: a dict as JSON, a list as texts joined by "; "."""
    if isinstance(value, dict) or (isinstance(value, list) and any(map(_is_json_object, value))):
        return msgspec.json.encode(value).decode()
    return "; ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _is_json_object(value: Any) -> bool:
    """Return whether the value is a dict, which JSON calls an object."""
    return isinstance(value, dict)


def _csv_text(heads: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return CSV text: a line of column heads, then the rows."""
    out = StringIO()
    table = writer(out, lineterminator="\n")
    table.writerow(heads)
    table.writerows(rows)
    return out.getvalue()


file_format(".json.gz")(json)


# JUnit: budgets as test cases, which every CI server shows: a suite for each model.


def code_quality(content: Checks, folder: str = "") -> str:
    """Return the budget rules that fail as JSON in GitLab's Code Quality format.

    `folder` is that of the check, as seen from the root of the repository.
    """
    rows = [
        {
            "description": escape_control_chars(budget_failure_text(check)),
            "check_name": "crossflops",
            "fingerprint": _failure_fingerprint(check),
            "severity": "critical" if check.error else "major",
            "location": {
                "path": posixpath.normpath(posixpath.join(folder, check.file or check.target)),
                "lines": {"begin": check.line or 1},
            },
        }
        for check in content.checks
        if not check.holds
    ]
    return msgspec.json.format(msgspec.json.encode(rows), indent=2).decode() + "\n"


def _failure_fingerprint(check: Check) -> str:
    """Return a hash that identifies a budget rule; it is the same in each run."""
    text = "\0".join((check.file, check.target, check.part, check.rule))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def junit(content: Checks) -> str:
    """Return the budget rules as JUnit XML: a `testcase` each, with a `failure` if it fails.

    A target without a rule is a test case that was skipped.
    """
    root = ElementTree.Element("testsuites", name="crossflops check")
    for target, checks in groupby(content.checks, key=lambda check: check.target):
        _add_junit_suite(root, target, list(checks))
    for target in content.unbudgeted:
        name = escape_control_chars(target)
        suite = ElementTree.SubElement(root, "testsuite", name=name, tests="1",
                                       failures="0", skipped="1")  # fmt: skip
        case = ElementTree.SubElement(
            suite, "testcase", classname=escape_control_chars(target), name="budget"
        )
        ElementTree.SubElement(case, "skipped", message="no budget is set")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_junit_suite(root: ElementTree.Element, target: str, checks: Iterable[Check]) -> None:
    """Add the budget rules of one target to a JUnit XML tree, as a `testsuite`."""
    rows = list(checks)
    errors = sum(bool(check.error) for check in rows)
    failed = sum(not check.holds for check in rows) - errors
    name = escape_control_chars(target)
    suite = ElementTree.SubElement(root, "testsuite", name=name, tests=str(len(rows)),
                                   failures=str(failed), errors=str(errors))  # fmt: skip
    for check in rows:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            classname=escape_control_chars(target),
            name=escape_control_chars(budget_rule_text(check)),
        )
        if not check.holds:
            verdict = "error" if check.error else "failure"
            unseen = check.uncounted or check.grew_in == UNCOUNTED
            kind = "error" if check.error else "uncounted" if unseen else "limit"
            ElementTree.SubElement(
                case, verdict, type=kind, message=escape_control_chars(budget_failure_text(check))
            )
        if check.moved_from:
            moved = f"moved from {escape_control_chars(check.moved_from)}"
            ElementTree.SubElement(case, "system-out").text = moved
