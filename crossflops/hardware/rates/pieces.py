"""The parts that a count of MACs is made of, as far as a rate tells them apart."""

from collections.abc import Iterable
from fractions import Fraction

import msgspec

from crossflops.core.graph import Graph
from crossflops.core.ledger import Ledger
from crossflops.hardware.rates.backward import Gradients
from crossflops.hardware.rates.scores import Scores, scores

FLAT = Fraction(3)  # passes of training where nothing tells nodes apart


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """MACs of one example that are treated alike.

    `names` are what a pattern may match (operator, node, module), `stored` is the precision of
    the operands in the graph, "" where nobody knows. `passes` is k of training by where gradients
    flow, None where there is no graph. `scores` are those of a product of attention.
    """

    macs: Fraction
    names: tuple[str, ...] = ()
    stored: str = ""
    passes: Fraction | None = None
    scores: Scores | None = None


def whole(macs: int | Fraction) -> tuple[Piece, ...]:
    """A count of which nothing more is known."""
    return (Piece(macs=Fraction(macs)),)


def pieces(
    graph: Graph,
    ledger: Ledger,
    *,
    examples: int = 1,
    frozen: Iterable[str] = (),
    trainable: Iterable[str] = (),
) -> tuple[Piece, ...]:
    """A piece for every node with MACs; the graph is one pass over so many examples.

    Raises InputError for a pattern that matches no weight.
    """
    backward = Gradients(frozen, trainable).of(graph)
    attention = scores(graph)
    return tuple(
        Piece(
            macs=Fraction(one.cost.macs, examples),
            names=(str(one.node.op), one.node.key, one.node.path),
            stored=one.precision,
            passes=backward.get(one.node.key),
            scores=attention.get(one.node.key),
        )
        for one in ledger.counted
        if one.cost.macs
    )
