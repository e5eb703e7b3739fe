"""Which number to publish: the native MACs, worded so that they can be cited and checked."""

from fractions import Fraction
from math import isfinite

from crossflops.ir.profile import Amount, Failure, Profile
from crossflops.ir.reconciliation import Explanation, Reconciliation
from crossflops.ir.trace import Setting
from crossflops.render.pages.comparison import native, release
from crossflops.render.quantity import change, exact, number, shape, short, signed
from crossflops.report.consensus import Consensus, Stand, Verdict
from crossflops.report.report import ModuleRow, Report

PER_MAC = "unit.mac-vs-flop"
_NAMED = 3  # causes, tools and operators that are named before the rest is only numbered
_WEAKER = {
    "estimate": ("about", "an estimate: no operator fixes the algorithm of some nodes"),
    "bound": ("at most", "an upper bound: the work of some nodes depends on the data"),
}


def consensus(report: Report) -> Consensus:
    """The sentence, the reason, and what each tool makes of the number."""
    macs = native(report)
    verdicts = tuple(_verdict(report, one, macs) for one in report.profiles or ())
    caveats = tuple(_caveats(report))
    return Consensus(
        macs=macs,
        flops=2 * macs,
        citable=not caveats,
        sentence=_sentence(report, macs, verdicts, caveats),
        reason=_reason(verdicts),
        caveats=caveats,
        verdicts=verdicts,
    )


def _caveats(report: Report) -> list[str]:
    """What no sentence about the number may leave out."""
    found = []
    if report.uncounted:
        kinds = _some(sorted({one.op for one in report.uncounted}), "operator")
        found.append(
            f"{number(len(report.uncounted), 'node')} could not be counted ({kinds}), "
            "and what is unknown is not zero"
        )
    grades = {node.exactness for node in report.nodes if node.macs}
    found += [what for grade, (_, what) in _WEAKER.items() if grade in grades]
    return found


def _sentence(
    report: Report, macs: int, verdicts: tuple[Verdict, ...], caveats: tuple[str, ...]
) -> str:
    grades = {node.exactness for node in report.nodes if node.macs}
    about = next((word for grade, (word, _) in _WEAKER.items() if grade in grades), "")
    about = "at least" if report.uncounted and not about else about
    value = f"{exact(macs)} multiply-accumulates (MACs; {short(2 * macs, 'FLOPs')} at 2 per MAC)"
    parts = [
        f"{_name(report)}: {about} {value} for {_pass(report)}".replace(":  ", ": "),
        f"contractions only{_operators(report)}, no biases, normalizations or activations",
    ]
    if report.totals.constant_macs and not isinstance(report.module, ModuleRow):
        parts[1] += f"; {exact(report.totals.constant_macs)} of these depend on no input"
    text = f"{', '.join(parts)}; {_counted_by(report)}"
    return "; ".join([text, *caveats, *_agreement(verdicts)]) + "."


def _name(report: Report) -> str:
    name = report.name
    if not isinstance(report.module, ModuleRow) or not report.module.path:
        return name
    return f"{report.module.path} of {name}"


def _pass(report: Report) -> str:
    """One forward pass, on which inputs and in which setting."""
    inputs = [
        f"{shape(one.shape)} {one.dtype}"
        if len(report.model.inputs) == 1
        else f"{one.name} {shape(one.shape)} {one.dtype}"
        for one in report.model.inputs
    ]
    setting = report.setting
    mode = [f"one forward pass at input {' and '.join(inputs)}" if inputs else "one forward pass"]
    if isinstance(setting, Setting):
        mode.append("in training mode" if setting.training else "in evaluation mode")
        mode += [] if setting.grad else ["without gradients"]
    return ", ".join(mode)


def _operators(report: Report) -> str:
    rows = sorted((row for row in report.by_op if row.macs), key=lambda row: -row.macs)
    return f" ({_some([row.op for row in rows], 'operator')})" if rows else ""


