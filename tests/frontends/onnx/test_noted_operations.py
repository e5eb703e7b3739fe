"""The operations that nodes of a file were written for: what is read of them, and when not."""

import copy
import random

import msgspec
import onnx
import pytest
from onnx import TensorProto, helper

from crossflops import count
from crossflops.frontends.converted import ConvertedOperation, with_notes_of_source_operations
from crossflops.frontends.onnx.graph import NUMBER
from crossflops.frontends.onnx.noted_operations import KEY, note_operations
from crossflops.ir.graph import Op, TensorSpec
from crossflops.verbs.api import export
from tests.onnx_files import graph_of, parsed, saved

# What could be written for an inverse error function, and the product of its result.
TEXT = """g (float[3,16] x, float[16,5] w) => (float[3,5] y) {
    n = Mul (x, x)
    t = Concat <axis = 1> (n)
    v = Log (t)
    s = Sqrt (v)
    y = MatMul (s, w)
}"""
ROWS = TensorSpec("x", "float32", (3, 16))
# One call of a special function for each of 48 numbers; as nodes a product, a log and a root.
ERF_INV, WRITTEN, PRODUCT = 48, 3 * 48, 2 * 3 * 16 * 5
AS_NOTED, AS_NODES = ERF_INV + PRODUCT, WRITTEN + PRODUCT


def noted(tmp_path, text=TEXT):
    """The model, of which all nodes but the product stand for a function of JAX."""
    model = parsed(text)
    for number, node in enumerate(model.graph.node):
        node.name = f"{node.op_type}_{number}"
    graph = graph_of(saved(tmp_path, model, "bare.onnx"))
    function = ConvertedOperation(Op("jax", "erf_inv", 1), (ROWS,), (ROWS,), {"accuracy": 1.5})
    nodes = with_notes_of_source_operations(
        graph.nodes, lambda node: None if node.op.type == "MatMul" else ("7@", function)
    )
    graph = msgspec.structs.replace(graph, nodes=nodes)
    return onnx.load_from_string(note_operations(model.SerializeToString(), graph))


def reports(tmp_path, model):
    """The count of a model, and of the same one without notes."""
    bare = copy.deepcopy(model)
    del bare.metadata_props[:]
    return count(saved(tmp_path, model)), count(saved(tmp_path, bare, "bare.onnx"))


def test_nodes_cost_what_they_were_written_for(tmp_path):
    """In number and in name; of a file without notes the nodes cost what they are."""
    report, bare = reports(tmp_path, noted(tmp_path))
    assert (report.flops, bare.flops) == (AS_NOTED, AS_NODES)
    assert {row.op: row.flops for row in report.by_op if row.flops} == {
        "jax.erf_inv": ERF_INV,
        "MatMul": PRODUCT,
    }
    assert report.warnings == ()


def test_a_model_whose_nodes_stand_for_themselves_has_no_notes(tmp_path):
    """Not a byte of it is another."""
    data = parsed(TEXT).SerializeToString()
    assert note_operations(data, graph_of(saved(tmp_path, parsed(TEXT)))) == data


def renamed(model):
    """Every value and node under another name."""
    for value in (*model.graph.input, *model.graph.output):
        value.name = f"v.{value.name}"
    for place, node in enumerate(model.graph.node):
        node.name = f"n{place}"
        node.input[:] = [f"v.{name}" for name in node.input]
        node.output[:] = [f"v.{name}" for name in node.output]


def reordered(model):
    """The nodes in another order."""
    nodes = [copy.deepcopy(node) for node in model.graph.node]
    random.Random(3).shuffle(nodes)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def inferred(model):
    """The shapes of all values written into the file."""
    model.CopyFrom(onnx.shape_inference.infer_shapes(model))


def outlined(model):
    """All nodes in a function of the file."""
    nodes = list(model.graph.node)
    function = helper.make_function(
        "local", "All", ["x", "w"], ["y"], nodes, list(model.opset_import)
    )
    del model.graph.node[:]
    model.graph.node.append(helper.make_node("All", ["x", "w"], ["y"], domain="local"))
    model.functions.append(function)
    model.opset_import.add(domain="local", version=1)


@pytest.mark.parametrize("change", [renamed, reordered, inferred, outlined])
def test_names_order_and_functions_do_not_matter(change, tmp_path):
    """What the nodes are stays, so they stand for the same operation."""
    model = noted(tmp_path)
    change(model)
    report, _ = reports(tmp_path, model)
    assert report.flops == AS_NOTED
    assert report.warnings == ()


