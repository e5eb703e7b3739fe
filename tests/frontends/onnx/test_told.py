"""What onnx.shape_inference alone tells of a file, which is what some tools know of it."""

from crossflops.frontends.onnx.inference import strict_shapes_by_name, with_shapes_by_name
from crossflops.ir.graph import TensorSpec
from tests.onnx_files import graph_of, parsed, saved

TEXT = """g (float[N,3] x) => (float[N,3] y) {
    r = Relu(x)
    i = NonZero(r)
    q = com.microsoft.QuickGelu(r)
    y = Neg(q)
}"""


def test_an_extent_that_nobody_knows_is_zero(tmp_path):
    """Sizes that the caller binds are known; how much is not zero depends on data."""
    path = saved(tmp_path, parsed(TEXT))
    assert strict_shapes_by_name(path, {"N": 2}, ())["i"] == (2, 0)
    assert strict_shapes_by_name(path, {}, (TensorSpec("x", "float32", (5, 3)),))["r"] == (5, 3)


def test_what_nothing_is_told_of_is_left_out(tmp_path):
    """Inference ends at an operator that it does not know."""
    path = saved(tmp_path, parsed(TEXT.replace("N,3", "2,3")))
    shapes = strict_shapes_by_name(path, {}, ())
    assert "q" not in shapes
    nodes = with_shapes_by_name(graph_of(path).with_all_nodes_of_file, shapes).nodes
    assert [[spec and spec.shape for spec in node.outputs] for node in nodes] == [
        [(2, 3)],
        [(2, 0)],
        [None],
        [(2, 3)],
    ]


def test_a_file_that_contradicts_itself_tells_nothing(tmp_path):
    """The strict mode raises."""
    path = saved(tmp_path, parsed("g (float[2,3] x) => (float[7] y) { y = Relu(x) }"))
    assert strict_shapes_by_name(path, {}, ()) is None
