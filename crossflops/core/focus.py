"""A report restricted to one module and what is beneath it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from crossflops.core.profile import Amount, Failure, Profile
from crossflops.core.reconciliation import Explanation, PathRow, Reconciliation
from crossflops.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from crossflops.core.report import ModuleRow, Report

_SHOWN = 6  # paths that an error names


def focus(report: "Report", path: str) -> "Report":
    """What the report says of the module at `path`: rows, and every tool's account of it.

    The totals stay those of the model. A tool that reports no number for the module is taken to
    count what was predicted, and its row has no `theirs`. Raises UnknownNameError where there is
    no such module, InputError for a report that does not hold causes by path.
    """
    module = _module(report, path)
    found = tuple(_account(one, path) for one in report.reconciliations or ())
    theirs = {one.tool: one.theirs for one in found}

    def restricted(profile: Profile | Failure) -> Profile | Failure:
        if isinstance(profile, Failure):
            return profile
        entries = tuple(one for one in profile.entries if beneath(one.path, path))
        total = theirs.get(profile.tool, profile.total)
        return replace(profile, total=total, params=None, entries=entries)

    nodes = tuple(one for one in report.nodes if beneath(one.path, path))
    present = Counter(one.op for one in nodes)
    sums = {
        op: [
            sum(getattr(one, kind) for one in nodes if one.op == op) for kind in ("macs", "flops")
        ]
        for op in present
    }
    return replace(
        report,
        against=UNSET,  # the other model has no such module
        module=module,
        modules=tuple(one for one in report.modules if beneath(one.path, path)),
        nodes=nodes,
        by_op=tuple(
            replace(row, count=present[row.op], macs=sums[row.op][0], flops=sums[row.op][1])
            for row in report.by_op
            if row.op in present
        ),
        profiles=tuple(map(restricted, report.profiles)) if report.profiles else report.profiles,
        reconciliations=found if report.reconciliations else report.reconciliations,
    )


def beneath(path: str, module: str) -> bool:
    """Whether a path is that of the module, or lies in it."""
    return not module or path == module or path.startswith(f"{module}.")


def _module(report: "Report", path: str) -> "ModuleRow":
    rows = {row.path: row for row in report.modules}
    if path in rows:
        return rows[path]
    if not any(rows):
        raise UnknownNameError(
            f"there is no module {path!r}: this report has none", "leave --module out"
        )
    known = [one for one in rows if one]
    near = get_close_matches(path, known, n=_SHOWN, cutoff=0.5) or known[:_SHOWN]
    raise UnknownNameError(f"there is no module {path!r}", f"modules like it: {', '.join(near)}")


def _account(whole: Reconciliation, path: str) -> Reconciliation:
    rows = tuple(row for row in whole.by_path if beneath(row.path, path))
    row = next(
        (one for one in rows if one.path == path),
        PathRow(path=path, ours=0, predicted=0, causes={}),
    )
    if not isinstance(row.causes, dict):
        raise InputError(
            "this report does not say which causes a module has",
            "compare the model again with this release",
        )
    return replace(
        whole,
        ours=row.ours,
        theirs=row.predicted if row.theirs is None else row.theirs,
        predicted=row.predicted,
        explanations=tuple(
            _explanation(cause, amount, whole.explanations, path)
            for cause, amount in row.causes.items()
        ),
        by_path=rows,
        params=UNSET,
    )


def _explanation(
    cause: str, amount: Amount, whole: Iterable[Explanation], path: str
) -> Explanation:
    same = [one for one in whole if one.cause == cause]
    return Explanation(
        cause=cause,
        amount=amount,
        calls=tuple(_calls(same, path)),
        reference=same[0].reference if same else "",
    )


def _calls(explanations: Iterable[Explanation], path: str) -> Iterator[str]:
    """The calls whose keys begin in the module: `layer1.0.conv1/F.conv2d`, `layer1.0@2`."""
    for one in explanations:
        for call in one.calls:
            if beneath(call.partition("/")[0].partition("@")[0], path):
                yield call
