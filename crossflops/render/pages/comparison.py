"""Build the page of a comparison: what each tool prints, why, and which number to publish.

That number is the native MACs, worded so that they can be cited and checked.
"""

from fractions import Fraction
from math import isfinite
from re import escape, sub

from msgspec import UNSET
from msgspec.structs import replace

from crossflops.errors import UnknownNameError
from crossflops.ir.profile import Amount, Failure, Profile
from crossflops.ir.reconciliation import ParamsReconciliation, PathRow, Reconciliation
from crossflops.ir.trace import Kernel, Setting
from crossflops.render.page import (
    Block,
    Column,
    Command,
    Figure,
    Heading,
    Page,
    Row,
    Table,
    Text,
    Tone,
    number_columns,
)
from crossflops.render.pages.places import (
    TOP,
    cause_title,
    explanation_table,
    first_calls_text,
    largest_disagreement_blocks,
)
from crossflops.render.pages.summary import (
    Unit,
    input_value_notes,
    model_title,
    module_and_node_figures,
    nodes_without_cost,
    training_step_blocks,
)
from crossflops.report.comparison import (
    Consensus,
    Contrast,
    Stand,
    ToolDifference,
)
from crossflops.report.quantity import (
    amount_with_sign,
    count_with_noun,
    exact_amount,
    explanation_percent,
    percent_change,
    short_amount,
    term_with_sign,
    version_without_suffix,
)
from crossflops.report.report import Report
from crossflops.rules.rule import Convention
from crossflops.tools.registry import find_convention

# Two tools set against each other: every reason why they differ.


def contrast_blocks(contrast: Contrast) -> list[Block]:
    """Return the blocks of the difference between two tools: heading, waterfall, causes."""
    blocks: list[Block] = [
        Heading(f"{contrast.second} = {contrast.first}{term_with_sign(contrast.delta)}"),
        Figure("waterfall", contrast),
        _contrast_table(contrast),
    ]
    if contrast.unit > 1:
        note = (
            f"both tools count {contrast.unit} or more for a multiply-accumulate, and so "
            "do these amounts"
        )
        blocks.append(Text(note, "   ", "dim"))
    return blocks


def _contrast_table(contrast: Contrast) -> Table:
    """Return a table of the causes by which two tools differ, and a row of the residual."""
    rows = [_tool_difference_row(cause) for cause in contrast.differences]
    rows.append(
        Row.from_cells(
            "residual",
            amount_with_sign(contrast.residual),
            *("" for _ in range(6)),
            tone="bad" if contrast.residual else "good",
        )
    )
    return Table(
        columns=(
            Column(head="cause"),
            Column(head="amount", right=True),
            Column(head=contrast.first, right=True, spare=2),
            Column(head=contrast.second, right=True, spare=1),
            Column(head="from", spare=3),
            Column(head="what", flows=True, spare=4),
            Column(head=f"where in {contrast.first}", flows=True, detail=True),
            Column(head=f"where in {contrast.second}", flows=True, detail=True),
        ),
        rows=tuple(rows),
    )


def _tool_difference_row(row: ToolDifference) -> Row:
    """Return the row of a cause by which two tools differ: amounts, calls, module paths."""
    calls = max(len(row.first_calls), len(row.second_calls))
    return Row.from_cells(
        row.cause,
        amount_with_sign(row.amount),
        amount_with_sign(row.first),
        amount_with_sign(row.second),
        count_with_noun(calls, "call") if calls else "",
        cause_title(row.cause),
        first_calls_text(row.first_calls),
        first_calls_text(row.second_calls),
    )


# The tools' numbers of parameters beside ours, and why they differ.

NOTE = "the same as the native count"


