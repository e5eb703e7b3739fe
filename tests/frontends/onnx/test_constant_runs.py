"""In which runs of a loop a product depends on an input: each run is taken as it is."""

import pytest

from tests.onnx_files import ledger_of, parsed, saved

PRODUCT = 2 * 4 * 4  # [2,4] x [4,4]
GIVEN = "float[2,4] x, bool c, int64 n"
STORED = "float[2,4] z = {0,0,0,0,0,0,0,0}, float[4,4] w, int64 five = {5}, bool yes = {1}"


def constant_products(text, tmp_path, given=GIVEN, results="y", **options):
    """How many products there are in all runs, and how many of them depend on no input."""
    weights = STORED.replace("w,", f"w = {{{','.join('1' * 16)}}},")
    model = parsed(f"g ({given}) => ({results}) <{weights}> {{ {text} }}")
    for position, node in enumerate(model.graph.node):
        node.name = node.op_type if node.op_type == "Loop" else f"n{position}"
    ledger = ledger_of(saved(tmp_path, model), **options)
    assert not ledger.uncounted
    constant = sum(count.constant_cost.macs for count in ledger.counted)
    return constant / PRODUCT, ledger.total.macs / PRODUCT


def loop(states, step, results, stacks="", start="five, yes"):
    """A Loop that carries values which start as zeros: `step` makes `results` of `states`."""
    takes = "".join(f", float[2,4] {state}" for state in states.split())
    gives = ", ".join(["co", *results.split(), *stacks.split()])
    zeros = ", z" * len(states.split())
    others = range(1, len(results.split()) + len(stacks.split()))
    outputs = ", ".join(["y", *(f"o{number}" for number in others)])
    return (
        f"{outputs} = Loop ({start}{zeros}) <body = b (int64 i, bool ci{takes}) => ({gives}) "
        f"{{ co = Identity(ci) {step} }}>"
    )


@pytest.mark.parametrize(
    ("states", "step", "results", "constant"),
    [
        ("a", "p = MatMul(a, w) e = Add(p, x)", "e", 1),
        ("a", "e = Gemm(a, w, x)", "e", 1),  # the product is of the state, what is added of x
        ("a", "e = MatMul(a, w)", "e", 5),
        ("a", "p = MatMul(z, w) q = Add(p, a) e = Add(q, x)", "e", 5),
        ("a b", "p = MatMul(b, w) d = Add(p, x) e = Identity(a)", "d e", 2),
        ("a b", "e = MatMul(b, w) d = Identity(x) f = Identity(a)", "d f", 2),
        ("a b j", "e = MatMul(j, w) d = Identity(x) f = Identity(a) k = Identity(b)", "d f k", 3),
        ("a", "p = MatMul(x, w) e = Add(p, a)", "e", 0),
    ],
)  # fmt: skip
def test_a_state_is_constant_until_an_input_reaches_it(states, step, results, constant, tmp_path):
    """Five runs, one product each: a delay line of k values is constant for k runs."""
    text = loop(states, step, results, stacks="" if "e" in results.split() else "e")
    results = text.partition(" = ")[0]
    assert constant_products(text, tmp_path, results=results) == (constant, 5)


def test_states_that_change_places_are_constant_every_other_run(tmp_path):
    """One of two states is an input, and they are exchanged: runs 1, 3 and 5 multiply z."""
    text = (
        "y, o, s = Loop (five, yes, z, x) <body = b (int64 i, bool ci, float[2,4] a, "
        "float[2,4] d) => (co, d2, a2, p) { co = Identity(ci) p = MatMul(a, w) "
        "d2 = Identity(d) a2 = Identity(a) }>"
    )
    assert constant_products(text, tmp_path, results="y, s") == (3, 5)


@pytest.mark.parametrize(
    ("after", "constant", "products"),
    [
        ("u = MatMul(y, w)", 0, 6),  # what the loop carries to its end depends on x
        ("u = MatMul(z, w)", 2, 6),
    ],
)
def test_what_a_loop_gives_back_depends_as_its_last_run_does(after, constant, products, tmp_path):
    """The state behind the last run, not the one before the first."""
    text = loop("a", "p = MatMul(a, w) e = Add(p, x)", "e") + after
    constant += 1 if "y" in after else 0
    assert constant_products(text, tmp_path, results="y, u") == (constant, products)


