"""Which operator call a product or a convolution of an HLO program was lowered from."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher

import msgspec

from crossflops.core.graph import Graph, Node
from crossflops.core.trace import Call

_CONTRACTIONS = ("dot", "convolution")
_PRODUCTS = (
    "Attention", "Conv", "ConvInteger", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM",
    "MatMul", "MatMulInteger", "QLinearConv", "QLinearMatMul", "RNN",
)  # fmt: skip


def contracting(calls: Iterable[Call], graph: Graph) -> list[Call]:
    """The operator calls that nodes with products in them belong to, in their order."""
    found = {one.call for one in _everywhere(graph.nodes) if one.op.type in _PRODUCTS}
    return [call for call in calls if call.storey == "operator" and call.key in found]


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
    for one, operator in _matched(contractions, operators):
        of[one.key].append(operator.key)
    known = bool(operators)
    return tuple(_link(one, of[one.key], known) if one.key in of else one for one in instructions)


def _matched(
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
