"""Build the page of two models: which layers differ, and which tools count them differently."""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import UNSET

from crossflops.ir.profile import Failure, Profile
from crossflops.ir.reconciliation import Alignment, LayerPair, Place, Shift
from crossflops.render.page import (
    Block,
    Column,
    Figure,
    Heading,
    Page,
    Row,
    Table,
    Text,
    Tone,
    number_columns,
    text_columns,
)
from crossflops.render.pages.comparison import failure_blocks, tool_comparison_page
from crossflops.render.pages.places import TOP, cause_title, common_path_pattern, numbers_to_stars
from crossflops.render.pages.summary import (
    Unit,
    input_descriptions,
    model_title,
    module_and_node_figures,
    nodes_without_cost,
)
from crossflops.report.comparison import Against, Contrast, ToolDifference
from crossflops.report.quantity import (
    amount_with_sign,
    count_with_noun,
    exact_amount,
    percent_change,
    short_amount,
    short_count_with_noun,
    term_with_sign,
)
from crossflops.report.report import Report

# Two models layer by layer: the causes with their sums, and the layers that differ.

ALONE = "-"
COLUMNS = (
    "first", "second", "first_what", "second_what", "cause", "note", "macs", "flops", "params",
)  # fmt: skip


def cause_table(alignment: Alignment) -> Table:
    """Build the table of causes between two models: MACs, FLOPs, parameters, residual."""
    rows = [
        Row.from_cells(
            cause.cause,
            amount_with_sign(cause.macs),
            amount_with_sign(cause.flops),
            amount_with_sign(cause.params),
            exact_amount(cause.layers),
            cause_title(cause.cause),
        )
        for cause in alignment.causes
    ]
    left = alignment.residual
    tone: Tone = "bad" if left.macs or left.flops or left.params else "good"
    amounts = (
        amount_with_sign(left.macs),
        amount_with_sign(left.flops),
        amount_with_sign(left.params),
    )
    rows.append(Row.from_cells("residual", *amounts, "", "", tone=tone))
    return Table(
        columns=(
            Column(head="cause"),
            Column(head="MACs", right=True),
            Column(head="FLOPs", right=True, spare=1),
            Column(head="parameters", right=True, spare=2),
            Column(head="layers", right=True, spare=3),
            Column(head="what", flows=True, spare=4),
        ),
        rows=tuple(rows),
    )


def different_layer_blocks(alignment: Alignment, names: tuple[str, str], top: int) -> list[Block]:
    """Return a table of the layers that differ between two models, similar ones in one row."""
    rows = [row for row in alignment.layers if row.shifts]
    if not rows:
        return []
    groups = _shift_groups(rows)
    columns = (
        Column(head=names[0], flows=True),
        Column(head=names[1], flows=True),
        Column(head="layers", right=True, spare=1),
        Column(head="why", flows=True),
        Column(head="MACs", right=True),
        Column(head="FLOPs", right=True, spare=2),
        Column(head="parameters", right=True, spare=3),
    )
    head = (
        f"Layers that differ: {exact_amount(len(rows))} of {exact_amount(len(alignment.layers))}"
    )
    blocks: list[Block] = [Heading(head)]
    if top:
        blocks.append(Table(columns=columns, rows=tuple(map(_shift_group_row, groups[:top]))))
    if left := len(groups) - top:
        blocks += (
            [Text(f"and {count_with_noun(left, 'row')} more", "   ", "dim")] if left > 0 else []
        )
    return [*blocks, _all_shifts_table(rows, names)]


def _shift_groups(rows: list[LayerPair]) -> list[list[tuple[LayerPair, Shift]]]:
    """Return the changes of layers in groups of similar paths and cause, largest group first."""
    kinds: dict[tuple[str, ...], list[tuple[LayerPair, Shift]]] = {}
    for row in rows:
        paths = tuple(
            numbers_to_stars(_layer_label(location)) for location in (row.first, row.second)
        )
        for shift in row.shifts:
            kinds.setdefault((*paths, shift.cause, shift.note), []).append((row, shift))

    def change_sort_key(group: list[tuple[LayerPair, Shift]]) -> tuple[int, int, int]:
        """Return a sort key that puts the group with the largest change of MACs first."""
        total = _sum_shifts(shift for _, shift in group)
        return -abs(total.macs), -abs(total.flops), -abs(total.params)

    return sorted(kinds.values(), key=change_sort_key)


def _sum_shifts(shifts: Iterable[Shift]) -> Shift:
    """Return the sum of changes of one cause: MACs, FLOPs and parameters."""
    summands = list(shifts)
    return Shift(
        cause=summands[0].cause,
        macs=sum(shift.macs for shift in summands),
        flops=sum(shift.flops for shift in summands),
        params=sum(shift.params for shift in summands),
        note=summands[0].note,
    )


