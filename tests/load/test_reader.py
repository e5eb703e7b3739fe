"""A file without its weights: what is kept, what is dropped, what is never touched."""

import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from crossflops.errors import TargetError
from crossflops.export.onnx_file import data_locations
from crossflops.load import copy_without_large_data, read_onnx_model
from crossflops.load.reader import encode_bytes_field_header
from tests.onnx_files import graph_of, ledger_of, parsed, saved

DENSE = "g (float[4,64] x) => (float[4,64] y) { y = MatMul(x, w) }"


def dense(payload=None):
    """A matrix product with 64 x 64 stored weights: 16 KiB."""
    model = parsed(DENSE)
    weights = np.zeros((64, 64), np.float32) if payload is None else payload
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    return model


def test_large_payloads_are_dropped_and_all_else_is_kept():
    """The rest is the model with the payload alone missing."""
    model = dense()
    rest = onnx.ModelProto.FromString(copy_without_large_data(model.SerializeToString()))
    model.graph.initializer[0].ClearField("raw_data")
    assert rest == model


def test_payloads_may_stay_in_a_copy_of_the_file(tmp_path):
    """As external data: to onnx the model is the same, and its small payloads are in it."""
    weights = np.arange(4096, dtype=np.float32).reshape(64, 64)
    model = dense(weights)
    model.graph.initializer.append(numpy_helper.from_array(np.arange(8), "small"))
    typed = model.graph.initializer.add(name="typed", data_type=TensorProto.FLOAT, dims=[300])
    typed.float_data.extend([0.5] * 300)
    path = tmp_path / "copy.bin"
    path.write_bytes(model.SerializeToString())
    rest = onnx.ModelProto.FromString(copy_without_large_data(path.read_bytes(), path.name))
    assert data_locations(rest) == [path.name]
    large, small, one_by_one = rest.graph.initializer
    assert not large.raw_data
    assert (numpy_helper.to_array(large, str(tmp_path)) == weights).all()
    assert (numpy_helper.to_array(small) == np.arange(8)).all()
    assert one_by_one == typed


def test_small_payloads_are_kept():
    """A payload of 1 KiB is kept: shapes and scales are constants of that size."""
    model = parsed(DENSE)
    model.graph.initializer.append(numpy_helper.from_array(np.arange(128), "w"))
    assert copy_without_large_data(model.SerializeToString()) == model.SerializeToString()


@pytest.mark.parametrize(
    ("data_type", "field", "values"),
    [
        (TensorProto.FLOAT, "float_data", [0.5] * 4096),
        (TensorProto.DOUBLE, "double_data", [0.5] * 4096),
        (TensorProto.INT64, "int64_data", [1 << 40] * 4096),
        (TensorProto.UINT64, "uint64_data", [1 << 40] * 4096),
        (TensorProto.INT32, "int32_data", [-1] * 4096),
        (TensorProto.FLOAT16, "int32_data", [7] * 4096),
        (TensorProto.STRING, "string_data", [b"a" * 2000] * 4096),
    ],
)
def test_every_way_to_store_a_tensor_is_dropped(data_type, field, values):
    """Typed payloads go as raw ones do."""
    model = parsed(DENSE)
    tensor = model.graph.initializer.add(name="w", data_type=data_type, dims=[64, 64])
    getattr(tensor, field).extend(values)
    rest = onnx.ModelProto.FromString(copy_without_large_data(model.SerializeToString()))
    assert list(rest.graph.initializer[0].dims) == [64, 64]
    assert not getattr(rest.graph.initializer[0], field)


def test_tensors_in_attributes_subgraphs_and_functions_are_dropped():
    """A payload is dropped wherever it nests."""
    tensor = numpy_helper.from_array(np.zeros((64, 64), np.float32), "t")
    constant = helper.make_node("Constant", [], ["c"], value=tensor)
    body = helper.make_graph([constant], "b", [], [])
    branch = helper.make_node("If", ["x"], [], then_branch=body, else_branch=body)
    function = helper.make_function("local", "F", [], ["c"], [constant], [])
    model = helper.make_model(helper.make_graph([branch], "g", [], []), functions=[function])
    rest = copy_without_large_data(model.SerializeToString())
    assert len(rest) < 1024
    kept = onnx.ModelProto.FromString(rest)
    assert kept.functions[0].node[0].attribute[0].t.dims == [64, 64]
    assert kept.graph.node[0].attribute[0].g.node[0].attribute[0].t.dims == [64, 64]


def test_texts_and_stack_traces_are_dropped_and_scopes_kept():
    """Of a large node the notes about modules stay, and no others."""
    model = parsed(DENSE.replace("MatMul(x, w)", "Relu(x)"))
    node = model.graph.node[0]
    node.doc_string = "d" * 2000
    for key in ("name_scopes", "class_hierarchy", "stack_trace"):
        node.metadata_props.add(key=f"pkg.torch.onnx.{key}", value="v" * 900)
    rest = onnx.ModelProto.FromString(copy_without_large_data(model.SerializeToString()))
    keys = [prop.key.rpartition(".")[2] for prop in rest.graph.node[0].metadata_props]
    assert keys == ["name_scopes", "class_hierarchy"]
    assert not rest.graph.node[0].doc_string


