"""Sizes of inputs: named, given, contradicted, missing."""

import shlex

import numpy as np
import pytest

from crossflops.cli import main
from crossflops.errors import CrossflopsWarning, InputError, NormalizeError, TargetError
from crossflops.frontends.onnx import shapes
from crossflops.frontends.onnx.reading import normalize_onnx_bytes
from crossflops.ir.graph import TensorSpec
from crossflops.ir.trace import Setting
from tests.onnx_files import graph_of, ledger_of, parsed, saved, with_weights

DYNAMIC = (
    "g (float[batch,seq,8] x, int64[batch,seq] ids, float[8,4] w) => (float[batch,seq,4] y) "
    "{ i = Cast<to = 1>(ids) y = MatMul(x, w) }"
)


def given(name, *shape):
    """A shape from the command line, where a type that is not said is float32."""
    return TensorSpec(name, "float32", shape, "input")


@pytest.fixture
def path(tmp_path):
    """A file with two named dimensions."""
    return saved(tmp_path, parsed(DYNAMIC))


def test_named_dimensions_are_bound(path):
    """The count is that of the sizes; the graph remembers them."""
    graph = graph_of(path, dims={"batch": 3, "seq": 5})
    assert graph.bindings == {"batch": 3, "seq": 5}
    assert [spec.shape for spec in graph.inputs] == [(3, 5, 8), (3, 5), (8, 4)]
    assert ledger_of(path, dims={"batch": 3, "seq": 5}).total.macs == 3 * 5 * 8 * 4


@pytest.mark.parametrize("name", ["x", "0"])
def test_the_shape_of_one_input_binds_its_names(path, name):
    """A shape, by name or by place, fixes the dimensions of the other inputs too."""
    graph = graph_of(path, specs=(given(name, 3, 5, 8),))
    assert graph.inputs[1] == TensorSpec("ids", "int64", (3, 5), "input")


def test_a_shape_in_the_file_gives_way_to_a_given_one(tmp_path):
    """A static file counts at another batch; stale shapes inside it are not believed."""
    text = "g (float[1,8] x) => (float[1,4] y) <float[8,4] w, float[1,8] r> "
    text = text.replace("<float[8,4] w, float[1,8] r> ", "")
    model = parsed(f"{text} {{ r = Relu(x) y = MatMul(r, w) }}")
    model.graph.input.add(name="w").CopyFrom(parsed(DYNAMIC).graph.input[2])
    path = saved(tmp_path, model)
    assert ledger_of(path, specs=(given("x", 7, 8),)).total.macs == 7 * 8 * 4


def test_a_shape_for_a_model_without_inputs(tmp_path):
    """There is no name to offer."""
    path = saved(
        tmp_path, parsed("g () => (float[2] y) { y = Constant<value_floats = [1., 2.]>() }")
    )
    with pytest.raises(InputError) as caught:
        graph_of(path, specs=(given("x", 2),))
    assert caught.value.hint == "leave out --input: the model has no inputs"


def test_a_size_that_the_file_does_not_give_is_not_zero(tmp_path):
    """It is shown as unknown."""
    model = parsed("g (float[?,8] x) => (float[?,8] y) { y = Relu(x) }")
    with pytest.raises(InputError, match=r"2 dimensions, \[\?, 8\]"):
        graph_of(saved(tmp_path, model), specs=(given("x", 1),))


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({}, r"x \[batch, seq, 8\]; ids \[batch, seq\]", "--dim batch=1 --dim seq=1"),
        ({"dims": {"batch": 2}}, r"x \[2, seq, 8\]", "--dim batch=2 --dim seq=1"),
        ({"dims": {"bath": 2}}, "no input of the model has a dimension 'bath'", "batch, seq"),
        ({"specs": [given("z", 1)]}, "no input 'z'", "x, ids, w"),
        (
            {"specs": [given("7", 1)]},
            "--input gives a shape for input number 8, but the number of inputs of the model is 3",
            "x, ids, w",
        ),
        ({"specs": [given("0", 1, 1, 8), given("x", 2, 1, 8)]}, "'x' is given twice", "x, ids, w"),
        ({"specs": [given("x", 1)]}, "3 dimensions, .* the given shape has 1", "--input x=1x1x1"),
        (
            {"specs": [given("x", 2, 5, 8)], "dims": {"batch": 3}},
            "'batch' is given two sizes: 2 for 'x'",
            "--dim",
        ),
        (
            {"specs": [given("x", 2, 5, 8), given("ids", 2, 6)]},
            "'seq' is given two sizes: 6 for 'ids'",
            "--dim",
        ),
        ({"specs": [given("x", 2**40, 2**40, 8), given("ids", 2**40, 2**40)]}, "2.63", "--dim"),
    ],
)
def test_sizes_that_are_missing_or_contradict(path, options, message, hint):
    """What is not bound is listed, what is wrong is named, with what to write."""
    with pytest.raises(InputError, match=message) as caught:
        graph_of(path, **options)
    assert hint in caught.value.hint


