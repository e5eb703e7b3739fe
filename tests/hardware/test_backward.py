"""Passes of training by where gradients flow: by hand, and against what PyTorch really did."""

from fractions import Fraction

import pytest

from crossflops.errors import InputError
from crossflops.hardware.rates.terms import pieces_of_graph
from crossflops.ir.training import matches_weight_pattern
from crossflops.ledger.training.weights import TrainedWeights
from crossflops.ledger.training.work import count_training_step
from crossflops.targets.request import Request
from crossflops.verbs.count import native_count
from tests.onnx_files import saved, with_weights

WEIGHTS = ("first", "second", "third")
CHAIN = """
g (float[2,4] x, float[4,4] first, float[4,4] second, float[4,4] third) => (float[2,4] y)
{ a = MatMul(x, first) r = Relu(a) b = MatMul(r, second) y = MatMul(b, third) }
"""
LOOP = """
g (float[2,4] x, float[4,4] weight) => (float[2,4] y)
<int64 trips = {3}, bool go = {1}>
{
  y = Loop(trips, go, x) <body = one (int64 i, bool c, float[2,4] h) => (bool d, float[2,4] k) {
    d = Identity(c)
    k = MatMul(h, weight)
  }>
}
"""


@pytest.fixture
def passes(tmp_path):
    """Passes of the products of a graph, in its order."""

    def found(text, weights=WEIGHTS, frozen=(), trainable=()):
        _, counted = native_count(
            Request.from_arguments(saved(tmp_path, with_weights(text, *weights)))
        )
        trained = TrainedWeights(counted.trace, frozen, trainable)
        exact = count_training_step(counted.graph, trained)
        trained.check_patterns_match_weights(counted.graph)
        return [
            piece.passes for piece in pieces_of_graph(counted.graph, counted.ledger, exact=exact)
        ]

    return found


@pytest.mark.parametrize(
    ("frozen", "trainable", "expected"),
    [
        ((), (), [2, 3, 3]),  # the input of the network needs no gradient
        (("first",), (), [1, 2, 3]),  # nothing is trained below
        (("first", "second"), (), [1, 1, 2]),
        (("second", "third"), (), [2, 2, 2]),  # frozen above what is trained
        (("second",), (), [2, 2, 3]),
        (("*",), ("second",), [1, 2, 2]),
        (("*",), (), [1, 1, 1]),
    ],
)
def test_a_chain_of_products(passes, frozen, trainable, expected):
    """One pass forward, one for each operand that needs a gradient."""
    assert passes(CHAIN, frozen=frozen, trainable=trainable) == expected


def test_what_a_loop_hands_on_needs_a_gradient(passes):
    """Of three runs the first has a state without a gradient: 3 forward, 3 and 2 backward."""
    assert passes(LOOP, ("weight",)) == [Fraction(8, 3)]
    assert passes(LOOP, ("weight",), frozen=("weight",)) == [1]


def test_a_pattern_that_matches_nothing_is_refused(passes):
    """Freezing what is not there would change nothing, silently."""
    with pytest.raises(InputError, match="'fourth' matches no weight"):
        passes(CHAIN, frozen=("fourth",))


@pytest.mark.parametrize(
    ("name", "pattern", "whether"),
    [
        ("layer1.0.weight", "layer1", True),
        ("layer10.0.weight", "layer1", False),
        ("layer1.0.weight", "layer1*", True),
        ("layer1.0.weight", "*.weight", True),
        ("", "*", False),
    ],
)
def test_patterns_are_globs_of_names_or_of_modules_around_them(name, pattern, whether):
    """A module stands for all that is in it."""
    assert matches_weight_pattern(name, pattern) is whether
