"""The byte models, each by hand on small graphs."""

import pytest

from crossflops.errors import UnknownNameError
from crossflops.hardware.step_traffic import (
    Formats,
    node_loads,
    precision_of_node_peak,
    tensor_byte_count,
)
from crossflops.ledger.count import count
from tests.hardware.small_graphs import MODELS, W, X, Y, Z, graph, moved, node, tensor

CHAIN = graph([node("MatMul", [X, W], [Y]), node("Relu", [Y], [Z])], [X], [Z])


def test_a_product_and_an_activation():
    """x has 8 elements, w 32, y and z 16 each, four bytes an element."""
    assert moved(CHAIN, "unfused") == {"y": (128, 0, 96), "z": (0, 0, 128)}
    assert moved(CHAIN, "weights-once") == {"y": (128, 0, 0)}
    assert moved(CHAIN, "fused-ideal") == {"y": (128, 0, 32), "z": (0, 0, 64)}


def test_other_precisions():
    """Half of that in FP16; weights in FP8 take a quarter, and the rest stays."""
    assert moved(CHAIN, "unfused", activations="fp16") == {"y": (64, 0, 48), "z": (0, 0, 64)}
    assert moved(CHAIN, "fused-ideal", weights="fp8") == {"y": (32, 0, 32), "z": (0, 0, 64)}
    assert moved(CHAIN, "unfused", activations="tf32") == moved(CHAIN, "unfused")


@pytest.mark.parametrize("model", MODELS[1:])
def test_a_shared_weight_is_read_once(model):
    """Two layers with one weight read it once in all; unfused each reads it."""
    square = tensor("w", 4, 4, role="parameter")
    a, b = tensor("a", 2, 4), tensor("b", 2, 4)
    own = graph([node("MatMul", [X, square], [a]), node("MatMul", [a, square], [b])], [X], [b])
    assert [traffic[0] for traffic in moved(own, "unfused").values()] == [64, 64]
    assert sum(traffic[0] for traffic in moved(own, model).values()) == 64


def test_what_is_moved_is_paid_for_where_it_is_worked_on():
    """The transposition of a weight runs before the step, that of an input with the product."""
    u = tensor("u", 8, 4, role="parameter")
    ut, xt = tensor("ut", 4, 8), tensor("xt", 4, 2)
    xx = tensor("xx", 2, 4)
    nodes = [
        node("Transpose", [u], [ut], constant=True),
        node("Transpose", [X], [xt]),
        node("Transpose", [xt], [xx]),
        node("MatMul", [xx, ut], [Y]),
    ]
    own = graph(nodes, [X], [Y])
    assert moved(own, "unfused") == {"xt": (0, 0, 64), "xx": (0, 0, 64), "y": (128, 0, 96)}
    assert moved(own, "fused-ideal") == {"y": (128, 0, 32 + 64)}


def test_a_narrow_weight_that_is_widened_stays_narrow():
    """A weight in int8 with a scale for each of 8 columns is 32 + 32 bytes, not 128."""
    q, scale = tensor("q", 4, 8, role="constant", dtype="int8"), tensor("s", 8, role="parameter")
    wide = tensor("wide", 4, 8)
    nodes = [
        node("DequantizeLinear", [q, scale], [wide], constant=True),
        node("MatMul", [X, wide], [Y]),
    ]
    assert moved(graph(nodes, [X], [Y]), "weights-once") == {"y": (64, 0, 0)}


def test_a_table_is_read_in_rows_and_by_the_head_in_whole():
    """Of a table of 9 x 4 two rows are gathered, twice used; a product reads what is left."""
    table = tensor("t", 9, 4, role="parameter")
    ids = tensor("ids", 2, role="input", dtype="int64")
    rows, a, b = tensor("rows", 2, 4), tensor("a", 2, 4), tensor("b", 2, 4)
    looked = [
        node("Gather", [table, ids], [rows]), node("Relu", [rows], [a]),
        node("Add", [rows, a], [b]),
    ]  # fmt: skip
    assert moved(graph(looked, [ids], [b]), "weights-once") == {"a": (32, 0, 0)}
    turned, logits = tensor("tt", 4, 9), tensor("l", 2, 9)
    tied = [
        *looked,
        node("Transpose", [table], [turned], constant=True),
        node("MatMul", [b, turned], [logits]),
    ]
    by_node = moved(graph(tied, [ids], [logits]), "weights-once")
    assert by_node == {"a": (32, 0, 0), "l": (9 * 4 * 4 - 32, 0, 0)}


