"""A file that crossflops wrote has the parameters of the model that it was exported from."""

import copy

import msgspec
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from crossflops import count
from crossflops.targets.request import Request
from crossflops.testing.probes import probes
from crossflops.verbs.api import export
from crossflops.verbs.diff import compare_sides
from tests.models import nn, torch, zoo
from tests.onnx_files import optimized

pytestmark = pytest.mark.torch

# Models whose weights a file alone does not tell: not used, behind no ONNX operator, made up by
# the exporter, statistics, one number, two names, complex.
PROBES = (
    "unused_submodule", "LSTM_projected", "LSTMCell_nobias", "MHA_appended", "Up_linear2",
    "pruned_conv", "shared_two_names", "EmbeddingBag", "bare_parameter", "tied_weight_two_modules",
)  # fmt: skip


class Classifier(nn.Module):
    """A class token and places before an encoder of complex mixing, and a head that is not used.

    32 + 5 x 32 numbers, 4 complex ones, a scale, 32 x 10 + 10 of the head and 32 x 7 + 7 of the
    other one: 32 + 160 + 4 + 1 + 330 + 231 = 758, and 4 x 4 bytes more than so many floats.
    """

    PARAMS, NBYTES = 758, 4 * 758 + 16

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(torch.rand(1, 1, 32))
        self.places = nn.Parameter(torch.rand(1, 5, 32))
        self.mixing = nn.Parameter(torch.rand(4, dtype=torch.complex64))
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("window", torch.rand(32))
        self.head, self.other = nn.Linear(32, 10), nn.Linear(32, 7)

    def forward(self, x):
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        mixed = torch.view_as_complex(x.reshape(len(x), 5, 4, 4, 2)) * self.mixing
        x = torch.view_as_real(mixed).reshape(len(x), 5, 32) * self.window * self.scale
        return self.head(x[:, 0])


def held(report):
    """The parameters of a count: how many, their bytes, by type, and in the modules with any."""
    modules = {row.path: row.params for row in report.modules if row.params}
    memory = report.memory
    return report.totals.params, memory.param_bytes, dict(memory.param_bytes_by_type), modules


@pytest.fixture
def written(tmp_path):
    """A function that exports a model, and returns the file and the count of the model."""

    def write(model, args, kwargs=None):
        path = tmp_path / "model.onnx"
        export(model, (args, kwargs or {}), to="onnx", file=path)
        return str(path), count(model, (args, kwargs or {}))

    return write


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_has_its_parameters_in_its_file(name, written):
    """Number, bytes, types and the modules that they are in; the work and its traffic as well."""
    path, report = written(*probes()[name].build())
    of_file = count(path)
    assert held(of_file) == held(report)
    assert of_file.totals == report.totals
    assert not [sentence for sentence in of_file.warnings if "parameters" in sentence]


@pytest.mark.parametrize("name", ["odd", "pooled"])
def test_a_model_of_the_zoo_has_its_parameters_in_its_file(name, written):
    """As the probes; work that no output needs is not in the file."""
    model, inputs = zoo()[name]
    path, report = written(model.eval(), inputs)
    of_file = count(path)
    assert held(of_file) == held(report)
    assert of_file.totals == msgspec.structs.replace(report.totals, dead_macs=0)


def test_parameters_that_a_file_does_not_tell_by_hand(written):
    """Tokens, complex numbers, one number alone, and a layer without a node; two buffers none."""
    path, report = written(Classifier().eval(), (torch.rand(2, 4, 32),))
    assert held(count(path))[:2] == held(report)[:2] == (Classifier.PARAMS, Classifier.NBYTES)


def test_a_model_and_its_file_do_not_differ(written):
    """No cause stands between them."""
    model, x = Classifier().eval(), torch.rand(2, 4, 32)
    path, _ = written(model, (x,))
    sides = [("model", Request.from_arguments(model, x)), ("file", Request.from_arguments(path))]
    change = compare_sides(*sides, None, lambda _: None)
    assert change.causes == () == change.modules


