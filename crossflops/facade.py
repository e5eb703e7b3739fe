"""The results of the public API: the nouns of `report` that show themselves and answer questions.

In: a plain report, an efficiency, a bench, a table, a cause. Out: the same values, whose `print`
is the page and whose HTML a notebook shows. May import: render, report, rules, ir, errors, which
pass the plain nouns.
"""

from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec.structs import asdict

from crossflops.errors import MissingExtraError, UnknownNameError
from crossflops.ir.device import DeviceList, DeviceSheet
from crossflops.ir.reconciliation import Cause
from crossflops.report.audit import Audit
from crossflops.report.bench import Bench
from crossflops.report.budgets import Checks
from crossflops.report.difference import Difference
from crossflops.report.efficiency import EfficiencyReport
from crossflops.report.identification import Identification
from crossflops.report.machine import Machine
from crossflops.report.matches import Matches
from crossflops.report.papers import PaperTable
from crossflops.report.profile import ShownDepth, TrainingProfile
from crossflops.report.report import Report
from crossflops.report.sweep import Sweep
from crossflops.report.view import By, TableView, restrict_to_module, view
from crossflops.rules.rule import Convention

if TYPE_CHECKING:
    from crossflops.render.pages.nouns import ShowableResult


class ShownResult:
    """A result that prints as its page, and can be saved in any format."""

    __slots__ = ()

    def save(self, path: str | Path) -> Path:
        """Write the result to a file, in the format of its suffix: .json, .md, .csv, .tex ...

        Returns:
            The path.

        Raises:
            UnknownNameError: The suffix names no format.
        """
        from crossflops.render.formats import content_file_bytes, file_suffixes, format_suffix

        file = Path(path)
        if format_suffix(file) not in file_suffixes():
            raise UnknownNameError(
                f"{file} does not end in the suffix of a known format",
                f"end the file name with one of {', '.join(file_suffixes())}",
            )
        file.write_bytes(content_file_bytes(cast("ShowableResult", self), file))
        return file

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain dicts and lists: the JSON that the command writes."""
        from crossflops.render.formats import FORMATS

        plain: dict[str, Any] = msgspec.json.decode(FORMATS[".json"](cast("ShowableResult", self)))
        return plain

    def to_pandas(self) -> Any:
        """Return the main table of the result, as `save("FILE.csv")` writes it, as a
        pandas.DataFrame.

        Counts stay integers. Raises MissingExtraError without pandas.
        """
        from crossflops.render.formats import main_table

        table = main_table(cast("ShowableResult", self))
        return build_data_frame(table.heads, table.rows)

    def _repr_html_(self) -> str:
        """Return the page as an HTML fragment; notebooks call this to display it."""
        from crossflops.render.html import html

        return html(cast("ShowableResult", self))

    def __str__(self) -> str:
        """Return the page, as a terminal shows it."""
        from crossflops.render.terminal import (
            terminal_page_text,
        )  # `--help` imports this file, no renderer

        return terminal_page_text(cast("ShowableResult", self))


def build_data_frame(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> Any:
    """Return a pandas.DataFrame of these rows. Raises MissingExtraError without pandas."""
    try:
        pandas = import_module("pandas")
    except ImportError as error:
        raise MissingExtraError("pandas is not installed", "pip install pandas") from error
    return pandas.DataFrame(list(rows), columns=list(heads))


class ShownReport(ShownResult, Report, frozen=True, kw_only=True):
    """A report that prints as its page: the result of `count` and `compare`, `crossflops.Report`.

    Its fields and derived values are those of `crossflops.report.report.Report`.

    Attributes:
        schema: The version of the JSON contract.
        model: The model that was counted.
        totals: The totals of the whole model.
        macs_by_precision: The MACs by the precision of the contraction.
        as_: The count under the first requested convention.
        as_also: The counts under further conventions.
        uncounted: The nodes without a count, each with the reason.
        by_op: A row for each operator.
        modules: A row for each module with all beneath it.
        nodes: A row for each node.
        memory: The bytes that the model moves and holds.
        per_token: The work for one token of a language model.
        setting: The way in which the model was run.
        profiles: The answers of the tools, or their failures.
        reconciliations: The account of each tool that answered.
        branches: The counted branch of each If.
        formulas: The totals as polynomials in sizes.
        observed: The run that sizes come from.
        between: The difference between two tools.
        module: The module that the rows are restricted to.
        consensus: The number to publish, in a sentence.
        request: The request, as it can be repeated.
        made_with: The versions of the software.
        weights: Whether the model had values in its weights, and why.
        against: The comparison with a second model.
        against_modules: The modules of the second model.
        against_nodes: The nodes of the second model.
        training: The training step.
        custom_operators: The operators that formulas of one's own, or their own bodies, count.
        llm: What formulas over the architecture of a language model give for the same step.
        workload: The prefill and the decoding steps of a language model that generates.
        parts: The models of a pipeline, with the amounts of one run of each.
        warnings: Sentences that the reader of the count should know.

    Example:
        >>> import crossflops
        >>> report = crossflops.count("model.onnx")
        >>> [(row.op, row.macs, row.flops) for row in report.by_op]
        [('MatMul', 64, 128), ('Relu', 0, 8)]
        >>> report.save("report.json").name
        'report.json'
    """

    @classmethod
    def of(cls, report: Report) -> "ShownReport":
        """Return a copy of the report that prints as its page and displays itself in a
        notebook.
        """
        return cls(**asdict(report))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain dicts and lists, by the schema `crossflops/1`."""
        return Report.to_dict(self)

    def at(self, path: str) -> "ShownReport":
        """Return the report of one module with its submodules, by the path of the module, such as
        "layer1.0".

        Raises UnknownNameError where there is no such module.
        """
        return restrict_to_module(self, path)

    def view(
        self, by: By = "op", top: int | None = None, depth: int | None = None, unit: str = "macs"
    ) -> TableView:
        """Return one table of the report, with a row for each operator, module, node or module
        class.

        By "op" (ONNX operator), "module" (the tree of modules, each with all beneath it; `depth`
        levels of it), "node" (graph nodes, in their order) or "type" (class of the innermost
        module around a node). `top` keeps the largest rows, by the first convention if one was
        asked for, else by `unit`. Raises InputError for what does not go together.
        """
        return view(self, by, top, depth, unit)

    def plot(self, path: str | Path) -> Path:
        """Write a picture of a comparison, .svg or .png: a waterfall for each tool, or bars if the
        file name begins with "bars".

        Returns:
            The path.

        Raises:
            InputError: The report has no tool that differs.
            UnknownNameError: The suffix names no format of a picture.
            MissingExtraError: A PNG needs matplotlib, which is not installed.
        """
        from crossflops.render.figures.results import comparison_picture

        file = Path(path)
        file.write_bytes(comparison_picture(self, file))
        return file

    def to_pandas(self, by: By = "module", **options: Any) -> Any:
        """Return one table of the report as a pandas.DataFrame: `view` says what `by` and
        `options` are.

        Counts stay integers. Raises MissingExtraError without pandas.
        """
        table = self.view(by, **options)
        return build_data_frame(table.columns, table.rows)


