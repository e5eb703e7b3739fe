"""Operators that PyTorch has and ONNX has not, each as one node of `torch.ops`."""

import itertools
from math import inf

import numpy as np
import pytest

from crossflops.errors import OperandError
from crossflops.ir.ledger import ZERO, Cost, UncountedNode
from crossflops.ledger.count import count_node
from crossflops.testing.graphs import to_node
from tests.operators.scalars import Tally, work

LSTM = "torch.ops::aten.lstm.input"
ONE_LAYER = {"num_layers": 1, "bidirectional": 0, "has_biases": 0}


def real_products(first, second):
    """(a + bi)(c + di) = (ac - bd) + (ad + bc)i over the pairs of two lists: 4 MACs each."""
    macs = 0
    for _ in zip(first, second, strict=True):
        for _ in itertools.product(("a", "b"), ("c", "d")):
            macs += 1
    return macs


def test_a_complex_linear_layer_is_a_loop_of_complex_products():
    """3 rows of 4 to 5: a dot of 4 complex pairs for each of 15; 2 sums each for the bias."""
    macs = sum(real_products(range(4), range(4)) for _ in range(3 * 5))
    shapes = [(3, 4, 2), (5, 4, 2)]
    plain = to_node("torch.ops::aten.linear.default", shapes, [(3, 5, 2)])
    biased = to_node("torch.ops::aten.linear.default", [*shapes, (5, 2)], [(3, 5, 2)])
    assert work(plain) == Cost(macs=macs) == Cost(macs=240)
    assert work(biased) == Cost(macs=240, adds=2 * 15)


@pytest.mark.parametrize(
    ("equation", "shapes", "result", "cost"),
    [
        # a matrix product of 2x3 by 3x4: 24 complex MACs
        ("ij,jk->ik", [(2, 3, 2), (3, 4, 2)], (2, 4, 2), Cost(macs=4 * 24)),
        # 6 complex products: 4 muls and 2 adds each
        ("ij,ij->ij", [(2, 3, 2), (2, 3, 2)], (2, 3, 2), Cost(muls=24, adds=12)),
        # 6 complex numbers summed to 2: 4 complex adds
        ("ij->i", [(2, 3, 2)], (2, 2), Cost(adds=8)),
    ],
)
def test_a_complex_einsum(equation, shapes, result, cost):
    """The labels do not name the axis of the two parts."""
    assert (
        work(to_node("torch.ops::aten.einsum.default", shapes, [result], equation=equation))
        == cost
    )


@pytest.mark.parametrize(
    ("mode", "weighted", "cost"),
    [
        (0, False, Cost(adds=(7 - 3) * 4)),
        (1, False, Cost(adds=(7 - 3) * 4, divs=3 * 4)),
        (2, False, Cost(compares=(7 - 3) * 4)),
        (0, True, Cost(adds=(7 - 3) * 4, muls=7 * 4)),
    ],
    ids=["sum", "mean", "max", "weighted"],
)
def test_an_embedding_bag(mode, weighted, cost):
    """Seven rows of four in three bags."""
    inputs = [(10, 4), "7:int64", "3:int64", *([(7,)] if weighted else [])]
    bag = to_node("torch.ops::aten.embedding_bag.padding_idx", inputs, [(3, 4)], mode=mode)
    counted = count_node(bag)
    assert work(bag) == cost
    assert counted.exactness == "bound"
    # Of the table as many bytes as the result has, the indices and the offsets of 8 bytes.
    assert counted.cost.bytes_read == 3 * 4 * 4 + (7 + 3) * 8 + (28 if weighted else 0)


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0, inf, 3.0])
def test_distances_are_a_loop_over_pairs(power):
    """Of 2 rows and 3 rows of 4 numbers, all in a batch of 2."""
    tally = Tally()
    expected = Cost()
    for _ in range(2 * 2 * 3):
        left, right = (tally.array(np.ones(4)) for _ in range(2))
        differences = [a - b for a, b in zip(left, right, strict=True)]
        if power == 2:
            sum_ = differences[0] * differences[0]
            for one in differences[1:]:
                sum_ = sum_ + one * one
            sum_.sqrt()
        else:
            signs = {0.0: Cost(compares=4, adds=3), 1.0: Cost(compares=4, adds=3)}
            more = {inf: Cost(compares=4 + 3), 3.0: Cost(compares=4, specials=5, adds=3)}
            expected += (signs | more)[power]
    one = to_node(
        "torch.ops::aten._cdist_forward.default", [(2, 2, 4), (2, 3, 4)], [(2, 2, 3)], p=power
    )
    assert work(one) == tally.cost + expected


