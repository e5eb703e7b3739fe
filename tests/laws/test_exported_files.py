"""What must not change the count of a file, on three models that PyTorch exports.

A ResNet, a BERT of two layers and an LSTM, each with a batch dimension that has a name.
"""

import copy
import functools
import importlib
import random
import warnings

import onnx
import pytest
from onnx import TensorProto, helper

from crossflops import count
from crossflops.frontends import load_with_retry
from crossflops.ir.ledger import Cost
from tests.models import nn, torch
from tests.onnx_files import ledger_of, optimized, saved

pytestmark = pytest.mark.torch
WIDTH, HEADS, INSIDE, LAYERS, WORDS, LENGTH = 32, 4, 64, 2, 50, 10


class Bert(nn.Module):
    """Words and places in, encoder layers, one label per word out."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, INSIDE, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, ids):
        return self.head(self.encoder(self.words(ids) + self.places))


class Tagger(nn.Module):
    """A bidirectional LSTM over 8 features, and a label per step."""

    def __init__(self):
        super().__init__()
        self.memory = nn.LSTM(8, 16, bidirectional=True, batch_first=True)
        self.head = nn.Linear(32, 5)

    def forward(self, steps):
        return self.head(self.memory(steps)[0])


def resnet():
    """torchvision's ResNet-18."""
    return load_with_retry(lambda: importlib.import_module("torchvision.models")).resnet18(
        weights=None
    )


# The model, an input, and the MACs of one item by hand.
MODELS = {
    # 1.814 GMACs at 224 x 224 as torchvision publishes them (_ops of its weights), to 3 digits.
    "resnet": (resnet, lambda: torch.randn(2, 3, 224, 224), 1_814_073_344),
    "bert": (
        Bert,
        lambda: torch.zeros(2, LENGTH, dtype=torch.int64),
        LAYERS
        * (
            LENGTH * (4 * WIDTH * WIDTH + 2 * WIDTH * INSIDE)  # projections, and what is inside
            + 2 * LENGTH * LENGTH * WIDTH  # scores and their use
        )
        + LENGTH * WIDTH * 3,
    ),
    "lstm": (
        Tagger,
        lambda: torch.randn(2, LENGTH, 8),
        2 * LENGTH * 4 * 16 * (8 + 16) + LENGTH * 32 * 5,
    ),
}


@functools.cache
def exported(name):
    """The file that torch.onnx writes, with a batch of any size."""
    build, given, _ = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            build().eval(), (given(),), dynamo=True, verbose=False, opset_version=20,
            dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=4096)},),
        )  # fmt: skip
    return program.model_proto


def cost(folder, model, batch=2) -> Cost:
    """The cost at a batch size: whatever the dimension is called now. All nodes count."""
    (value,) = [
        value for value in model.graph.input if value.type.tensor_type.shape.dim[0].dim_param
    ]
    name = value.type.tensor_type.shape.dim[0].dim_param
    ledger = ledger_of(saved(folder, model), dims={name: batch})
    assert not ledger.uncounted, ledger.uncounted
    return ledger.total


def work(total: Cost) -> tuple[int, ...]:
    """The kinds of work, without bytes."""
    return tuple(getattr(total, kind) for kind in total.__struct_fields__[:6])


@pytest.fixture(params=MODELS)
def name(request):
    """Each of the three."""
    return request.param


def test_batch_k_gives_k_times_the_macs(name, tmp_path):
    """And for one item they are those by hand."""
    single = cost(tmp_path, exported(name), 1).macs
    assert single == MODELS[name][2]
    for batch in (2, 7, 1000):
        assert cost(tmp_path, exported(name), batch).macs == batch * single


def renamed(model):
    """Every value, node and dimension under another name."""

    def named(text):
        return text and f"v.{text}"

    for value in (*model.graph.initializer, *model.graph.value_info):
        value.name = named(value.name)
    for value in (*model.graph.input, *model.graph.output):
        value.name = named(value.name)
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = named(dim.dim_param)
    for place, node in enumerate(model.graph.node):
        node.name = f"n{place}"
        node.input[:] = map(named, node.input)
        node.output[:] = map(named, node.output)
    del model.graph.value_info[:]


def reordered(model):
    """The nodes and weights in another order."""
    for row in (model.graph.node, model.graph.initializer):
        copies = [copy.deepcopy(proto) for proto in row]
        random.Random(3).shuffle(copies)
        del row[:]
        row.extend(copies)


def external(model):
    """Every larger weight in another file, which is not there."""
    for tensor in model.graph.initializer:
        if len(tensor.raw_data) > 256:
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            tensor.external_data.add(key="location", value="weights.bin")


def outlined(model):
    """The second third of the nodes in a local function that is called once."""
    nodes = list(model.graph.node)
    inside = nodes[len(nodes) // 3 : 2 * len(nodes) // 3]
    made = {name for node in inside for name in node.output if name}
    outside = [node for node in nodes if node not in inside]
    read = dict.fromkeys(n for node in inside for n in node.input if n and n not in made)
    used = {n for node in outside for n in node.input} | {o.name for o in model.graph.output}
    results = sorted(made & used)
    function = helper.make_function(
        "local", "Middle", list(read), results, inside, list(model.opset_import)
    )
    call = helper.make_node("Middle", list(read), results, domain="local")
    del model.graph.node[:]
    model.graph.node.extend([*outside, call])
    model.functions.append(function)
    model.opset_import.add(domain="local", version=1)


@pytest.mark.parametrize("change", [renamed, reordered, external, outlined])
def test_the_count_stays(change, name, tmp_path):
    """Names, order, place of the weights and functions change nothing, bytes included."""
    model = copy.deepcopy(exported(name))
    before = cost(tmp_path, model)
    change(model)
    assert cost(tmp_path, model) == before


def looped(model, times):
    """All nodes in the body of a Loop that runs so often, and gives back every run's results."""
    results = [value.name for value in model.graph.output]
    body = helper.make_graph(
        [*model.graph.node, helper.make_node("Identity", ["go"], ["on"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, ()),
            helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, ()),
            *(onnx.ValueInfoProto(name=name) for name in results),
        ],
    )
    stored = [
        helper.make_tensor("times", TensorProto.INT64, (), [times]),
        helper.make_tensor("yes", TensorProto.BOOL, (), [True]),
    ]
    stacked = [f"{name}.all" for name in results]
    del model.graph.node[:], model.graph.output[:], model.graph.value_info[:]
    model.graph.initializer.extend(stored)
    model.graph.node.append(helper.make_node("Loop", ["times", "yes"], stacked, body=body))
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in stacked)


