"""The byte models, each by hand on small graphs and on a decoder with a cache."""

import msgspec
import pytest

from crossflops.core.graph import Graph, Node, Op
from crossflops.core.tensor import TensorSpec
from crossflops.count import count, count_whole
from crossflops.errors import UnknownNameError
from crossflops.hardware.roofline.dataflow import flow
from crossflops.hardware.roofline.formats import Formats, nbytes, run_precision
from crossflops.hardware.roofline.traffic import loads
from tests.decoders import LLAMA_8B, Decoder, decoder
from tests.onnx_files import graph_of, saved, with_weights

MODELS = ("unfused", "weights-once", "fused-ideal")


def tensor(name, *shape, role="", dtype="float32"):
    """A tensor."""
    return TensorSpec(name, dtype, shape, role)


def node(type_, inputs, outputs, **fields):
    """A node of ai.onnx, its key that of its first result."""
    return Node(
        key=outputs[0].name,
        op=Op("", type_, 17),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        **fields,
    )


def graph(nodes, inputs, outputs):
    """A graph."""
    return Graph(
        name="g", nodes=tuple(nodes), inputs=tuple(inputs), outputs=tuple(outputs),
        params=0, opset={"": 17},
    )  # fmt: skip


def moved(own, model, **formats):
    """Bytes by node, apart as (weights, cache, activations); nodes that move nothing left out."""
    ledger = count(own) if model == "unfused" else count_whole(own)
    found = loads(own, ledger, model, Formats(**formats))
    return {one.node: (one.weights, one.cache, one.activations) for one in found if one.bytes}


X, W = tensor("x", 2, 4, role="input"), tensor("w", 4, 8, role="parameter")
Y, Z = tensor("y", 2, 8), tensor("z", 2, 8)
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
    assert [one[0] for one in moved(own, "unfused").values()] == [64, 64]
    assert sum(one[0] for one in moved(own, model).values()) == 64


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
    found = moved(graph(tied, [ids], [logits]), "weights-once")
    assert found == {"a": (32, 0, 0), "l": (9 * 4 * 4 - 32, 0, 0)}


def test_the_thirds_of_a_packed_weight():
    """Three slices of one weight are read once each, which is the whole weight once."""
    packed = tensor("p", 4, 6, role="parameter")
    thirds = [tensor(f"p{i}", 4, 2) for i in range(3)]
    made = [tensor(f"m{i}", 2, 2) for i in range(3)]
    nodes = [
        node("Split", [packed], thirds, constant=True),
        *(node("MatMul", [X, one], [y]) for one, y in zip(thirds, made, strict=True)),
    ]
    found = moved(graph(nodes, [X], made), "weights-once")
    assert found == {f"m{i}": (32, 0, 0) for i in range(3)}


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
    rows = loads(own, count(own), "unfused", Formats())
    assert {one.op: one.weighted for one in rows} == {"MatMul": True, "Add": False}


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
    assert run_precision(counted, asked) == expected


def test_packed_elements_round_up():
    """Nine elements of four bits are five bytes; integers keep their own width."""
    assert nbytes(tensor("a", 9), "int4") == 5
    assert nbytes(tensor("a", 9, dtype="int64"), "fp16") == 72


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
    found = moved(decoded(tmp_path, own), "weights-once")
    norms, rows = (2 * own.layers + 1) * own.width, own.batch * own.width
    weights = 2 * (own.matmul_params + norms + rows)
    cache = 2 * own.layers * 2 * own.batch * own.kv_heads * (own.past + 1) * own.head_dim
    assert [sum(one[i] for one in found.values()) for i in range(3)] == [weights, cache, 0]
    reading = {name.rpartition("/")[2] for name, one in found.items() if one[1]}
    assert reading == {"Attention" if whole else "MatMul"}
    ends = moved(decoded(tmp_path, own), "fused-ideal")
    ids, logits = own.batch * 8, own.batch * own.vocab * 2
    assert sum(one[2] for one in ends.values()) == ids + logits
    assert sum(one[1] for one in ends.values()) == cache


