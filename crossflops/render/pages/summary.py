"""Build the page of a report without tools, its title, and its totals as polynomials."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal, TypeAlias

from msgspec import UNSET, UnsetType

from crossflops.ir.formula_account import FormulaReport
from crossflops.ir.ledger import Memory
from crossflops.ir.measurement import Run
from crossflops.ir.polynomial import Dimension, Formulas, polynomial_text
from crossflops.ir.profile import ConventionCount
from crossflops.ir.provenance import FAKE, FormulaOrigin, WeightsKind
from crossflops.ir.trace import Setting
from crossflops.ir.workload import Workload
from crossflops.render.page import (
    Block,
    Code,
    Column,
    Figure,
    Heading,
    Page,
    Row,
    Table,
    Text,
    Title,
    number_columns,
    text_columns,
)
from crossflops.report.quantity import (
    amount_with_sign,
    command_line_shape,
    count_with_noun,
    exact_amount,
    percent_share,
    short_amount,
    short_count_with_noun,
)
from crossflops.report.report import (
    CustomOperatorRow,
    InputInfo,
    ModuleRow,
    Report,
    TrainingReport,
    UncountedRow,
)

# What every page of a report begins with: which model, or which module of it, and its totals.


def model_title(report: Report) -> Title:
    """Return the title of a report: name, parameters, inputs, setting, MACs, FLOPs."""
    totals, run = report.totals, report.observed
    if isinstance(report.module, ModuleRow):
        return _module_title(report.module, report)
    parts = [
        report.name,
        short_count_with_noun(totals.params, "parameter"),
        *input_descriptions(report.model.inputs),
        *_unusual_setting_words(report.setting),
        *([f"sizes from a run of {run.runtime}"] if isinstance(run, Run) and run.runtime else []),
        short_amount(totals.macs, "MACs"),
        f"{short_amount(totals.flops, 'FLOPs')} (native, {totals_exactness(report)})",
    ]
    return Title(tuple(parts))


def input_value_notes(report: Report) -> list[Block]:
    """Return notes on values of inputs and weights that the count depends on; [] if none."""
    weights, run = report.weights, report.observed
    made: list[Block] = []
    if isinstance(weights, WeightsKind) and weights.reason:
        made = [Text(f"The model was built with its weights: {weights.reason}.", " ")]
    if isinstance(weights, WeightsKind) and weights.kind == FAKE and report.profiles:
        made = [
            Text("The tools ran on fake tensors, which have shapes and types but no values.", " ")
        ]
    if not isinstance(run, Run):
        return made
    nodes = sum(node.depends_on_inputs is True for node in report.nodes)
    depends = (
        f"; the sizes of {count_with_noun(nodes, 'node')} depend on these values" if nodes else ""
    )
    sizes = [f"Sizes are taken from a run on {run.inputs}{depends}."] if run.runtime else []
    notes = [f"{note[:1].upper()}{note[1:]}." for note in run.notes]
    return [
        *made,
        *(Text(text, " ") for text in sizes),
        *(Text(note, " ", "warn") for note in notes),
    ]


def _module_title(module: ModuleRow, report: Report) -> Title:
    """Return the title of a page on one module: class, parameters, inputs, MACs, FLOPs."""
    return Title(
        (
            f"{module.path or '(the model)'} of {report.name}",
            module.class_,
            short_count_with_noun(module.params, "parameter"),
            *input_descriptions(report.model.inputs),
            *_unusual_setting_words(report.setting),
            short_amount(module.macs, "MACs"),
            f"{short_amount(module.flops, 'FLOPs')} (native, {totals_exactness(report)})",
        )
    )


def totals_exactness(report: Report) -> str:
    """Return how exact the totals are: "exact", "an estimate", "without 2 uncounted nodes", ..."""
    if report.uncounted:
        return f"without {count_with_noun(len(report.uncounted), 'uncounted node')}"
    grades = {node.exactness for node in report.nodes}
    weakest = next((word for word in ("estimate", "bound") if word in grades), "exact")
    return {"bound": "an upper bound", "estimate": "an estimate"}.get(weakest, weakest)


def input_descriptions(provided: tuple[InputInfo, ...]) -> list[str]:
    """Return shape and dtype of each input as text, with its name if there are several."""
    if len(provided) == 1:
        return [f"input {command_line_shape(provided[0].shape)} {provided[0].dtype}"]
    return [f"{spec.name} {command_line_shape(spec.shape)} {spec.dtype}" for spec in provided]


def _unusual_setting_words(setting: object) -> list[str]:
    """Return words for a setting that is not CPU, evaluation mode and with gradients."""
    if not isinstance(setting, Setting):
        return []
    parts = [] if setting.device == "cpu" else [setting.device]
    parts += ["train mode"] if setting.training else []
    return parts if setting.grad else [*parts, "no grad"]


# The totals as polynomials in dimensions that vary, and where these hold.

_FORMULA_KINDS = (
    ("MACs", "macs"),
    ("FLOPs", "flops"),
    ("bytes read", "bytes_read"),
    ("bytes written", "bytes_written"),
    ("parameters", "params"),
)


def total_polynomial_blocks(report: Report) -> list[Block]:
    """Return blocks with the totals as polynomials in named dimensions; [] if there are none."""
    polynomials = report.formulas
    if not isinstance(polynomials, Formulas):
        return []
    names = " and ".join(dim.name for dim in polynomials.dimensions)
    blocks: list[Block] = [Heading(f"As polynomials in {names}")]
    rows = [
        Row.from_cells(head, polynomial_text(formula))
        for head, kind in _FORMULA_KINDS
        if (formula := getattr(polynomials, kind)) is not None
    ]
    if rows:
        columns = (Column(head="kind"), Column(head="polynomial", flows=True))
        blocks.append(Table(columns=columns, rows=tuple(rows), bare=True))
    blocks += [_sizes_sentence(dim) for dim in polynomials.dimensions]
    if report.uncounted:
        missing = (
            f"{count_with_noun(len(report.uncounted), 'uncounted node')}, listed below, not "
            "included"
        )
        blocks.append(Text(missing, " ", "warn"))
    sizes = ", ".join(f"{name}={size}" for name, size in polynomials.at.items())
    tables = f"the count at {sizes}" if sizes else "the count of the usual input"
    checked = "equal to the count at" if rows else "counted at"
    points = count_with_noun(polynomials.points, "point")
    return [
        *blocks,
        Text(f"{checked} {points}; what follows is {tables}", " "),
        Heading("Totals"),
    ]


def _sizes_sentence(dim: Dimension) -> Text:
    """Return a sentence on the sizes of a dimension for which the polynomials were checked."""
    checked = f"checked from {dim.smallest} to {dim.largest}"
    where = f"node {dim.node!r}: " if dim.node else ""
    if dim.multiple_of == 1 and dim.node:
        sentence = (
            f"{dim.name}: {checked}; for much larger sizes, node {dim.node!r} has another cost"
        )
        return Text(sentence, " ", "warn")
    if dim.multiple_of == 1:
        return Text(f"{dim.name}: every size, {checked}", " ", "dim")
    if dim.multiple_of is None:
        return Text(f"no polynomial in {dim.name}: {where}{dim.reason}", " ", "warn")
    return Text(
        f"no polynomial in {dim.name}: {where}{dim.reason}; valid for multiples of "
        f"{dim.multiple_of}, {checked}",
        " ",
        "warn",
    )


Unit: TypeAlias = Literal["macs", "flops"]
NAMED = 12  # uncounted nodes that are named before the rest is only numbered

_MACS = "multiply-accumulates of contractions"
_FLOPS = "2 x MACs, and one for each other operation"
_KINDS = ("adds", "muls", "divs", "compares", "specials")


def summary_page(report: Report, unit: Unit = "macs") -> Page:
    """Return the page of a count: totals, operators, uncounted nodes, conventions."""
    blocks: list[Block] = [model_title(report), Figure("cite", report), *input_value_notes(report)]
    if not isinstance(report.module, ModuleRow):  # these are figures of the whole model
        blocks += [
            *total_polynomial_blocks(report),
            *_report_workload_blocks(report),
            *_pipeline_part_blocks(report, unit),
        ]
        blocks.append(_report_totals_table(report))
    blocks.append(Heading("Operators"))
    blocks += [
        _operator_summary_table(report, unit),
        *_branch_blocks(report),
        *_doubtful_node_blocks(report),
    ]
    blocks += custom_operator_blocks(report)
    blocks += nodes_without_cost(report)
    blocks += training_step_blocks(report)
    if report.folds:
        blocks += [Heading("By other conventions"), *_convention_total_blocks(report)]
    return Page(
        (
            *blocks,
            *module_and_node_figures(
                report, (_module_summary_table(report),) if report.modules else ()
            ),
        )
    )


def _report_workload_blocks(report: Report) -> list[Block]:
    """Return the blocks of a language model's workload; [] if the report has none."""
    if not isinstance(report.workload, Workload):
        return []
    from crossflops.render.pages.workload import workload_blocks  # most counts have none

    return workload_blocks(report.workload)