def parameter_differences(report: Report) -> list[Block]:
    """Return a table on tools that count other parameters than native; [] if none does."""
    counting = [
        answer
        for answer in report.profiles or ()
        if isinstance(answer, Profile) and answer.params is not None
    ]
    others = [profile for profile in counting if profile.params != report.params]
    if not others:
        return []
    rows = [row for profile in others for row in _parameter_cause_rows(report, profile)]
    agree = [profile.tool for profile in counting if profile.params == report.params]
    columns = (
        Column(head="tool"),
        Column(head="parameters", right=True),
        Column(head="vs native", right=True, spare=2),
        Column(head="cause"),
        Column(head="amount", right=True),
        Column(head="what", flows=True, spare=1),
        Column(head="which", flows=True, detail=True),
    )
    blocks: list[Block] = [
        Heading(f"Parameters: native {exact_amount(report.params)}"),
        Table(columns=columns, rows=tuple(rows)),
    ]
    if agree:
        blocks.append(Text(f"{NOTE}: {', '.join(agree)}", "   ", "dim"))
    return blocks


def _parameter_cause_rows(report: Report, profile: Profile) -> list[Row]:
    """Return rows, by cause, on why a tool counts another number of parameters than native."""
    other = profile.params or 0
    head = (profile.tool, exact_amount(other), percent_change(other, report.params))
    try:
        account = report.reconciliation(profile.tool).params
    except KeyError:
        account = None
    if not isinstance(account, ParamsReconciliation):
        reason = "not explained here"
        return [Row.from_cells(*head, "-", amount_with_sign(other - report.params), reason, "")]
    tails = [
        (
            row.cause,
            amount_with_sign(row.amount),
            cause_title(row.cause),
            first_calls_text(row.parameters),
        )
        for row in sorted(account.explanations, key=lambda row: -abs(row.amount))
    ]
    if account.residual:
        tails.append(("residual", amount_with_sign(account.residual), "", ""))
    heads = [head, *([("", "", "")] * (len(tails) - 1))]
    return [
        Row.from_cells(*first, *rest, tone="bad" if rest[0] == "residual" else "")
        for first, rest in zip(heads, tails, strict=True)
    ]


# Which fused kernels ran while a tool counted, and what hooks change about it.

DIGEST_DIGITS = 12  # of the digest of a formula
_SHOWN = 3  # kernels that are named before the rest is only numbered


def kernel_run_lines(profile: Profile) -> list[str]:
    """Return a line on the fused kernels that ran under the tool, in a list; [] if none ran."""
    if not profile.kernels:
        return []
    rest = len(profile.kernels) - _SHOWN
    more = [f"and {count_with_noun(rest, 'kernel')} more"] if rest > 0 else []
    where = "; ".join([*map(_kernel_clause, profile.kernels[:_SHOWN]), *more])
    return [f"in {_setting_words(profile.setting)} {where}"]


def _setting_words(setting: Setting) -> str:
    """Return a setting as words: training or evaluation, without gradients, with hooks.

    >>> _setting_words(Setting(grad=False, hooked=True)), _setting_words(Setting(training=True))
    ('evaluation without gradients, with hooks,', 'training')
    """
    mode = "training" if setting.training else "evaluation"
    mode += "" if setting.grad else " without gradients"
    return f"{mode}, with hooks," if setting.hooked else mode


def _kernel_clause(kernel: Kernel) -> str:
    """Return a clause on a kernel: its name, how often it ran, and in which modules.

    >>> _kernel_clause(Kernel("aten._native_multi_head_attention.default", 3, ("a", "b")))
    'aten._native_multi_head_attention ran 3 times in 2 modules (a, and 1 more)'
    """
    owners = tuple(path or "the model" for path in kernel.modules)
    often = f"{kernel.times} times " if kernel.times != len(owners) else ""
    name = kernel.name.removesuffix(".default")
    modules = count_with_noun(len(owners), "module")
    return f"{name} ran {often}in {modules} ({first_calls_text(owners)})"


def lines_on_kernel_changes_by_hooks(profiles: tuple[Profile, ...]) -> list[str]:
    """Return a line for each setting in which other kernels run if modules have hooks."""
    by_tool: dict[str, dict[bool, list[Profile]]] = {}
    for profile in profiles:
        if isinstance(profile.kernels, tuple):
            plain = _setting_words(replace(profile.setting, hooked=False))
            by_tool.setdefault(plain, {}).setdefault(bool(profile.setting.hooked), []).append(
                profile
            )
    return [
        f"hooks change which kernels run in {setting}: {_kernel_names_text(both[True])} with "
        f"hooks, {_kernel_names_text(both[False])} without"
        for setting, both in by_tool.items()
        if len(both) == 2 and _kernel_run_counts(both[True]) != _kernel_run_counts(both[False])
    ]


