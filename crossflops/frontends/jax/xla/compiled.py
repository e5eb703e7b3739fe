"""The programs that XLA is given and makes of a JAX model, instruction by instruction."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

import msgspec

from crossflops.errors import NormalizeError
from crossflops.frontends.jax.model import Pure, apart
from crossflops.frontends.jax.xla.calls import calls, owner
from crossflops.frontends.jax.xla.hlo import Program, read
from crossflops.ir.graph import Graph, Node
from crossflops.ir.trace import Call, Setting, Trace, View

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


LEVELS = ("lowered", "compiled")


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

    Those of the lowered program are there too where the compiled one is asked for, to be compared
    with. Each product and convolution of it names the operator calls in `trace` whose work it
    does; without the graph nothing tells which that are. Raises NormalizeError where the model
    cannot be lowered or compiled.
    """
    asked = [view for view in observed if isinstance(view, View) and view.level in LEVELS]
    if not asked:
        return
    lowering, place = lower(pure), owner(trace.modules, trace.calls)
    operators = contracting(trace.calls, graph) if graph else []
    before = read(lowering.compiler_ir("hlo").as_serialized_hlo_module_proto())
    for setting in dict.fromkeys(view.id for view in asked):
        yield from linked(calls(before, "lowered", setting, place), operators)
    further = [view.id for view in asked if view.level == "compiled"]
    after = compiled(lowering) if further else before
    for setting in further:
        yield from calls(after, "compiled", setting, place)


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
