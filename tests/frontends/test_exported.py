"""Programs of torch.export: `.pt2` files, objects, and the modules that their nodes came from."""

import pytest

from crossflops import compare
from crossflops.errors import CrossflopsError, InputError, TargetError
from crossflops.frontends import normalize
from crossflops.frontends.inputs import parse_inputs
from crossflops.ir.trace import Setting
from crossflops.ledger.count import count
from crossflops.targets import load_target_source, source_from_object

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
nn = torch.nn

pytestmark = pytest.mark.torch
X = torch.zeros(2, 3, 8, 8)


class Net(nn.Module):
    """A convolution with batch normalization, and a linear layer."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


@pytest.fixture(scope="module")
def program():
    """With a batch of any size."""
    batch = torch.export.Dim("batch", min=1, max=64)
    return torch.export.export(Net().eval(), (X,), dynamic_shapes={"x": {0: batch}})


@pytest.fixture
def file(program, tmp_path):
    """As torch.export.save writes it."""
    path = tmp_path / "net.pt2"
    torch.export.save(program, path)
    return path


def counted(source):
    """Graph, trace and ledger."""
    graph, trace = normalize(source, Setting())
    return graph, trace, count(graph)


def test_a_file_counts_as_its_source(file):
    """36 places x 8 x 27 taps and 8 x 4, twice; on its own inputs, and on others that fit."""
    graph, _, ledger = counted(load_target_source(str(file), {}, (), allow_pickle=True))
    assert ledger.total.macs == 2 * (36 * 8 * 27 + 8 * 4)
    assert graph.params == (8 * 27 + 8) + 2 * 8 + (8 * 4 + 4)
    more = load_target_source(str(file), {}, parse_inputs(["6x3x8x8"]), allow_pickle=True)
    assert counted(more)[2].total.macs == 3 * ledger.total.macs
    source = counted(source_from_object(Net().eval(), (X,)))[2]
    assert ledger.total == source.total


def test_nodes_are_in_the_modules_of_the_source(program):
    """The notes of the program tell, for modules without numbers, too."""
    graph, trace, _ = counted(source_from_object(program, ()))
    assert graph.name == "Net"
    assert [(row.path, row.class_name) for row in trace.modules] == [
        ("", "Net"),
        ("body", "Sequential"),
        ("body.0", "Conv2d"),
        ("body.1", "BatchNorm2d"),
        ("body.2", "ReLU"),
        ("head", "Linear"),
        ("_guards_fn", "GuardsFn"),
    ]
    assert [row.id for row in trace.modules] == list(range(7))
    places = {node.op.type: node.path for node in graph.nodes}
    assert (places["Conv"], places["Relu"], places["Gemm"]) == ("body.0", "body.2", "head")
    assert sum(param.numel for param in trace.modules[2].params) == 8 * 27 + 8


def test_inputs_that_the_program_does_not_take_are_refused(file):
    """What was exported holds sizes."""
    with pytest.raises(InputError, match="the model raised on these inputs"):
        counted(load_target_source(str(file), {}, parse_inputs(["2x3x9x9"]), allow_pickle=True))


def test_a_file_is_read_on_demand_only(file):
    """torch.export.load unpickles."""
    with pytest.raises(TargetError, match="reading it can run any code") as caught:
        load_target_source(str(file), {}, ())
    assert "--allow-pickle" in caught.value.hint


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.9, 0.999])
def test_damaged_files_are_refused(file, share, capfd):
    """Cut off anywhere; nothing but the error is said."""
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(CrossflopsError, match="cannot be unpickled"):
        load_target_source(str(file), {}, (), allow_pickle=True)
    assert capfd.readouterr() == ("", "")


def test_tools_run_the_module_of_the_program(file):
    """Those that look at operators see all of it, those that look at modules nothing."""
    pytest.importorskip("fvcore")
    pytest.importorskip("thop")
    tools = ["fvcore", "thop", "torch-flop-counter"]
    report = compare(str(file), tools=tools, allow_pickle=True)
    assert report.residuals == dict.fromkeys(tools, 0)
    thop = report.reconciliation("thop")
    assert [(explanation.cause, explanation.amount) for explanation in thop.explanations] == [
        ("functional.invisible", -report.macs)
    ]