def _pipeline_part_blocks(report: Report, unit: Unit) -> list[Block]:
    """Return the blocks of a pipeline's parts; [] if the report is not of one."""
    if isinstance(report.parts, UnsetType):
        return []
    from crossflops.render.pages.pipeline import pipeline_blocks  # most counts have none

    return pipeline_blocks(report.parts, unit)


def module_and_node_figures(
    report: Report, instead: tuple[Block, ...] = (), of: str = ""
) -> list[Block]:
    """Return the tables of modules and nodes for HTML; other formats show `instead`.

    `of` says of which model, where there are two.
    """
    return [
        Figure("modules", report, f"Where the work is{of}", instead),
        Figure("nodes", report, f"Every node{of}"),
    ]


def nodes_without_cost(report: Report) -> list[Block]:
    """Return a table of the nodes without a count, with the reasons; [] if there are none."""
    columns = (*text_columns("node", "operator"), Column(head="reason", flows=True))
    rows = [Row.from_cells(row.node, row.op, row.reason, tone="warn") for row in report.uncounted]
    return [
        *_first_table_rows("Not counted (unknown, not zero)", columns, rows, "node"),
        *_formula_stub_blocks(report),
    ]


def _formula_stub_blocks(report: Report) -> list[Block]:
    """Return code to start a formula from, for operators without a count; [] if there are none."""
    by_op: dict[str, UncountedRow] = {}
    for row in report.uncounted:
        if row.stub:
            by_op.setdefault(row.op, row)
    if not by_op:
        return []
    text = (
        "to count it, write its work into a file, and count with --formulas FILE.py"
        " (`crossflops check-formula FILE.py` checks it)"
    )
    return [Text(text, " "), *(Code(row.stub) for row in list(by_op.values())[:STUBS])]