def _kernel_run_counts(profiles: list[Profile]) -> dict[str, int]:
    """Return the number of runs by kernel name, from the first of these tool results."""
    return {kernel.name: kernel.times for kernel in profiles[0].kernels or ()}


def _kernel_names_text(profiles: list[Profile]) -> str:
    """Return a text of the fused kernels with their numbers of runs, and of the tools."""
    kernels = _kernel_run_counts(profiles)
    ran = ", ".join(f"{name.removesuffix('.default')} x{n}" for name, n in kernels.items())
    return f"{ran or 'no fused kernel'} ({', '.join(profile.tool for profile in profiles)})"


LOCATED = 5  # places of a residual that are named
MARK = "*"


def tool_comparison_page(report: Report, unit: Unit = "macs", top: int = TOP) -> Page:
    """Return the page of a comparison of tools: overview, causes of each tool, failures.

    `top` is the number of modules that are shown, of those where the tools disagree most.
    """
    answers = _profiles_to_show(report)
    failures = tuple(answer for answer in report.profiles or () if isinstance(answer, Failure))
    blocks: list[Block] = [model_title(report), Figure("cite", report), *input_value_notes(report)]
    blocks += training_step_blocks(report)
    if answers:
        blocks += [
            Figure("bars", report),
            _overview_table(report, answers, unit),
            *_tool_version_notes(report, answers),
        ]
        blocks += [Text(text, " ", "warn") for text in lines_on_kernel_changes_by_hooks(answers)]
    if isinstance(report.consensus, Consensus):
        blocks = [
            model_title(report),
            *input_value_notes(report),
            *consensus_blocks(report.consensus),
        ]
    if isinstance(report.between, Contrast):
        blocks += contrast_blocks(report.between)
    elif not isinstance(report.consensus, Consensus):
        for profile in answers:
            blocks += _account_blocks(report, profile)
        blocks += largest_disagreement_blocks(report, top)
        blocks += parameter_differences(report)
    blocks += failure_blocks(failures)
    if not report.profiles:
        blocks.append(
            Text("No tool was run: `crossflops doctor` shows how to install tools.", " ")
        )
    return Page((*blocks, *nodes_without_cost(report), *module_and_node_figures(report)))


def _profiles_to_show(report: Report) -> tuple[Profile, ...]:
    """Return the results of the tools that ran, or only of the two that are compared."""
    by_tool = {
        answer.tool: answer for answer in report.profiles or () if isinstance(answer, Profile)
    }
    if isinstance(report.between, Contrast):
        return tuple(by_tool[tool] for tool in (report.between.first, report.between.second))
    return tuple(by_tool.values())


def innermost_mismatches(rows: tuple[PathRow, ...]) -> tuple[PathRow, ...]:
    """Return the rows of innermost modules whose prediction differs from the tool's number."""
    wrong = [row for row in rows if row.theirs is not None and row.theirs != row.predicted]
    return tuple(row for row in wrong if not any(_is_path_inside(outer, row) for outer in wrong))


def _is_path_inside(inner: PathRow, outer: PathRow) -> bool:
    """Return whether the module of row `inner` is a submodule of that of row `outer`."""
    if inner is outer:
        return False
    return not outer.path or inner.path.startswith(f"{outer.path}.")


def _overview_table(report: Report, answers: tuple[Profile, ...], unit: Unit) -> Table:
    """Return a table of tools: total, MACs or FLOPs, difference to native, share explained."""
    return Table(
        columns=(
            Column(head="tool"),
            Column(head="prints", spare=2),
            Column(head="total", right=True),
            Column(head="as MACs" if unit == "macs" else "2 x MACs", right=True, spare=1),
            *number_columns("vs native", "explained"),
        ),
        rows=tuple(_overview_row(report, profile, unit) for profile in answers),
    )