def unrolled(model, times):
    """All nodes so often, each copy with names of its own."""
    nodes = list(model.graph.node)
    made = {name for node in nodes for name in node.output}
    outputs = [value.name for value in model.graph.output]
    del model.graph.output[:], model.graph.value_info[:]
    for run in range(1, times):
        for node in nodes:
            again = copy.deepcopy(node)
            again.name = f"{node.name}.{run}"
            again.input[:] = [f"{n}.{run}" if n in made else n for n in node.input]
            again.output[:] = [n and f"{n}.{run}" for n in node.output]
            model.graph.node.append(again)
    for name in outputs:
        model.graph.output.append(onnx.ValueInfoProto(name=name))
        for run in range(1, times):
            model.graph.output.append(onnx.ValueInfoProto(name=f"{name}.{run}"))


def test_a_subgraph_counts_as_what_it_unrolls_to(name, tmp_path):
    """Three runs of a Loop are three copies of its body, and each costs what the model does."""
    loop, copies = copy.deepcopy(exported(name)), copy.deepcopy(exported(name))
    once = work(cost(tmp_path, exported(name)))
    looped(loop, 3)
    unrolled(copies, 3)
    assert work(cost(tmp_path, copies)) == tuple(3 * kind for kind in once)
    assert work(cost(tmp_path, loop)) == tuple(3 * kind for kind in once)


@pytest.mark.parametrize("level", ["ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED"])
def test_what_the_optimizer_of_onnxruntime_writes_has_the_macs_of_the_model(name, level, tmp_path):
    """Also in the version of the format in which initializers were inputs once, which it may keep.

    Nothing of these three depends on constants alone, so nothing that multiplies is folded away.
    """
    pytest.importorskip("onnxruntime")
    path = optimized(saved(tmp_path, exported(name)), level)
    model = onnx.load(path)
    for version in (3, model.ir_version):
        model.ir_version = version
        assert cost(tmp_path, model, 1).macs == MODELS[name][2]


def test_work_is_in_the_module_that_owns_the_weight(tmp_path):
    """torch.onnx folds every batch normalization of a ResNet into the convolution before it.

    Products and parameters of some convolutions by hand. Normalizations that were never trained
    add 0, which torch.onnx drops, so weights are all that is left.
    """
    report = count(saved(tmp_path, exported("resnet")), dims={"batch": 1})
    rows = {row.path: (row.macs, row.params) for row in report.modules}
    assert {row.node for row in report.nodes if row.op == "BatchNormalization"} == set()
    assert rows["conv1"] == (64 * 3 * 49 * 112 * 112, 64 * 3 * 49)
    assert rows["layer1.0.conv2"] == (64 * 64 * 9 * 56 * 56, 64 * 64 * 9)
    assert rows["layer2.0.downsample.0"] == (128 * 64 * 28 * 28, 128 * 64)
    assert rows["fc"] == (512 * 1000, 512 * 1000 + 1000)
    assert rows[""] == (MODELS["resnet"][2], report.totals.params)
    assert [path for path in rows if "bn" in path and rows[path][0]] == []


class Normalized(nn.Module):
    """Three layers with weights, each before a batch normalization that was trained."""

    def __init__(self):
        super().__init__()
        self.conv, self.first = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.wide, self.second = nn.ConvTranspose2d(8, 4, 2, 2), nn.BatchNorm2d(4)
        self.dense, self.third = nn.Linear(4, 6), nn.BatchNorm1d(6)
        for module in (self.first, self.second, self.third):
            for tensor in (*module.parameters(), module.running_mean, module.running_var):
                tensor.data.uniform_(0.5, 2)

    def forward(self, x):
        x = self.second(self.wide(self.first(self.conv(x))))
        return self.third(self.dense(x.mean((2, 3))))


@pytest.mark.parametrize("dynamo", [True, False])
def test_a_folded_normalization_leaves_work_and_parameters_where_the_weight_is(dynamo, tmp_path):
    """What either exporter writes of 2x3x8x8, by hand; a layer has its own parameters."""
    path, model = str(tmp_path / "model.onnx"), Normalized().eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, (torch.randn(2, 3, 8, 8),), path, dynamo=dynamo, verbose=False,
            external_data=False,
        )  # fmt: skip
    rows = {row.path: (row.macs, row.params) for row in count(path).modules}
    macs = {"conv": 2 * 64 * 8 * 27, "wide": 2 * 64 * 8 * 4 * 4, "dense": 2 * 4 * 6}
    for name, products in macs.items():
        own = sum(parameter.numel() for parameter in getattr(model, name).parameters())
        assert rows[name] == (products, own)
    assert rows[""][0] == sum(macs.values())