def test_another_type_than_that_of_the_file_is_said(path):
    """The file is counted with its own types."""
    specs = [TensorSpec("x", "int64", (2, 5, 8))]
    with pytest.warns(
        CrossflopsWarning, match="'x' of the file is float32, so it cannot be counted as int64"
    ):
        graph_of(path, specs=specs)


def test_a_dimension_without_a_name_is_asked_for(tmp_path):
    """An unnamed size can be given with its whole shape only."""
    model = parsed("g (float[?,8] x) => (y) { y = Relu(x) }")
    with pytest.raises(InputError, match=r"x \[\?, 8\]") as caught:
        graph_of(saved(tmp_path, model))
    assert "--input x=1x8" in caught.value.hint


def test_the_command_line_of_the_hint_runs(tmp_path, capsys):
    """What is proposed binds the rest: names, shapes without names, what was given before."""
    model = parsed(
        "g (float[batch,seq,16] x, int64[batch,?] m, float[16,16] w) => (y) { y = MatMul(x, w) }"
    )
    path = saved(tmp_path, model, "a file.onnx")
    for options in ([], ["--dim", "batch=2"], ["--input", "x=2x3x16"]):
        assert main(["count", path, *options]) == 2
        err = capsys.readouterr().err
        assert main(shlex.split(err.partition("numbers: ")[2])[1:]) == 0


def test_an_inference_that_loses_nodes_is_noticed(tmp_path, monkeypatch):
    """Older onnx gave an empty graph for a large one, and said nothing."""

    def lossy(model, strict=True):
        del model.graph.node[:]
        return model

    monkeypatch.setattr(shapes, "infer_onnx_shapes", lossy)
    with pytest.raises(TargetError, match="removed nodes"):
        graph_of(saved(tmp_path, parsed("g (float[4] x) => (y) { y = Relu(x) }")))


NEGATIVE = "g (float[{0},8] x) => (float[{0},8] y) <float[{0},8] u> {{ u = Relu(x) y = Relu(u) }}"


