"""List all kinds of results that can be shown, each with its page."""

from typing import TypeAlias

from msgspec import UNSET

from crossflops.ir.device import Derivation, DeviceList, DeviceSheet
from crossflops.ir.formula_account import FormulaReport
from crossflops.ir.provenance import RequestRecord
from crossflops.ir.reconciliation import Cause
from crossflops.render.page import Page
from crossflops.render.pages.against import report_comparison_page
from crossflops.render.pages.audit import audit_page
from crossflops.render.pages.bench import BenchView, bench_page
from crossflops.render.pages.budgets import budgets_page
from crossflops.render.pages.devices import (
    derivation_page,
    device_page,
    devices_page,
    machine_page,
)
from crossflops.render.pages.difference import difference_page
from crossflops.render.pages.efficiency import efficiency_page
from crossflops.render.pages.explain import cause_page, convention_page, matches_page
from crossflops.render.pages.formulas import formula_checks_page
from crossflops.render.pages.identify import identification_page
from crossflops.render.pages.inventory import Health, ToolList, health_page, tool_list_page
from crossflops.render.pages.llm import formula_blocks, formula_page
from crossflops.render.pages.papers import paper_page
from crossflops.render.pages.places import ComparisonView
from crossflops.render.pages.profile import ProfileView, profile_page
from crossflops.render.pages.summary import Unit, summary_page
from crossflops.render.pages.sweep import sweep_page
from crossflops.render.pages.view import ReportTable, view_page
from crossflops.report.audit import Audit
from crossflops.report.bench import Bench
from crossflops.report.budgets import Checks
from crossflops.report.difference import Difference
from crossflops.report.efficiency import EfficiencyReport
from crossflops.report.formula_checks import FormulaChecks
from crossflops.report.identification import Identification
from crossflops.report.machine import Machine
from crossflops.report.matches import Matches
from crossflops.report.papers import PaperTable
from crossflops.report.profile import TrainingProfile
from crossflops.report.report import Report
from crossflops.report.sweep import Sweep
from crossflops.rules.rule import Convention

ShowableResult: TypeAlias = (
    Report
    | ReportTable
    | ComparisonView
    | Cause
    | Matches
    | Convention
    | ToolList
    | FormulaChecks
    | Health
    | EfficiencyReport
    | Bench
    | BenchView
    | TrainingProfile
    | ProfileView
    | DeviceSheet
    | DeviceList
    | Derivation
    | Machine
    | PaperTable
    | Identification
    | Audit
    | Difference
    | Checks
    | Sweep
    | Page
)


def content_page(content: ShowableResult, unit: Unit = "macs") -> Page:
    """Return the page of a result of any kind: report, bench, profile, cause, device, ..."""
    match content:
        case Page():
            return content
        case Sweep():
            return sweep_page(content)
        case Cause():
            return cause_page(content)
        case Matches():
            return matches_page(content)
        case Convention():
            return convention_page(content)
        case ToolList():
            return tool_list_page(content)
        case FormulaChecks():
            return formula_checks_page(content)
        case Health():
            return health_page(content)
        case BenchView():
            return bench_page(content.bench, content.top)
        case Bench():
            return bench_page(content)
        case ProfileView():
            return profile_page(content.profile, content.choice)
        case TrainingProfile():
            return profile_page(content)
        case DeviceSheet():
            return device_page(content)
        case DeviceList():
            return devices_page(content)
        case Derivation():
            return derivation_page(content)
        case Machine():
            return machine_page(content)
        case Checks():
            return budgets_page(content)
        case Difference():
            return difference_page(content)
        case PaperTable():
            return paper_page(content)
        case Identification():
            return identification_page(content)
        case Audit():
            return audit_page(content)
        case EfficiencyReport():
            return efficiency_page(content)
        case ReportTable():
            return view_page(content)
        case ComparisonView():
            return report_comparison_page(content.report, unit, content.top)
        case Report(llm=FormulaReport(), request=RequestRecord(verb="compare")):
            return formula_page(content)
        case Report(llm=FormulaReport() as answers):
            return Page((*summary_page(content, unit).blocks, *formula_blocks(answers)))
        case Report():
            return (
                summary_page(content, unit)
                if content.profiles is UNSET
                else report_comparison_page(content, unit)
            )
