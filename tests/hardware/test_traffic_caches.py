"""The byte models on decoders with a cache, and within functions and loops."""

import msgspec
import pytest

from crossflops.hardware.dataflow import trace_element_flow
from crossflops.hardware.step_traffic import Formats, node_loads
from crossflops.ir.graph import Node, Op
from crossflops.ledger.count import count, count_nodes_with_their_bodies
from tests.decoders import LLAMA_8B, Decoder, decoder
from tests.hardware.small_graphs import MODELS, W, X, Y, Z, graph, moved, node, tensor
from tests.onnx_files import graph_of, saved, with_weights


@pytest.fixture(params=[False, True], ids=["in operators", "one operator"])
def whole(request):
    """Whether attention is one operator."""
    return request.param


def decoded(tmp_path, sizes):
    """The graph of a step."""
    return graph_of(saved(tmp_path, decoder(sizes)))


def test_a_decoder_reads_weights_and_its_cache(tmp_path, whole):
    """By hand: products, norms, a row of the table each; 15 old keys and values and a new one."""
    own = Decoder(whole=whole)
    by_node = moved(decoded(tmp_path, own), "weights-once")
    norms, rows = (2 * own.layers + 1) * own.width, own.batch * own.width
    weights = 2 * (own.matmul_params + norms + rows)
    cache = 2 * own.layers * 2 * own.batch * own.kv_heads * (own.past + 1) * own.head_dim
    assert [sum(traffic[i] for traffic in by_node.values()) for i in range(3)] == [
        weights,
        cache,
        0,
    ]
    reading = {name.rpartition("/")[2] for name, traffic in by_node.items() if traffic[1]}
    assert reading == {"Attention" if whole else "MatMul"}
    ends = moved(decoded(tmp_path, own), "fused-ideal")
    ids, logits = own.batch * 8, own.batch * own.vocab * 2
    assert sum(traffic[2] for traffic in ends.values()) == ids + logits
    assert sum(traffic[1] for traffic in ends.values()) == cache


def test_the_published_decoder_from_its_graph(tmp_path, whole):
    """Llama 3.1 8B: 128.7 GFLOP and 17.16 GB, 15.01 of weights and 2.15 of cache."""
    per_node = node_loads(
        own := decoded(tmp_path, msgspec.structs.replace(LLAMA_8B, whole=whole)),
        count_nodes_with_their_bodies(own), "weights-once", Formats(),
    )  # fmt: skip
    near = {"rel": 0.002}
    assert 2 * sum(load.macs for load in per_node) == pytest.approx(128.7e9, **near)
    assert sum(load.bytes for load in per_node) == pytest.approx(17.16e9, **near)
    assert sum(load.weights for load in per_node) == pytest.approx(15.01e9, **near)
    assert sum(load.cache for load in per_node) == 2 * 32 * 2 * 8 * 8 * 2048 * 128
    eighth = node_loads(
        own,
        count_nodes_with_their_bodies(own),
        "weights-once",
        Formats(weights="fp8", cache="fp8"),
    )
    assert sum(load.bytes for load in eighth) == pytest.approx(17.16e9 / 2, **near)


def test_a_cache_of_fixed_size_is_read_whole_and_written_in_part():
    """ScatterND into a buffer of 10 x 4: 160 bytes read, the one new row of 16 written."""
    past, present = tensor("past", 10, 4, role="input"), tensor("present", 10, 4)
    at, new = tensor("at", 1, 1, role="input", dtype="int64"), tensor("new", 1, 4, role="input")
    fresh, turned, y = tensor("fresh", 1, 4), tensor("turned", 4, 10), tensor("y", 2, 10)
    nodes = [
        node("Relu", [new], [fresh]),
        node("ScatterND", [past, at, fresh], [present]),
        node("Transpose", [present], [turned]),
        node("MatMul", [X, turned], [y]),
    ]
    own = graph(nodes, [X, past, at, new], [y, present])
    assert [cache.past for cache in trace_element_flow(own, count(own)).caches] == ["past"]
    assert moved(own, "weights-once") == {"y": (0, 160 + 16, 0)}


