"""Sizes that a file takes apart: the parts of a vector or a matrix are known as a whole is."""

import pytest

import crossflops
from tests.onnx_files import parsed, saved

# [h, 3] to multiples of 4, as the exporters of PyTorch write F.pad: the paddings of the last axis
# come first, in rows of (begin, end), so that columns are split and turned round
PADDED = """
g (float[h,3] x, float[3,5] w) => (float[m,5] y)
<int64[1] zero = {0}, int64[1] four = {4}, int64[2] pairs = {2, 2}, int64[1] one = {1},
 int64[2] turned = {1, 0}>
{
  shape = Shape(x)
  rows = Gather(shape, zero)
  rest = Mod(rows, four)
  missing = Sub(four, rest)
  extra = Mod(missing, four)
  listed = Concat <axis = 0> (zero, zero, zero, extra)
  matrix = Reshape(listed, pairs)
  begin, end = Split <axis = 1, num_outputs = 2> (matrix)
  flat_begin = Squeeze(begin, one)
  flat_end = Squeeze(end, one)
  first = Gather(flat_begin, turned)
  last = Gather(flat_end, turned)
  pads = Concat <axis = 0> (first, last)
  padded = Pad(x, pads)
  y = MatMul(padded, w)
}
"""
# a vector of three sizes in two parts of unequal length
PARTS = """
g (float[2,3,a] x, float[b,5] w) => (float[m,n] y)
<int64[2] lengths = {2, 1}>
{
  shape = Shape(x)
  outer, inner = Split <axis = 0> (shape, lengths)
  rows = ReduceProd <keepdims = 1> (outer)
  both = Concat <axis = 0> (rows, inner)
  flat = Reshape(x, both)
  y = MatMul(flat, w)
}
"""


@pytest.mark.parametrize(("height", "rows"), [(4, 4), (5, 8), (7, 8), (10, 12)])
def test_columns_of_paddings(height, rows, tmp_path):
    """3 x 5 for each row, of a multiple of 4."""
    file = saved(tmp_path, parsed(PADDED, opset=18))
    report = crossflops.count(file, dims={"h": height})
    assert (report.macs, report.uncounted) == (rows * 15, ())


def test_parts_of_a_vector(tmp_path):
    """2 x 3 rows of 4 by 4 x 5."""
    file = saved(tmp_path, parsed(PARTS, opset=18))
    report = crossflops.count(file, dims={"a": 4, "b": 4})
    assert (report.macs, report.uncounted) == (2 * 3 * 4 * 5, ())
