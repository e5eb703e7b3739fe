"""The passes of PyTorch: what a wrong order breaks, and what a log says of a small CNN."""

import logging

import msgspec
import pytest

from crossflops.frontends.pytorch.passes import PIPELINE, Conversion
from crossflops.frontends.pytorch.program import convert, record
from tests import pipelines
from tests.custom_functions import Product
from tests.models import EVAL, F, nn, torch

pytestmark = pytest.mark.torch
# Neighbours of which neither reads or overwrites what the other one writes.
FREE = {
    ("mark storage", "mark sparse"),
    ("mark sparse", "group custom functions"),
    ("mark derived products", "mark starts"),
    ("mark starts", "mark lost starts"),
    ("mark views", "restore pasts"),
    ("sever inputs", "add custom functions"),
    ("name weights", "add leaves"),
    ("add leaves", "add attention windows"),
    ("add attention windows", "mark hooked weights"),
    ("mark turned weights", "identify graph"),
    ("identify graph", "link calls"),
    ("link calls", "add unchosen experts"),
}


class Mixed(nn.Module):
    """A bit of all that passes mark, where their order could be seen."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.listed = [nn.Linear(4, 4)]  # which PyTorch does not know as a part of the model
        self.weight = nn.Parameter(torch.eye(4))
        self.weight.register_hook(lambda gradient: gradient)

    def forward(self, x):
        """Cut, hook, start, freeze, write in place, and derive as part of another operator."""
        self.second.weight.requires_grad_(False)
        x = self.first(x)
        x.register_hook(lambda gradient: 2 * gradient)
        with torch.no_grad():
            viewed = self.weight.view(4, 4)
            table = torch.ones(4, 4)
        table.requires_grad_()
        y = Product.apply(x, self.weight) + F.linear(x.detach(), viewed)
        with torch.no_grad():
            y.mul_(2)
        far = torch.cdist(y, table) @ torch.full((4, 4), 0.5, requires_grad=True)
        return self.second(far) + self.listed[0](y.detach().requires_grad_())


def test_no_pass_may_be_left_out():
    """Each one ensures what another, or the end, requires."""
    assert pipelines.not_needed(PIPELINE) == []


def test_each_other_swap_of_neighbours_breaks_a_requirement():
    """The message names it. The graph behind the others is held to be the same below."""
    assert pipelines.free_pairs(PIPELINE) == FREE


def test_what_may_change_places_gives_the_same_graph():
    """Orders that are accepted make the very same graph and trace, field by field."""
    model = Mixed()
    recording = record(model, (torch.ones(2, 4),), {}, EVAL)
    export, *rest = PIPELINE.passes
    exported = msgspec.structs.replace(PIPELINE, passes=(export,), wanted=frozenset()).run(
        Conversion(model, recording, recording.trace)
    )
    every = frozenset().union(*(step.ensures for step in export.passes[-2].passes))
    of_graph = msgspec.structs.replace(
        PIPELINE,
        passes=tuple(rest),
        given=every,
        wanted=PIPELINE.wanted - export.passes[-1].ensures,
    )
    usual = of_graph.run(exported)
    marked = [
        n
        for n in usual.graph.nodes
        if n.training.own_backward or n.training.severed or n.training.derived_as
    ]
    assert len(marked) > 4
    assert usual.graph.functions
    for other in pipelines.accepted_orders(of_graph, 20):
        state = other.run(exported)
        assert (state.graph, state.trace) == (usual.graph, usual.trace)


def test_a_log_of_a_small_cnn_names_every_pass_with_its_nodes(caplog):
    """By hand: which node each pass makes, takes away and marks."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.ReLU(), nn.Flatten())
    recording = record(model, (torch.ones(1, 3, 8, 8),), {}, EVAL)
    with caplog.at_level(logging.DEBUG, "crossflops.frontends.pytorch"):
        convert(model, recording)
    lines = [record.getMessage().split(": ", 1) for record in caplog.records]
    named = dict.fromkeys(name for name, _ in lines)
    assert list(named) == [step.name for step in pipelines.flat(PIPELINE)]
    nodes = {"node_conv2d (Conv)", "node_relu (Relu)", "node_view (Reshape)"}
    said = {name: {line for other, line in lines if other == name} for name in named}
    assert said["build graph"] == {*(f"added {node}" for node in nodes), "made the graph"}
    assert {f"added {node}" for node in nodes} < said["write ONNX"]
    assert "removed conv2d (aten.conv2d.default)" in said["write ONNX"]
    # a bias of zeros that the exporter makes up, and how it makes that
    assert "changed node_conv2d (Conv): inputs" in said["fold shape arithmetic"]
    assert any(line.startswith("removed") for line in said["fold shape arithmetic"])
    assert said["mark constant"] == {"changed node_conv2d (Conv): varying_inputs"}
    assert said["mark sparse"] == said["sever inputs"] == {"nothing changed"}
    assert said["link calls"] == {"changed the trace: calls"}
