"""How often bodies run: sequences, and counts that a graph computes."""

import pytest

from tests.frontends.onnx.test_control_flow import HEAD, PRODUCT, STEP, named
from tests.onnx_files import ledger_of, parsed, saved

MAP = (
    "s = SequenceMap <body = b (a) => (e) { e = MatMul(a, w) }> (q)",
    "float[8,16] x, float[16,16] w",
)


@pytest.mark.parametrize(
    ("made", "products"),
    [
        ("q = SequenceConstruct(x, x, x)", 3),
        ("o = SequenceConstruct(x) q = SequenceInsert(o, x)", 2),
        ("o = SequenceConstruct(x, x) q = SequenceErase(o)", 1),
        ("q = SplitToSequence <axis = 0> (x)", 1),  # eight rows, each an eighth of a product
        ("q = SplitToSequence <axis = 0> (x, three)", None),
    ],
)
def test_a_sequence_map_runs_once_per_tensor(made, products, tmp_path):
    """The body costs as often as the sequence has tensors; parts of different size are unknown."""
    model = parsed(
        f"g ({MAP[1]}) => (seq(float[m,16]) s) <int64 three = {{3}}> {{ {made} {MAP[0]} }}"
    )
    ledger = ledger_of(saved(tmp_path, model))
    if products is None:
        assert [gap.node.op.type for gap in ledger.uncounted] == ["MatMul"]
    else:
        assert ledger.total.macs == products * PRODUCT


def test_a_sequence_map_over_an_input_needs_its_length(tmp_path):
    """How long a sequence is that a caller gives, --trips says."""
    model = parsed(
        f"g (seq(float[8,16]) q, float[16,16] w) => (seq(float[8,16]) s) {{ {MAP[0]} }}"
    )
    path = saved(tmp_path, named(model, "map"))
    (gap,) = ledger_of(path).uncounted
    assert "--trips map=N" in gap.reason
    assert ledger_of(path, trips={"map": 5}).total.macs == 5 * PRODUCT


@pytest.mark.parametrize(
    ("before", "products"),
    [
        ("zero = Constant<value_int = 0>() n2 = Range(zero, ten, two) t = Size(n2)", 5),
        ("f = Cast<to = 1>(ten) t = Cast<to = 7>(f)", 10),
        ("f = Cast<to = 1>(ten) g = Exp (f) t = Cast<to = 7>(g)", None),
        ("big = Greater(ten, two) t = Where(big, two, ten)", 2),
        ("s = Shape(x) t = ReduceProd<keepdims = 0>(s)", 128),
        (
            "s = Shape(x) o = Constant<value_ints = [1]>() e = Constant<value_ints = [2]>() "
            "z = Slice(s, o, e) t = Squeeze(z)",
            16,
        ),
    ],
)
def test_trip_counts_that_are_computed(before, products, tmp_path):
    """Ranges, comparisons, products and slices of sizes, also through floats; no powers of e."""
    model = parsed(
        f"{HEAD} <int64 ten = {{10}}, int64 two = {{2}}, bool yes = {{1}}> "
        f"{{ {before} y = Loop (t, yes, x) <body = b {STEP}> }}"
    )
    ledger = ledger_of(saved(tmp_path, model))
    if products is None:
        assert len(ledger.uncounted) == 1
    else:
        assert ledger.total.macs == products * PRODUCT
