"""Memory figures: by hand on a small graph, and the peak against a loop over every moment."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from crossflops.ir.graph import Graph, Node, Op, TensorSpec
from crossflops.ledger.count import count
from crossflops.ledger.memory import activation_peak_of_graph, memory_of_graph
from crossflops.operators import all_operator_rules


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


def graph(nodes, inputs, outputs, **fields):
    """A graph."""
    return Graph(
        name="g", nodes=tuple(nodes), inputs=tuple(inputs), outputs=tuple(outputs),
        params=0, opset={"": 17}, **fields,
    )  # fmt: skip


X = tensor("x", 4, 8, role="input")
W = tensor("w", 8, 8, role="parameter")
A, B, C, D = (tensor(name, 4, 8) for name in "abcd")
V = tensor("v", 32)


def test_a_pointwise_convolution_moves_what_the_textbook_says():
    """H W (Cin + Cout) + Cin Cout elements, here 6 x 7 x (3 + 5) + 15, four bytes each."""
    x, w = tensor("x", 1, 3, 6, 7, role="input"), tensor("w", 5, 3, 1, 1, role="parameter")
    y = tensor("y", 1, 5, 6, 7)
    own = graph([node("Conv", [x, w], [y])], [x], [y], param_bytes=60)
    memory = memory_of_graph(own, count(own))
    moved = 6 * 7 * (3 + 5) + 3 * 5
    assert (memory.access_elements, memory.access_bytes) == (moved, 4 * moved)
    assert (memory.elements_read, memory.elements_written) == (6 * 7 * 3 + 15, 6 * 7 * 5)
    assert msgspec.structs.astuple(memory.intensity) == (2 * 6 * 7 * 3 * 5, 4 * moved)
    assert memory.param_bytes == 60
    assert (memory.peak_activation_bytes, memory.peak_node) == (4 * 6 * 7 * (3 + 5), "y")


def test_the_peak_of_a_chain_by_hand():
    """x, a, b, c of 128 bytes: while b is made x, a and b are alive, then x, b, c; a is gone."""
    chain = [node("MatMul", [X, W], [A]), node("Relu", [A], [B]), node("Relu", [B], [C])]
    assert activation_peak_of_graph(graph(chain, [X], [C])).nbytes == 3 * 128
    # a is needed at the end: it stays, and the peak is one tensor more.
    skip = [*chain, node("Add", [A, C], [D])]
    highest = activation_peak_of_graph(graph(skip, [X], [D]))
    assert (highest.nbytes, highest.node, highest.unsized) == (4 * 128, "c", 0)


def test_a_view_has_no_bytes_and_keeps_its_source_alive():
    """v is a under another shape: a lives until v is read last."""
    nodes = [
        node("Relu", [X], [A]),
        node("Reshape", [A, tensor("s", 1, role="constant", dtype="int64")], [V]),
        node("Relu", [X], [B]),
        node("Relu", [B], [C]),
        node("Relu", [V], [D]),
    ]
    # at c: x, a (as v), b, c
    assert activation_peak_of_graph(graph(nodes, [X], [C, D])).nbytes == 4 * 128
    assert {str(op) for op, known in all_operator_rules().items() if known.traffic == "alias"} == {
        *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout", "BitCast"),
    }


def test_constants_and_what_comes_from_them_alone_are_apart():
    """A transposed weight is no activation."""
    t = tensor("t", 8, 8)
    nodes = [node("Transpose", [W], [t], constant=True), node("MatMul", [X, t], [A])]
    assert activation_peak_of_graph(graph(nodes, [X], [A])).nbytes == 2 * 128


def test_a_body_adds_its_own_peak():
    """The loop holds x, its result, and in the body the state and two values; x is read inside."""
    state, p, q = (tensor(name, 4, 8) for name in ("state", "p", "q"))
    body = graph([node("Add", [state, X], [p]), node("Relu", [p], [q])], [state], [q])
    loop = node("Loop", [None, None, A], [B], bodies=(body,), trips=3)
    own = graph([node("Relu", [X], [A]), loop], [X], [B])
    # outside x, a, b; inside state, p, q
    assert (activation_peak_of_graph(own).nbytes, activation_peak_of_graph(own).node) == (
        6 * 128,
        "b",
    )


def test_a_body_keeps_alive_what_it_reads():
    """a is read by the body alone, behind c: it is alive while c is made."""
    q = tensor("q", 4, 8)
    body = graph([node("Relu", [A], [q])], [], [q])
    nodes = [
        node("Relu", [X], [A]), node("Relu", [X], [C]), node("Relu", [C], [D]),
        node("If", [tensor("k", 1, dtype="bool", role="constant")], [B], bodies=(body,)),
    ]  # fmt: skip
    # at the If: x, a, b and q in the body (c is gone, d is returned)
    assert activation_peak_of_graph(graph(nodes, [X], [B, D])).nbytes == 5 * 128


def test_a_function_has_the_operands_and_results_of_its_calls():
    """Twice a function of x -> p -> r: x, a and b are alive around, and p inside."""
    operand, p, r = (tensor(name, 4, 8) for name in ("operand", "p", "r"))
    body = graph([node("Relu", [operand], [p]), node("Relu", [p], [r])], [operand], [r])
    calls = [
        node("F", [X], [A], bodies=(body,), choice="function"),
        node("F", [A], [B], bodies=(body,), choice="function"),
    ]
    assert activation_peak_of_graph(graph(calls, [X], [B])).nbytes == (3 + 1) * 128


def test_functions_that_double_are_looked_at_once():
    """A hundred levels, two calls each: 2^100 runs, of which one is alive at a time."""
    inner, made = tensor("inner", 4, 8), tensor("made", 4, 8)
    body = graph([node("Relu", [inner], [made])], [inner], [made])
    for _ in range(100):
        half = tensor("half", 4, 8)
        calls = [
            node("F", [inner], [half], bodies=(body,), choice="function"),
            node("F", [half], [made], bodies=(body,), choice="function"),
        ]
        body = graph(calls, [inner], [made])
    whole = graph([node("F", [X], [A], bodies=(body,), choice="function")], [X], [A])
    # x and a around, and in each level what lies between its two calls
    assert activation_peak_of_graph(whole).nbytes == (2 + 100) * 128


def test_what_has_no_known_size_is_numbered():
    """The peak is then that of the rest, and says so."""
    odd = TensorSpec("o", "float32", None)
    highest = activation_peak_of_graph(
        graph([node("NonZero", [X], [odd]), node("Relu", [odd], [A])], [X], [A])
    )
    assert (highest.nbytes, highest.unsized) == (2 * 128, 1)


@st.composite
def dags(draw):
    """A random graph of nodes with one or two results, aliases and dead results among them."""
    names = ["x0", "x1"][: draw(st.integers(1, 2))]
    specs = {name: tensor(name, draw(st.integers(1, 9)), role="input") for name in names}
    inputs = list(specs.values())
    nodes = []
    for number in range(draw(st.integers(1, 9))):
        chosen = draw(st.lists(st.sampled_from(sorted(specs)), min_size=1, max_size=3))
        alias = draw(st.booleans())
        results = 1 if alias else draw(st.integers(1, 2))
        made = []
        for place in range(results):
            size = specs[chosen[0]].numel if alias else draw(st.integers(1, 9))
            made.append(tensor(f"n{number}_{place}", size))
        kind = "Identity" if alias else "Custom"
        nodes.append(node(kind, [specs[name] for name in chosen], made))
        specs |= {spec.name: spec for spec in made}
    outputs = draw(st.lists(st.sampled_from(sorted(specs)), min_size=1, max_size=3, unique=True))
    return graph(nodes, inputs, [specs[name] for name in outputs])


def brute_force(own):
    """The most bytes at any moment, by asking of each storage at each moment whether it is needed.

    Storages are found by following aliases to their root, the future by looking at all of it.
    """
    root = {spec.name: spec.name for spec in own.inputs}
    size = {spec.name: spec.nbytes for spec in own.inputs}
    for writer in own.nodes:
        for made in writer.outputs:
            alias = writer.op.type == "Identity"
            root[made.name] = root[writer.inputs[0].name] if alias else made.name
            size[made.name] = made.nbytes
    most = 0
    for now in range(len(own.nodes)):
        here = {output.name for output in own.nodes[now].outputs}
        exist = {spec.name for spec in own.inputs}
        exist |= {output.name for node in own.nodes[: now + 1] for output in node.outputs}
        needed = {spec.name for node in own.nodes[now:] for spec in node.inputs}
        needed |= (
            {output.name for output in own.outputs} | {spec.name for spec in own.inputs} | here
        )
        alive = {root[name] for name in exist & needed}
        most = max(most, sum(size[name] for name in alive))
    return most


@given(dags())
def test_the_peak_is_that_of_every_moment(own):
    """On random graphs the events give what looking at every moment gives."""
    assert activation_peak_of_graph(own).nbytes == brute_force(own)


def test_parameters_of_a_file_in_the_type_they_are_stored_in(tmp_path):
    """Twenty halves and five floats: 40 + 20 bytes; a packed one by what it takes."""
    from tests.onnx_files import parsed, saved

    text = """g (float16[1,5] x, float[5] v) => (float16[1,4] y, float[5] u)
        <float16[5,4] w = {%s}, float[5] s = {%s}> { y = MatMul(x, w)  u = Mul(v, s) }"""
    model = parsed(text % (", ".join(["0"] * 20), ", ".join(["1"] * 5)))
    report = run(saved(tmp_path, model))
    assert (report.params, report.memory.param_bytes) == (25, 60)


def run(path):
    """The report of a file."""
    from crossflops.verbs.api import count as pipeline_count

    return pipeline_count(path)