def test_a_loop_that_overwrites_its_state_gives_back_a_constant(tmp_path):
    """The state is x in the first run alone: four of five products are constant, and so is y."""
    text = (
        "y, s = Loop (five, yes, x) <body = b (int64 i, bool ci, float[2,4] a) => (co, e, p) "
        "{ co = Identity(ci) p = MatMul(a, w) e = Identity(z) }> u = MatMul(y, w)"
    )
    assert constant_products(text, tmp_path, results="u, s") == (5, 6)


def test_the_number_of_runs_decides_about_the_results(tmp_path):
    """How often a body of constants runs, an input says: what comes out depends on it."""
    text = loop("a", "e = MatMul(a, w)", "e", start="n, yes") + "u = MatMul(y, w)"
    assert constant_products(text, tmp_path, results="u", trips={"Loop": 3}) == (3, 4)


def test_runs_of_a_scan(tmp_path):
    """The state of a Scan starts as zeros, and five rows of an input are scanned."""
    text = (
        "y, s = Scan <num_scan_inputs = 1, body = b (float[2,4] h, float[2,4] r) => (k, t) "
        "{ p = MatMul(h, w) k = Add(p, r) t = MatMul(r, w) }> (z, q)"
    )
    given = "float[5,2,4] q"
    assert constant_products(text, tmp_path, given=given, results="y, s") == (1, 10)


def test_runs_of_nested_loops(tmp_path):
    """Outer run 1: all 5 inner products are constant. Later ones: the first of 5 alone."""
    inner = loop("d", "p = MatMul(d, w) e = Add(p, a)", "e").replace("y = ", "v = ", 1)
    text = (
        "y = Loop (five, yes, z) <body = outer (int64 j, bool cj, float[2,4] a) => (cn, k) "
        f"{{ cn = Identity(cj) {inner} k = Add(v, x) }}>"
    )
    assert constant_products(text, tmp_path) == (5 + 4 * 1, 25)


def test_runs_of_a_branch_in_a_loop(tmp_path):
    """A branch of the body multiplies the state; which branch runs, an input says."""
    branch = (
        "e = If (c) <then_branch = t () => (m) { p = MatMul(a, w) m = Add(p, x) }, "
        "else_branch = f () => (m2) { m2 = Identity(a) }>"
    )
    assert constant_products(loop("a", branch, "e"), tmp_path) == (1, 5)


STATE = "float[1,2,4] h0 = {0,0,0,0,0,0,0,0}"


@pytest.mark.parametrize(
    ("kind", "gates", "attributes", "first"),
    [
        ("LSTM", 4, "hidden_size = 4", 4),
        ("GRU", 3, "hidden_size = 4", 2),  # the third product is of r h, and r depends on x
        ("GRU", 3, "hidden_size = 4, linear_before_reset = 1", 3),
        ("RNN", 1, "hidden_size = 4", 1),
    ],
)
@pytest.mark.parametrize("state", ["", "zeros", "given"])
def test_a_recurrent_operator_costs_as_the_loop_that_it_is(
    kind, gates, attributes, first, state, tmp_path
):
    """Five steps of gates x [2,4] x [4,4] for x and for h; those of a constant first h apart."""
    rows = gates * 4
    numbers = "{" + ",".join("1" * rows * 4) + "}"
    stored = f"float[1,{rows},4] W = {numbers}, float[1,{rows},4] R = {numbers}"
    stored += f", {STATE}" if state == "zeros" else ""
    given = "float[5,2,4] x" + (", float[1,2,4] h0" if state == "given" else "")
    node = f"y = {kind} <{attributes}> (x, W, R{', , , h0' if state else ''})"
    model = parsed(f"g ({given}) => (y) <{stored}> {{ {node} }}")
    (count,) = ledger_of(saved(tmp_path, model)).counted
    assert count.cost.macs == 5 * gates * 2 * PRODUCT
    assert count.constant_cost.macs == (0 if state == "given" else first * PRODUCT)