def test_the_thirds_of_a_packed_weight():
    """Three slices of one weight are read once each, which is the whole weight once."""
    packed = tensor("p", 4, 6, role="parameter")
    thirds = [tensor(f"p{i}", 4, 2) for i in range(3)]
    made = [tensor(f"m{i}", 2, 2) for i in range(3)]
    nodes = [
        node("Split", [packed], thirds, constant=True, attrs={"axis": 1}),
        *(node("MatMul", [X, third], [y]) for third, y in zip(thirds, made, strict=True)),
    ]
    by_node = moved(graph(nodes, [X], made), "weights-once")
    assert by_node == {f"m{i}": (32, 0, 0) for i in range(3)}


def test_a_model_that_only_moves():
    """Where nothing works, the first node that moves pays: 32 bytes in, 32 out."""
    y = tensor("y", 4, 2)
    own = graph([node("Transpose", [X], [y])], [X], [y])
    assert moved(own, "fused-ideal") == {"y": (0, 0, 64)}
    assert moved(own, "weights-once") == {}


def test_layers_are_told_by_their_parameters():
    """A mask made of constants is no layer's weight; the transposition of one is."""
    u, mask = tensor("u", 8, 4, role="parameter"), tensor("m", 8, role="constant")
    ut, wide = tensor("ut", 4, 8), tensor("wide", 2, 8)
    nodes = [
        node("Transpose", [u], [ut], constant=True),
        node("Expand", [mask], [wide], constant=True),
        node("MatMul", [X, ut], [Y]),
        node("Add", [Y, wide], [Z]),
    ]
    own = graph(nodes, [X], [Z])
    rows = node_loads(own, count(own), "unfused", Formats())
    assert {row.op: row.weighted for row in rows} == {"MatMul": True, "Add": False}


def test_a_model_of_views_moves_nothing():
    """A Flatten alone hands its input on; what comes behind it pays for both."""
    flat, turned = tensor("flat", 2, 4), tensor("turned", 4, 2)
    view = node("Flatten", [X], [flat])
    assert moved(graph([view], [X], [flat]), "fused-ideal") == {}
    both = graph([view, node("Transpose", [flat], [turned])], [X], [turned])
    assert moved(both, "fused-ideal") == {"turned": (0, 0, 64)}


def test_an_unknown_precision_is_refused():
    """How wide an element is, nobody guesses."""
    with pytest.raises(UnknownNameError, match="fp12"):
        Formats(weights="fp12")


@pytest.mark.parametrize(
    ("counted", "asked", "expected"),
    [
        ("float32", "", "fp32"),
        ("float32", "fp16", "fp16"),
        ("int8", "fp16", "int8"),
        ("float16xint4", "", "fp16"),
        ("float16xint4", "bf16", "bf16"),
        ("", "tf32", "tf32"),
        ("float8e5m2", "bf16", "fp8"),
    ],
)
def test_the_peak_that_a_node_runs_at(counted, asked, expected):
    """Floats run as asked, integers as they are, narrow weights in the type of the data."""
    assert precision_of_node_peak(counted, asked) == expected


def test_packed_elements_round_up():
    """Nine elements of four bits are five bytes; integers keep their own width."""
    assert tensor_byte_count(tensor("a", 9), "int4") == 5
    assert tensor_byte_count(tensor("a", 9, dtype="int64"), "fp16") == 72


def test_constant_runs_of_a_loop_are_left_out():
    """One of five products of a body is constant: four are left, of 64 MACs, and their bytes."""
    product = node("MatMul", [X, W], [Y], constant_runs=(1, 5))
    body = graph([product], [X], [Y])
    own = graph([node("Loop", [None, None, X], [Z], bodies=(body,), trips=5)], [X], [Z])
    (load,) = node_loads(own, count(own), "unfused", Formats())
    assert (load.macs, load.operations) == (4 * 64, 8 * 64)
    assert (load.weights, load.activations) == (4 * 128, 4 * 96)