STUBS = 3  # operators whose formulas are begun
DIGEST_DIGITS = 12


def custom_operator_blocks(report: Report) -> list[Block]:
    """Return a table of the custom operators that a formula or their own body counts."""
    if isinstance(report.custom_operators, UnsetType):
        return []
    rows = [
        Row.from_cells(
            row.op,
            exact_amount(row.calls),
            exact_amount(row.macs),
            exact_amount(row.flops),
            _operator_count_source(row),
            tone="" if row.exactness == "exact" else "warn",
        )
        for row in report.custom_operators
    ]
    columns = (
        Column(head="operator"),
        *number_columns("calls", "MACs", "FLOPs"),
        Column(head="counted by", flows=True),
    )
    return [
        Heading("Operators without a rule of crossflops"),
        Table(columns=columns, rows=tuple(rows)),
    ]


def _operator_count_source(row: CustomOperatorRow) -> str:
    """Return a text on what counted a custom operator: its body, or a formula and its origin."""
    if row.by == "body":
        text = f"its body, run on {row.run} tensors"
    else:
        text = f"formula {row.formula}" + (f" for {row.pattern}" if row.pattern else "")
        if isinstance(row.origin, FormulaOrigin):
            digest = row.origin.digest[:DIGEST_DIGITS]
            text += f" of {row.origin}, sha256 {digest}"
        text += f"; {row.source}" if row.source else ""
    return text if row.exactness == "exact" else f"{text} ({row.exactness})"


_PARTS = (
    ("forward", "forward"),
    ("gradients of inputs", "backward_input"),
    ("gradients of weights", "backward_weight"),
    ("recomputed", "recomputed"),
)


