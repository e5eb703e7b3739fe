"""Sizes that a graph computes from shapes."""

from tests.onnx_files import graph_of, parsed, saved


def test_a_mask_is_expanded_to_what_it_is_compared_with(tmp_path):
    """Exporters write expand(-1, ...) as a choice between the given size and one."""
    text = """
    g (float[batch,length] x) => (y) {
      shape = Shape (x)
      last = Constant <value = int64[1] {-1}> ()
      three = Constant <value = int64[1] {3}> ()
      asked = Concat <axis = 0> (three, shape)
      row = Reshape (asked, last)
      rank = Shape (row)
      ones = ConstantOfShape <value = int64[1] {1}> (rank)
      minus = Mul (ones, last)
      kept = Equal (row, minus)
      sizes = Where (kept, ones, row)
      y = Expand (x, sizes)
    }"""
    graph = graph_of(saved(tmp_path, parsed(text)), dims={"batch": 2, "length": 5})
    assert graph.outputs[0].shape == (3, 2, 5)


def test_what_would_be_a_float_stays_unknown(tmp_path):
    """ConstantOfShape without a value makes floats, which say no size."""
    text = """
    g (float[2] x, float[1] z) => (y, s) {
      shape = Shape (x)
      zeros = ConstantOfShape (shape)
      s = Cast <to = 7> (z)
      y = Add (zeros, x)
    }"""
    graph = graph_of(saved(tmp_path, parsed(text)))
    assert [spec.shape for spec in graph.outputs] == [(2,), (1,)]
