"""Choose the number to publish: the sentence to cite, its caveats, and how each tool relates to
it.
"""

from crossflops.ir.profile import Amount
from crossflops.ir.reconciliation import Explanation
from crossflops.ir.trace import Setting
from crossflops.report.comparison import Consensus, Position, Verdict, tool_positions
from crossflops.report.quantity import (
    amount_with_sign,
    command_line_shape,
    count_with_noun,
    exact_amount,
    percent_change,
    short_amount,
    version_without_suffix,
)
from crossflops.report.report import ModuleRow, Report

_NAMED = 3  # causes, tools and operators that are named before the rest is only numbered

_WEAKER = {
    "estimate": (
        "about",
        "an estimate: the algorithm of some nodes is not defined by their operator",
    ),
    "bound": ("at most", "an upper bound: the work of some nodes depends on the data"),
}


def build_consensus(report: Report) -> Consensus:
    """Return the MACs to publish, the sentence to cite, its caveats, and a verdict for each
    tool.
    """
    macs = report.scope.macs
    tools = tool_positions(report.profiles or (), report.reconciliations or ())
    caveats = tuple(_caveat_sentences(report))
    return Consensus(
        macs=macs,
        flops=2 * macs,
        citable=not caveats,
        sentence=_citation_sentence(report, tools, caveats),
        reason=_agreement_reason(tools),
        caveats=caveats,
        verdicts=tuple(
            Verdict(
                tool=tool.tool,
                version=tool.version,
                stand=tool.stand,
                why=_position_reason(tool, macs),
            )
            for tool in tools
        ),
    )


def _inexact_grades(report: Report) -> list[str]:
    """Return the grades of inexact nodes with MACs, ["estimate", "bound"] or a part of it, the
    weakest first.
    """
    grades = {node.exactness for node in report.nodes if node.macs}
    return [grade for grade in _WEAKER if grade in grades]


def _caveat_sentences(report: Report) -> list[str]:
    """Return one sentence for each reason why the MACs are not exact: uncounted nodes, estimates,
    upper bounds.
    """
    caveats = []
    if report.uncounted:
        kinds = _join_names(sorted({row.op for row in report.uncounted}), "operator")
        caveats.append(
            f"{count_with_noun(len(report.uncounted), 'node')} could not be counted "
            f"({kinds}); their work is unknown, not zero"
        )
    return caveats + [_WEAKER[grade][1] for grade in _inexact_grades(report)]


def _citation_sentence(
    report: Report, tools: tuple[Position, ...], caveats: tuple[str, ...]
) -> str:
    """Return the sentence to cite, with the model, its MACs, what counts, the caveats, and which
    tools agree.
    """
    macs = report.scope.macs
    about = [*(_WEAKER[grade][0] for grade in _inexact_grades(report)), ""][0]
    about = "at least" if report.uncounted and not about else about
    value = (
        f"{exact_amount(macs)} multiply-accumulates (MACs; "
        f"{short_amount(2 * macs, 'FLOPs')} at 2 per MAC)"
    )
    parts = [
        f"{_consensus_subject(report)}: {about} {value} for {_pass_description(report)}".replace(
            ":  ", ": "
        ),
        f"contractions only{_operators_with_macs_text(report)}, "
        "no biases, normalizations or activations",
    ]
    if report.totals.constant_macs and not isinstance(report.module, ModuleRow):
        parts[1] += f"; {exact_amount(report.totals.constant_macs)} of these depend on no input"
    text = f"{', '.join(parts)}; {_counter_description(report)}"
    return "; ".join([text, *caveats, *_agreement_clauses(tools)]) + "."


def _consensus_subject(report: Report) -> str:
    """Return the name of the model, or "MODULE of MODEL" for a report of one module."""
    if not isinstance(report.module, ModuleRow) or not report.module.path:
        return report.name
    return f"{report.module.path} of {report.name}"


def _pass_description(report: Report) -> str:
    """Return a text for the counted run, such as "one forward pass at input 1x3x224x224 float32,
    in evaluation mode".
    """
    provided = report.model.inputs
    inputs = [
        f"{command_line_shape(spec.shape)} {spec.dtype}"
        if len(provided) == 1
        else f"{spec.name} {command_line_shape(spec.shape)} {spec.dtype}"
        for spec in provided
    ]
    setting = report.setting
    mode = [f"one forward pass at input {' and '.join(inputs)}" if inputs else "one forward pass"]
    if isinstance(setting, Setting):
        mode.append("in training mode" if setting.training else "in evaluation mode")
        mode += [] if setting.grad else ["without gradients"]
    return ", ".join(mode)


