"""Build the page of `profile`: a summary, the largest modules by depth, and the module tree."""

from collections.abc import Iterable

import msgspec
from msgspec import UnsetType

from crossflops.render.page import (
    Block,
    Column,
    Heading,
    Page,
    Row,
    Table,
    Text,
    Title,
    number_columns,
)
from crossflops.report.profile import (
    BesideProfile,
    ClassesAtDepth,
    ConventionProfile,
    ModuleProfile,
    Ranks,
    ShownDepth,
    TrainingProfile,
    classes_by_depth,
)
from crossflops.report.quantity import (
    amount_with_sign,
    command_line_shape,
    exact_amount,
    percent_change,
    percent_share,
    percent_text,
    seconds_to_text,
    short_amount,
    short_count_with_noun,
    version_without_suffix,
)

ALL = ShownDepth()
_STRAGGLES = 1.2  # times as long as the fastest process


class ProfileView(msgspec.Struct, frozen=True):
    """A profile, and which part of it to show."""

    profile: TrainingProfile
    choice: ShownDepth = ALL


def profile_page(content: TrainingProfile, choice: ShownDepth = ALL) -> Page:
    """Return the page of a training profile: summary, largest modules, module tree."""
    blocks: list[Block] = [_profile_title(content), _profile_summary_table(content)]
    blocks += [
        block for row in content.conventions for block in _convention_section_blocks(content, row)
    ]
    if content.ranks is not None:
        blocks += _rank_blocks(content.ranks)
    rows = [row for row in content.modules if choice.depth < 0 or row.depth <= choice.depth]
    if rows:
        blocks += [Heading("Top modules by depth"), _top_classes_table(content, rows, choice.top)]
    if rows and choice.detailed:
        blocks += [
            Heading("Modules, each including its submodules"),
            _module_tree_table(content, rows),
        ]
    blocks += [Text(text, " ! ", "bad") for text in content.errors]
    blocks += [Text(text, " ! ", "warn") for text in content.warnings]
    blocks.append(Heading("Assumed"))
    blocks += [Text(text, " - ") for text in content.assumptions]
    return Page(tuple(blocks))


def _profile_title(content: TrainingProfile) -> Title:
    """Return the title of a training profile: model, inputs, runtime, device, parameters."""
    parts = (
        content.name,
        *(
            f"{spec.name} {command_line_shape(spec.shape)} {spec.dtype}"
            for spec in content.model.inputs
        ),
        content.runtime,
        content.device,
        short_count_with_noun(content.params, "parameter"),
    )
    return Title(tuple(part for part in parts if part))


# The summary: a line for each phase.


def _profile_summary_table(content: TrainingProfile) -> Table:
    """Return a table of the phases of a training step: MACs, FLOPs, time, rate."""
    times, work = content.latencies, content.work
    repeated = work.recomputed_macs if content.has_backward else 0
    again = f" + {short_amount(repeated, 'MACs')} again" if repeated else ""
    rows = [
        _profile_phase_row(
            content, "forward", work.forward_macs, work.forward_flops, times.forward
        ),
        _profile_phase_row(
            content, "backward", content.backward_macs, content.backward_flops, times.backward
        ),
    ]
    rows.append(Row.from_cells("optimizer", "", "", _time_text(times.optimizer), "", ""))
    rows += [_extra_module_row(row) for row in content.beside]
    if content.watched is not None and content.rest is not None:
        rows.append(Row.from_cells("the rest", "", "", _time_text(content.rest), "", ""))
    flops = work.forward_flops + (content.backward_flops if content.has_backward else 0)
    flops += sum(_extra_module_flops(row) for row in content.beside)
    rows.append(
        _profile_phase_row(content, f"iteration{again}", content.step_macs, flops, content.seconds)
    )
    for word, value in _profile_names_and_values(content):
        rows.append(Row.from_cells(word, "", "", value, "", ""))
    heads = number_columns("MACs", "FLOPs", "time", "rate", "of peak")
    return Table(columns=(Column(head="", flows=True), *heads), rows=tuple(rows))


def _profile_phase_row(
    content: TrainingProfile, word: str, macs: int, flops: int, seconds: float | None
) -> Row:
    """Return the row of a phase: MACs, FLOPs, time, FLOP/s and share of the peak."""
    rate = content.rate(macs, seconds)
    written = "-" if rate is None else short_amount(rate, "FLOP/s")
    return Row.from_cells(
        word,
        short_amount(macs),
        short_amount(flops),
        _time_text(seconds),
        written,
        percent_text(content.of_peak(rate)),
    )


