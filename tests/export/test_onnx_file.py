"""ONNX files: copied as they are, with counts in the metadata of their nodes."""

import os

import numpy as np
import onnx
import pytest

from crossflops.errors import CrossflopsError
from crossflops.verbs.api import export
from tests.onnx_files import parsed, saved

LINEAR = """g (float[1,5] x, float[5,4] w, float[4] b) => (float[1,4] z) {
    y = Gemm(x, w, b)  z = Relu(y) }"""


def notes(model):
    """Our metadata by node name or result, without the prefix."""
    by_node = {}
    for node in model.graph.node:
        own = {
            prop.key.removeprefix("crossflops."): prop.value
            for prop in node.metadata_props
            if prop.key.startswith("crossflops.")
        }
        by_node[node.name or node.output[0]] = own
    return by_node


def annotated(source, target, **options):
    """The annotated copy."""
    export(source, to="onnx", file=target, annotate=True, **options)
    return onnx.load(str(target))


def stripped(model):
    """The model without our notes."""
    copy = onnx.ModelProto.FromString(model.SerializeToString())
    for node in copy.graph.node:
        kept = [prop for prop in node.metadata_props if not prop.key.startswith("crossflops.")]
        del node.metadata_props[:]
        node.metadata_props.extend(kept)
    return copy


def test_without_notes_the_copy_is_the_file(tmp_path):
    """Byte by byte, even where the order of the fields is odd."""
    source = saved(tmp_path, parsed(LINEAR))
    assert export(source, to="onnx", file=tmp_path / "copy.onnx") == [tmp_path / "copy.onnx"]
    assert (tmp_path / "copy.onnx").read_bytes() == (tmp_path / "model.onnx").read_bytes()


def test_counts_stand_at_the_nodes(tmp_path):
    """Gemm: 20 MACs and 4 additions; it reads 5 + 20 + 4 floats and writes 4. Relu: 4 compares."""
    model = annotated(saved(tmp_path, parsed(LINEAR)), tmp_path / "out.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert notes(model) == {
        "y": {
            "macs": "20", "flops": "44", "bytes_read": "116", "bytes_written": "16",
            "exactness": "exact",
        },
        "z": {
            "macs": "0", "flops": "4", "bytes_read": "16", "bytes_written": "16",
            "exactness": "exact",
        },
    }  # fmt: skip


def test_nothing_else_changes(tmp_path):
    """Notes of others, doc strings, weights: without ours the model is what it was."""
    before = parsed(LINEAR)
    before.graph.node[0].metadata_props.add(key="author", value="somebody")
    before.graph.node[0].doc_string = "x" * 5000
    weights = np.arange(3000, dtype=np.float32)
    before.graph.initializer.append(onnx.numpy_helper.from_array(weights, "unused"))
    after = annotated(saved(tmp_path, before), tmp_path / "out.onnx")
    assert stripped(after) == before
    assert after != before


def test_notes_are_renewed_not_repeated(tmp_path):
    """To annotate what is annotated gives the same bytes, in place too."""
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    annotated(saved(tmp_path, parsed(LINEAR)), first)
    annotated(str(first), second)
    assert first.read_bytes() == second.read_bytes()
    annotated(str(second), second)
    assert first.read_bytes() == second.read_bytes()


def test_a_node_bears_what_is_in_it(tmp_path):
    """A loop of 3 x 20 MACs, a function of two products; nodes in any order, without names."""
    text = """g (float[1,5] x, float[5,5] w) => (float[1,5] z) <int64 n = {3}, bool c = {1}> {
        z = local.Twice(y, w)
        y = Loop(n, c, x) <body = b (int64 i, bool k, float[1,5] s) => (bool k2, float[1,5] r)
            { k2 = Identity(k)  r = MatMul(s, w) }> }
        <domain: "local", opset_import: ["": 17]>
        Twice (a, m) => (q) { p = MatMul(a, m)  q = MatMul(p, m) }"""
    metadata = notes(annotated(saved(tmp_path, parsed(text)), tmp_path / "out.onnx"))
    assert {name: entries["macs"] for name, entries in metadata.items()} == {"y": "75", "z": "50"}


def test_what_is_not_counted_says_why(tmp_path):
    """No number stands there, above all no zero."""
    text = "g (float[2] x) => (float[2] y) { y = local.Odd(x) }"
    metadata = notes(annotated(saved(tmp_path, parsed(text)), tmp_path / "out.onnx"))
    assert list(metadata["y"]) == ["uncounted"]
    assert "Odd" in metadata["y"]["uncounted"]


def external(folder):
    """A model with its weight in a file beside it."""
    folder.mkdir()
    model = parsed("g (float[4,64] x) => (float[4,64] y) { y = MatMul(x, w) }")
    weight = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = folder / "model.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="w.bin", size_threshold=0)
    return str(path), weight


def test_external_data_goes_along(tmp_path):
    """Into another folder it is copied; in the same one the copy refers to what is there."""
    source, weight = external(tmp_path / "a")
    (tmp_path / "b").mkdir()
    out = tmp_path / "b" / "out.onnx"
    written = export(source, to="onnx", file=out, annotate=True)
    assert written == [out, tmp_path / "b" / "w.bin"]
    model = onnx.load(str(out))
    assert (onnx.numpy_helper.to_array(model.graph.initializer[0]) == weight).all()
    assert notes(model)["y"]["macs"] == str(4 * 64 * 64)
    beside = tmp_path / "a" / "out.onnx"
    assert export(source, to="onnx", file=beside) == [beside]
    # once more: the data is there and the same
    assert export(source, to="onnx", file=out) == [out]


def test_data_of_others_is_not_overwritten(tmp_path):
    """A file of that name with other bytes belongs to another model."""
    source, _ = external(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "w.bin").write_bytes(b"mine")
    with pytest.raises(CrossflopsError, match="already exists with other contents"):
        export(source, to="onnx", file=tmp_path / "b" / "out.onnx")
    assert os.listdir(tmp_path / "b") == ["w.bin"]
    assert (tmp_path / "b" / "w.bin").read_bytes() == b"mine"


@pytest.mark.parametrize("location", ["../w.bin", "/etc/passwd"])
def test_data_from_elsewhere_is_refused(tmp_path, location):
    """A location outside of the folder of the model is never read, nor written to."""
    source, _ = external(tmp_path / "a")
    model = onnx.load(source, load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    source = saved(tmp_path / "a", model)
    (tmp_path / "b").mkdir()
    with pytest.raises(CrossflopsError, match="outside the folder of the model"):
        export(source, to="onnx", file=tmp_path / "b" / "out.onnx")


def test_data_that_is_missing_leaves_nothing_behind(tmp_path):
    """Two lines, and no half of a model."""
    source, _ = external(tmp_path / "a")
    os.remove(tmp_path / "a" / "w.bin")
    (tmp_path / "b").mkdir()
    with pytest.raises(CrossflopsError, match=r"w\.bin does not exist"):
        export(source, to="onnx", file=tmp_path / "b" / "out.onnx")
    assert os.listdir(tmp_path / "b") == []


def test_a_folder_that_cannot_be_written_to(tmp_path):
    """What is wrong and what to do."""
    source = saved(tmp_path, parsed(LINEAR))
    with pytest.raises(CrossflopsError, match="cannot write"):
        export(source, to="onnx", file=tmp_path / "none" / "out.onnx")
