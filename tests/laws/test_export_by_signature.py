"""A program that is put together of known pieces is the one that PyTorch makes by itself."""

import logging
from collections import OrderedDict
from unittest import mock

import pytest
from torch.onnx._internal.exporter import _core

from crossflops.frontends.pytorch.convert import decomposition, known_forms, model_passes
from crossflops.frontends.pytorch.convert.reference import REFERENCE
from crossflops.frontends.pytorch.program import record_and_convert_torch
from crossflops.ir.trace import Setting
from tests.laws.random_layers import SIDE, RandomLayers
from tests.models import Apply, nn, torch, zoo

pytestmark = pytest.mark.torch
ROOM = "crossflops.frontends.pytorch.convert.decomposition"
WHOLE = "PyTorch decomposes the program as a whole"
SEEDS = range(1000, 1010)


def decomposed(exported):
    """The nodes of a decomposed program, inputs in the order of their names."""
    nodes = [
        (node.op, node.name, str(node.target), str(node.args), str(node.kwargs), layouts(node))
        for node in exported.graph.nodes
    ]
    return sorted(node for node in nodes if node[0] == "placeholder"), [
        node for node in nodes if node[0] != "placeholder"
    ]


def layouts(node):
    """Types, shapes and strides of what a node gives."""
    value = node.meta.get("val")
    values = value if isinstance(value, list | tuple) else [value]
    return [
        (item.dtype, tuple(item.shape), item.stride())
        if isinstance(item, torch.Tensor)
        else type(item)
        for item in values
    ]


def written(model):
    """The nodes of an ONNX model as they are, without the lines of code that they are of."""
    return [
        (
            node.name,
            node.op_type,
            [value and value.name for value in node.inputs],
            [(value.name, str(value.type), str(value.shape)) for value in node.outputs],
            sorted((name, str(value)) for name, value in node.attributes.items()),
            {k: v for k, v in node.metadata_props.items() if "stack_trace" not in k},
        )
        for node in model.graph
    ]


def run(model, inputs, setting):
    """The decomposed programs, the ONNX nodes, the graph and the trace of a model."""
    programs, prepare = [], _core._prepare_exported_program_for_export

    def prepared(*args, **kwargs):
        exported = prepare(*args, **kwargs)
        programs.append(decomposed(exported))
        return exported

    with mock.patch.object(_core, "_prepare_exported_program_for_export", prepared):
        onnx, graph, trace = record_and_convert_torch(model, inputs, {}, setting)
    return programs, written(onnx), graph, trace


@pytest.fixture
def same(monkeypatch, caplog):
    """Compare both ways; return whether the pieces were put together."""

    def compare(model, inputs, setting=Setting()):
        monkeypatch.setenv(REFERENCE, "1")
        expected = run(model, inputs, setting)
        monkeypatch.delenv(REFERENCE)
        caplog.clear()
        with caplog.at_level(logging.DEBUG, logger=ROOM):
            made = run(model, inputs, setting)
        for mine, theirs in zip(made, expected, strict=True):
            assert mine == theirs
        return not any(record.message.startswith(WHOLE) for record in caplog.records)

    return compare


@pytest.mark.parametrize("name", zoo())
def test_zoo(same, name):
    """Models of the zoo: all but those with an operator that takes lists of several kinds."""
    model, inputs = zoo()[name]
    assert same(model.eval(), inputs)


def test_random_layers(same):
    """Layers, operators that write in place, and views of what was written, in any order.

    Few of these models are left to PyTorch as a whole.
    """
    image = (torch.zeros(2, 3, SIDE, SIDE),)
    together = [same(RandomLayers(seed).eval(), image) for seed in SEEDS]
    assert sum(together) > len(SEEDS) * 3 / 4


def dead(s, x):
    """What no result needs."""
    x.sin().tanh()
    return s.norm(x).relu_()


def twice(s, x):
    """The same result twice, a view of it, and an input."""
    y = s.norm(x)
    return y, y.add_(1), y.view(-1), x


def nothing(s, x):
    """An input."""
    return x


def mixed_types(s, x):
    """Types that are brought to one."""
    return x.to(torch.float16).float() + torch.arange(8) * 2 > 1


def compared_in_place(s, x):
    """A write of booleans into numbers."""
    y = x * 2
    y.gt_(1)
    return y + 1


def named_as_operators(s, add, mul=None):
    """Inputs with the names of operators."""
    return s.norm(add * add + 1)


def complex_numbers(s, x):
    """Complex numbers."""
    return torch.view_as_real(torch.fft.fft(x))


def choices(s, x):
    """A choice of two functions."""
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


def into_its_input(s, x):
    """A write into what is given."""
    return x.mul_(2) + 1