def _extra_module_row(row: BesideProfile) -> Row:
    """Return the row of a module outside the model: MACs, FLOPs, time, rate."""
    times = f", {row.calls} calls" if row.calls > 1 else ""
    name = f"beside: {row.class_}, {short_count_with_noun(row.params, 'parameter')}{times}"
    if row.training is None:
        return Row.from_cells(f"{name}, not counted", "-", "-", _time_text(row.seconds), "-", "")
    macs = row.training.macs
    rate = 2 * macs / row.seconds if row.seconds else None
    written = "-" if rate is None else short_amount(rate, "FLOP/s")
    return Row.from_cells(
        name,
        short_amount(macs),
        short_amount(_extra_module_flops(row)),
        _time_text(row.seconds),
        written,
        "",
    )


def _extra_module_flops(row: BesideProfile) -> int:
    """Return the FLOPs of training a module outside the model, or 0 if it is not trained."""
    return row.training.flops if row.training is not None else 0


def _time_text(seconds: float | None) -> str:
    """Return a time as text with its unit, or "-" if it is unknown."""
    return "-" if seconds is None else seconds_to_text(seconds)


def _profile_names_and_values(content: TrainingProfile) -> Iterable[tuple[str, str]]:
    """Yield (name, value) pairs of a profile: MFU, HFU, speed, parameter and activation bytes."""
    memory = content.memory
    if content.mfu is not None:
        yield "MFU", percent_text(content.mfu)
        yield "HFU", percent_text(content.hfu)
    if content.examples_per_second is not None:
        yield "samples/s", f"{content.examples_per_second:.4g}"
    if content.world_size > 1:
        yield "processes", str(content.world_size)
    yield "parameters", short_amount(memory.params, "B")
    yield "activations by liveness, forward only", short_amount(memory.by_liveness, "B")
    if memory.forward is not None:
        yield "activations measured, forward only", short_amount(memory.forward, "B")
    if memory.step is not None:
        yield "memory measured, whole step", short_amount(memory.step, "B")


# The same step in all processes.


def _rank_blocks(ranks: Ranks) -> list[Block]:
    """Return a table of the processes (ranks) of a step: samples, MACs, times, slowdown."""
    fastest = min((step.seconds for step in ranks.steps if step.seconds), default=None)
    rows = []
    for step in ranks.steps:
        times = step.latencies
        slower = step.seconds / fastest if step.seconds and fastest else None
        cells = (
            str(step.rank),
            "-" if step.examples is None else str(step.examples),
            short_amount(step.forward_macs + step.backward_macs),
            *map(_time_text, (times.forward, times.backward, step.seconds)),
            "-" if slower is None else f"{slower:.2f} x",
        )
        rows.append(Row(cells, "bad" if slower is not None and slower > _STRAGGLES else ""))
    heads = number_columns("samples", "MACs", "forward", "backward", "iteration", "of the fastest")
    table = Table(columns=(Column(head="rank", right=True), *heads), rows=tuple(rows))
    blocks: list[Block] = [Heading("Processes"), table]
    if ranks.sharing > 1:
        shared = f"{ranks.sharing} processes share one batch and have the same MACs"
        blocks.append(Text(f"{shared}, which are counted once", " - "))
    if ranks.macs is not None:
        rate = 2 * ranks.macs / ranks.seconds if ranks.seconds else None
        written = f", {short_amount(rate, 'FLOP/s')} by the slowest" if rate else ""
        blocks.append(Text(f"all together {short_amount(ranks.macs, 'MACs')}{written}", " - "))
    if ranks.missing:
        named = ", ".join(map(str, ranks.missing))
        blocks.append(Text(f"no profile was received from rank {named}", " ! "))
    return blocks


# The same step by a tool's convention.


def _convention_section_blocks(content: TrainingProfile, row: ConventionProfile) -> list[Block]:
    """Return the blocks on a tool's convention in a profile: its rates, and causes."""
    forward, backward = content.latencies.forward, content.latencies.backward
    both = None if forward is None or backward is None else forward + backward
    lines = []
    for word, seconds, times in (
        ("forward", forward, 1), ("backward", backward, 2), ("forward and backward", both, 3),
    ):  # fmt: skip
        rate, native = (
            content.rate(times * row.macs, seconds),
            content.rate(_native_phase_macs(content, times), seconds),
        )
        cells = (
            short_amount(times * row.macs),
            short_amount(2 * times * row.macs),
            _time_text(seconds),
        )
        rates = (
            "-" if value is None else short_amount(value, "FLOP/s") for value in (rate, native)
        )
        lines.append(Row.from_cells(word, *cells, *rates))
    heads = number_columns("MACs", "FLOPs", "time", "its rate", "native rate")
    if isinstance(row.printed, UnsetType):
        name = f"{row.tool}@{row.edition}"
        title = f"By the convention {name}: {short_amount(row.macs, 'MACs')}"
    else:
        name = f"{row.tool} {version_without_suffix(row.edition)}"
        title = f"{name} printed {exact_amount(row.printed)}: {short_amount(row.macs, 'MACs')}"
    blocks: list[Block] = [
        Heading(title),
        Table(columns=(Column(head=""), *heads), rows=tuple(lines)),
        Text(
            f"native {short_amount(content.work.forward_macs, 'MACs')}, to {name} by cause", " > "
        ),
    ]
    causes = [
        Row.from_cells(cause.cause, amount_with_sign(cause.amount)) for cause in row.differences
    ]
    causes.append(Row.from_cells("residual", amount_with_sign(row.residual)))
    blocks.append(Table(columns=(Column(), Column(right=True)), rows=tuple(causes), bare=True))
    against = percent_change(row.macs, content.work.forward_macs)
    blocks.append(Text(f"{name} is {against} from the native count", " - "))
    return blocks