def test_distances_of_many_rows_are_a_product():
    """[-2 a, |a|^2, 1] times [b, 1, |b|^2], of 2 and 3 rows of 4, and 6 roots of what is not
    below 0.
    """
    squares = Cost(muls=4, adds=3) * (2 + 3)
    per_pair = Cost(macs=4 + 2, compares=1, specials=1)
    pairs = to_node("torch.ops::aten._euclidean_dist.default", [(2, 4), (3, 4)], [(2, 3)])
    assert work(pairs) == squares + Cost(muls=2 * 4) + per_pair * (2 * 3)


def test_writing_into_a_part_moves_data():
    """A copy with a part replaced computes nothing, and is read and written whole."""
    scatter = to_node("torch.ops::aten.slice_scatter.default", [(4, 4), (2, 4)], [(4, 4)])
    counted = count_node(scatter)
    assert work(scatter) == ZERO
    assert (counted.cost.bytes_read, counted.cost.bytes_written) == (96, 64)


@pytest.mark.parametrize(
    ("name", "inputs"), [("empty_permuted", []), ("_efficientzerotensor", []), ("resize", [(0,)])]
)
def test_room_for_a_result_costs_nothing(name, inputs):
    """Nothing is computed for a tensor that is to be filled."""
    room = to_node(f"torch.ops::aten.{name}.default", inputs, [(4, 4)])
    assert work(room) == ZERO


@pytest.mark.parametrize("inputs", [[(2, 1, 4)] * 3, [(2, 1, 4)] * 3 + [(8, 4)] * 4])
def test_an_lstm_without_its_weights_is_uncounted(inputs):
    """Too few tensors, or too many for a layer without biases, are no LSTM."""
    gap = count_node(to_node(LSTM, inputs, [(2, 1, 2)], **ONE_LAYER))
    assert isinstance(gap, UncountedNode)
    assert "inputs" in gap.reason


@pytest.mark.parametrize(
    ("operator", "shapes", "macs"),
    [
        ("aten._int_mm.default", [(3, 4), (4, 5), (3, 5)], 3 * 4 * 5),
        ("transformers.grouped_mm_fallback.default", [(7, 4), (3, 4, 5), (7, 5)], 7 * 4 * 5),
        ("aten._grouped_mm.default", [(7, 4), (3, 4, 5), (7, 5)], 7 * 4 * 5),
        ("aten._grouped_mm.default", [(3, 2, 4), (3, 4, 5), (3, 2, 5)], 3 * 2 * 4 * 5),
        ("aten._grouped_mm.default", [(3, 2, 4), (4, 6), (2, 6)], 2 * 4 * 6),
        ("aten._grouped_mm.default", [(2, 9), (9, 5), (3, 2, 5)], 2 * 9 * 5),
    ],
)
def test_a_product_of_groups(operator, shapes, macs):
    """Every row meets one matrix, so the sizes of the groups do not matter."""
    first, second, out = shapes
    inputs = [first, second, "3:int32"] if "grouped" in operator else [first, second]
    assert work(to_node(f"torch.ops::{operator}", inputs, [out])) == Cost(macs=macs)


@pytest.mark.parametrize(
    ("shapes", "transposed", "mask", "cost"),
    [
        # 4 x 4 places of dY, 3 channels of them, meet 2 x 3 x 3: 864, for x and for w each
        ([(1, 3, 4, 4), (1, 2, 4, 4), (3, 2, 3, 3)], 0, (1, 1, 0), Cost(macs=2 * 864)),
        # 48 gradients are summed to 3
        ([(1, 3, 4, 4), (1, 2, 4, 4), (3, 2, 3, 3)], 0, (0, 0, 1), Cost(adds=45)),
        # transposed, two groups: 4 x 5 x 5 of x meet 3 x 9
        ([(1, 6, 7, 7), (1, 4, 5, 5), (4, 3, 3, 3)], 1, (0, 1, 0), Cost(macs=2700)),
    ],
)
def test_gradients_of_a_convolution(shapes, transposed, mask, cost):
    """Those that its mask asks for."""
    name = "torch.ops::aten.convolution_backward.default"
    assert work(to_node(name, shapes, shapes, transposed=transposed, output_mask=mask)) == cost


def test_gradients_of_a_fused_attention():
    """2 x 3 queries meet 5 keys: 30 scores; 3 products of depth 4, 2 of depth 6."""
    name = "torch.ops::aten._scaled_dot_product_flash_attention_for_cpu_backward.default"
    q, k, v, y = (1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 6), (1, 2, 3, 6)
    softmax = Cost(specials=30, muls=90, adds=60)
    assert work(to_node(name, [y, q, k, v, y, (1, 2, 3)], [q, k, v])) == (
        Cost(macs=30 * (3 * 4 + 2 * 6), muls=36, adds=36) + softmax
    )