def training_step_blocks(report: Report) -> list[Block]:
    """Return a table of a training step's work, and how it differs from 3 x forward."""
    step = report.training
    if isinstance(step, UnsetType):
        return []
    parts = [
        Row.from_cells(
            name,
            exact_amount(getattr(step, f"{part}_macs")),
            exact_amount(getattr(step, f"{part}_flops")),
        )
        for name, part in _PARTS
    ]
    total = Row.from_cells("a training step", exact_amount(step.macs), exact_amount(step.flops))
    columns = (Column(head="part"), *number_columns("MACs", "FLOPs"))
    by_tokens = (
        [Row.from_cells("6 N D", exact_amount(step.six_n_d_macs))] if step.six_n_d_macs else []
    )
    thumb = [
        *by_tokens,
        *(
            Row.from_cells(row.cause, amount_with_sign(row.macs))
            for row in step.six_n_d_differences
        ),
        Row.from_cells("3 x forward", exact_amount(step.three_forward_macs)),
        *(Row.from_cells(row.cause, amount_with_sign(row.macs)) for row in step.differences),
        Row.from_cells("a training step", exact_amount(step.macs)),
    ]
    unknown = [Row.from_cells(row.node, row.op, row.reason, tone="warn") for row in step.uncounted]
    reasons = (*text_columns("node", "operator"), Column(head="reason", flows=True))
    return [
        Heading("Training step, without the optimizer"),
        Figure("step", step),
        Table(columns=columns, rows=(*parts, total)),
        *_optimizer_step_blocks(step),
        Heading("The rule of thumb"),
        Table(columns=(Column(head="cause"), *number_columns("MACs")), rows=tuple(thumb)),
        *_first_table_rows(
            "Backward passes not counted (unknown, not zero)", reasons, unknown, "node"
        ),
    ]


_WORK = (*_KINDS, "flops", "bytes_read", "bytes_written")


def _optimizer_step_blocks(training: TrainingReport) -> list[Block]:
    """Return the blocks on an optimizer's step: FLOPs, in all and per parameter."""
    step = training.optimizer
    if isinstance(step, UnsetType):
        return []
    clipping = None if isinstance(step.clipping, UnsetType) else step.clipping
    clipped = ("clipping",) if clipping else ()
    rows = [
        Row.from_cells(
            _WORDS.get(kind, kind),
            exact_amount(getattr(step, kind)),
            f"{getattr(step, kind) / step.parameters:.4g}" if step.parameters else "-",
            *((exact_amount(getattr(clipping, kind)),) if clipping else ()),
        )
        for kind in _WORK
    ]
    options = ", ".join(f"{name} {value:g}" for name, value in step.options.items() if value)
    updates = (
        f"{exact_amount(step.parameters)} parameters in {count_with_noun(step.tensors, 'tensor')}"
    )
    return [
        Heading(f"The step of {step.name}{f' with {options}' if options else ''}: {updates}"),
        Table(
            columns=(Column(head="work"), *number_columns("update", "for one", *clipped)),
            rows=tuple(rows),
        ),
        *(Text(source, " - ") for source in step.sources),
    ]


_WORDS = {"flops": "FLOPs", "bytes_read": "bytes read", "bytes_written": "bytes written"}


def _branch_blocks(report: Report) -> list[Block]:
    """Return a table of If nodes, and for each the branch that is counted."""
    columns = (Column(head="If"), Column(head="counted", flows=True))
    rows = [Row.from_cells(row.node, row.counted) for row in report.branches]
    return _first_table_rows("Branches", columns, rows, "If")


def _first_table_rows(
    heading: str, columns: tuple[Column, ...], rows: Sequence[Row], row_noun: str
) -> list[Block]:
    """Return a heading and a table with the first rows; [] if there are no rows."""
    if not rows:
        return []
    rest = len(rows) - NAMED
    if rest <= 0:
        return [Heading(heading), Table(columns=columns, rows=tuple(rows))]
    first = Table(columns=columns, rows=tuple(rows[:NAMED]))
    more = Text(f"and {count_with_noun(rest, row_noun)} more, all named in the JSON report", " ")
    every = Table(columns=columns, rows=tuple(rows))
    return [Heading(heading), Figure("table", every, instead=(first, more))]