def test_the_published_decoder_from_its_graph(tmp_path, whole):
    """Llama 3.1 8B: 128.7 GFLOP and 17.16 GB, 15.01 of weights and 2.15 of cache."""
    found = loads(
        own := decoded(tmp_path, msgspec.structs.replace(LLAMA_8B, whole=whole)),
        count_whole(own), "weights-once", Formats(),
    )  # fmt: skip
    near = {"rel": 0.002}
    assert 2 * sum(one.macs for one in found) == pytest.approx(128.7e9, **near)
    assert sum(one.bytes for one in found) == pytest.approx(17.16e9, **near)
    assert sum(one.weights for one in found) == pytest.approx(15.01e9, **near)
    assert sum(one.cache for one in found) == 2 * 32 * 2 * 8 * 8 * 2048 * 128
    eighth = loads(own, count_whole(own), "weights-once", Formats(weights="fp8", cache="fp8"))
    assert sum(one.bytes for one in eighth) == pytest.approx(17.16e9 / 2, **near)


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
    assert [one.past for one in flow(own, count(own)).caches] == ["past"]
    assert moved(own, "weights-once") == {"y": (0, 160 + 16, 0)}


def test_an_input_that_no_output_continues_is_no_cache():
    """A concatenation with an input in front is only that where it is no result of the model."""
    past, both = tensor("past", 3, 4, role="input"), tensor("both", 5, 4)
    y = tensor("y", 5, 4)
    nodes = [node("Concat", [past, X], [both]), node("Relu", [both], [y])]
    own = graph(nodes, [past, X], [y])
    assert flow(own, count(own)).caches == ()
    assert moved(own, "fused-ideal") == {"y": (0, 0, 48 + 32 + 80)}


@pytest.mark.parametrize("whole_", [False, True])
def test_no_model_moves_more_than_the_unfused_one(tmp_path, whole_):
    """weights-once <= fused-ideal <= unfused."""
    own = decoded(tmp_path, Decoder(whole=whole_))
    sums = [sum(map(sum, moved(own, model).values())) for model in MODELS]
    assert sums[1] <= sums[2] <= sums[0]
    assert sum(one.macs for one in loads(own, count(own), "unfused", Formats())) == sum(
        one.macs for one in loads(own, count_whole(own), "fused-ideal", Formats())
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
    whole = loads(own, count_whole(own), "fused-ideal", Formats())
    assert [one.weights for one in whole if one.weights] == [64, 64]
    assert sum(one.activations for one in whole) == 32 + 32
    inside = loads(own, count(own), "unfused", Formats())
    assert sum(one.bytes for one in inside) == 2 * ((32 + 64 + 32) + (32 + 32))
    assert sum(one.macs for one in inside) == sum(one.macs for one in whole) == 2 * 2 * 4 * 4


def test_a_weight_in_a_loop_is_read_once(tmp_path):
    """Three times unfused, once where it stays on the chip."""
    own = graph_of(saved(tmp_path, with_weights(LOOP, "w")))
    assert sum(one.weights for one in loads(own, count(own), "unfused", Formats())) == 3 * 64
    whole = loads(own, count_whole(own), "weights-once", Formats())
    assert [(one.macs, one.weights) for one in whole] == [(3 * 2 * 4 * 4, 64)]


def test_names_within_a_function_are_its_own():
    """A function calls its operand `w`, which is another tensor outside: 128 bytes are read."""
    inner = tensor("w", 2, 4, role="argument")
    body = graph([node("MatMul", [inner, tensor("v", 4, 8, role="parameter")], [Y])], [inner], [Y])
    call = Node(
        key="call", op=Op("local", "f", 1), inputs=(X, W), outputs=(Z,), bodies=(body,),
        choice="function",
    )  # fmt: skip
    own = graph([call], [X], [Z])
    found = loads(own, count_whole(own), "weights-once", Formats())
    assert [(one.node, one.weights) for one in found] == [("call", 128)]
