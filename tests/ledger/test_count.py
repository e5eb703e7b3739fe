"""From a graph to a ledger."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossflops.errors import OperandError
from crossflops.ir.graph import ConversionAnnotation, Node, Op, TensorSpec
from crossflops.ir.ledger import ZERO, Cost, CountedNode, UncountedNode
from crossflops.ledger.count import count, count_node, count_nodes_with_their_bodies
from crossflops.operators import all_operator_rules
from crossflops.testing.graphs import graph_from_nodes, spec_from_shape, to_node

costs = st.builds(Cost, **dict.fromkeys(Cost.__struct_fields__, st.integers(0, 10**30)))


@given(costs, costs, costs, st.integers(0, 10**20))
def test_cost_is_a_commutative_monoid(a, b, c, k):
    """Adding costs is associative and commutative with a zero; multiples distribute."""
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + ZERO == a
    assert (a + b) * k == a * k + b * k
    assert (a + b).flops == a.flops + b.flops


def batched(k):
    """Contractions of batch k."""
    return [
        to_node("Conv", [(k, 3, 8, 8), (4, 3, 3, 3)], [(k, 4, 6, 6)]),
        to_node("ConvTranspose", [(k, 3, 8, 8), (3, 4, 3, 3)], [(k, 4, 10, 10)]),
        to_node("Gemm", [(k, 5), (5, 7)], [(k, 7)]),
        to_node("MatMul", [(k, 2, 5), (5, 7)], [(k, 2, 7)]),
        to_node("Einsum", [(k, 2, 5), (5, 7)], [(k, 2, 7)], equation="bij,jk->bik"),
        to_node("Attention", [(k, 2, 3, 4)] * 3, [(k, 2, 3, 4)]),
        to_node("LSTM", [(5, k, 3), (1, 16, 3), (1, 16, 4)], [(5, 1, k, 4)]),
        to_node("GRU", [(5, k, 3), (1, 12, 3), (1, 12, 4)], [(5, 1, k, 4)]),
        to_node("RNN", [(5, k, 3), (1, 4, 3), (1, 4, 4)], [(5, 1, k, 4)]),
    ]


@given(st.integers(1, 10**12))
def test_batch_k_gives_k_times_the_macs(k):
    """MACs are linear in the batch, exactly, at any size."""
    alone, many = count(graph_from_nodes(*batched(1))), count(graph_from_nodes(*batched(k)))
    for single, multiple in zip(alone.counted, many.counted, strict=True):
        assert multiple.cost.macs == k * single.cost.macs
    assert len(list(alone.counted)) == len(batched(1))
    assert many.total.macs == k * alone.total.macs


def test_what_a_node_was_written_for_is_not_held_against_its_operands_where_none_is():
    """A tool may believe in sizes that cannot run: 2x3 by 5x7. The function is called 14 times."""
    function = to_node("jax::erf_inv", [(2, 7)], [(2, 7)])
    written = msgspec.structs.replace(
        to_node("MatMul", [(2, 3), (5, 7)], [(2, 7)]),
        conversion=ConversionAnnotation(stands_for=(function,), written_for="0"),
    )
    with pytest.raises(OperandError):
        count_node(written)
    counted = count_node(written, checked=False)
    assert counted.cost.flops == 14
    (whole,) = count_nodes_with_their_bodies(graph_from_nodes(written)).counts
    assert whole.cost.flops == 14


def test_only_nodes_that_are_alike_cost_the_same():
    """By hand: x + x reads 4 floats of 4 bytes once, x + y both. 1 and 1.0 are not alike."""
    x, y = spec_from_shape((4,)), spec_from_shape((4,), name="y")
    sums = [
        to_node("Add", operands, [spec_from_shape((4,), name="z")])
        for operands in ([x, x], [x, y], [y, x])
    ]
    assert [counted.cost.bytes_read for counted in count(graph_from_nodes(*sums)).counted] == [
        16,
        32,
        32,
    ]
    gelus = [to_node("Gelu", [x], [y], approximate=kind) for kind in ("none", "tanh")]
    axes = [to_node("Softmax", [(2, 3)], [(2, 3)], axis=kind) for kind in (1, 1.0)]
    nodes = (*sums, *gelus, *axes) * 2
    assert count(graph_from_nodes(*nodes)).counts == tuple(map(count_node, nodes))


@pytest.mark.parametrize("op", ["com.example::Magic", "Loop", "NoSuchOperator"])
def test_an_unknown_operator_is_uncounted_and_never_zero(op):
    """A node without a rule is in the ledger with a reason, beside the counted ones."""
    ledger = count(graph_from_nodes(to_node("Relu", [(2,)], [(2,)]), to_node(op, [(2,)], [(2,)])))
    assert [type(entry) for entry in ledger.counts] == [CountedNode, UncountedNode]
    assert op.rpartition("::")[2] in ledger.uncounted[0].reason


def test_an_unknown_shape_is_uncounted_and_names_the_tensor():
    """The reason says which shape is missing."""
    gap = count_node(
        to_node("Relu", [spec_from_shape(None, name="x")], [spec_from_shape(None, name="y")])
    )
    assert isinstance(gap, UncountedNode)
    assert "'y'" in gap.reason


def held(op, *bodies, trips=None):
    """A node with bodies of so many matrix products of 2 x 3 x 4 = 24 MACs each."""
    product = to_node("MatMul", [(2, 3), (3, 4)], [(2, 4)])
    made = [
        msgspec.structs.replace(graph_from_nodes(*[product] * many), name=name)
        for name, many in bodies
    ]
    return msgspec.structs.replace(
        to_node(op, [":bool"], [(2, 4)]), bodies=tuple(made), trips=trips, key="owner", path="net"
    )


def test_a_body_is_counted_once_per_run():
    """A Loop of n runs costs n times its body, exactly, and its rows say whose they are."""
    ledger = count(graph_from_nodes(held("Loop", ("body", 2), trips=2**62)))
    assert ledger.total.macs == 2**62 * 2 * 24
    assert [row.node.key for row in ledger.counted] == [
        "owner",
        "owner/MatMul",
        "owner/MatMul",
    ]
    assert {row.node.path for row in ledger.counted} == {"net"}
    assert next(ledger.counted).cost == ZERO


def test_loops_multiply():
    """A Scan of 3 in a Loop of 5 runs its body 15 times."""
    inner = held("Scan", ("body", 1), trips=3)
    outer = msgspec.structs.replace(
        inner, op=Op("", "Loop", 1), bodies=(graph_from_nodes(inner),), trips=5
    )
    assert count(graph_from_nodes(outer)).total.macs == 15 * 24


def test_an_unknown_number_of_runs_is_uncounted():
    """Without a trip count a Loop is uncounted, and the reason says how to give one."""
    ledger = count(graph_from_nodes(held("Loop", ("body", 1))))
    assert "--trips owner=N" in ledger.uncounted[0].reason
    assert ledger.total == ZERO


@pytest.mark.parametrize(("then", "otherwise"), [(1, 3), (3, 1)])
def test_the_larger_branch_counts_and_the_choice_is_stated(then, otherwise):
    """Of an If the branch with more work is taken: a bound, with both sizes beside it."""
    ledger = count(graph_from_nodes(held("If", ("then_branch", then), ("else_branch", otherwise))))
    assert ledger.total.macs == 3 * 24
    row = next(ledger.counted)
    assert row.exactness == "bound"
    for name, products in (("then_branch", then), ("else_branch", otherwise)):
        assert f"{name} {products * 24} MACs {products * 48} FLOPs" in row.formula


def test_what_is_unknown_in_a_body_stays_unknown():
    """An uncounted node of a body is in the ledger under the key of the node that holds it."""
    odd = graph_from_nodes(to_node("com.example::Magic", [(2,)], [(2,)]))
    loop = msgspec.structs.replace(held("Loop", ("body", 1), trips=2), bodies=(odd,))
    (gap,) = count(graph_from_nodes(loop)).uncounted
    assert gap.node.key == "owner/Magic"


def test_an_operator_with_a_body_of_unknown_meaning_is_uncounted():
    """A body says nothing if nobody knows how its operator uses it."""
    assert count(graph_from_nodes(held("SequenceMap", ("body", 1)))).uncounted


@pytest.mark.parametrize(
    ("one", "read", "written"),
    [
        (to_node("Add", [(2, 3), (3,)], [(2, 3)]), 24 + 12, 24),
        (to_node("Add", ["2x3:float16", "3:float16"], ["2x3:float16"]), 12 + 6, 12),
        # the same tensor twice is read once
        (to_node("Mul", [spec_from_shape((6,)), spec_from_shape((6,))], [(6,)]), 24, 24),
        # an input that is left out reads nothing
        (to_node("Clip", [(6,), None, ()], [(6,)]), 24 + 4, 24),
        (to_node("Gemm", [(2, 3), (3, 4), (4,)], [(2, 4)]), 24 + 48 + 16, 32),
        (to_node("Reshape", [(2, 3), "1:int64"], [(6,)]), 0, 0),
        (to_node("Shape", [(2, 3)], ["2:int64"]), 0, 0),
        # 4 rows of 3 floats of a large table, and 4 indices
        (to_node("Gather", [(1000, 3), "4:int64"], [(4, 3)]), 48 + 32, 48),
        (to_node("Slice", [(1000,), *["1:int64"] * 3], [(10,)]), 40 + 24, 40),
        # packed four-bit integers take half a byte
        (to_node("DequantizeLinear", ["8:int4", ()], [(8,)]), 4 + 4, 32),
        (to_node("TopK", [(1, 10), "1:int64"], [(1, 4), "1x4:int64"]), 40 + 8, 16 + 32),
    ],
)
def test_bytes_follow_from_how_an_operator_moves_data(one, read, written):
    """Every input once and every output; nothing for a view; what is picked for a gather."""
    cost = count_node(one).cost
    assert (cost.bytes_read, cost.bytes_written) == (read, written)


@pytest.mark.parametrize(
    ("one", "precision"),
    [
        (to_node("Conv", ["1x1x3:float16", "1x1x2:float16"], ["1x1x2:float16"]), "float16"),
        (to_node("ConvInteger", ["1x1x3:uint8", "1x1x2:int8"], ["1x1x2:int32"]), "int8"),
        (to_node("Where", ["2:bool", (2,), (2,)], [(2,)]), "float32"),
        (to_node("Greater", [(2,), (2,)], ["2:bool"]), "float32"),
        (to_node("DequantizeLinear", ["2:int8", ":float16"], ["2:float16"]), "float16"),
        (to_node("Constant", [], ["2:bfloat16"]), "bfloat16"),
    ],
)
def test_precision_is_the_type_in_which_a_node_computes(one, precision):
    """The data operand decides, not an index, a condition or a result."""
    assert count_node(one).precision == precision


def test_a_count_carries_its_equation_and_its_exactness():
    """What the ledger holds can be printed as an argument."""
    counted = count_node(to_node("TopK", [(1, 10), "1:int64"], [(1, 4), "1x4:int64"]))
    assert counted.formula == all_operator_rules()[Op("", "TopK", 1)].equation
    assert counted.exactness == "estimate"
    assert count_node(to_node("Relu", [(2,)], [(2,)])).exactness == "exact"


shapes = st.none() | st.lists(st.integers(0, 3), max_size=5).map(tuple)
tensors = st.none() | st.builds(
    TensorSpec, st.sampled_from("abc"), st.sampled_from(["float32", "int64", "?"]), shapes
)
values = st.one_of(
    st.integers(-3, 3),
    st.floats(),
    st.text(max_size=6),
    st.binary(max_size=3),
    st.lists(st.integers(-3, 3), max_size=4).map(tuple),
    st.lists(st.text(max_size=3), max_size=3).map(tuple),
)
names = st.sampled_from(
    [
        *("axis", "axes", "equation", "kernel_shape", "mode", "p", "size", "num_groups", "alpha"),
        *("activations", "q_num_heads", "kv_num_heads", "num_heads", "rotary_embedding_dim"),
        *("update_rule", "sampling_ratio", "antialias", "reduction", "softcap", "approximate"),
        *("K", "N", "Nq", "Nkv", "bits", "k", "swiglu_fusion", "activation", "activation_type"),
        *("transA", "transBatchA", "qkv_hidden_sizes", "groups", "num_branches", "opset"),
        *("activation_axis", "sparse_block_size", "v_head_size", "signal_ndim", "do_rotary"),
    ]
)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_no_node_makes_the_counter_raise(data):
    """A broken node is counted with no negative number, or uncounted, or its operands refused."""
    drawn = Node(
        key="n",
        op=data.draw(st.sampled_from(list(all_operator_rules()))),
        inputs=tuple(data.draw(st.lists(tensors, max_size=12))),
        outputs=tuple(data.draw(st.lists(tensors, max_size=3))),
        attrs=data.draw(st.dictionaries(names, values, max_size=4)),
    )
    try:
        counted = count_node(drawn)
    except OperandError:
        return
    if isinstance(counted, CountedNode):
        assert min(getattr(counted.cost, kind) for kind in counted.cost.__struct_fields__) >= 0
    else:
        assert counted.reason


def test_dropout_moves_bytes_where_it_computes():
    """In inference it is its input; in training it reads its three inputs, and writes."""
    tensors = [(2, 3), (), ":bool"], [(2, 3)]
    for mode, moved in ((0, (0, 0)), (1, (24 + 4 + 1, 24))):
        cost = count_node(to_node("Dropout", *tensors, training_mode=mode)).cost
        assert (cost.bytes_read, cost.bytes_written) == moved