def test_the_gradient_of_silu():
    """A sigmoid, dY s, 1 - s, X (1 - s), 1 + that, and the product: 1 special, 3 muls, 2 adds."""
    cost = work(to_node("torch.ops::aten.silu_backward.default", [(7,), (7,)], [(7,)]))
    assert cost == Cost(specials=7, muls=21, adds=14)


def solved(matrix, columns):
    """Solve by LU and two substitutions on counted scalars: a dict of the work.

    The search for pivots is no arithmetic on the result: LAPACK's own counts leave it out, too.
    """
    rows = len(matrix)
    done = {"muls": 0, "adds": 0, "divs": 0}
    for step in range(rows):
        for _below in range(step + 1, rows):
            done["divs"] += 1
            for _ in range(step + 1, rows):
                done["muls"] += 1
                done["adds"] += 1
    for _ in range(columns):
        for row in range(rows):
            for _ in range(row):  # forward, the diagonal is 1
                done["muls"] += 1
                done["adds"] += 1
        for row in range(rows):
            for _ in range(row + 1, rows):  # backward
                done["muls"] += 1
                done["adds"] += 1
            done["divs"] += 1
    return done


@pytest.mark.parametrize(
    ("square", "right", "times", "columns"),
    [
        ((4, 4), (4, 3), 1, 3),
        ((2, 5, 5), (2, 5, 1), 2, 1),
        ((3, 3), (3,), 1, 1),
        ((1, 1), (1, 2), 1, 2),
    ],
)
def test_a_linear_system_is_that_of_a_loop(square, right, times, columns):
    """LU and substitutions, matrix by matrix."""
    system = to_node("torch.ops::aten.linalg_solve.default", [square, right], [right])
    loop = solved([()] * square[-1], columns)
    counted = count_node(system)
    assert counted.exactness == "estimate"
    assert {kind: getattr(counted.cost, kind) for kind in loop} == {
        kind: amount * times for kind, amount in loop.items()
    }


def test_a_sparse_product_is_bounded_by_a_dense_one():
    """(3x4 sparse) @ (4x5), added to (3x5): at most 60 MACs, and 15 adds."""
    shapes = [(3, 5), (3, 4), (4, 5)]
    counted = count_node(to_node("torch.ops::aten._sparse_addmm.default", shapes, [(3, 5)]))
    assert (counted.cost.macs, counted.cost.adds, counted.exactness) == (60, 15, "bound")
    alone = to_node("torch.ops::aten._sparse_addmm.default", shapes, [(3, 5)], beta=0)
    assert count_node(alone).cost.adds == 0


@pytest.mark.parametrize(
    "name",
    [
        "unsqueeze.default",
        "select.int",
        "split_with_sizes.default",
        "index.Tensor",
        "tile.default",
    ],
)
def test_moved_complex_numbers_cost_nothing(name):
    """What only moves is moved whether it has one part or two."""
    assert work(to_node(f"torch.ops::aten.{name}", [(3, 4, 2)], [(3, 1, 4, 2)])) == ZERO


@pytest.mark.parametrize(
    ("name", "attributes", "cost"),
    [
        # 6 numbers: e^a, cos b, sin b, and the first times each of the others
        ("exp.default", {}, Cost(specials=18, muls=12)),
        # a*a + b*b, its root, the log of that, atan2
        ("log.default", {}, Cost(specials=18, muls=12, adds=6)),
        # (a + ib)(a + ib): ac, bd, ad, bc, a difference and a sum
        ("pow.Tensor_Scalar", {"exponent": 2.0}, Cost(muls=24, adds=12)),
        # the log, p times both of its parts, the exponential
        ("pow.Tensor_Scalar", {"exponent": 0.5}, Cost(specials=36, muls=36, adds=6)),
    ],
)
def test_functions_of_complex_numbers(name, attributes, cost):
    """As many functions of real numbers as the textbook's formula has."""
    function = to_node(f"torch.ops::aten.{name}", [(2, 3, 2)], [(2, 3, 2)], **attributes)
    assert work(function) == cost
    assert count_node(function).exactness == "estimate"


@pytest.mark.parametrize(("accumulate", "adds"), [(0, 0), (1, 2 * 4 * 2)])
def test_complex_values_put_in_their_places(accumulate, adds):
    """Two rows of four numbers: accumulated, both parts of each are added."""
    written = to_node(
        "torch.ops::aten.index_put.default",
        [(3, 4, 2), "2:int64", (2, 4, 2)],
        [(3, 4, 2)],
        accumulate=accumulate,
    )
    assert work(written) == Cost(adds=adds)


