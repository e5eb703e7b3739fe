"""What every page of a report begins with: which model, or which module of it, and its totals."""

from crossflops.core.observation import Run
from crossflops.core.report import InputInfo, ModuleRow, Report
from crossflops.core.trace import Setting
from crossflops.render.page import Block, Text, Title
from crossflops.render.quantity import number, shape, short


def title(report: Report) -> Title:
    """Which model, and its totals."""
    totals, run = report.totals, report.observed
    if isinstance(report.module, ModuleRow):
        return _module_title(report.module, report)
    parts = [
        report.name,
        short(totals.params) + (" parameter" if totals.params == 1 else " parameters"),
        *inputs(report.model.inputs),
        *_setting(report.setting),
        *([f"sizes from a run of {run.runtime}"] if isinstance(run, Run) and run.runtime else []),
        short(totals.macs, "MACs"),
        f"{short(totals.flops, 'FLOPs')} (native, {exactness(report)})",
    ]
    return Title(tuple(parts))


def values(report: Report) -> list[Block]:
    """On which values of the inputs sizes depend, and what a reader should know of that."""
    run = report.observed
    if not isinstance(run, Run):
        return []
    nodes = sum(node.depends_on_inputs is True for node in report.nodes)
    depends = f"; {number(nodes, 'node')} would have others for other values" if nodes else ""
    sizes = [f"Sizes are those of a run on {run.inputs}{depends}."] if run.runtime else []
    notes = [f"{note[:1].upper()}{note[1:]}." for note in run.notes]
    return [*(Text(text, " ") for text in sizes), *(Text(note, " ", "warn") for note in notes)]


def _module_title(module: ModuleRow, report: Report) -> Title:
    return Title(
        (
            f"{module.path or '(the model)'} of {report.name}",
            module.class_,
            f"{short(module.params)} parameter{'' if module.params == 1 else 's'}",
            *inputs(report.model.inputs),
            *_setting(report.setting),
            short(module.macs, "MACs"),
            f"{short(module.flops, 'FLOPs')} (native, {exactness(report)})",
        )
    )


def exactness(report: Report) -> str:
    """How far the totals can be trusted, in the words of the weakest node."""
    if report.uncounted:
        return f"without {number(len(report.uncounted), 'uncounted node')}"
    found = {node.exactness for node in report.nodes}
    weakest = next((word for word in ("estimate", "bound") if word in found), "exact")
    return {"bound": "an upper bound", "estimate": "an estimate"}.get(weakest, weakest)


def inputs(given: tuple[InputInfo, ...]) -> list[str]:
    """Every input, by its name where there are several."""
    if len(given) == 1:
        return [f"input {shape(given[0].shape)} {given[0].dtype}"]
    return [f"{one.name} {shape(one.shape)} {one.dtype}" for one in given]


def _setting(setting: object) -> list[str]:
    if not isinstance(setting, Setting):
        return []
    parts = [] if setting.device == "cpu" else [setting.device]
    parts += ["train mode"] if setting.training else []
    return parts if setting.grad else [*parts, "no grad"]