@pytest.mark.parametrize("change", [-4, 4])
def test_a_payload_of_another_size_is_refused(change, tmp_path):
    """A tensor whose bytes do not fit its shape is an error, at its byte."""
    model = dense()
    tensor = model.graph.initializer[0]
    tensor.raw_data = b"\0" * (len(tensor.raw_data) + change)
    with pytest.raises(TargetError, match=f"takes 16384 bytes, but holds {16384 + change}"):
        read_onnx_model(saved(tmp_path, model))


def test_a_payload_far_beyond_protobuf_is_never_read(tmp_path):
    """A file of 3 GB counts like any other; its weights are a hole that nobody wrote."""
    size = 3 << 30
    model = parsed("g (float[1,65536] x) => (float[1,12288] y) { y = MatMul(x, w) }")
    shape = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[65536, 12288])
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    head = shape.SerializeToString() + encode_bytes_field_header(9, size)
    inner = encode_bytes_field_header(5, len(head) + size) + head
    file = tmp_path / "large.onnx"
    with file.open("wb") as out:
        out.write(model.SerializeToString())
        out.write(encode_bytes_field_header(7, len(graph) + len(inner) + size) + graph + inner)
        out.truncate(out.tell() + size)
    assert file.stat().st_blocks * 512 < 1 << 20
    counted = ledger_of(str(file))
    assert counted.total.macs == 65536 * 12288
    assert graph_of(str(file)).params == 65536 * 12288


def test_external_data_is_never_opened(tmp_path):
    """Weights in another file need not be there, wherever it is said to be."""
    model = dense()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../no/such/file")
    path = saved(tmp_path, model)
    assert ledger_of(path).total.macs == 4 * 64 * 64
    assert graph_of(path).params == 64 * 64


RESHAPED = "g (float[8] x) => (float[2,6] y) { r = Reshape(x, s)\n y = MatMul(r, w) }"


def apart(folder):
    """A model all of whose tensors lie beside it, the two sizes of a Reshape too."""
    model = parsed(RESHAPED)
    for name, values in (("s", np.array([2, 4])), ("w", np.ones((4, 6), np.float32))):
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    path = str(folder / "model.onnx")
    onnx.save(model, path, save_as_external_data=True, location="all.bin", size_threshold=0)
    return path


def test_sizes_that_lie_in_another_file_are_read(tmp_path):
    """A 2x4 by 4x6 product is 48 MACs, wherever the 2 and the 4 are written."""
    path = apart(tmp_path)
    assert ledger_of(path).total.macs == 48
    assert data_locations(read_onnx_model(path)) == ["all.bin"]


def test_each_tensor_may_lie_in_a_file_of_its_own(tmp_path):
    """More of them than a process may have open."""
    resource = pytest.importorskip("resource")
    model = parsed("g (float[1] x) => (y) { y = Relu(x) }")
    tensors = (numpy_helper.from_array(np.array([k]), f"t{k}") for k in range(99))
    model.graph.initializer.extend(tensors)
    path = str(tmp_path / "model.onnx")
    onnx.save(
        model, path, save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=0
    )
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 20, limits[1]))
    try:
        stored = read_onnx_model(path).graph.initializer
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert [int(numpy_helper.to_array(tensor)[0]) for tensor in stored] == list(range(99))


@pytest.mark.filterwarnings("ignore:shape inference")
@pytest.mark.parametrize(
    ("place", "leave"),
    [("all.bin", b""), ("all.bin", b"\2\0\0"), ("../all.bin", None), ("all.bin", None)],
    ids=["gone", "cut", "outside", "pipe"],
)
def test_sizes_that_are_not_there_are_named(place, leave, tmp_path):
    """Which tensor, and the file that it lies in: nothing outside of the folder is opened."""
    inner = tmp_path / "inner"
    inner.mkdir()
    path = apart(inner)
    data = inner / "all.bin"
    if place != "all.bin":
        data.rename(tmp_path / "all.bin")
    elif leave is None:
        data.unlink()
        os.mkfifo(data)
    else:
        data.write_bytes(leave)
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        tensor.external_data[0].value = place
    with pytest.raises(
        TargetError,
        match=f"needs the values of 's', which are stored in the missing file '{place}'",
    ):
        ledger_of(saved(inner, model))


@pytest.mark.parametrize("content", [b"", b"\x00" * 100, b"PK\x03\x04 a zip file", b"\x3a\x7f"])
def test_what_is_no_model_is_refused(content, tmp_path):
    """Empty, cut and foreign files are errors of one line with one hint."""
    with pytest.raises(TargetError) as caught:
        read_onnx_model(saved(tmp_path, content))
    assert caught.value.hint
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("name", [".", "missing.onnx"])
def test_a_path_that_cannot_be_read_is_named(name, tmp_path):
    """A folder, or nothing at all, is an error that names it."""
    with pytest.raises(TargetError, match="cannot read"):
        read_onnx_model(str(tmp_path / name))


def test_deep_nesting_is_refused(tmp_path):
    """Sixty branches within one another end in an error and not in a crash."""
    inner = helper.make_node("Relu", ["x"], ["y"]).SerializeToString()
    for _ in range(60):
        graph = encode_bytes_field_header(1, len(inner)) + inner
        attribute = b"\x0a\x01b\xa0\x01\x05" + encode_bytes_field_header(6, len(graph)) + graph
        inner = b"\x22\x02If" + encode_bytes_field_header(5, len(attribute)) + attribute
    graph = encode_bytes_field_header(1, len(inner)) + inner
    with pytest.raises(TargetError):
        read_onnx_model(saved(tmp_path, encode_bytes_field_header(7, len(graph)) + graph))
