"""What compilation changed: the instructions of the compiled program against the lowered ones."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import msgspec

from crossflops.conventions.formulas.xla import flops
from crossflops.core.trace import Call

Key: TypeAlias = tuple[object, ...]
Pairs: TypeAlias = dict[str, Call]  # the lowered instruction by the key of the compiled one
# What is known of an instruction from the lowered program, where more of it can be told.
_FACTS = ("layer", "function", "backward", "numbers", "after", "pooled", "in_loop", "alone")


def compared(lowered: Iterable[Call], compiled: Iterable[Call]) -> Iterator[Call]:
    """The compiled instructions in their order, then those that are not there any more.

    `change` says of each whether compilation "kept" it, or it "came" or is "gone"; one that came
    beside its equal is there "again", one that is gone beside its equal stands "once". What is
    kept or gone was `lowered`, and is told as there. An instruction that counts nothing, and a
    branch that is not counted, is of no change.
    """
    before, after = list(lowered), list(compiled)
    pairs = _pairs(filter(_counts, before), list(filter(_counts, after)))
    taken = {one.key for one in pairs.values()}
    equal = {_named(one) for one in pairs.values()}
    for call in after:
        if call.key in pairs:
            yield _kept(call, pairs[call.key])
        else:
            change = ("again" if _named(call) in equal else "came") if _counts(call) else ""
            yield _changed(call, change, lowered=False)
    for call in before:
        if call.key in taken or (flops(call) == 0 and not call.of):
            continue
        change = ("once" if _named(call) in equal else "gone") if _counts(call) else ""
        yield _changed(_of_compilation(call), change, lowered=True)


def _counts(call: Call) -> bool:
    return call.settings.get("chosen") is True and flops(call) != 0


def _named(call: Call) -> Key:
    return (call.target, flops(call), call.settings["names"])


def _alike(call: Call) -> Key:
    return (call.target, flops(call))


def _pairs(before: Iterable[Call], after: list[Call]) -> Pairs:
    """Instructions that do the same work: under the same names, or else under any."""
    left = list(before)
    found: Pairs = {}
    for key in (_named, _alike):
        found |= _matched(left, [one for one in after if one.key not in found], key)
        taken = Counter(one.key for one in found.values())
        left = [one for one in left if one.key not in taken]
    return found


def _matched(before: list[Call], after: list[Call], key: Callable[[Call], Key]) -> Pairs:
    waiting: dict[Key, list[Call]] = defaultdict(list)
    for one in reversed(before):
        waiting[key(one)].append(one)
    return {one.key: waiting[key(one)].pop() for one in after if waiting[key(one)]}


def _kept(call: Call, before: Call) -> Call:
    facts = {name: before.settings[name] for name in _FACTS if name in before.settings}
    settings = {**call.settings, **facts}
    return _changed(
        msgspec.structs.replace(
            call, settings=settings, parent=before.parent, module=before.module, of=before.of
        ),
        "kept",
        lowered=True,
    )


def _of_compilation(call: Call) -> Call:
    key = f"compiled:({call.key.partition(':')[2]})"
    settings = {**call.settings, "nest": []}
    return msgspec.structs.replace(call, key=key, storey="compiled", settings=settings)


def _changed(call: Call, change: str, lowered: bool) -> Call:
    settings = {**call.settings, "change": change, "lowered": lowered}
    return msgspec.structs.replace(call, settings=settings)