def test_names_shapes_and_places_of_tensors_do_not_matter(written, tmp_path):
    """Shape inference, other names and external data leave the parameters as they are."""
    path, report = written(Classifier().eval(), (torch.rand(2, 4, 32),))
    model = onnx.shape_inference.infer_shapes(onnx.load(path))
    names = {tensor.name: f"t{place}" for place, tensor in enumerate(model.graph.initializer)}
    for tensor in model.graph.initializer:
        tensor.name = names[tensor.name]
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    onnx.save(model, tmp_path / "other.onnx", save_as_external_data=True, size_threshold=0)
    assert held(count(str(tmp_path / "other.onnx")))[:2] == held(report)[:2]


def layer_added(model):
    """One more product with a matrix of 10 x 6."""
    (output,) = model.graph.output
    weight = helper.make_tensor("more", TensorProto.FLOAT, (10, 6), [0.5] * 60)
    model.graph.initializer.append(weight)
    model.graph.node.append(helper.make_node("MatMul", [output.name, "more"], ["result"]))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("result", 1, (2, 6)))


def layer_removed(model):
    """The file ends before its last product, whose weight it still stores."""
    last = model.graph.node[-1]
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info(last.input[0], 1, (2, 32)))
    model.graph.node.remove(last)


def halved(model):
    """The weight of the head in float16, and a node that makes floats of it."""
    (weight,) = [t for t in model.graph.initializer if t.name == "head.weight"]
    small = numpy_helper.from_array(numpy_helper.to_array(weight).astype("float16"), "half")
    model.graph.initializer.remove(weight)
    model.graph.initializer.append(small)
    model.graph.node.insert(0, helper.make_node("Cast", ["half"], ["head.weight"], to=1))


def unreadable(model):
    """An entry that is no entry of ours."""
    model.metadata_props[0].value = model.metadata_props[0].value.replace("[", "{", 1)


def without_notes(model):
    """The same file as another program would have written it."""
    model = copy.deepcopy(model)
    del model.metadata_props[:]
    return model


@pytest.mark.parametrize("change", [layer_added, layer_removed, halved, unreadable])
def test_notes_that_hold_no_longer_are_not_used(change, written, tmp_path):
    """A file whose weights were changed is counted as one without notes, and says so."""
    path, _ = written(Classifier().eval(), (torch.rand(2, 4, 32),))
    model = onnx.load(path)
    change(model)
    onnx.save(model, tmp_path / "changed.onnx")
    onnx.save(without_notes(model), tmp_path / "bare.onnx")
    changed, bare = (count(str(tmp_path / f"{name}.onnx")) for name in ("changed", "bare"))
    assert held(changed) == held(bare)
    sentences = [sentence for sentence in changed.warnings if "parameters" in sentence]
    assert len(sentences) == 1
    assert "stored weights are counted as parameters" in sentences[0]
    assert not [sentence for sentence in bare.warnings if "parameters" in sentence]


def test_a_normalization_that_an_optimizer_folded_is_no_parameter_any_more(written, tmp_path):
    """onnxruntime makes one convolution of two layers: 3 x 4 x 9 weights and a bias of 4."""
    pytest.importorskip("onnxruntime")
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)).eval()
    path, report = written(model, (torch.rand(1, 3, 8, 8),))
    assert report.totals.params == count(path).totals.params == 108 + 8
    assert count(optimized(path, "ORT_ENABLE_BASIC")).totals.params == 108 + 4


class Tables(nn.Module):
    """A sum of a column and a row of indices, and a table of indices of more than 1 KiB."""

    def __init__(self):
        super().__init__()
        self.register_buffer("order", torch.randperm(600))

    def forward(self, x):
        return x[:, self.order].reshape(2, 3, 20, 10)


FALSE_WARNINGS = {
    "uneven pooling": (nn.AdaptiveAvgPool1d(3), (1, 8, 10)),
    "indices": (Tables(), (2, 600)),
    "groups of a table": (nn.GroupNorm(2, 8), (2, 8)),
}


@pytest.mark.parametrize("name", FALSE_WARNINGS)
def test_a_file_that_runs_is_read_without_a_warning(name, written):
    """What ONNX's inference says of values that it follows is no word against the model."""
    model, shape = FALSE_WARNINGS[name]
    path, report = written(model.eval(), (torch.rand(shape),))
    of_file = count(path)
    assert of_file.warnings == ()
    assert (of_file.macs, of_file.flops) == (report.macs, report.flops)
