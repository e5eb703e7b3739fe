"""How XLA's cost analysis reads a program: which branches it counts, and what compilation changed.

The recording of a program says what is in it (`branches`); that the most expensive branch of a
condition counts is the tool's rule: xla/service/hlo_cost_analysis.cc, HandleConditional.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias, cast

import msgspec

from crossflops.ir.trace import Call, Trace
from crossflops.tools.xla.analysis import flops

Branch: TypeAlias = tuple[str, int, int]  # a condition, the number of the branch, of how many
Key: TypeAlias = tuple[object, ...]
Pairs: TypeAlias = dict[str, Call]  # the lowered instruction by the key of the compiled one
# What is known of an instruction from the lowered program, where more of it can be told.
_FACTS = ("layer", "function", "backward", "numbers", "after", "pooled", "in_loop", "alone")


def _compared(lowered: Iterable[Call], compiled: Iterable[Call]) -> Iterator[Call]:
    """The compiled instructions in their order, then those that compilation `removed`.

    `change` says whether one was "kept" or "rewritten": put in or removed. One that was put in
    beside its equal is there "again", one that was removed beside its equal stands "once". What
    was `lowered` is told as it is there. What counts nothing, and a branch that is not counted,
    is of no change.
    """
    before, after = list(lowered), list(compiled)
    pairs = _pairs(filter(_counts, before), list(filter(_counts, after)))
    taken = {partner.key for partner in pairs.values()}
    equal = {_named(partner) for partner in pairs.values()}

    def kind(call: Call, repeated: str) -> str:
        return "" if not _counts(call) else repeated if _named(call) in equal else "rewritten"

    for call in after:
        if call.key in pairs:
            yield _kept(call, pairs[call.key])
        else:
            yield _changed(call, kind(call, "again"), lowered=False, removed=False)
    for call in before:
        if call.key not in taken and (flops(call) or call.of):
            yield _changed(_of_compilation(call), kind(call, "once"), lowered=True, removed=True)


def _counts(call: Call) -> bool:
    return call.settings.get("chosen") is True and flops(call) != 0


def _named(call: Call) -> Key:
    return (call.target, flops(call), call.settings["names"])


def _alike(call: Call) -> Key:
    return (call.target, flops(call))


def _pairs(before: Iterable[Call], after: list[Call]) -> Pairs:
    """Instructions that do the same work: under the same names, or else under any."""
    left = list(before)
    pairs: Pairs = {}
    for key in (_named, _alike):
        pairs |= _matched(left, [call for call in after if call.key not in pairs], key)
        taken = Counter(call.key for call in pairs.values())
        left = [call for call in left if call.key not in taken]
    return pairs


def _matched(before: list[Call], after: list[Call], key: Callable[[Call], Key]) -> Pairs:
    waiting: dict[Key, list[Call]] = defaultdict(list)
    for call in reversed(before):
        waiting[key(call)].append(call)
    return {call.key: waiting[key(call)].pop() for call in after if waiting[key(call)]}


def _kept(call: Call, before: Call) -> Call:
    facts = {name: before.settings[name] for name in _FACTS if name in before.settings}
    own = msgspec.structs.replace(
        call,
        settings={**call.settings, **facts},
        parent=before.parent,
        module=before.module,
        of=before.of,
    )
    return _changed(own, "kept", lowered=True, removed=False)


def _of_compilation(call: Call) -> Call:
    key = f"compiled:({call.key.partition(':')[2]})"
    settings = {**call.settings, "nest": []}
    return msgspec.structs.replace(call, key=key, level="compiled", settings=settings)


def _changed(call: Call, change: str, lowered: bool, removed: bool) -> Call:
    facts = {"change": change, "lowered": lowered, "removed": removed}
    return msgspec.structs.replace(call, settings={**call.settings, **facts})


def with_branches(calls: Sequence[Call]) -> list[Call]:
    """The instructions, each with `chosen`: whether it is in no branch but the dearest ones.

    Of branches that cost the same the first one counts.
    """
    costs: dict[str, list[int]] = {}
    for call in calls:
        for condition, number, count in _branches(call):
            costs.setdefault(condition, [0] * count)[number] += flops(call)
    dearest = {condition: each.index(max(each)) for condition, each in costs.items()}
    return [
        msgspec.structs.replace(
            call,
            settings={
                **call.settings,
                "chosen": all(
                    dearest[condition] == number for condition, number, _ in _branches(call)
                ),
            },
        )
        for call in calls
    ]


def _branches(call: Call) -> Sequence[Branch]:
    return cast(Sequence[Branch], call.settings.get("branches", ()))


def read(calls: Sequence[Call], trace: Trace) -> list[Call]:
    """The instructions of a program as the analysis counts them.

    Those of a compiled program are compared with the lowered one of the same setting.
    """
    if not any(call.level == "compiled" for call in calls):
        return with_branches(calls)
    settings = {call.setting for call in calls}
    lowered = [
        call for call in trace.observed if call.level == "lowered" and call.setting in settings
    ]
    return list(_compared(with_branches(lowered), with_branches(calls)))
