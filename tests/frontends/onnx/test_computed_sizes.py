"""Sizes that a graph computes from shapes."""

import numpy as np
import onnx
import pytest

from tests.onnx_files import graph_of, ledger_of, parsed, saved


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


ANCHORS = """
g (float[1,3,height,width] x, float[8,3,3,3] w, float[2,4] v) => (y) {
  feature = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w)
  shape = Shape (feature)
  two = Constant <value_int = 2> () three = Constant <value_int = 3> ()
  rows = Gather (shape, two) columns = Gather (shape, three)
  rows_f = Cast <to = 1> (rows) columns_f = Cast <to = 1> (columns)
  zero = Constant <value = float {0.0}> () one = Constant <value_float = 1.0> ()
  half = Constant <value = float {0.5}> ()
  a = Range (zero, columns_f, one) sx = Add (a, half)
  b = Range (zero, rows_f, one) sy = Add (b, half)
  last = Constant <value_ints = [-1, 1]> () first = Constant <value_ints = [1, -1]> ()
  column = Reshape (sy, last) row = Reshape (sx, first)
  both = Concat <axis = 0> (rows_axis, columns_axis)
  axis = Constant <value_ints = [0]> ()
  rows_axis = Unsqueeze (rows, axis) columns_axis = Unsqueeze (columns, axis)
  gx = Expand (row, both) gy = Expand (column, both)
  deep = Constant <value_int = -1> () deep_axis = Constant <value_ints = [-1]> ()
  px = Unsqueeze (gx, deep_axis) py = Unsqueeze (gy, deep_axis)
  pairs = Concat <axis = -1> (px, py)
  y = MatMul (pairs, v)
}"""


def test_anchors_are_as_many_as_a_feature_map_has_places(tmp_path):
    """A detector makes them with ranges of floats, from the shape of what a convolution gives."""
    path = saved(tmp_path, parsed(ANCHORS))
    ledger = ledger_of(path, dims={"height": 64, "width": 96})
    assert ledger.uncounted == ()
    assert ledger.total.macs == 8 * 27 * 32 * 48 + 32 * 48 * 2 * 4


# How a size n becomes another, and the type of the floats between: each ends in a whole number.
SIZES = {
    "half": ("p = Mul (n, h) z = Floor (p)", 0.5),
    "a third": ("p = Mul (n, h) z = Floor (p)", 1 / 3),
    "a tenth": ("p = Mul (n, h) z = Floor (p)", 0.1),
    "larger": ("p = Mul (n, h) z = Floor (p)", 2.7),
    "divided": ("p = Div (n, h) z = Ceil (p)", 0.7),
    "cut": ("z = Mul (n, h)", 1.9),
    "to the even": ("p = Mul (n, h) z = Round (p)", 0.5),
    "root": ("p = Sqrt (n) q = Mul (p, h) z = Add (q, h)", 0.9),
    "power": ("p = Pow (n, two) z = Mul (p, h)", 0.3),
    "clamped": ("p = Sub (n, h) q = Abs (p) r = Max (q, h) z = Min (r, n)", 7.5),
    "chosen": ("c = Greater (n, h) z = Where (c, n, h)", 4.5),
}


@pytest.mark.onnxruntime
@pytest.mark.parametrize("dtype", ["float", "double"])
@pytest.mark.parametrize("how", SIZES)
def test_sizes_computed_in_floats_are_those_of_a_run(how, dtype, tmp_path):
    """Rounded as onnxruntime rounds: 10 times 0.1 is 1, and a tenth of 30 is 3."""
    onnxruntime = pytest.importorskip("onnxruntime")
    body, factor = SIZES[how]
    kind = {"float": 1, "double": 11}[dtype]
    text = f"""
    g (float[length] x) => (y) <{dtype} h = {{{factor!r}}}, {dtype} two = {{2.0}}> {{
      s = Shape (x) n = Cast <to = {kind}> (i) {body} m = Cast <to = 7> (z)
      zero = Constant <value_int = 0> () i = Gather (s, zero)
      all = Constant <value_ints = [-1]> () row = Reshape (m, all) y = ConstantOfShape (row)
    }}"""
    path = saved(tmp_path, parsed(text))
    session = onnxruntime.InferenceSession(path)
    for length in (1, 2, 3, 10, 30, 41):
        (output,) = session.run(None, {"x": np.zeros(length, np.float32)})
        graph = graph_of(path, dims={"length": length})
        assert graph.outputs[0].shape == output.shape, length


def test_a_factor_computed_from_sizes_says_the_size_of_an_image(tmp_path):
    """Scales of Resize and of Upsample: what is wanted, divided by what is there."""
    for opset, node in ((17, "Resize (x, , scales)"), (10, "Resize (x, scales)"),
                        (9, "Upsample (x, scales)")):  # fmt: skip
        text = f"""
        g (float[1,3,10,20] x, float[1,3,height,width] like) => (y) {{
          given = Shape (x) wanted = Shape (like)
          a = Cast <to = 1> (given) b = Cast <to = 1> (wanted)
          scales = Div (b, a)
          y = {node.replace(" (", ' <mode = "nearest"> (')}
        }}"""
        path = saved(tmp_path, parsed(text, opset))
        graph = graph_of(path, dims={"height": 25, "width": 30})
        assert graph.outputs[0].shape == (1, 3, 25, 30), node


# A size n that only a computation tells, and the shape that follows.
COMPUTED = {
    "OneHot (i, n, v)": (4, 5),
    "TopK (x, row)": (2, 5),
    "CenterCropPad <axes = [1]> (x, row)": (2, 5),
    "HannWindow (n)": (5,),
    "HammingWindow (n)": (5,),
    "BlackmanWindow (n)": (5,),
    "DFT <axis = 1> (d, n)": (1, 5, 2),
    "ConstantOfShape (row)": (5,),
}


@pytest.mark.parametrize("node", COMPUTED)
def test_every_operator_that_takes_a_size_takes_a_computed_one(node, tmp_path):
    """Half of an extent: ONNX's own inference follows no division."""
    outputs = "y, z" if node.startswith("TopK") else "y"
    text = f"""
    g (float[2,10] x, int64[4] i, float[2] v, float[1,8,1] d) => (y) {{
      shape = Shape (x) one = Constant <value_int = 1> () two = Constant <value_int = 2> ()
      extent = Gather (shape, one) n = Div (extent, two)
      all = Constant <value_ints = [-1]> () row = Reshape (n, all)
      {outputs} = {node}
    }}"""
    graph = graph_of(saved(tmp_path, parsed(text, 18)))
    assert graph.outputs[0].shape == COMPUTED[node]


@pytest.mark.parametrize("value", ["inf", "nan"])
def test_what_is_no_number_says_no_size(value, tmp_path):
    """Neither an infinite factor nor one that is none ends in an error."""
    model = parsed(
        "g (float[4] x) => (y) <float f = {1.0}> { s = Shape (x) n = Cast <to = 1> (s) "
        "p = Mul (n, f) q = Cast <to = 7> (p) y = ConstantOfShape (q) }"
    )
    stored = np.array(value, np.float32)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(stored, "f"))
    assert graph_of(saved(tmp_path, model)).outputs[0].shape is None
