"""A pass reads the experts that its tokens choose: by counting every way to choose."""

from fractions import Fraction
from functools import partial
from itertools import combinations, product

import pytest
from msgspec.structs import replace

from crossflops.hardware.expert_reads import describe_experts, expert_read_shares
from crossflops.hardware.roofline import Scenario, compute_bound_batch_size
from crossflops.hardware.step_traffic import Formats, node_loads
from crossflops.ir.graph import Op
from crossflops.ir.roofline import Ceiling
from crossflops.ledger.count import count_nodes_with_their_bodies
from tests.hardware.small_graphs import MODELS, graph, moved, node, tensor

FIRST, SECOND = 8 * 6, 6 * 8  # elements of an expert


def mixture(tokens, experts, used):
    """A router of scores from outside, and experts of 8 x 6 and 6 x 8 weights."""
    x, scores, y = tensor("x", tokens, 8), tensor("p", tokens, experts), tensor("y", tokens, 8)
    f = tensor("f", experts, 6, 8, role="parameter")
    o = tensor("o", experts, 8, 6, role="parameter")
    moe = node("MoE", [x, scores, f, None, o], [y], attrs={"k": used, "activation_type": "relu"})
    moe = replace(moe, op=Op("com.microsoft", "MoE", 1))
    return graph([moe], [x, scores], [y])


def mean_of_chosen(tokens, experts, used):
    """Return how many different experts are chosen on average, over all ways to choose."""
    ways = list(product(combinations(range(experts), used), repeat=tokens))
    return Fraction(sum(len(set().union(*way)) for way in ways), len(ways))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("case", [(1, 8, 2), (2, 4, 1), (3, 4, 2), (2, 5, 3), (2, 3, 3)])
def test_weights_of_chosen_experts_are_read(case, model):
    """Of each expert 2 x 48 elements of four bytes, as many experts as are chosen on average."""
    tokens, experts, used = case
    (traffic,) = moved(mixture(*case), model).values()
    expected = mean_of_chosen(tokens, experts, used) * (FIRST + SECOND) * 4
    assert traffic[0] == pytest.approx(float(expected), abs=8)  # elements are whole


def test_a_larger_batch_reads_more_experts():
    """The graph has one token, and the pass three."""
    own = mixture(1, 4, 2)
    (load,) = node_loads(
        own, count_nodes_with_their_bodies(own), "fused-ideal", Formats(), Fraction(3)
    )
    assert load.weights == pytest.approx(float(mean_of_chosen(3, 4, 2) * 96 * 4), abs=8)


@pytest.mark.parametrize(
    ("case", "ridge"), [((1, 8, 2), 1.0), ((1, 8, 1), 0.5), ((2, 4, 1), 3.0), ((1, 4, 4), 2.0)]
)
def test_compute_bounds_a_mixture_from_the_batch_whose_own_experts_it_outruns(case, ridge):
    """Weights of E (1 - (1 - k/E)^T) experts at T tokens, against two FLOPs for each MAC of k."""
    tokens, experts, used = case
    own, macs = mixture(*case), used * (FIRST + SECOND)
    moves = (8 + experts + 8) * 4  # of a token: what is read and written, and its scores

    def is_bound(examples):
        passing = tokens * examples
        chosen = experts * (1 - (1 - used / experts) ** passing)
        return passing * (2 * macs - ridge * moves) >= ridge * chosen * (FIRST + SECOND) * 4

    first = next((n for n in range(1, 10**4) if is_bound(n)), None)
    machine = Ceiling(name="m", peaks={"": ridge}, bandwidth=1.0)
    run = Scenario(label="", ceiling=machine, examples=1)
    rows = partial(node_loads, own, count_nodes_with_their_bodies(own), "fused-ideal", Formats())
    assert compute_bound_batch_size(rows, run, ridge) == first
    counted_again = replace(run, examples=5, scale=Fraction(5))
    assert compute_bound_batch_size(rows, counted_again, ridge) == first


def test_a_batch_of_many_tokens_reads_all_experts():
    """Ten thousand million of them, without a number of as many digits."""
    assert not expert_read_shares(mixture(1, 4, 2), Fraction(10**10))


@pytest.mark.parametrize(
    ("choice", "share"),
    [
        ((8, 2), Fraction(1, 4)),
        (None, 1 - Fraction(7, 8) ** 2),
        ((6, 2), 1 - Fraction(7, 8) ** 2),
        ((8, 0), 1 - Fraction(7, 8) ** 2),
    ],
)
def test_a_grouped_product_reads_the_groups_of_its_rows(choice, share):
    """Two rows: of one token where two of eight were chosen before, else of two tokens."""
    rows, ends = tensor("rows", 2, 8), tensor("ends", 8, dtype="int32")
    w, y = tensor("w", 8, 8, 6, role="parameter"), tensor("y", 2, 6)
    grouped = node("", [rows, w, ends], [y])
    nodes = [replace(grouped, op=Op("torch.ops", "aten._grouped_mm.default", 1))]
    inputs = [rows, ends]
    if choice:
        scores, best = tensor("scores", 1, choice[0]), tensor("best", 1, choice[1])
        nodes.insert(0, node("TopK", [scores], [best]))
        inputs.append(scores)
    assert expert_read_shares(graph(nodes, inputs, [y])) == {"y": share}


@pytest.mark.parametrize("model", MODELS)
def test_a_product_of_no_rows_reads_nothing(model):
    """An expert of a list that no token chose."""
    x, w, y = tensor("x", 0, 8), tensor("w", 8, 6, role="parameter"), tensor("y", 0, 6)
    traffic = moved(graph([node("MatMul", [x, w], [y])], [x], [y]), model)
    assert not any(map(sum, traffic.values()))


def experts_of_a_list(tokens, chosen):
    """A router's TopK, and of eight experts, modules of a list, those that have tokens: 8 x 6."""
    scores, k = tensor("p", tokens, 8), tensor("k", 1, dtype="int64", role="constant")
    best = [tensor("best", tokens, 2), tensor("numbers", tokens, 2, dtype="int64")]
    nodes, outputs = [node("TopK", [scores, k], best)], []
    for number, rows in enumerate(chosen):
        x, y = tensor(f"x{number}", rows, 8), tensor(f"y{number}", rows, 6)
        w = tensor(f"w{number}", 8, 6, role="parameter")
        nodes.append(node("MatMul", [x, w], [y]))
        outputs.append(y)
    xs = [node.inputs[0] for node in nodes]
    return replace(graph(nodes, xs, [*best, *outputs]), idle_params=6 * 48)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("tokens", "chosen"), [(1, 2), (4, 5), (64, 8)])
def test_experts_of_a_list_are_those_of_the_count(tokens, chosen, model):
    """48 weights of four bytes for each that has tokens; the 8 bytes of k are no weight."""
    own = experts_of_a_list(tokens, [2] * chosen)
    assert sum(weights for weights, *_ in moved(own, model).values()) == chosen * 48 * 4
    assert "to which the router sent tokens of these inputs" in describe_experts(own)


def test_what_is_assumed_of_experts_is_said():
    """Balanced where an operator holds all, each row where they are gathered, else nothing."""
    stack, numbers = tensor("w", 8, 6, 4, role="parameter"), tensor("n", 3, dtype="int64")
    taken = tensor("y", 3, 6, 4)
    own = graph([node("Gather", [stack, numbers], [taken])], [numbers], [taken])
    assert "routed evenly" in describe_experts(mixture(1, 8, 2))
    assert "at most all experts" in describe_experts(replace(own, idle_params=6))
    assert describe_experts(own) == ""
