"""The programs that XLA is given and makes of a JAX model, and what compilation changed."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any, TypeAlias

import msgspec

from crossflops.errors import NormalizeError
from crossflops.frontends.jax.model import Pure, apart
from crossflops.frontends.jax.xla.calls import calls, owner
from crossflops.frontends.jax.xla.hlo import Program, read
from crossflops.ir.graph import Graph, Node
from crossflops.ir.trace import Call, Setting, Trace, View
from crossflops.tools.formulas.xla import flops

# What compilation changed: the instructions of the compiled program against the lowered ones.

Key: TypeAlias = tuple[object, ...]
Pairs: TypeAlias = dict[str, Call]  # the lowered instruction by the key of the compiled one
# What is known of an instruction from the lowered program, where more of it can be told.
_FACTS = ("layer", "function", "backward", "numbers", "after", "pooled", "in_loop", "alone")


def compared(lowered: Iterable[Call], compiled: Iterable[Call]) -> Iterator[Call]:
    """The compiled instructions in their order, then those that compilation `removed`.

    `change` says whether one was "kept" or "rewritten": put in or removed. One that was put in
    beside its equal is there "again", one that was removed beside its equal stands "once". What
    was `lowered` is told as it is there. What counts nothing, and a branch that is not counted,
    is of no change.
    """
    before, after = list(lowered), list(compiled)
    pairs = _pairs(filter(_counts, before), list(filter(_counts, after)))
    taken = {one.key for one in pairs.values()}
    equal = {_named(one) for one in pairs.values()}

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
    told = {"change": change, "lowered": lowered, "removed": removed}
    return msgspec.structs.replace(call, settings={**call.settings, **told})


# Which operator call a product or a convolution of an HLO program was lowered from.

_CONTRACTIONS = ("dot", "convolution")
_PRODUCTS = (
    "Attention", "Conv", "ConvInteger", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM",
    "MatMul", "MatMulInteger", "QLinearConv", "QLinearMatMul", "RNN",
)  # fmt: skip


def contracting(calls: Iterable[Call], graph: Graph) -> list[Call]:
    """The operator calls that nodes with products in them belong to, in their order."""
    found = {one.call for one in _everywhere(graph.nodes) if one.op.type in _PRODUCTS}
    return [call for call in calls if call.level == "operator" and call.key in found]


def _everywhere(nodes: Iterable[Node]) -> Iterator[Node]:
    for node in nodes:
        yield node
        for body in node.bodies:
            yield from _everywhere(body.nodes)


def linked(instructions: Sequence[Call], operators: Sequence[Call]) -> tuple[Call, ...]:
    """The instructions, each contraction with the operator calls whose work it does.

    Both are in the order of the model, and matched by module and size of result. An operator
    that is lowered to several instructions (attention) goes with one of them; one without a match
    goes with an instruction in its module, if there is any. A contraction that was matched with
    nothing, where there are operators, stands `alone`.
    """
    contractions = sorted((one for one in instructions if one.target in _CONTRACTIONS), key=_place)
    of: dict[str, list[str]] = {one.key: [] for one in contractions}
    for one, operator in _linked(contractions, operators):
        of[one.key].append(operator.key)
    known = bool(operators)
    return tuple(_link(one, of[one.key], known) if one.key in of else one for one in instructions)


def _linked(
    contractions: Sequence[Call], operators: Sequence[Call]
) -> Iterator[tuple[Call, Call]]:
    first, second = [_key(one) for one in contractions], [_key(one) for one in operators]
    left = dict(enumerate(operators))
    for block in SequenceMatcher(None, first, second, autojunk=False).get_matching_blocks():
        for number in range(block.size):
            yield contractions[block.a + number], left.pop(block.b + number)
    homes = {one.module: one for one in contractions}
    for operator in left.values():
        if operator.module in homes:
            yield homes[operator.module], operator


def _place(call: Call) -> tuple[int, ...]:
    place = call.settings["place"]
    return tuple(place) if isinstance(place, list) else ()


def _key(call: Call) -> tuple[int, int]:
    shape = call.outputs[0].shape if call.outputs else None
    return call.module, call.outputs[0].numel if shape is not None else 0


def _link(call: Call, of: list[str], known: bool) -> Call:
    settings = {**call.settings, "alone": known and not of}
    return msgspec.structs.replace(call, settings=settings, of=tuple(of))


STOREYS = ("lowered", "compiled")


def lower(pure: Pure) -> Any:
    """What `jax.jit(f).lower` gives, the weights among the arguments. Raises NormalizeError."""
    import jax

    try:
        with apart():
            return jax.jit(pure.weighted).lower(pure.weights, *pure.specs)
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())
        raise NormalizeError(
            f"JAX cannot lower the model: {type(error).__name__}: {text[:300]}",
            "call jax.jit(f).lower(...) by itself to see the whole traceback",
        ) from error


def programs(
    pure: Pure, trace: Trace, graph: Graph | None, observed: Iterable[Setting]
) -> Iterator[Call]:
    """The instructions of the programs that these settings ask for.

    Each product and convolution names the operator calls in `trace` whose work it does; without
    the graph nothing tells which that are. Raises NormalizeError where the model cannot be
    lowered or compiled.
    """
    asked = [one for one in observed if isinstance(one, View) and one.level in STOREYS]
    if not asked:
        return
    lowering, place = lower(pure), owner(trace.modules, trace.calls)
    operators = contracting(trace.calls, graph) if graph else []
    before = read(lowering.compiler_ir("hlo").as_serialized_hlo_module_proto())
    after: Program | None = None
    for view in asked:
        lowered = linked(calls(before, "lowered", view.id, place), operators)
        if view.level == "lowered":
            yield from lowered
            continue
        after = after or compiled(lowering)
        yield from compared(lowered, calls(after, "compiled", view.id, place))


def compiled(lowered: Any) -> Program:
    """The program that XLA compiles. Raises NormalizeError."""
    try:
        modules = lowered.compile().runtime_executable().hlo_modules()
        return read(modules[0].as_serialized_hlo_module_proto())
    except Exception as error:
        text = " ".join(str(error).split())
        raise NormalizeError(
            f"XLA cannot compile the model: {type(error).__name__}: {text[:300]}",
            "call jax.jit(f).lower(...).compile() by itself to see the whole traceback",
        ) from error