def _counted_by(report: Report) -> str:
    made = report.made_with or {}
    tool = f"crossflops {made['crossflops']}" if "crossflops" in made else "crossflops"
    opset = report.model.opset.get("")
    graph = f"the ONNX graph (opset {opset})" if opset else "the ONNX graph"
    by = f" exported by torch {release(made['torch'])}" if "torch" in made else ""
    return f"counted by {tool} on {graph}{by}"


def _agreement(verdicts: tuple[Verdict, ...]) -> list[str]:
    found = []
    same = _tools(verdicts, "agrees")
    after = _tools(verdicts, "agrees after")
    if same:
        found.append(f"{_some(same, 'tool')} {'agrees' if len(same) == 1 else 'agree'}")
    if after:
        verb = "agrees" if len(after) == 1 else "agree"
        what = "operations outside of contractions are taken away"
        found.append(f"{_some(after, 'tool')} {verb} when {what}")
    return found


def _tools(verdicts: tuple[Verdict, ...], stand: Stand) -> list[str]:
    return [f"{one.tool} {release(one.version)}" for one in verdicts if one.stand == stand]


def _reason(verdicts: tuple[Verdict, ...]) -> str:
    asked = [one for one in verdicts if one.stand != "failed"]
    same, after = _tools(verdicts, "agrees"), _tools(verdicts, "agrees after")
    if not asked:
        return (
            "MACs of contractions are what tools have in common; none was asked about this model"
        )
    if same or after:
        return (
            f"{len(same) + len(after)} of {number(len(asked), 'tool')} count these MACs, "
            f"{len(after)} of them with further operations on top, each by rules of its own"
        )
    return (
        f"none of {number(len(asked), 'tool')} counts just these MACs: they are exact node by "
        "node, and the way from them to each tool is explained"
    )


def _verdict(report: Report, one: Profile | Failure, macs: int) -> Verdict:
    if isinstance(one, Failure):
        return Verdict(
            tool=one.tool, version="", stand="failed", why=f"{one.stage}: {one.message}"
        )
    stand, why = _stand(report.reconciliation(one.tool), macs)
    return Verdict(tool=one.tool, version=one.version, stand=stand, why=why)


def _stand(found: Reconciliation, macs: int) -> tuple[Stand, str]:
    """What stands between the tool and the number, apart from its unit."""
    if found.residual:
        return "unexplained", f"{signed(found.residual)} of its total is not explained"
    unit = found.unit if isinstance(found.unit, int) else None
    others = [one for one in found.explanations if one.cause != PER_MAC and one.amount]
    if unit == 0:
        return "differs", "counts no MACs"
    if not others:
        return "agrees", f"the same, at {unit} per MAC" if unit not in (None, 1) else "the same"
    apart = ""
    if unit and isfinite(found.theirs):
        apart = f"{change(Fraction(found.theirs) / unit, macs)} "
    core = [one for one in others if one.macs]
    if core or any(not isinstance(one.macs, int) for one in others):
        return "differs", f"{apart}as MACs: {_causes(others)}"
    return "agrees after", f"{apart}on top: {_causes(others)}"


def _causes(found: list[Explanation]) -> str:
    rows = sorted(found, key=lambda one: -abs(one.amount))
    return _some([f"{one.cause} {_about(one.amount)}" for one in rows], "cause")


def _about(amount: Amount) -> str:
    return f"{'-' if amount < 0 else '+'}{short(abs(amount))}"


def _some(names: list[str], noun: str) -> str:
    """The first names, and how many more there are; all of them where one is left.

    >>> _some(["a", "b", "c", "d"], "tool"), _some(["a", "b", "c", "d", "e"], "tool")
    ('a, b, c, d', 'a, b, c and 2 more tools')
    """
    rest = len(names) - _NAMED
    if rest <= 1:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMED])} and {rest} more {noun}s"