def test_an_input_that_no_output_continues_is_no_cache():
    """A concatenation with an input in front is only that where it is no result of the model."""
    past, both = tensor("past", 3, 4, role="input"), tensor("both", 5, 4)
    y = tensor("y", 5, 4)
    joined = node("Concat", [past, X], [both], attrs={"axis": 0})
    nodes = [joined, node("Relu", [both], [y])]
    own = graph(nodes, [past, X], [y])
    assert trace_element_flow(own, count(own)).caches == ()
    assert moved(own, "fused-ideal") == {"y": (0, 0, 48 + 32 + 80)}


@pytest.mark.parametrize("whole_", [False, True])
def test_no_model_moves_more_than_the_unfused_one(tmp_path, whole_):
    """weights-once <= fused-ideal <= unfused."""
    own = decoded(tmp_path, Decoder(whole=whole_))
    sums = [sum(map(sum, moved(own, model).values())) for model in MODELS]
    assert sums[1] <= sums[2] <= sums[0]
    assert sum(load.macs for load in node_loads(own, count(own), "unfused", Formats())) == sum(
        load.macs
        for load in node_loads(own, count_nodes_with_their_bodies(own), "fused-ideal", Formats())
    )


FUNCTIONS = """
    g (float[2,4] x, float[4,4] w, float[4,4] v) => (float[2,4] y) {
        a = local.layer (x, w)
        y = local.layer (a, v)
    }
    <domain: "local", opset_import: ["": 17]>
    layer (x, w) => (y) { m = MatMul (x, w)
        y = Relu (m) }
"""
LOOP = """
    g (float[2,4] x, float[4,4] w) => (float[2,4] y) {
        n = Constant <value = int64 {3}> ()
        go = Constant <value = bool {1}> ()
        y = Loop (n, go, x) <body = b (int64 i, bool c, float[2,4] s) => (bool d, float[2,4] t) {
            d = Identity (c)
            t = MatMul (s, w)
        }>
    }
"""


def test_weights_that_are_operands_of_functions(tmp_path):
    """Two calls with a weight of 64 bytes each; unfused the nodes inside move 2 x one's bytes."""
    own = graph_of(saved(tmp_path, with_weights(FUNCTIONS, "w", "v")))
    whole = node_loads(own, count_nodes_with_their_bodies(own), "fused-ideal", Formats())
    assert [load.weights for load in whole if load.weights] == [64, 64]
    assert sum(load.activations for load in whole) == 32 + 32
    inside = node_loads(own, count(own), "unfused", Formats())
    assert sum(load.bytes for load in inside) == 2 * ((32 + 64 + 32) + (32 + 32))
    assert sum(load.macs for load in inside) == sum(load.macs for load in whole) == 2 * 2 * 4 * 4


def test_a_weight_in_a_loop_is_read_once(tmp_path):
    """Three times unfused, once where it stays on the chip."""
    own = graph_of(saved(tmp_path, with_weights(LOOP, "w")))
    assert (
        sum(load.weights for load in node_loads(own, count(own), "unfused", Formats())) == 3 * 64
    )
    whole = node_loads(own, count_nodes_with_their_bodies(own), "weights-once", Formats())
    assert [(load.macs, load.weights) for load in whole] == [(3 * 2 * 4 * 4, 64)]


def test_names_within_a_function_are_its_own():
    """A function calls its operand `w`, which is another tensor outside: 128 bytes are read."""
    inner = tensor("w", 2, 4, role="argument")
    body = graph([node("MatMul", [inner, tensor("v", 4, 8, role="parameter")], [Y])], [inner], [Y])
    call = Node(
        key="call", op=Op("local", "f", 1), inputs=(X, W), outputs=(Z,), bodies=(body,),
        choice="function",
    )  # fmt: skip
    own = graph([call], [X], [Z])
    per_node = node_loads(own, count_nodes_with_their_bodies(own), "weights-once", Formats())
    assert [(load.node, load.weights) for load in per_node] == [("call", 128)]