def _operators_with_macs_text(report: Report) -> str:
    """Return the operators with MACs in parentheses, the largest first, with a space before; "" if
    there are none.
    """
    rows = sorted((row for row in report.by_op if row.macs), key=lambda row: -row.macs)
    return f" ({_join_names([row.op for row in rows], 'operator')})" if rows else ""


def _counter_description(report: Report) -> str:
    """Return a text that names the versions of crossflops, of the ONNX opset and of torch."""
    versions = report.made_with or {}
    counter = f"crossflops {versions['crossflops']}" if "crossflops" in versions else "crossflops"
    opset = report.model.opset.get("")
    graph = f"the ONNX graph (opset {opset})" if opset else "the ONNX graph"
    exporter = (
        f" exported by torch {version_without_suffix(versions['torch'])}"
        if "torch" in versions
        else ""
    )
    return f"counted by {counter} on {graph}{exporter}"


def _agreement_clauses(tools: tuple[Position, ...]) -> list[str]:
    """Return one clause for the tools whose totals agree, and one for those that agree without
    other operations; [] if none does.
    """
    clauses = []
    for stand, condition in (
        ("agrees", ""),
        ("agrees after", " after operations outside of contractions are subtracted"),
    ):
        names = [
            f"{tool.tool} {version_without_suffix(tool.version)}"
            for tool in tools
            if tool.stand == stand
        ]
        if names:
            verb = "agrees" if len(names) == 1 else "agree"
            clauses.append(f"{_join_names(names, 'tool')} {verb}{condition}")
    return clauses


def _agreement_reason(tools: tuple[Position, ...]) -> str:
    """Return a sentence that says how many tools count these MACs."""
    stands = [tool.stand for tool in tools if tool.stand != "failed"]
    same, after = stands.count("agrees"), stands.count("agrees after")
    if not stands:
        return "all tools count the MACs of contractions; no tool was run on this model"
    if same or after:
        return (
            f"{same + after} of {count_with_noun(len(stands), 'tool')} count these MACs, "
            f"{after} of them plus other operations, each by its own rules"
        )
    return (
        f"none of {count_with_noun(len(stands), 'tool')} counts exactly these MACs: they are "
        "exact for each node, and the difference to each tool is explained"
    )


def _position_reason(tool: Position, macs: int) -> str:
    """Return one line that says why a tool's total is not the native MACs, or that it is the same,
    or how the tool failed.
    """
    if tool.failure is not None:
        return f"{tool.failure.stage}: {tool.failure.message}"
    if tool.stand == "unexplained":
        return f"{amount_with_sign(tool.residual)} of its total is not explained"
    if tool.unit == 0:
        return "counts no MACs"
    if tool.stand == "agrees":
        return "the same" if tool.unit in (None, 1) else f"the same, at {tool.unit} per MAC"
    separate = "" if tool.as_macs is None else f"{percent_change(tool.as_macs, macs)} "
    config = "on top" if tool.stand == "agrees after" else "as MACs"
    return f"{separate}{config}: {_causes_text(tool.causes)}"


def _causes_text(causes: tuple[Explanation, ...]) -> str:
    """Return a text with the causes and their amounts, the largest first."""
    rows = sorted(causes, key=lambda row: -abs(row.amount))
    return _join_names(
        [f"{row.cause} {_short_amount_with_sign(row.amount)}" for row in rows], "cause"
    )


def _short_amount_with_sign(amount: Amount) -> str:
    """Return an amount as text with its sign, four digits and an SI prefix, such as "+1.234 G"."""
    return f"{'-' if amount < 0 else '+'}{short_amount(abs(amount))}"


def _join_names(names: list[str], singular: str) -> str:
    """Return the names joined by commas; of a long list only the first ones and the number of the
    others.

    >>> _join_names(["a", "b", "c", "d"], "tool"), _join_names(["a", "b", "c", "d", "e"], "tool")
    ('a, b, c, d', 'a, b, c and 2 more tools')
    """
    rest = len(names) - _NAMED
    if rest <= 1:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMED])} and {rest} more {singular}s"
