"""The results of the public API: the nouns of `report` that show themselves and answer questions.

In: a plain report, an efficiency, a bench. Out: the same values, whose `print` is the page and
whose HTML a notebook shows. May import: render, report, errors, which pass the plain nouns.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import asdict

from crossflops.errors import MissingExtraError, UnknownNameError
from crossflops.report.bench import Bench
from crossflops.report.efficiency import EfficiencyReport
from crossflops.report.profile import ShownDepth, TrainingProfile
from crossflops.report.report import Report
from crossflops.report.view import By, TableView, focus, view

if TYPE_CHECKING:
    from crossflops.render.pages.nouns import Noun


class Shown:
    """A noun that shows itself, as its page, and that is written in any format."""

    __slots__ = ()

    def save(self, path: str | Path) -> Path:
        """Write it in the format of the suffix: .json, .md, .csv, .tex ...

        Returns the path. Raises UnknownNameError for a suffix that names no format.
        """
        from crossflops.render.formats import FORMATS, content_file_bytes, suffix

        file = Path(path)
        if suffix(file) not in FORMATS:
            raise UnknownNameError(
                f"{file} has no suffix of a known format", f"choose one of {', '.join(FORMATS)}"
            )
        file.write_bytes(content_file_bytes(cast("Noun", self), file))
        return file

    def __str__(self) -> str:
        """The page, as a terminal shows it."""
        from crossflops.render.terminal import (
            terminal_page_text,
        )  # `--help` imports this file, no renderer

        return terminal_page_text(cast("Noun", self))


class ShownReport(Shown, Report, frozen=True, kw_only=True):
    """`crossflops.Report`: a report with its page, its tables and its parts."""

    @classmethod
    def of(cls, report: Report) -> "ShownReport":
        """The same report, able to show itself."""
        return cls(**asdict(report))

    def at(self, path: str) -> "ShownReport":
        """The same for one module and what is beneath it, such as "layer1.0".

        Raises UnknownNameError where there is no such module.
        """
        return focus(self, path)

    def view(
        self, by: By = "op", top: int | None = None, depth: int | None = None, unit: str = "macs"
    ) -> TableView:
        """One table of the report.

        By "op" (ONNX operator), "module" (the tree of modules, each with all beneath it; `depth`
        levels of it), "node" (graph nodes, in their order) or "type" (class of the innermost
        module around a node). `top` keeps the largest rows, by the first convention if one was
        asked for, else by `unit`. Raises InputError for what does not go together.
        """
        return view(self, by, top, depth, unit)

    def to_pandas(self, by: By = "module", **options: Any) -> Any:
        """One table of the report as a pandas.DataFrame: `view` says what `by` and `options` are.

        Counts stay integers. Raises MissingExtraError without pandas.
        """
        try:
            pandas = import_module("pandas")
        except ImportError as error:
            raise MissingExtraError("pandas is not installed", "pip install pandas") from error
        table = self.view(by, **options)
        return pandas.DataFrame(list(table.rows), columns=list(table.columns))

    def _repr_html_(self) -> str:
        from crossflops.render.html import html

        return html(self)


class ShownBench(Shown, Bench, frozen=True, kw_only=True):
    """What `crossflops.bench` returns: a bench with its page."""

    @classmethod
    def of(cls, bench: Bench) -> "ShownBench":
        """The same bench, able to show itself."""
        return cls(**asdict(bench))


class ShownProfile(Shown, TrainingProfile, frozen=True, kw_only=True):
    """What `crossflops.profile` returns: a profile with its page."""

    @classmethod
    def of(cls, profile: TrainingProfile) -> "ShownProfile":
        """The same profile, able to show itself."""
        return cls(**asdict(profile))

    def page(self, depth: int = -1, top: int = 3, detailed: bool = True) -> str:
        """The page with so many levels of modules (-1: all), and so many modules at each."""
        from crossflops.render.pages.profile import Profiled
        from crossflops.render.terminal import terminal_page_text

        return terminal_page_text(
            Profiled(self, ShownDepth(depth=depth, top=top, detailed=detailed))
        )


class ShownEfficiency(Shown, EfficiencyReport, frozen=True, kw_only=True):
    """What `crossflops.efficiency` returns: an efficiency with its page, and the shown report."""

    report: ShownReport | None = None

    @classmethod
    def of(cls, efficiency: EfficiencyReport) -> "ShownEfficiency":
        """The same efficiency, able to show itself."""
        fields = asdict(efficiency)
        if efficiency.report is not None:
            fields["report"] = ShownReport.of(efficiency.report)
        return cls(**fields)
