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


def test_pads_are_turned_from_the_last_axis_to_the_first(tmp_path):
    """TorchScript exports F.pad(x, (1, 2, 3, 4)) so: pairs as rows of a matrix, transposed."""
    text = """
    g (float[2,3,10,20] x) => (y) {
      rest = Constant <value = int64[1] {4}> ()
      zeros = ConstantOfShape <value = int64[1] {0}> (rest)
      given = Constant <value = int64[4] {1, 2, 3, 4}> ()
      all = Concat <axis = 0> (given, zeros)
      two = Constant <value = int64[2] {-1, 2}> ()
      pairs = Reshape (all, two)
      last = Constant <value = int64[1] {-1}> ()
      first = Constant <value = int64[1] {-9223372036854775807}> ()
      axis = Constant <value = int64[1] {0}> ()
      turned = Slice (pairs, last, first, axis, last)
      columns = Transpose <perm = [1, 0]> (turned)
      row = Reshape (columns, last)
      pads = Cast <to = 7> (row)
      y = Pad (x, pads)
    }"""
    graph = graph_of(saved(tmp_path, parsed(text)))
    assert graph.outputs[0].shape == (2, 3, 10 + 3 + 4, 20 + 1 + 2)


def test_of_a_matrix_nothing_else_is_told(tmp_path):
    """A slice of columns, a transposition that turns nothing, a sum: their sizes stay unknown."""
    for node in (
        "t = Slice (m, one, two, one)",
        "t = Transpose <perm = [0, 1]> (m)",
        "t = Add (m, m)",
    ):
        text = f"""
        g (float[24] x) => (y) {{
          v = Constant <value = int64[4] {{2, 3, 4, 1}}> ()
          one = Constant <value = int64[1] {{1}}> ()
          two = Constant <value = int64[1] {{2}}> ()
          sizes = Constant <value = int64[2] {{2, 2}}> ()
          all = Constant <value = int64[1] {{-1}}> ()
          m = Reshape (v, sizes)
          {node}
          shape = Reshape (t, all)
          y = Reshape (x, shape)
        }}"""
        assert graph_of(saved(tmp_path, parsed(text))).outputs[0].shape is None, node
