"""Laws that hold for every model, on models that are exported for real."""

import copy
import functools

import msgspec
import pytest

from crossflops import Report
from crossflops.frontends.pytorch.load.fakes import with_fake_tensors
from crossflops.frontends.pytorch.program import record_torch_run
from crossflops.ir.trace import Setting
from crossflops.reconcile.walk import reconcile
from crossflops.render.formats import FORMATS
from crossflops.report.tables import report_from_ledger
from crossflops.rules.prediction import PredictionError, predict
from crossflops.rules.rule import Convention, Rule
from crossflops.tools.contractions import OPERATORS
from crossflops.tools.registry import all_conventions
from tests.models import EVAL, Odd, block, encoder_layer, exported, nn, torch, zoo

pytestmark = pytest.mark.torch
SETTINGS = (Setting(), Setting(grad=False))
CONVENTIONS = [
    convention
    for convention in all_conventions()
    if convention.framework == "torch" and convention.sees not in ("node", "architecture")
]
VIEWS = sorted(
    {view for convention in CONVENTIONS for asked in SETTINGS if (view := convention.view(asked))},
    key=lambda view: (view.id, view.level),
)
# Where the tool itself raises, by convention and model; torchstat takes images alone.
RAISES = {
    ("deepspeed", "string padding"),
    ("deepspeed", "upsampled"),
}


@functools.cache
def made(name):
    """The graph, the trace and the ledger of a model of the zoo."""
    model, inputs = zoo()[name]
    return exported(model.eval(), *inputs, observed=VIEWS)


def predictions(name, trace, asked, ledger, known=CONVENTIONS):
    """What every convention of calls predicts, where its tool does not raise."""
    for convention in known:
        try:
            yield predict(convention, trace, asked, ledger)
        except PredictionError:
            tool = convention.tool
            assert tool.startswith("torchstat") or (tool.split("-")[0], name) in RAISES, tool


@pytest.mark.parametrize("name", zoo())
def test_explanations_lead_to_every_tools_number(name):
    """For every convention and with and without gradients, no integer is left over."""
    _, trace, ledger = made(name)
    assert ledger.uncounted == ()
    for asked in SETTINGS:
        for prediction in predictions(name, trace, asked, ledger):
            account = reconcile(prediction, trace, ledger)
            total = sum(explanation.amount for explanation in account.explanations)
            assert ledger.total.macs + total == prediction.total, prediction.convention.tool
            assert account.residual == 0


@pytest.mark.parametrize("name", zoo())
def test_a_prediction_needs_the_calls_alone(name):
    """What was fixed before there is a graph is what is predicted from all that was counted."""
    model, inputs = zoo()[name]
    _, trace, ledger = made(name)
    recorded = record_torch_run(model.eval(), inputs, {}, EVAL, VIEWS).trace
    assert not any(call.nodes for call in recorded.calls)
    known = [convention for convention in CONVENTIONS if not convention.has_native_cost_weights]
    for asked in SETTINGS:
        before = list(predictions(name, recorded, asked, None, known))
        after = list(predictions(name, trace, asked, ledger, known))
        assert list(map(facts, before)) == list(map(facts, after))
        accounts = [[reconcile(it, trace, ledger) for it in fixed] for fixed in (before, after)]
        assert accounts[0] == accounts[1]


def facts(prediction):
    """All of a prediction but what is not known yet of the calls that it is about."""
    bookings = [(b.rule, b.call, b.path, b.amount, b.times, b.again) for b in prediction.bookings]
    return bookings, prediction.covered, prediction.unseen, prediction.divisors, prediction.total