def test_an_operation_in_a_loop_runs_as_often(tmp_path):
    """Three runs of all nodes."""
    model = noted(tmp_path)
    body = helper.make_graph(
        [*model.graph.node, helper.make_node("Identity", ["go"], ["on"])],
        "body",
        [
            helper.make_tensor_value_info("r", TensorProto.INT64, ()),
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, (3, 5)),
        ],
    )
    del model.graph.node[:], model.graph.output[:]
    model.graph.initializer.extend(
        [
            helper.make_tensor("times", TensorProto.INT64, (), [3]),
            helper.make_tensor("yes", TensorProto.BOOL, (), [True]),
        ]
    )
    model.graph.node.append(helper.make_node("Loop", ["times", "yes"], ["all"], body=body))
    model.graph.output.append(helper.make_tensor_value_info("all", TensorProto.FLOAT, (3, 3, 5)))
    report, _ = reports(tmp_path, model)
    assert report.flops == 3 * AS_NOTED
    assert report.warnings == ()


def removed(model):
    """The root is gone, and the product reads what it read."""
    node = next(node for node in model.graph.node if node.output[0] == "s")
    model.graph.node.remove(node)
    model.graph.node[-1].input[0] = "v"


def merged(model):
    """One node in the place of the two last ones, as a program that fuses writes it."""
    node = next(node for node in model.graph.node if node.output[0] == "s")
    node.CopyFrom(helper.make_node("Identity", ["v"], ["s"]))


def joined_otherwise(model):
    """The same operator with another attribute."""
    node = next(node for node in model.graph.node if node.op_type == "Concat")
    node.attribute[0].i = 0


def shorter(model):
    """A third of the rows."""
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = 1


def unnoted(model):
    """The notes of the nodes are gone, and that of the model is left."""
    for node in model.graph.node:
        del node.metadata_props[:]


def doubled(model):
    """The same nodes again, with other values."""
    for node in list(model.graph.node)[:-1]:
        again = copy.deepcopy(node)
        again.input[:] = [f"{name}2" if name in "ntv" else name for name in node.input]
        again.output[:] = [f"{name}2" for name in node.output]
        model.graph.node.append(again)
    model.graph.output.append(helper.make_tensor_value_info("s2", TensorProto.FLOAT, (3, 16)))


CHANGES = [removed, merged, joined_otherwise, shorter, unnoted, doubled]


@pytest.mark.parametrize("change", CHANGES)
def test_what_another_program_changed_is_counted_as_what_is_there(change, tmp_path):
    """As a file without notes is, and one sentence says so, with the operation."""
    model = noted(tmp_path)
    change(model)
    report, bare = reports(tmp_path, model)
    assert report.totals == bare.totals
    (sentence,) = report.warnings
    assert "nodes of 1 of 1 operations were changed" in sentence
    assert "jax.erf_inv" in sentence
    assert bare.warnings == ()


def test_another_size_of_the_input_is_counted_as_what_is_there(tmp_path):
    """The note is of 3 rows; of 6 the nodes cost twice what those of 3 do."""
    path = saved(tmp_path, noted(tmp_path))
    report = count(path, ["x=6x16", "w=16x5"])
    assert report.flops == 2 * AS_NODES
    assert any("jax.erf_inv" in sentence for sentence in report.warnings)


VALID = (
    '{"version":1,"operations":{"0":{"DIGEST":[{"op":["jax","erf_inv",1],"inputs":[TENSOR]}]}}}'
)
BROKEN = {
    "empty": "",
    "a list": "[]",
    "deep": "[" * 100_000,
    "another version": VALID.replace(":1,", ":2,", 1).replace("TENSOR", ""),
    "a negative size": VALID.replace("TENSOR", '["x","float32",[-3]]'),
    "more than there can be": VALID.replace("TENSOR", f'["x","float32",[{10**30}]]'),
    "no shape": VALID.replace("TENSOR", '["x","float32",3]'),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_note_is_said(name, tmp_path):
    """One sentence, and the nodes are what is counted."""
    model = noted(tmp_path)
    model.metadata_props[0].value = BROKEN[name]
    report, bare = reports(tmp_path, model)
    assert report.totals == bare.totals
    (sentence,) = report.warnings
    assert "on operations in this file cannot be read" in sentence


def test_counts_that_are_written_at_nodes_leave_the_numbers(tmp_path):
    """`--annotate` of a file that has notes: its function has its own cost."""
    path = saved(tmp_path, noted(tmp_path))
    (file,) = export(path, to="onnx", file=tmp_path / "annotated.onnx", annotate=True)
    assert count(str(file)).flops == AS_NOTED
    model = onnx.load(file)
    assert any(entry.key == KEY for entry in model.metadata_props)
    flops = [
        int(entry.value)
        for node in model.graph.node
        if any(own.key == NUMBER for own in node.metadata_props)
        for entry in node.metadata_props
        if entry.key == "crossflops.flops"
    ]
    assert sum(flops) == ERF_INV