def _shift_group_row(group: list[tuple[LayerPair, Shift]]) -> Row:
    """Return the table row of a group of similar changes: paths, number of layers and amounts."""
    total = _sum_shifts(shift for _, shift in group)
    first = common_path_pattern([_layer_label(row.first) for row, _ in group])
    second = common_path_pattern([_layer_label(row.second) for row, _ in group])
    return Row.from_cells(
        first, second, exact_amount(len(group)), _shift_reason(total), *_shift_amounts(total)
    )


def _layer_label(location: Place | None) -> str:
    """Return a layer's module path, else its first node or kind; a mark if there is no layer."""
    if location is None:
        return ALONE
    return location.path or (location.nodes[0] if location.nodes else location.what)


def _shift_reason(shift: Shift) -> str:
    """Return the cause of a change between two models as text, with its note if it has one."""
    return f"{shift.cause}: {shift.note}" if shift.note else shift.cause


def _shift_amounts(shift: Shift) -> tuple[str, str, str]:
    """Return the changes of MACs, FLOPs and parameters as texts with a sign."""
    return (
        amount_with_sign(shift.macs),
        amount_with_sign(shift.flops),
        amount_with_sign(shift.params),
    )


def _all_shifts_table(rows: list[LayerPair], names: tuple[str, str]) -> Table:
    """Build the table of all pairs of layers and their changes, one row for each change."""
    columns = (
        *text_columns(names[0], "what", names[1], "what", "why"),
        *(Column(head=head, right=True) for head in ("MACs", "FLOPs", "parameters")),
    )
    lines = tuple(
        Row.from_cells(
            *(_layer_pair_cells(row) if not location else ("", "", "", "")),
            _shift_reason(shift),
            *_shift_amounts(shift),
        )
        for row in rows
        for location, shift in enumerate(row.shifts)
    )
    return Table(columns=columns, rows=lines, detail=True)


def _layer_pair_cells(row: LayerPair) -> tuple[str, str, str, str]:
    """Return the cells of a pair of layers: name and kind in the first and the second model."""
    first, second = row.first, row.second
    return (
        _layer_label(first),
        first.what if first else "",
        _layer_label(second),
        second.what if second else "",
    )


def layer_pair_csv_rows(alignment: Alignment) -> Iterator[tuple[str | int, ...]]:
    """Yield the CSV cells of a pair of layers, once for each cause by which they differ."""
    for row in alignment.layers:
        first, first_what, second, other = _layer_pair_cells(row)
        for shift in row.shifts or (Shift(cause=""),):
            amounts = shift.cause, shift.note, shift.macs, shift.flops, shift.params
            yield (first, second, first_what, other, *amounts)


Names = tuple[str, str]


def report_comparison_page(report: Report, unit: Unit = "macs", top: int = TOP) -> Page:
    """Return the page of a comparison: of tools on one model, or of two models."""
    if isinstance(report.against, Against):
        return _two_model_page(report, report.against, top)
    return tool_comparison_page(report, unit, top)


def _two_model_page(report: Report, other: Against, top: int) -> Page:
    """Build the page that compares two models: changes by cause, layer and tool."""
    names = _short_model_names(report, other)
    blocks: list[Block] = [model_title(report), Text(_second_model_title(other), " against ")]
    blocks += [
        Heading(_model_difference_heading(report, other, names)),
        *_same_model_verdict(other),
    ]
    if not other.alignment.same:
        blocks += [
            Figure("waterfall", other.alignment),
            cause_table(other.alignment),
            *different_layer_blocks(other.alignment, names, top),
        ]
    blocks += _contrast_tool_blocks(other.tools, names)
    for contrast in other.tools:
        if contrast.delta or contrast.differences:
            blocks += _contrast_account_blocks(contrast, other, names)
    blocks += [
        *failure_blocks(_failures_for_both_models(report, other)),
        *nodes_without_cost(report),
    ]
    if missing := other.alignment.uncounted[1]:
        text = (
            f"{count_with_noun(missing, 'node')} of {names[1]} not counted and in no amount "
            "of this page"
        )
        blocks.append(Text(text, " ", "warn"))
    blocks += module_and_node_figures(report, of=f", {names[0]}")
    if report.against_nodes:
        rows = {"nodes": report.against_nodes, "modules": report.against_modules or ()}
        second = msgspec.structs.replace(report, **rows, training=UNSET)
        blocks += module_and_node_figures(second, of=f", {names[1]}")
    return Page(tuple(blocks))


def _short_model_names(report: Report, other: Against) -> Names:
    """Return a short name for each of the two models; the names differ."""
    names = report.name, other.name
    short = _last_name_part(names[0]), _last_name_part(names[1])
    if short[0].casefold() != short[1].casefold():
        return short
    return names if names[0] != names[1] else (f"{names[0]} (first)", f"{names[1]} (second)")