class ShownBench(ShownResult, Bench, frozen=True, kw_only=True):
    """A bench with its page: the result of `crossflops.bench`."""

    @classmethod
    def of(cls, bench: Bench) -> "ShownBench":
        """Return a copy of the bench result that prints as its page."""
        return cls(**asdict(bench))

    def plot(self, path: str | Path) -> Path:
        """Write a picture of the examples per second for each batch size, .svg or .png.

        Returns:
            The path.

        Raises:
            InputError: Nothing ran.
        """
        from crossflops.render.figures.results import batch_curve_picture

        file = Path(path)
        file.write_bytes(batch_curve_picture(self, file))
        return file


class ShownIdentification(ShownResult, Identification, frozen=True, kw_only=True):
    """An identified figure with its page: the result of `crossflops.identify`."""


class ShownAudit(ShownResult, Audit, frozen=True, kw_only=True):
    """An audited table with its page: the result of `crossflops.audit`."""


class ShownProfile(ShownResult, TrainingProfile, frozen=True, kw_only=True):
    """A profile with its page: the result of `crossflops.profile`."""

    @classmethod
    def of(cls, profile: TrainingProfile) -> "ShownProfile":
        """Return a copy of the profile that prints as its page."""
        return cls(**asdict(profile))

    def page(self, depth: int = -1, top: int = 3, detailed: bool = True) -> str:
        """Return the profile as text, with `depth` levels of modules (-1: all) and the `top`
        modules of each level.
        """
        from crossflops.render.pages.profile import ProfileView
        from crossflops.render.terminal import terminal_page_text

        return terminal_page_text(
            ProfileView(self, ShownDepth(depth=depth, top=top, detailed=detailed))
        )


