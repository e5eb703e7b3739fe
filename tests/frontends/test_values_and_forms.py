"""Branches, loops and sizes that depend on values, and what PyTorch has and ONNX has not."""

import pytest

from tests.models import Apply, exported, nn, torch

pytestmark = pytest.mark.torch
ROWS = torch.randn(2, 8)
MACS = 2 * 8 * 8  # of `layer` on ROWS


def layer(outputs=8):
    """Eight numbers to eight, or another number of them."""
    return nn.Linear(8, outputs)


@pytest.mark.parametrize(
    ("forward", "macs", "missing"),
    [
        (lambda s, x: s.a(x)[x.sum(-1) > 0], MACS, {"NonZero", "Transpose", "GatherND"}),
        (lambda s, x: (s.a(x)[x > 0]).sum(), MACS,
         {"NonZero", "Transpose", "GatherND", "ReduceSum"}),
        (lambda s, x: (s.a(x), x.nonzero()), MACS, {"NonZero", "Transpose"}),
        (lambda s, x: s.a(x[x[:, 0] > 0]), 0, {"NonZero", "Transpose", "GatherND", "Gemm"}),
    ],
    ids=["rows", "elements", "places", "before the layer"],
)  # fmt: skip
def test_a_size_that_depends_on_values_is_uncounted_by_name_without_values(forward, macs, missing):
    """What has a known size is counted; what has none is named, and never zero."""
    model = Apply(forward, a=layer()).to("meta")
    _, trace, ledger = exported(model, ROWS.to("meta"))
    assert ledger.total.macs == macs
    assert {gap.node.op.type for gap in ledger.uncounted} == missing
    shapes = [spec.shape for call in trace.calls for spec in call.outputs]
    assert None in shapes


def test_the_larger_branch_of_a_condition_is_counted():
    """Two layers against one: 2*2*8*8, in a branch that does not run before it is known."""
    model = Apply(
        lambda s, x: torch.cond(x.sum() > 0, lambda x: s.a(x), lambda x: s.b(s.a(x)), (x,)),
        a=layer(),
        b=layer(),
    )
    graph, _, ledger = exported(model, ROWS)
    (node,) = [node for node in graph.nodes if node.op.type == "If"]
    assert len(node.bodies) == 2
    assert (ledger.total.macs, ledger.uncounted) == (2 * MACS, ())


def test_a_scan_is_counted_for_every_step():
    """Five steps of one row through the layer."""
    from torch._higher_order_ops.scan import scan

    def forward(self, x):
        return scan(lambda h, row: (torch.tanh(self.a(h) + row), h * 2), x[0] * 0, x)

    graph, _, ledger = exported(Apply(forward, a=layer()), torch.randn(5, 2, 8))
    (node,) = [node for node in graph.nodes if node.op.type == "Scan"]
    assert (node.trips, ledger.total.macs, ledger.uncounted) == (5, 5 * MACS, ())


def test_a_body_that_sees_the_input_is_not_constant():
    """The condition is a weight's, which no input changes; what the branches do is the input's."""
    model = Apply(
        lambda s, x: torch.cond(s.a.weight.sum() > 0, lambda x: s.a(x), lambda x: x * 2, (x,)),
        a=layer(),
    )
    graph, _, ledger = exported(model, ROWS)
    constant = {node.op.type: node.constant for node in graph.nodes}
    assert constant["If"] is False
    assert constant["ReduceSum"] is True
    assert sum(row.cost.macs for row in ledger.counted if row.node.constant) == 0


@pytest.mark.parametrize(
    ("forward", "flops"),
    [
        (lambda s, x: torch.linalg.inv(x), 16 + 2 * 4 * 9),
        # 6 divs, 14 muls and subs for L and U; 6 and 6 of these and 4 divs for each of 4 columns
        (lambda s, x: torch.linalg.solve(x, x), 6 + 2 * 14 + 4 * (2 * 6 + 2 * 6 + 4)),
        (lambda s, x: torch.linalg.cholesky(x), 4 + 6 + 2 * 10),
    ],
)
def test_what_checks_its_result_is_counted(forward, flops):
    """Operators that end in a check without a result do not cost the whole count."""
    _, _, ledger = exported(Apply(forward), torch.eye(4))
    assert (ledger.uncounted, ledger.total.flops) == ((), flops)


def test_complex_work_is_counted_in_real_numbers():
    """A complex product takes 4 real ones: a layer on 2 rows, and a product of 2x8 by 8x2."""
    layer_ = nn.Linear(8, 8, bias=False, dtype=torch.complex64)
    x = torch.randn(2, 8, dtype=torch.complex64)
    assert exported(layer_, x)[2].total.macs == 4 * MACS
    assert exported(Apply(lambda s, x: (x @ x.T).abs()), x)[2].total.macs == 4 * 2 * 8 * 2


def test_an_embedding_bag_is_one_node():
    """Not a loop of unknown length: 15 rows of 4 in 3 bags are 12 x 4 additions."""
    model = nn.EmbeddingBag(10, 4, mode="sum")
    _, _, ledger = exported(model, torch.zeros(3, 5, dtype=torch.int64))
    assert (ledger.uncounted, ledger.total.adds) == ((), 12 * 4)


def test_a_number_may_stand_before_integers():
    """8 elements: 4 operators of a number and integers, and 4 sums of what these give."""
    model = Apply(
        lambda s, x, i: x + (1.0 - i) + torch.mul(2.0, i) + torch.div(1.0, i) + torch.add(1.0, i)
    )
    total = exported(model, torch.ones(8), torch.arange(1, 9))[2].total
    assert (total.adds, total.muls, total.divs, total.flops) == (6 * 8, 8, 8, 8 * 8)