def _last_name_part(name: str) -> str:
    """Return the part of a model's name after its last ":" and "/".

    >>> tuple(map(_last_name_part, ("torchvision.models:resnet50", "a/model.onnx", "ResNet")))
    ('resnet50', 'model.onnx', 'ResNet')
    """
    return name.rpartition(":")[2].rpartition("/")[2]


def _second_model_title(other: Against) -> str:
    """Return the title line of the second model: name, parameters, inputs, MACs, FLOPs."""
    totals = other.totals
    parts = [
        other.name,
        short_count_with_noun(totals.params, "parameter"),
        *input_descriptions(other.model.inputs),
        short_amount(totals.macs, "MACs"),
        f"{short_amount(totals.flops, 'FLOPs')} (native)",
    ]
    return " · ".join(parts)


def _model_difference_heading(report: Report, other: Against, names: Names) -> str:
    """Return a heading such as "b = a + 5 MACs (+1 %)": the second model by the first one."""
    delta = other.totals.macs - report.macs
    if not delta:
        return f"{names[1]} = {names[0]} in MACs"
    ratio = percent_change(other.totals.macs, report.macs)
    return f"{names[1]} = {names[0]}{term_with_sign(delta)} MACs ({ratio})"


def _same_model_verdict(other: Against) -> list[Block]:
    """Return a sentence that both models are the same; [] if they are not."""
    aligned = other.alignment
    layers = count_with_noun(len(aligned.layers), "layer")
    if aligned.same:
        return [Text(f"the same model: {layers}, one by one", " ", "good")]
    if {cause.cause for cause in aligned.causes} <= {"model.representation"}:
        text = "the same model; a part of it consists of other nodes"
        return [Text(text, " ", "good")]
    return []


def _failures_for_both_models(report: Report, other: Against) -> tuple[Failure, ...]:
    """Return the failures of tools that printed no number for either of the models."""
    profiles = (*(report.profiles or ()), *other.profiles)
    answered = {answer.tool for answer in profiles if isinstance(answer, Profile)}
    failures = {answer.tool: answer for answer in profiles if isinstance(answer, Failure)}
    return tuple(failure for tool, failure in failures.items() if tool not in answered)


def _contrast_tool_blocks(contrasts: tuple[Contrast, ...], names: Names) -> list[Block]:
    """Return a table of what each tool prints for both models."""
    if not contrasts:
        return []
    columns = (
        Column(head="tool"),
        Column(head=names[0], right=True, spare=1),
        Column(head=names[1], right=True, spare=1),
        *number_columns("difference", "a different model", "a different count"),
    )
    rows = tuple(
        Row.from_cells(
            _contrast_label(contrast),
            exact_amount(contrast.first_total),
            exact_amount(contrast.second_total),
            amount_with_sign(contrast.delta),
            amount_with_sign(contrast.model or 0),
            amount_with_sign(contrast.delta - (contrast.model or 0)),
            tone="bad" if contrast.residual else "",
        )
        for contrast in contrasts
    )
    return [Heading("What tools print for both models"), Table(columns=columns, rows=rows)]


def _contrast_label(contrast: Contrast) -> str:
    """Return a tool and its edition, or "first -> second" if two editions are compared."""
    first, second = contrast.first, contrast.second
    return first if first == second else f"{first} -> {second}"


def _contrast_account_blocks(contrast: Contrast, other: Against, names: Names) -> list[Block]:
    """Return a table that explains, by cause, a tool's difference between two models."""
    rows = [
        Row.from_cells(
            cause.cause,
            amount_with_sign(cause.macs * contrast.unit),
            "",
            "",
            "a different model",
            cause_title(cause.cause),
        )
        for cause in other.alignment.causes
        if cause.macs * contrast.unit
    ]
    rows += [_count_difference_row(cause) for cause in contrast.differences]
    tone: Tone = "bad" if contrast.residual else "good"
    rows.append(
        Row.from_cells("residual", amount_with_sign(contrast.residual), "", "", "", "", tone=tone)
    )
    table = Table(
        columns=(
            Column(head="cause"),
            Column(head="amount", right=True),
            Column(head=names[0], right=True, spare=3),
            Column(head=names[1], right=True, spare=2),
            Column(head="of"),
            Column(head="what", flows=True, spare=4),
        ),
        rows=tuple(rows),
    )
    head = (
        f"{contrast.second} on {names[1]} = {contrast.first} "
        f"on {names[0]}{term_with_sign(contrast.delta)}"
    )
    return [Heading(head), table]


def _count_difference_row(cause: ToolDifference) -> Row:
    """Return the row of a cause by which a tool counts the second model differently."""
    return Row.from_cells(
        cause.cause,
        amount_with_sign(cause.amount),
        amount_with_sign(cause.first),
        amount_with_sign(cause.second),
        "a different count",
        cause_title(cause.cause),
    )