@pytest.mark.parametrize("name", zoo())
def test_nothing_is_predicted_otherwise_without_values(name):
    """Watched on fake tensors, it counts and is predicted as with its weights, tool by tool."""
    model, inputs = zoo()[name]
    _, trace, ledger = made(name)
    hollow, inputs, _ = with_fake_tensors(copy.deepcopy(model).eval(), inputs)
    known = [
        convention for convention in CONVENTIONS if convention.tool != "torch-profiler"
    ]  # it is left out there
    views = [view for view in VIEWS if view.level != "event"]
    _, faked, counted = exported(hollow, *inputs, observed=views)
    assert counted.total == ledger.total
    for asked in SETTINGS:
        real, fake = (
            [
                (prediction.convention.tool, prediction.total)
                for prediction in predictions(name, *run, known)
            ]
            for run in ((trace, asked, ledger), (faked, asked, counted))
        )
        assert fake == real


@pytest.mark.parametrize("name", zoo())
def test_operators_do_the_work_of_their_nodes(name):
    """Each contraction by its operator's formula is what its ONNX nodes cost: no bad export."""
    _, trace, ledger = made(name)
    rules = (
        Rule(
            id=formula.__name__,
            cause="graph.export-decomposition",
            level="operator",
            targets=targets,
            kind="core",
            amount=formula,
        )
        for formula, targets in OPERATORS.items()
    )
    exact = Convention(
        tool="operators",
        edition="1",
        verified=(),
        unit=1,
        printed_as="MACs",
        sees="operator",
        counts_dead=False,
        unseen="op.unregistered-zero",
        rules=tuple(rules),
    )
    assert predict(exact, trace, Setting(), ledger).total == ledger.total.macs


@pytest.mark.parametrize("name", zoo())
def test_a_report_renders_the_same_after_json(name):
    """Read back from JSON it is equal, and every format gives the same bytes."""
    graph, trace, ledger = made(name)
    native = report_from_ledger(graph, trace, ledger)
    (fvcore,) = [convention for convention in all_conventions() if convention.tool == "fvcore"]
    compared = msgspec.structs.replace(
        native,
        profiles=(),
        reconciliations=(reconcile(predict(fvcore, trace, Setting(), ledger), trace, ledger),),
    )
    for shown in map(Report.of, (native, compared)):
        again = Report.from_json(shown.to_json())
        assert again == shown
        for render in FORMATS.values():
            assert render(again) == render(shown)


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (block, (3, 16, 16)),
        (encoder_layer, (10, 32)),
        (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 5)), (3, 8, 8)),
    ],
    ids=["block", "encoder layer", "classifier"],
)
def test_batch_k_gives_k_times_the_macs(build, shape):
    """Exported at batch k, not scaled: contractions are linear in the batch."""
    model = build()
    single = exported(model, torch.randn(1, *shape))[2].total.macs
    assert single > 0
    assert exported(model, torch.randn(5, *shape))[2].total.macs == 5 * single


class Renamed(Odd):
    """The same model with other names for its modules and other names in its code."""

    def __init__(self):
        nn.Module.__init__(self)
        source = Odd()
        self.zeta = source.same
        self.filters = source.kernel
        self.alpha = source.mine
        self.nobody = source.dead
        self.memory = source.lstm

    def forward(self, picture):
        carried = self.zeta(self.zeta(picture)) + picture
        self.nobody(carried)
        mixed = nn.functional.conv2d(carried, self.filters) + self.alpha(carried)
        seen, _ = self.memory(mixed.flatten(2).permute(2, 0, 1))
        return seen.squeeze(1) @ mixed.flatten(2)[0]


def test_names_do_not_count():
    """With tensors and modules renamed every cost, every fold and the digest stay."""
    graph, trace, ledger = made("odd")
    other, renamed, costs = exported(Renamed(), torch.randn(1, 8, 8, 8), observed=VIEWS)
    assert costs.total == ledger.total
    assert other.digest == graph.digest
    assert other.params == graph.params
    first, second = (
        [
            (prediction.convention.tool, prediction.total)
            for prediction in predictions("odd", seen, Setting(), counts)
        ]
        for seen, counts in ((trace, ledger), (renamed, costs))
    )
    assert first == second
