"""What must not change a count of a file."""

import random
import re
import subprocess
import sys
import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from crossflops import compare, count
from crossflops.errors import CrossflopsWarning, InputError
from crossflops.ir.profile import Failure
from tests.onnx_files import ledger_of, parsed, saved

MODEL = (
    "g (float[2,3,16,16] x, float[10,2,8] s) => (y, z) { "
    "a = Conv <pads = [1,1,1,1]> (x, k, b) c = Relu (a) d = GlobalAveragePool (c) "
    "e = Flatten (d) f = Gemm (e, m) y = Softmax (f) h, i, z = LSTM <hidden_size = 16> (s, w, r) }"
)
WEIGHTS = {"k": (8, 3, 3, 3), "b": (8,), "m": (8, 24), "w": (1, 64, 8), "r": (1, 64, 16)}


@pytest.fixture
def model():
    """A small model of convolution, product and LSTM, with its weights inside."""
    made = parsed(MODEL)
    for name, shape in WEIGHTS.items():
        made.graph.initializer.append(numpy_helper.from_array(np.zeros(shape, np.float32), name))
    return made


def renamed(model):
    """Every value and node under another name."""
    for proto in (*model.graph.node, *model.graph.initializer, *model.graph.input):
        proto.name = f"n/{proto.name}" if isinstance(proto, onnx.NodeProto) else f"v.{proto.name}"
    for proto in model.graph.output:
        proto.name = f"v.{proto.name}"
    for node in model.graph.node:
        node.input[:] = [name and f"v.{name}" for name in node.input]
        node.output[:] = [name and f"v.{name}" for name in node.output]


def reordered(model):
    """The nodes, weights and inputs in another order."""
    for row in (model.graph.node, model.graph.initializer):
        copies = [type(proto).FromString(proto.SerializeToString()) for proto in row]
        random.Random(1).shuffle(copies)
        del row[:]
        row.extend(copies)


def external(model):
    """Every weight in another file, which is not there."""
    for tensor in model.graph.initializer:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="weights.bin")


def listed(model):
    """Every weight also an input, as files before IR version 4 have it."""
    for tensor in model.graph.initializer:
        value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        model.graph.input.append(value)


def constants(model):
    """Every weight the result of a Constant node."""
    for tensor in list(model.graph.initializer):
        node = onnx.helper.make_node("Constant", [], [tensor.name], value=tensor)
        model.graph.node.insert(0, node)
    del model.graph.initializer[:]


def inferred(model):
    """With all shapes written into the file."""
    model.CopyFrom(onnx.shape_inference.infer_shapes(model))


@pytest.mark.parametrize("change", [renamed, reordered, external, listed, constants, inferred])
def test_the_count_stays(change, model, tmp_path):
    """Names, order, place of the weights and stated shapes change neither work nor parameters."""
    before = count(saved(tmp_path, model, "before.onnx"))
    change(model)
    after = count(saved(tmp_path, model, "after.onnx"))
    assert after.totals == before.totals
    assert before.totals.params == sum(int(np.prod(shape)) for shape in WEIGHTS.values())
    conv, gemm, lstm = 2 * 8 * 256 * 27, 2 * 8 * 24, 10 * 2 * 64 * (8 + 16)
    assert before.macs == conv + gemm + lstm


def test_batch_k_gives_k_times_the_macs(tmp_path):
    """MACs are linear in a bound dimension."""
    model = parsed("g (float[n,8] x, float[8,4] w) => (y) { y = MatMul (x, w) }")
    path = saved(tmp_path, model)
    for size in (1, 7, 10**12):
        assert ledger_of(path, dims={"n": size}).total.macs == size * 32


def test_compare_says_why_no_tool_ran(model, tmp_path):
    """An LSTM with a clip is not rebuilt for PyTorch's tools: a failure of each, and our count."""
    [lstm] = [node for node in model.graph.node if node.op_type == "LSTM"]
    lstm.attribute.append(onnx.helper.make_attribute("clip", 3.0))
    path = saved(tmp_path, model)
    report = compare(path)
    assert report.macs == count(path).macs
    for profile in report.profiles:
        if not profile.tool.startswith("onnx"):  # these two count files
            assert isinstance(profile, Failure)
            assert profile.hint


def test_a_file_has_no_calls_to_count_as_a_tool(model, tmp_path):
    """A convention that looks at calls is refused and does not come to zero."""
    with pytest.raises(InputError, match="a file does not record"):
        count(saved(tmp_path, model), as_="thop")


def test_counting_a_file_imports_no_framework(model, tmp_path):
    """Neither a framework, nor a runtime, nor a solver, nor all of onnx."""
    code = (
        "import sys; from crossflops.cli import main; "
        f"status = main(['count', {saved(tmp_path, model)!r}, '--json']); "
        "print(status, *sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    status, *modules = done.stderr.split()
    assert status == "0"
    assert re.search(r'"macs": \d', done.stdout)
    heavy = {"torch", "onnxruntime", "sympy", "tensorflow", "jax", "numpy", "onnx", "onnx_ir"}
    assert not heavy.intersection(modules)


def test_warnings_go_to_stderr(tmp_path):
    """A contradiction in a file is a line on stderr, and stdout the result alone."""
    model = parsed("g (float[3,8] x) => (float[4,9] y) { y = Relu(x) }")
    line = [sys.executable, "-m", "crossflops", "count", saved(tmp_path, model), "--json"]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    assert done.stderr.startswith("warning: shape mismatch for 'y'")
    assert done.stdout.startswith("{")


def test_a_sparse_initializer_is_taken_dense(tmp_path):
    """As onnxruntime takes it, which makes it dense when it loads the file: no word of it."""
    model = parsed("g (float[4,16] x) => (float[4,8] y) { y = MatMul(x, w) }")
    values = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    places = helper.make_tensor("", TensorProto.INT64, [3], [0, 5, 9])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [16, 8]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ledger = ledger_of(saved(tmp_path, model))
    assert ledger.total.macs == 4 * 16 * 8
    assert not ledger.uncounted


def test_operators_of_the_future_are_said_to_be_unknown(tmp_path):
    """They are counted as of the last version that the installed onnx knows."""
    path = saved(tmp_path, parsed("g (float[4] x) => (y) { y = Relu(x) }", opset=99))
    last = onnx.defs.onnx_opset_version()
    with pytest.warns(CrossflopsWarning, match=f"version 99 .* by version {last}"):
        ledger_of(path)


def test_a_contradiction_is_told_once(tmp_path):
    """However often the shapes of a file are inferred."""
    model = parsed("g (float[4,8] x) => (y) <int64[2] s = {-1, -1}> { y = Reshape(x, s) }")
    line = [sys.executable, "-m", "crossflops", "count", saved(tmp_path, model)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    words = [text.partition(":")[0] for text in done.stderr.splitlines()]
    assert words == ["warning", "error", "hint"]
