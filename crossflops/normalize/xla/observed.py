"""The programs that XLA is given and makes of a JAX model, as observed calls."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

import msgspec

from crossflops.core.trace import Call, Module, View
from crossflops.errors import NormalizeError
from crossflops.normalize.jax.model import Pure, apart
from crossflops.normalize.xla.calls import calls
from crossflops.normalize.xla.changes import compared
from crossflops.normalize.xla.owners import owner
from crossflops.normalize.xla.program import Program, read

STOREYS = ("lowered", "compiled")
_KINDS = {"dot": "dot_general", "convolution": "conv_general_dilated"}


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


def observed(
    pure: Pure, trace: tuple[Call, ...], rows: tuple[Module, ...], views: Iterable[View]
) -> Iterator[Call]:
    """The instructions of the programs that these views ask for.

    Each product and convolution names the call in `trace` whose work it does. Raises
    NormalizeError where the model cannot be lowered or compiled.
    """
    asked = [view for view in views if view.storey in STOREYS]
    if not asked:
        return
    lowered, place = lower(pure), owner(rows, trace)
    operators = [call for call in trace if call.storey == "operator"]
    before = read(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
    after: Program | None = None
    for view in asked:
        linked = _linked(calls(before, "lowered", view.id, place), operators)
        if view.storey == "lowered":
            yield from linked
            continue
        after = after or compiled(lowered)
        yield from compared(linked, calls(after, "compiled", view.id, place))


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


def _linked(instructions: Sequence[Call], operators: Sequence[Call]) -> tuple[Call, ...]:
    """The instructions, each contraction with the operator call that it was lowered from.

    Both stand in the order of the model: they are matched by kind, module and size of result.
    """
    contractions = sorted(
        (one for one in instructions if one.target in _KINDS),
        key=lambda one: one.settings["place"],
    )
    sources = [one for one in operators if _primitive(one) in _KINDS.values()]
    matcher = SequenceMatcher(
        None, [_key(one) for one in contractions], [_key(one) for one in sources], autojunk=False
    )
    of = {
        contractions[block.a + n].key: sources[block.b + n].key
        for block in matcher.get_matching_blocks()
        for n in range(block.size)
    }
    return tuple(_link(one, of.get(one.key)) for one in instructions)


def _link(call: Call, source: str | None) -> Call:
    if call.target not in _KINDS:
        return call
    settings = {**call.settings, "linked": source is not None}
    return msgspec.structs.replace(call, settings=settings, of=(source,) if source else ())


def _primitive(call: Call) -> str:
    return call.target.rpartition(".")[2]


def _key(call: Call) -> tuple[str, int, int]:
    return (_KINDS.get(call.target, _primitive(call)), call.module, call.outputs[0].numel)