def negative(size):
    """A file that says the size of its input, of its result and of what lies between."""
    model = parsed(NEGATIVE.format(3))
    for value in (*model.graph.input, *model.graph.value_info, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = size
    return model


@pytest.mark.parametrize("size", [-1, -5])
def test_a_negative_size_is_an_open_one(size, tmp_path):
    """As for onnxruntime: nothing is stated, so it is asked for, and what follows is inferred."""
    path = saved(tmp_path, negative(size))
    with pytest.raises(InputError, match=r"x \[\?, 8\]"):
        graph_of(path)
    ledger = ledger_of(path, specs=[given("x", 5, 8)])
    assert (ledger.total.compares, ledger.uncounted) == (2 * 5 * 8, ())


@pytest.mark.onnxruntime
@pytest.mark.parametrize("size", [-1, -5])
def test_onnxruntime_takes_a_negative_size_for_an_open_one(size, tmp_path):
    """What the test above relies on."""
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(saved(tmp_path, negative(size)))
    (output,) = session.run(None, {"x": np.ones((5, 8), np.float32)})
    assert output.shape == (5, 8)


def test_a_negative_size_within_a_sequence_is_an_open_one(tmp_path):
    """Types lie within types."""
    model = parsed("g (float[3,8] x) => (y) { y = SequenceConstruct(x, x) }")
    kind = model.graph.output[0].type.sequence_type.elem_type.tensor_type
    kind.elem_type = 1
    for size in (-1, 8):
        kind.shape.dim.add().dim_value = size
    (node,) = graph_of(saved(tmp_path, model)).nodes
    assert node.op.type == "SequenceConstruct"


def test_an_input_without_a_shape_takes_any(tmp_path):
    """Not even the number of its dimensions is stated."""
    model = parsed("g (float[3,8] x) => (y) { y = Relu(x) }")
    model.graph.input[0].type.tensor_type.ClearField("shape")
    path = saved(tmp_path, model)
    assert ledger_of(path, specs=[given("x", 2, 3, 4)]).total.compares == 24
    with pytest.raises(InputError, match="no shape"):
        graph_of(path)


@pytest.mark.parametrize("version", [1, 2, 3, 4, 10])
def test_what_is_stored_needs_to_be_no_input(version, tmp_path):
    """In files of any age: onnxruntime's own optimizer writes version 3 in this way.

    Also what a body stores, of a branch here: 3*8*4 and 3*4*2 products.
    """
    model = with_weights(
        """g (float[3,8] x, float[8,4] w, bool c) => (y) {
            u = MatMul(x, w)
            y = If(c) <
                then_branch = t () => (p) <float[4,2] v = {1,2,3,4,5,6,7,8}> { p = MatMul(u, v) },
                else_branch = e () => (q) <float[4,2] v = {1,2,3,4,5,6,7,8}> { q = MatMul(u, v) }
            >
        }""",
        "w",
    )
    model.ir_version = version
    ledger = ledger_of(saved(tmp_path, model))
    assert (ledger.total.macs, ledger.uncounted) == (3 * 8 * 4 + 3 * 4 * 2, ())


def test_what_the_file_says_is_held_against_what_follows(tmp_path):
    """A shape that contradicts the inputs is a warning that names the node, and not believed."""
    model = parsed("g (float[3,8] x) => (float[4,9] y) { y = Relu(x) }")
    model.graph.node[0].name = "liar"
    with pytest.warns(CrossflopsWarning, match="'liar'"):
        ledger = ledger_of(saved(tmp_path, model))
    assert ledger.total.compares == 3 * 8


def test_what_the_file_says_is_used_where_inference_ends(tmp_path):
    """Behind an unknown operator the stated shape holds, and inference goes on from there."""
    model = parsed(
        "g (float[3,8] x, float[8,4] w) => (y) <float[3,8] u> "
        "{ u = com.microsoft.Unheard(x) v = Relu(u) y = MatMul(v, w) }"
    )
    ledger = ledger_of(saved(tmp_path, model))
    assert [gap.node.op.type for gap in ledger.uncounted] == ["Unheard"]
    assert ledger.total.macs == 3 * 8 * 4


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("past + seq", 12),
        ("past+seq+1", 13),
        ("2*seq", 10),
        ("past//2", 3),
        ("(past - seq) * 3", 6),
        ("past/7", 1),
    ],
)
def test_a_dimension_follows_from_its_parts(name, size, tmp_path):
    """past = 7 and seq = 5, of which past is no dimension by itself."""
    model = parsed(
        "g (float[seq,8] x, float[total,8] k) => (y) { t = Transpose(x) y = MatMul(k, t) }"
    )
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = name
    path = saved(tmp_path, model)
    dims = {"past": 7, "seq": 5} if "past" in name else {"seq": 5}
    assert ledger_of(path, dims=dims).total.macs == size * 8 * 5


@pytest.mark.parametrize("name", ["past/2", "f(past)", "past ** 2", "past // 0", "past + " * 99])
def test_what_is_no_formula_stays_a_name(name, tmp_path):
    """It is bound by itself, and nothing of it is evaluated."""
    model = parsed("g (float[n,8] x, float[8,4] w) => (y) { y = MatMul(x, w) }")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = name
    path = saved(tmp_path, model)
    assert ledger_of(path, dims={name: 3}).total.macs == 3 * 8 * 4
    with pytest.raises(InputError):
        ledger_of(path, dims={"past": 7})


def test_a_formula_that_is_negative_is_refused(tmp_path):
    """past - seq = -2."""
    model = parsed("g (float[n,8] x, float[seq,8] w) => (y) { y = Relu(x) }")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "past - seq"
    with pytest.raises(InputError, match="would be -2"):
        ledger_of(saved(tmp_path, model), dims={"past": 3, "seq": 5})


@pytest.mark.parametrize("data", [b"\x0a", b"\x3a\x04\x0a\x02\x0a\x09"])
def test_a_graph_that_was_made_here_is_no_file_to_copy_again(data):
    """Bytes of a converter that cannot be read: not the user's file is damaged."""
    with pytest.raises(NormalizeError) as refused:
        normalize_onnx_bytes(data, "Net", Setting())
    assert refused.value.message.startswith("the converted graph of Net cannot be read: ")
    assert "file" not in refused.value.hint
    assert "report" in refused.value.hint
