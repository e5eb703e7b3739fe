"""Operations that tf2onnx does not know: with the lines to write, and counted by a formula."""

from pathlib import Path

import pytest

import crossflops
from crossflops.errors import TargetError

tf = pytest.importorskip("tensorflow")

pytestmark = pytest.mark.tensorflow
PRODUCT = 3 * 8 * 4


class Beta(tf.Module):
    """A product, and one operation of three operands that has no attribute."""

    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.ones([8, 4]))

    @tf.function(input_signature=[tf.TensorSpec([3, 8], tf.float32)])
    def __call__(self, x):
        h = tf.matmul(x, self.w)
        return tf.raw_ops.Betainc(a=h, b=h, x=h)


def test_a_saved_model_is_counted_after_the_lines_are_pasted(tmp_path: Path) -> None:
    """The arguments have their names; a live function counts the same."""
    folder, own = str(tmp_path / "saved"), tmp_path / "own.py"
    tf.saved_model.save(Beta(), folder)
    report = crossflops.count(folder, ["3x8"])
    (row,) = report.uncounted
    assert (report.macs, row.op) == (PRODUCT, "tensorflow.Betainc")
    assert '@crossflops.operator("tensorflow::Betainc")' in row.stub
    for name in ("a", "b", "x"):
        assert f'call.input("{name}").shape  # {name}: 3x4 float32' in row.stub
    own.write_text(row.stub.replace("macs=...", "macs=5 * call.result.numel"))
    for target, inputs in ((folder, ["3x8"]), (Beta(), tf.zeros([3, 8]))):
        counted = crossflops.count(target, inputs, formulas=[own])
        assert (counted.macs, counted.uncounted) == (PRODUCT + 5 * 3 * 4, ())
        assert [row.by for row in counted.custom_operators] == ["formula"]


def test_a_formula_has_the_attributes_of_the_operation(tmp_path: Path) -> None:
    """The attributes of the operation, without those that a call notes for itself."""
    own = tmp_path / "own.py"
    own.write_text(
        "import crossflops\n\n\n"
        '@crossflops.operator("tensorflow::Dilation2D")\n'
        "def dilation(call):\n"
        "    assert set(call.attributes) <= {'strides', 'rates', 'padding'}, call.attributes\n"
        "    assert call.attributes['strides'] == (1, 2, 2, 1)\n"
        "    return crossflops.Cost(adds=call.result.numel * call.input('filter').numel // 3)\n"
    )

    @tf.function(input_signature=[tf.TensorSpec([1, 8, 8, 3], tf.float32)])
    def model(x):
        return tf.raw_ops.Dilation2D(
            input=x, filter=tf.ones([3, 3, 3]), strides=[1, 2, 2, 1], rates=[1, 1, 1, 1],
            padding="SAME",
        )  # fmt: skip

    report = crossflops.count(model, tf.zeros([1, 8, 8, 3]), formulas=[own])
    assert report.uncounted == ()
    assert report.flops == 4 * 4 * 3 * 9


def test_an_operation_of_a_library_that_is_not_loaded(tmp_path: Path) -> None:
    """The message names it, and where to load the library."""
    folder = tmp_path / "saved"
    tf.saved_model.save(Beta(), str(folder))
    graph = folder / "saved_model.pb"
    graph.write_bytes(graph.read_bytes().replace(b"Betainc", b"BetaOwn"))
    with pytest.raises(TargetError, match="does not know: BetaOwn") as raised:
        crossflops.count(str(folder), ["3x8"])
    assert "tf.load_op_library" in raised.value.hint