def _overview_row(report: Report, profile: Profile, unit: Unit) -> Row:
    """Return the row of a tool: total, MACs or FLOPs, difference to native, share explained."""
    account = _find_account(report, profile.tool)
    macs = _total_in_macs(profile.total, account)
    scale = 2 if unit == "flops" else 1
    mark = "" if profile.verified else MARK
    return Row.from_cells(
        f"{profile.tool} {version_without_suffix(profile.version)}{mark}",
        f'"{profile.printed_as}"',
        exact_amount(profile.total),
        "-" if macs is None else short_amount(macs * scale),
        "-" if macs is None else percent_change(macs, report.compared),
        _account_explanation_cell(account),
        tone="bad" if account is None or account.residual else "",
    )


def _account_explanation_cell(account: Reconciliation | None) -> str:
    """Return the percentage of a difference that causes explain; "predicted" if not printed."""
    if account is None:
        return "-"
    rows = account.by_path[:1]
    of_model = not rows or not rows[0].path  # a module's number may be one that no tool printed
    printed = of_model or rows[0].theirs is not None
    return explanation_percent(account.residual, account.delta) if printed else "predicted"


def _find_account(report: Report, tool: str) -> Reconciliation | None:
    """Return a tool's account from native to its total, or None if the report has none."""
    try:
        return report.reconciliation(tool)
    except KeyError:
        return None


def _total_in_macs(total: Amount, account: Reconciliation | None) -> Fraction | None:
    """Return a tool's total in MACs, by the unit of its convention; None if that is unknown."""
    convention = _account_convention(account) if account else None
    if convention is None or not convention.unit or not isfinite(total):
        return None
    return Fraction(total) / convention.unit


def _account_convention(account: Reconciliation) -> Convention | None:
    """Return the convention that an account was made with, or None if it is unknown."""
    try:
        return find_convention(account.tool, account.edition)
    except UnknownNameError:  # a report of another release
        return None


def _tool_version_notes(report: Report, answers: tuple[Profile, ...]) -> list[Block]:
    """Return a note for each tool whose version was not checked with its convention."""
    notes: list[Block] = []
    for profile in answers:
        if profile.verified:
            continue
        account = _find_account(report, profile.tool)
        convention = _account_convention(account) if account else None
        known = (
            ", ".join(convention.verified) if convention and convention.verified else "no version"
        )
        note = f"unverified version {profile.version}: the convention was checked with {known}"
        notes.append(Text(note, f" {MARK} ", "warn"))
    return notes


def _account_blocks(report: Report, profile: Profile) -> list[Block]:
    """Return the blocks that explain a tool's total: causes, residual, remarks."""
    account = _find_account(report, profile.tool)
    if account is None:
        return [Heading(f"{profile.tool} = {exact_amount(profile.total)}, unexplained")]
    blocks: list[Block] = [
        Heading(f"{profile.tool} = native{term_with_sign(account.delta)}"),
        Figure("waterfall", account),
        explanation_table(account),
    ]
    blocks += [Text(text, "   ", "bad") for text in _residual_location_lines(account)]
    blocks += [Text(text, "   ", "dim") for text in _run_remarks(report, profile)]
    return blocks


def _residual_location_lines(account: Reconciliation) -> list[str]:
    """Return lines on a residual: in which modules the prediction differs; [] if it is 0."""
    if not account.residual:
        return []
    if account.obstacle:
        return [account.obstacle]
    rows = innermost_mismatches(account.by_path)
    texts = [
        f"at {row.path or '(the model)'}: predicted {exact_amount(row.predicted)}, printed "
        f"{'nothing' if row.theirs is None else exact_amount(row.theirs)}"
        for row in rows[:LOCATED]
    ]
    if len(rows) > LOCATED:
        texts.append(f"and {count_with_noun(len(rows) - LOCATED, 'place')} more")
    return texts


def _run_remarks(report: Report, profile: Profile) -> list[str]:
    """Return remarks on the run of a tool: kernels, setting, weights, interpreter, formulas."""
    remarks = kernel_run_lines(profile)
    if not _ran_in_expected_setting(report, profile):
        remarks.append(f"ran in an unexpected setting: {profile.setting.id}")
    if profile.weights:
        remarks.append(f"ran on weights with values: {profile.weights.reason}")
    if profile.python:
        remarks.append(f"ran in {profile.python}")
    return [*remarks, *user_formula_lines(profile)]