@pytest.mark.parametrize(
    ("name", "shapes", "result", "pairs"),
    [
        ("mm", [(3, 4, 2), (4, 5, 2)], (3, 5, 2), 3 * 5 * 4),
        ("bmm", [(2, 3, 4, 2), (2, 4, 5, 2)], (2, 3, 5, 2), 2 * 3 * 5 * 4),
        ("mv", [(3, 4, 2), (4, 2)], (3, 2), 3 * 4),
        ("dot", [(4, 2), (4, 2)], (2,), 4),
    ],
)
def test_products_of_complex_numbers(name, shapes, result, pairs):
    """Each pair of complex numbers is four real products."""
    macs = real_products(range(pairs), range(pairs))
    product = to_node(f"torch.ops::aten.{name}.default", shapes, [result])
    assert work(product) == Cost(macs=macs)
    added = to_node(f"torch.ops::aten.add{name}.default", [result, *shapes], [result], beta=2.0)
    if name == "mm":
        assert work(added) == Cost(macs=macs, adds=3 * 5 * 2, muls=3 * 5 * 2)


def test_a_complex_product_of_other_lengths_is_refused():
    """Rows of 4 do not meet columns of 3."""
    with pytest.raises(OperandError, match="rows of 4"):
        count_node(to_node("torch.ops::aten.mm.default", [(3, 4, 2), (3, 5, 2)], [(3, 5, 2)]))


@pytest.mark.parametrize(
    ("type_", "cost"),
    [
        ("torch.ops::prims.lgamma.default", Cost(specials=6)),
        ("torch.ops::prims.erf_inv.default", Cost(specials=6)),
        ("torch.ops::aten.polygamma.default", Cost(specials=6)),
        ("jax::digamma", Cost(specials=6)),
        ("tensorflow::BesselI0e", Cost(specials=6)),
        ("torch.ops::prims.signbit.default", Cost(compares=6)),
    ],
)
def test_special_functions_are_a_special_for_each_element(type_, cost):
    """Two rows of three; the same function costs the same in every framework."""
    assert work(to_node(type_, [(2, 3)], [(2, 3)])) == cost


def test_the_logarithm_of_a_determinant():
    """n = 3: 2 divs and 4 mul-subs, 1 and 1; then 3 logs, 2 adds and 2 muls of signs."""
    factors = Cost(divs=3, muls=5, adds=5)
    op = to_node("jax::numpy/linalg.slogdet", [(3, 3)], [(), ()])
    assert work(op) == factors + Cost(specials=3, adds=2, muls=2)


def test_a_hypotenuse_is_two_squares_a_sum_and_a_root():
    """Six of them."""
    squares = Cost(muls=2, adds=1, specials=1) * 6
    assert work(to_node("torch.ops::prims.hypot.default", [(2, 3), (2, 3)], [(2, 3)])) == squares


@pytest.mark.parametrize(
    ("name", "shapes", "length", "attributes", "cost"),
    [
        # 0, .5, 1, .5 of a length of 5: 5 products, and 2 - x for the 2 behind the middle
        ("bartlett_window.default", [], 4, {}, Cost(muls=5 + 2, adds=2)),
        ("bartlett_window.periodic", [], 4, {"periodic": 0}, Cost(muls=4 + 2, adds=2)),
        ("bartlett_window.default", [], 1, {}, ZERO),
        # k 2/(L-1) - 1, 1 - x x, at least 0, its root, times beta, i0, by i0(beta)
        (
            "kaiser_window.default", [], 4, {},
            Cost(muls=20, adds=10, compares=5, specials=11, divs=1),
        ),
        (
            "kaiser_window.beta", [], 4, {"periodic": 0, "beta": 3.0},
            Cost(muls=16, adds=8, compares=4, specials=9, divs=1),
        ),
        ("randperm.default", [], 6, {"n": 6}, Cost(divs=5)),
        ("cummax.default", [(6,)], 6, {"dim": 0}, Cost(compares=6)),
    ],
)  # fmt: skip
def test_windows_and_orders(name, shapes, length, attributes, cost):
    """As the kernels make them; a periodic window is made one element longer."""
    assert work(to_node(f"torch.ops::aten.{name}", shapes, [(length,)], **attributes)) == cost


@pytest.mark.parametrize(
    ("name", "shapes", "cost"),
    [
        ("prims.fmax.default", [(3, 4), (3, 4)], Cost(compares=12)),
        ("aten.range.step", [], Cost(muls=12, adds=12)),
        ("aten.fft_rfftfreq.default", [], Cost(muls=13, divs=1)),
        ("aten.random.from", [(3, 4)], Cost(muls=12, adds=12)),
    ],
)
def test_sequences_and_draws(name, shapes, cost):
    """Twelve elements, each as its page defines it."""
    assert work(to_node(f"torch.ops::{name}", shapes, [(3, 4)])) == cost


def test_a_product_of_a_column():
    """prims.prod of [4, 3] along the first axis: 3 columns of 3 products."""
    assert work(to_node("torch.ops::prims.prod.default", [(4, 3)], [(3,)])) == Cost(muls=9)