def _native_phase_macs(content: TrainingProfile, times: int) -> int:
    """Return the native MACs of the forward pass (`times` 1), backward pass (2) or both (3)."""
    forward, backward = content.work.forward_macs, content.backward_macs
    return {1: forward, 2: backward, 3: forward + backward}[times]


# The top modules at each depth: those of one class together.


def _top_classes_table(content: TrainingProfile, rows: Iterable[ModuleProfile], top: int) -> Table:
    """Return a table of the largest module classes at each depth by parameters, MACs, time."""
    lines = []
    for depth, classes in classes_by_depth(rows).items():
        by_time = (
            _largest_classes(classes, "seconds", top) if content.modules[0].forward_seconds else []
        )
        lines.append(
            Row.from_cells(
                str(depth),
                _name_value_text(
                    (row.class_, short_amount(row.params))
                    for row in _largest_classes(classes, "params", top)
                ),
                _name_value_text(
                    (row.class_, short_amount(row.macs))
                    for row in _largest_classes(classes, "macs", top)
                ),
                _name_value_text((row.class_, seconds_to_text(row.seconds)) for row in by_time),
            )
        )
    columns = (
        Column(head="depth", right=True),
        *(
            Column(head=head, flows=True)
            for head in ("parameters", "forward MACs", "forward time")
        ),
    )
    return Table(columns=columns, rows=tuple(lines))


def _largest_classes(
    classes: Iterable[ClassesAtDepth], name: str, top: int
) -> list[ClassesAtDepth]:
    """Return the `top` module classes with the largest attribute `name`, without zeros."""
    ordered = sorted(classes, key=lambda row: -getattr(row, name))
    return [row for row in ordered if getattr(row, name)][:top]


def _name_value_text(pairs: Iterable[tuple[str, str]]) -> str:
    """Return the pairs as text: name and value each, joined by ", "; "-" if there are none."""
    return ", ".join(f"{name} {value}" for name, value in pairs) or "-"


# The tree.


def _module_tree_table(content: TrainingProfile, rows: Iterable[ModuleProfile]) -> Table:
    """Return a table of the module tree: parameters, MACs, bytes, times and rates."""
    columns = (
        Column(head="module", flows=True),
        Column(head="class", spare=4, flows=True),
        Column(head="params", right=True, spare=2),
        *number_columns("MACs", "share"),
        Column(head="bytes", right=True, spare=3),
        *number_columns("forward", "share", "backward"),
        Column(head="share", right=True, spare=1),
        *number_columns("rate"),
        Column(head="of peak", right=True, spare=1),
    )
    return Table(columns=columns, rows=tuple(_profile_module_row(content, row) for row in rows))


def _profile_module_row(content: TrainingProfile, row: ModuleProfile) -> Row:
    """Return the row of a module: parameters, MACs, bytes, forward and backward time."""
    model = content.modules[0]
    forward, backward = row.forward_seconds, row.backward_seconds
    rate = row.rate
    of_peak = content.of_peak(rate)
    cells = (
        f"{'  ' * row.depth}{row.path.rpartition('.')[2] or '(the model)'}",
        row.class_,
        short_amount(row.params),
        short_amount(row.macs),
        percent_share(row.macs, model.macs),
        percent_share(row.bytes, model.bytes),
        _time_text(forward),
        percent_share(forward, model.forward_seconds or 0) if forward is not None else "-",
        _time_text(backward),
        percent_share(backward, model.backward_seconds or 0) if backward is not None else "-",
        "-" if not rate else short_amount(rate, "FLOP/s"),
        percent_text(of_peak) if of_peak else "-",
    )
    return Row(cells, "bad" if (of_peak or 0) > 1 else "")