def _report_totals_table(report: Report) -> Table:
    """Return a table of the totals of a report: MACs, FLOPs, bytes and parameters."""
    totals = report.totals
    rows: list[tuple[str, int | Fraction, str]] = [
        ("MACs", totals.macs, _exactness_prefix(report, "macs") + _MACS)
    ]
    if totals.constant_macs:
        rows.append(("", totals.constant_macs, "of these depend on no input"))
    if totals.converter_macs:
        rows.append(("", totals.converter_macs, "more, added by the converter: not counted"))
    if totals.unchosen_macs:
        rows.append(
            ("", totals.unchosen_macs, "of these are in experts that a token did not choose")
        )
    if totals.dead_macs:
        rows.append(("", totals.dead_macs, "more, on which no output depends: not counted"))
    if len(report.macs_by_precision) > 1:
        rows += [("", macs, f"of these in {name}") for name, macs in _precisions_by_macs(report)]
    rows += [(kind, getattr(totals, kind), "") for kind in _KINDS]
    rows += [
        ("FLOPs", totals.flops, _exactness_prefix(report, "flops") + _FLOPS),
        ("bytes read", totals.bytes_read, "each operator separately, without fusion"),
        ("bytes written", totals.bytes_written, ""),
        *_memory_amounts(report),
        ("parameters", totals.params, ""),
    ]
    if totals.active_params is not UNSET:
        rows.append(
            ("", totals.active_params, "of these are active: each token uses only its experts")
        )
    if (token := report.per_token) is not UNSET:
        mean = f"mean of {exact_amount(token.tokens)} tokens"
        rows.append(("MACs per token", _mean_per_token(report.macs, token.tokens), mean))
        rows.append(("FLOPs per token", _mean_per_token(report.flops, token.tokens), mean))
    return Table(
        columns=(
            Column(head="kind"),
            Column(head="count", right=True),
            Column(head="note", flows=True, spare=1),
        ),
        rows=tuple(
            Row.from_cells(name, _number_with_all_or_four_digits(count), note)
            for name, count, note in rows
        ),
        bare=True,
    )


def _exactness_prefix(report: Report, unit: Unit) -> str:
    """Return "at most: " if a total is a bound, "about: " if an estimate, "" if exact."""
    grades = report.totals.exactness
    grade = "exact" if isinstance(grades, UnsetType) else grades.get(unit, "exact")
    return {"bound": "at most: ", "estimate": "about: "}.get(grade, "")


def _doubtful_node_blocks(report: Report) -> list[Block]:
    """Return a table of the nodes whose count is a bound or an estimate; [] if there are none."""
    words = {"bound": "at most", "estimate": "about"}
    columns = (
        Column(head="node", flows=True),
        *text_columns("operator", ""),
        *number_columns("MACs", "FLOPs"),
    )
    rows = [
        Row.from_cells(
            node.node,
            node.op,
            words.get(node.exactness, ""),
            exact_amount(node.macs),
            exact_amount(node.flops),
        )
        for node in report.nodes
        if node.exactness != "exact" and node.flops
    ]
    return _first_table_rows("Bounds and estimates", columns, rows, "node")


def _number_with_all_or_four_digits(count: int | Fraction) -> str:
    """Return an integer with all digits as text, a fraction with four digits and a prefix."""
    return exact_amount(count) if isinstance(count, int) else short_amount(count)


def _memory_amounts(report: Report) -> list[tuple[str, int | Fraction, str]]:
    """Return (name, number, meaning) rows on memory, in bytes; [] if the report has none."""
    memory = report.memory
    if not isinstance(memory, Memory):
        return []
    moved, peak = memory.access_bytes, memory.peak_activation_bytes
    at = f"alive at {memory.peak_node}" if memory.peak_node else "of the inputs"
    left = f"; {count_with_noun(memory.unsized, 'tensor')} of unknown size left out"
    stored = memory.param_bytes_by_type or {}
    is_quantized = any(
        not name.startswith(_FLOATS) for name in (*stored, *report.macs_by_precision)
    )
    rows: list[tuple[str, int | Fraction, str]] = [
        ("memory traffic", moved, f"bytes, of {exact_amount(memory.access_elements)} elements"),
        *(_type_bytes_rows(memory.access_bytes_by_type or {}) if is_quantized else ()),
        (
            "peak activation memory",
            peak,
            f"bytes {at}, without parameters{left if memory.unsized else ''}",
        ),
        ("model bytes", memory.param_bytes, "the parameters as they are stored"),
        *(_type_bytes_rows(stored) if len(stored) > 1 else ()),
    ]
    if memory.intensity.bytes:
        ratio = Fraction(memory.intensity.flops, memory.intensity.bytes)
        location = [name for name, *_ in rows].index("peak activation memory")
        rows.insert(location, ("arithmetic intensity", ratio, "FLOPs per byte of memory traffic"))
    return rows