def user_formula_lines(profile: Profile) -> list[str]:
    """Return lines on the formulas that the tool was taught to use, and on those it was not."""
    lessons = profile.taught or ()
    by_reason: dict[str, list[str]] = {}
    lines = []
    for lesson in lessons:
        if lesson.refused:
            by_reason.setdefault(lesson.refused, []).append(lesson.formula)
            continue
        used = count_with_noun(lesson.calls, "call") if lesson.calls else "it saw no such call"
        origin = f"{lesson.origin}, sha256 {lesson.origin.digest[:DIGEST_DIGITS]}"
        lines.append(f"taught {lesson.formula} ({origin}) by {lesson.mechanism}: {used}")
    lines += [f"not taught {', '.join(names)}: {reason}" for reason, names in by_reason.items()]
    return lines


def _ran_in_expected_setting(report: Report, profile: Profile) -> bool:
    """Return whether a tool ran in the requested setting, or in one that its convention forces."""
    setting, account = report.setting, _find_account(report, profile.tool)
    if not isinstance(setting, Setting):
        return True
    convention = _account_convention(account) if account else None
    expected = convention.setting(setting) if convention else setting
    return replace(expected, hooked=False) == replace(profile.setting, hooked=False, fake=UNSET)


def failure_blocks(failures: tuple[Failure, ...]) -> list[Block]:
    """Return lines on the tools that failed, those with the same reason as one line."""
    if not failures:
        return []
    reasons: dict[tuple[str, ...], list[Failure]] = {}
    for failure in failures:
        reasons.setdefault(_failure_stage_message_and_hint(failure), []).append(failure)
    return [
        Heading("No answer"),
        *(block for similar in reasons.values() for block in _failure_group_blocks(similar)),
    ]


def _failure_stage_message_and_hint(failure: Failure) -> tuple[str, ...]:
    """Return the stage, message and hint of a failure, without the tool's name in them."""
    words = (failure.stage, failure.message, failure.hint)
    return tuple(sub(rf"(?<![\w-]){escape(failure.tool)}(?![\w-])", "", text) for text in words)


def _failure_group_blocks(similar: list[Failure]) -> list[Block]:
    """Return the lines on tools that failed for the same reason, with a hint or a command."""
    first, tools = similar[0], ", ".join(failure.tool for failure in similar)
    outcome = f"failed at {first.stage}: {first.message}"
    lead = (outcome, f" {tools} ") if len(similar) == 1 else (f"{tools} {outcome}", " ")
    if "pip install" not in first.hint:
        return [Text(f"{lead[0]} ({first.hint})", lead[1], "warn")]
    return [Text(*lead, "warn"), Command(first.hint, "   ")]


# Which number to publish.

_STANDS: dict[Stand, tuple[str, Tone]] = {
    "agrees": ("agrees", "good"),
    "agrees after": ("agrees, with more on top", ""),
    "differs": ("differs", ""),
    "unexplained": ("unexplained", "bad"),
    "failed": ("failed", "warn"),
}


def consensus_blocks(words: Consensus) -> list[Block]:
    """Return the sentence to cite with its reason, and a table with a verdict on each tool."""
    blocks: list[Block] = [
        Heading("To publish" if words.citable else "To publish, only with its caveat"),
        Text(words.sentence, "   "),
        Heading("Why this number"),
        Text(f"{words.reason}.", "   "),
    ]
    if not words.verdicts:
        return blocks
    order = list(_STANDS)
    rows = sorted(words.verdicts, key=lambda verdict: order.index(verdict.stand))
    table = Table(
        columns=(Column(head="tool"), Column(head="verdict"), Column(head="why", flows=True)),
        rows=tuple(
            Row.from_cells(row.tool, _STANDS[row.stand][0], row.why, tone=_STANDS[row.stand][1])
            for row in rows
        ),
    )
    return [*blocks, Heading("How the tools differ from it"), table]