class ShownEfficiency(ShownResult, EfficiencyReport, frozen=True, kw_only=True):
    """An efficiency with its page and its report: the result of `crossflops.efficiency`."""

    report: ShownReport | None = None

    @classmethod
    def of(cls, efficiency: EfficiencyReport) -> "ShownEfficiency":
        """Return a copy of the efficiency report that prints as its page."""
        fields = asdict(efficiency)
        if efficiency.report is not None:
            fields["report"] = ShownReport.of(efficiency.report)
        return cls(**fields)

    def plot(self, path: str | Path) -> Path:
        """Write a picture of the first roofline, .svg or .png.

        Returns:
            The path.

        Raises:
            InputError: The result has no roofline.
        """
        from crossflops.render.figures.results import roofline_picture

        file = Path(path)
        file.write_bytes(roofline_picture(self, file))
        return file


class ShownTable(ShownResult, PaperTable, frozen=True, kw_only=True):
    """A table of models with its page: the result of `crossflops.table`."""


class ShownSweep(ShownResult, Sweep, frozen=True, kw_only=True):
    """The rows of a suite with their page: the result of `crossflops.sweep`."""


class ShownDifference(ShownResult, Difference, frozen=True, kw_only=True):
    """A difference of two models with its page: the result of `crossflops.diff`."""


class ShownChecks(ShownResult, Checks, frozen=True, kw_only=True):
    """Checked budgets with their page: the result of `crossflops.check`."""

    def to_junit(self) -> str:
        """Return the rules as test cases, in JUnit XML."""
        from crossflops.render.formats import junit

        return junit(self)

    def to_code_quality(self, folder: str = "") -> str:
        """Return the broken rules as a GitLab code quality report in JSON; `folder` is that of
        the check, as seen from the root of the repository.
        """
        from crossflops.render.formats import code_quality

        return code_quality(self, folder)


class ShownCause(ShownResult, Cause, frozen=True, kw_only=True):
    """A cause with its page: a result of `crossflops.explain`."""


class ShownMatches(ShownResult, Matches, frozen=True):
    """Causes that match some words, with their page: a result of `crossflops.explain`."""


class ShownConvention(ShownResult, Convention, frozen=True, kw_only=True):
    """The rules of a tool with their page: a result of `crossflops.explain`."""


class ShownDevice(ShownResult, DeviceSheet, frozen=True, kw_only=True):
    """A device with its page: a result of `crossflops.devices`."""


class ShownDevices(ShownResult, DeviceList, frozen=True, kw_only=True):
    """A list of devices with its page: a result of `crossflops.devices`."""


class ShownMachine(ShownResult, Machine, frozen=True, kw_only=True):
    """This machine with its page: a result of `crossflops.devices`."""


_SHOWN: dict[type[Any], type[ShownResult]] = {
    Bench: ShownBench,
    Identification: ShownIdentification,
    Audit: ShownAudit,
    TrainingProfile: ShownProfile,
    PaperTable: ShownTable,
    Sweep: ShownSweep,
    Difference: ShownDifference,
    Checks: ShownChecks,
    Cause: ShownCause,
    Matches: ShownMatches,
    Convention: ShownConvention,
    DeviceSheet: ShownDevice,
    DeviceList: ShownDevices,
    Machine: ShownMachine,
}


def with_page(result: msgspec.Struct) -> Any:
    """Return a copy of a plain result that prints as its page and displays itself in a
    notebook.
    """
    if isinstance(result, Report):
        return ShownReport.of(result)
    if isinstance(result, EfficiencyReport):
        return ShownEfficiency.of(result)
    return _SHOWN[type(result)](**asdict(result))