def into_a_buffer(s, x):
    """A write into a buffer."""
    s.norm.running_mean.add_(1)
    return s.norm(x)


def several_results(s, x):
    """Operators with several results."""
    first, second, third = x.split([2, 2, 4], dim=1)
    top, places = first.topk(2, dim=-1)
    return torch.var_mean(torch.cat([second, third], 1), 1), top, places.float().mul_(2)


def written_by_the_folder(s, x):
    """Nodes that the folder of constants writes stay, behind many that are not written at all."""
    y = x[:, 1:3, ::2].clone() + torch.arange(16)[1::2]
    first, second = y.chunk(2, dim=1)
    z = torch.cat([first, second], 1).roll((1, 2), (1, 2)).double()
    z = torch.where(z > 1, z.new_zeros(2, 2, 4, 8), z)[..., 1:].float()
    return z, z.masked_fill(z > 0, 1).unflatten(1, (2, 1)).mean((1, 2)), z.split([1, 1], 1)


def called_as_results(s, val_3, val_9):
    """Inputs with the names that ONNX nodes without a name give to their results."""
    return s.norm(val_3[:, :, 1:7] + val_9[:, :, :6]).flatten(1)[:, 2:]


def scalars(s, x):
    """Numbers that are results of calls, and those of forms."""
    one = torch.scalar_tensor(1.0)
    y = torch.full((3,), 2.0) + one + torch.ones(70)[:3] * torch.zeros(1)
    return one, y, x.select(1, 0)[0, 1:2].expand(5, 8) + x[0, 0, :5]


def positions(s, x):
    """Where values are, which only values say, and what is written there."""
    rows, columns = torch.where(x[0, 0] > 0)
    (large,) = (x[0, 0] > 0.5).flatten().nonzero(as_tuple=True)
    kept = torch.zeros_like(large, dtype=torch.bool)
    kept[torch.where(large > 3)[0]] = True
    offset = torch.tensor([1.0, 2.0])
    return x[0, :, rows, columns] @ torch.ones(rows.shape[0], 3) + offset[0], large[kept]


def chosen_by_a_value(s, x):
    """A path that a number chooses, which the program does not have."""
    return s.norm(x) if float(x.abs().sum()) > 0 else x


@pytest.mark.parametrize(
    ("function", "is_understood"),
    [
        (written_by_the_folder, True),
        (called_as_results, True),
        (scalars, True),
        (dead, True),
        (twice, False),
        (nothing, True),
        (mixed_types, True),
        (compared_in_place, False),
        (named_as_operators, True),
        (several_results, True),
        (complex_numbers, False),
        (choices, False),
        (positions, True),
        (chosen_by_a_value, False),
        (into_its_input, False),
        (into_a_buffer, False),
    ],
)
def test_odd_functions(same, function, is_understood):
    """What is dead, twice, empty, written where it is not ours, or no tensor of numbers."""
    model = Apply(function, norm=nn.BatchNorm2d(8)).eval()
    inputs = (torch.randn(2, 8, 8, 8),) * (2 if function is called_as_results else 1)
    assert same(model, inputs) == is_understood


def test_training(same):
    """Statistics of the batch are written into buffers: PyTorch takes that apart as a whole."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
    assert not same(model.train(), (torch.zeros(2, 3, 8, 8),), Setting(training=True))


def test_modes(same):
    """Under autocast, and in a mode, calls are taken apart in another way than by themselves."""
    model, rows = nn.Sequential(nn.Linear(3, 4), nn.Flatten(), nn.Linear(4, 3)), torch.zeros(2, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not same(model.eval(), (rows,))
    with torch.device("cpu"):
        assert not same(model.eval(), (rows,))
    assert same(model.eval(), (rows,))


def test_what_pytorch_refuses_is_left_to_it_as_a_whole(same, monkeypatch):
    """A module of calls alone that cannot be taken apart ends no count."""

    def refuse(*args):
        raise RuntimeError("not these")

    monkeypatch.setattr(decomposition, "_decompose_sequences_by_table", refuse)
    assert not same(Apply(lambda s, x: x.reshape(3, 35)), (torch.zeros(5, 21),))


def test_tables_have_a_limit(same, monkeypatch):
    """What is known of other models is forgotten in turn, and the law holds without it."""
    monkeypatch.setattr(known_forms, "_KNOWN", OrderedDict())
    monkeypatch.setattr(model_passes, "_INFERRED", OrderedDict())
    monkeypatch.setattr(known_forms, "_KEPT_FORMS", 3)
    monkeypatch.setattr(model_passes, "_KEPT_INFERENCES", 3)
    model, inputs = zoo()["encoder layer"]
    assert same(model.eval(), inputs)
    assert len(known_forms._KNOWN) <= 3
    assert len(model_passes._INFERRED) <= 3