_FLOATS = ("float64", "float32", "float16", "bfloat16", "complex")


def _type_bytes_rows(by_type: Mapping[str, int]) -> list[tuple[str, int | Fraction, str]]:
    """Return a ("", bytes, text) row for each dtype, the one with most bytes first."""
    ordered = sorted(by_type.items(), key=lambda item: (-item[1], item[0]))
    return [("", amount, f"of these in {name}") for name, amount in ordered]


def _mean_per_token(total: int, tokens: int) -> int | Fraction:
    """Return total / tokens exactly: an integer if it is one, else a fraction."""
    mean = Fraction(total, tokens)
    return mean.numerator if mean.denominator == 1 else mean


def _precisions_by_macs(report: Report) -> list[tuple[str, int]]:
    """Return (precision, MACs) pairs, most MACs first."""
    return sorted(report.macs_by_precision.items(), key=lambda item: (-item[1], item[0]))


def _operator_summary_table(report: Report, unit: Unit) -> Table:
    """Return a table of operators: number of nodes, MACs, FLOPs and share."""
    total = getattr(report.scope, unit)
    rows = sorted(report.by_op, key=lambda row: (-getattr(row, unit), -row.flops, row.op))
    return Table(
        columns=(
            Column(head="operator"),
            *number_columns("nodes", "MACs", "FLOPs"),
            Column(head="of FLOPs" if unit == "flops" else "of MACs", right=True, spare=1),
        ),
        rows=tuple(
            Row.from_cells(
                row.op,
                exact_amount(row.count),
                exact_amount(row.macs),
                exact_amount(row.flops),
                percent_share(getattr(row, unit), total),
            )
            for row in rows
        ),
    )


def _convention_total_blocks(report: Report) -> list[Block]:
    """Return a table of the totals by tool conventions, with notes; [] if there are none."""
    rows = tuple(
        Row.from_cells(
            f"{fold.tool}@{fold.edition}", exact_amount(fold.total), short_amount(fold.total)
        )
        for fold in report.folds
    )
    columns = (Column(head="convention"), *number_columns("total", "about"))
    return [
        Table(columns=columns, rows=rows, bare=True),
        *_training_formula_notes(report),
        *convention_warning_blocks(report.folds),
    ]


def _training_formula_notes(report: Report) -> list[Block]:
    """Return a note on which of the conventions' totals are for a training step; or []."""
    accounts = report.llm.accounts if isinstance(report.llm, FormulaReport) else ()
    names = [
        f"{account.tool}@{account.edition}"
        for account in accounts
        if account.passes == "training" and not account.obstacle
    ]
    if not names:
        return []
    return [Text(f"FLOPs of a training step, of all tokens: {', '.join(names)}", " ", "dim")]


def convention_warning_blocks(folds: tuple[ConventionCount, ...]) -> list[Block]:
    """Return warnings on totals by convention: assumptions, and nodes without a value."""
    blocks: list[Block] = []
    for fold in folds:
        if fold.assumed:
            reason = "the tool cannot run this model, or its calls were inferred from the graph"
            blocks.append(Text(f"{fold.tool} is assumed: {reason}", " ", "warn"))
        if fold.uncounted:
            names = ", ".join(fold.uncounted[:3]) + (" ..." if len(fold.uncounted) > 3 else "")
            left = count_with_noun(len(fold.uncounted), "node")
            blocks.append(Text(f"{fold.tool} has no value for {left}: {names}", " ", "warn"))
    return blocks


def _module_summary_table(report: Report) -> Table:
    """Return a table of modules: class, MACs, FLOPs and parameters."""
    return Table(
        columns=(
            Column(head="module", flows=True),
            Column(head="class"),
            *number_columns("MACs", "FLOPs", "parameters"),
        ),
        rows=tuple(
            Row.from_cells(
                module.path or "(the model)",
                module.class_,
                exact_amount(module.macs),
                exact_amount(module.flops),
                exact_amount(module.params),
            )
            for module in report.modules
        ),
        detail=True,
    )
