"""Models whose sizes, or whose path, depend on the values of their inputs."""

import random
import weakref

import numpy as np
import pytest

import crossflops
from crossflops import Report
from crossflops.errors import NormalizeError
from crossflops.frontends.pytorch.record import (
    data_dependence,
    executed_products,
    open_size_limit,
    tracing,
)
from crossflops.frontends.seeds import seeding_random_generators
from crossflops.ir.measurement import Run
from crossflops.ir.trace import Setting
from tests.models import Apply, F, nn, torch

pytestmark = pytest.mark.torch
DIM = 8


class Masked(nn.Module):
    """Experts that take the rows of a boolean mask: the export has a graph, and open sizes."""

    def __init__(self, experts=4):
        super().__init__()
        self.gate = nn.Linear(DIM, experts, bias=False)
        self.experts = nn.ModuleList(nn.Linear(DIM, DIM) for _ in range(experts))

    def forward(self, x):
        """Two experts for every row."""
        chosen = self.gate(x).topk(2).indices
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            mask = (chosen == number).any(-1)
            out[mask] += expert(x[mask])
        return out


class Looped(Masked):
    """Experts in a loop over those that were chosen: no export follows it."""

    def forward(self, x):
        """One expert for every row."""
        chosen = self.gate(x).argmax(-1)
        out = torch.zeros_like(x)
        for number in chosen.unique().tolist():
            out[chosen == number] = self.experts[number](x[chosen == number])
        return out


class Exit(nn.Module):
    """Layers until the result is small."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(DIM, DIM, bias=False) for _ in range(5))
        for layer in self.layers:
            nn.init.eye_(layer.weight)

    def forward(self, x):
        """The layers halve their input, which leaves at a mean below 1."""
        for layer in self.layers:
            x = layer(x) / 2
            if x.mean() < 1:
                break
        return x


class Collapse(nn.Module):
    """A CTC decoder: repeated labels and blanks go, then each label is looked up and projected."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, DIM)
        self.out = nn.Linear(DIM, 3)

    def forward(self, labels):
        """One row for each label that stays."""
        distinct = torch.unique_consecutive(labels)
        return self.out(self.table(distinct[distinct != 0]))


class Messages(nn.Module):
    """A graph network: loops are dropped, and there are as many nodes as the edges name."""

    def __init__(self):
        super().__init__()
        self.message = nn.Linear(DIM, DIM)
        self.out = nn.Linear(DIM, 3)

    def forward(self, x, edges):
        """Messages along the edges, added up at their ends."""
        edges = edges[:, edges[0] != edges[1]]
        nodes = int(edges.max()) + 1
        sums = torch.zeros(nodes, DIM).index_add(0, edges[1], self.message(x[edges[0]]))
        return self.out(sums)


class Unlike(nn.Module):
    """Takes another path while it is exported, as libraries do."""

    def __init__(self):
        super().__init__()
        self.mixer = nn.Linear(DIM, DIM)
        self.other = nn.Linear(DIM, 4 * DIM)

    def forward(self, x):
        """Exported, it does four times the work."""
        if torch.compiler.is_exporting():
            return self.other(x)[..., :DIM]
        return self.mixer(x)


def rows(number=10):
    """Rows drawn from a seed of their own."""
    return torch.randn(number, DIM, generator=torch.Generator().manual_seed(3))


# Derived by hand from what each model does with these values.
LABELS = torch.tensor([0, 3, 3, 0, 5, 5, 5, 3, 0])  # collapse to 3, 5, 3
EDGES = torch.tensor([[0, 1, 2, 2, 4], [1, 1, 0, 3, 3]])  # 1 -> 1 is a loop: 4 edges, 5 nodes
CASES = {
    # the gate for 10 rows of 4 experts, then 20 rows in any experts
    "a boolean mask": (Masked(), (rows(),), 10 * 4 * DIM + 20 * DIM * DIM),
    "experts in a loop": (Looped(), (rows(),), 10 * 4 * DIM + 10 * DIM * DIM),
    # a mean of 3 is 1.5, then 0.75: two layers
    "an early exit": (Exit(), (torch.full((2, DIM), 3.0),), 2 * 2 * DIM * DIM),
    "unique": (Collapse(), (LABELS,), 3 * DIM * 3),
    # 1 + 3 + 2 rows
    "rows that are repeated as often as values say": (
        Apply(
            lambda s, x, times: s.layer(torch.repeat_interleave(x, times, dim=0)),
            layer=nn.Linear(DIM, 3),
        ),
        (rows(3), torch.tensor([1, 3, 2])),
        6 * DIM * 3,
    ),
    "a graph network": (Messages(), (rows(5), EDGES), 4 * DIM * DIM + 5 * DIM * 3),
    "padding that is read": (
        Apply(
            lambda s, x, m: s.a(x) if m.all() else s.b(x), a=nn.Linear(DIM, 2), b=nn.Linear(DIM, 5)
        ),
        (rows(4), torch.ones(4)),
        4 * DIM * 2,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_run_on_the_inputs_decides(name):
    """Nothing stays uncounted, the products are those of these values, and this is said."""
    model, inputs, macs = CASES[name]
    report = crossflops.count(model, inputs)
    assert (report.macs, report.uncounted) == (macs, ())
    assert report.observed.runtime.startswith("PyTorch")
    assert report.observed.inputs == "the inputs that were given"
    assert report.observed.notes == ()
    marked = [node.node for node in report.nodes if node.depends_on_inputs is True]
    assert 0 < len(marked) <= len(report.nodes)
    assert Report.from_json(report.to_json()) == report


def test_what_runs_before_a_size_depends_on_values_is_not_marked():
    """The gate of the experts has 10 rows whatever the values are; the experts have not."""
    report = crossflops.count(Masked(), (rows(),))
    products = {node.path: node for node in report.nodes if node.macs}
    assert products.pop("gate").depends_on_inputs is not True
    assert products
    assert all(node.depends_on_inputs is True for node in products.values())


def test_rows_that_a_mask_chooses_are_marked_where_python_asks_for_their_number():
    """torch.where(mask) asks for values without PyTorch's tag."""

    def run(s, x):
        (rows,) = torch.where(x[:, 0] > 0)
        return s.layer(x[rows]) if rows.numel() else x

    model = Apply(run, layer=nn.Linear(4, 3, bias=False))
    report = crossflops.count(model, [torch.ones(5, 4)])
    (product,) = (node for node in report.nodes if node.macs)
    assert product.depends_on_inputs is True


def test_other_values_give_other_sizes():
    """The same model on labels that do not repeat: five rows, not three."""
    labels = torch.tensor([1, 2, 3, 4, 5])
    assert crossflops.count(Collapse(), (labels,)).macs == 5 * DIM * 3


def test_rows_go_to_the_experts_that_the_weights_choose():
    """Routing is that of the real weights: a row each, by hand from the gate's own result."""
    torch.manual_seed(5)
    model, x = Looped(), rows(12)
    chosen = model.gate(x).argmax(-1).bincount(minlength=4).tolist()
    report = crossflops.count(model, (x,))
    by_path = {row.path: row.macs for row in report.modules}
    assert [by_path[f"experts.{n}"] for n in range(4)] == [times * DIM * DIM for times in chosen]


def test_without_values_it_stays_uncounted():
    """On the meta device there is no run: sizes are unknown, and named."""
    with torch.device("meta"):
        model = Masked()
    report = crossflops.count(model, (rows().to("meta"),))
    assert report.uncounted
    assert not isinstance(report.observed, Run)
    assert all(node.depends_on_inputs is not True for node in report.nodes)


def layer(taken):
    """A model of one product for each of the rows that `taken` takes of its input."""
    return Apply(lambda s, x: s.a(taken(x)), a=nn.Linear(DIM, 2))


def ones(value=1.0):
    """One number for each of 40 rows."""
    return torch.full((40,), value)


def seven():
    """A generator that does not hang on PyTorch's."""
    return torch.Generator().manual_seed(7)


# How many of 40 rows a model takes that draws them. What PyTorch draws at seed 0 does not hang
# on the model: the expected number is that of a plain run.
DRAWN = {
    "rand": lambda x: x[torch.rand(40) > 0.5],
    "a mask of dropout": lambda x: x[F.dropout(ones(), 0.5, training=True) > 0],
    "bernoulli": lambda x: x[torch.bernoulli(ones(0.3)).bool()],
    "in place": lambda x: x[torch.empty(40).uniform_().mul_(2) > 0.9],
    "randperm": lambda x: x[: int(torch.randperm(40)[3])],
    "multinomial": lambda x: x[torch.multinomial(ones(), 9, replacement=True).unique()],
    "a generator of its own": lambda x: x[torch.rand(40, generator=seven()) > 0.5],
    "several in a row": lambda x: F.dropout(x, 0.5, True)[torch.rand(40) > 0.3][
        : int(torch.randint(5, 20, ()))
    ],
    "numpy": lambda x: x[torch.from_numpy(np.random.rand(40) > 0.5)],
    "a size of numpy": lambda x: x[: np.random.randint(5, 30)],
    "a size of Python": lambda x: x[: random.randint(5, 30)],
}


@pytest.mark.parametrize("name", DRAWN)
def test_what_is_drawn_is_what_a_run_from_seed_0_draws(name):
    """The sizes are those of such a run, the report says so, and nobody's generator moves."""
    model, x = layer(DRAWN[name]), rows(40)
    with seeding_random_generators():
        kept = len(model(x))
    before = torch.get_rng_state(), np.random.get_state()[2], random.getstate()
    report = crossflops.count(model, (x,))
    assert (report.macs, report.uncounted) == (kept * DIM * 2, ())
    own = "its own random generator"
    origin = own if name == "a generator of its own" else "random numbers (from seed 0"
    assert any(origin in note for note in report.observed.notes)
    after = torch.get_rng_state(), np.random.get_state()[2], random.getstate()
    assert torch.equal(after[0], before[0])
    assert after[1:] == before[1:]


def test_a_model_that_draws_its_sizes_says_so():
    """Of 40 numbers that PyTorch draws from seed 0, 16 are above a half."""
    report = crossflops.count(layer(DRAWN["rand"]), (rows(40),))
    assert report.macs == 16 * DIM * 2
    assert any("random" in note for note in report.observed.notes)


def test_nothing_but_empty_tensors_is_joined():
    """No row is taken: the join of what is empty is the model's result, and no work."""
    model = Apply(
        lambda s, x: (torch.cat([x[x[:, 0] > 9][:, 0]] * 2), s.a(x)), a=nn.Linear(DIM, 2)
    )
    report = crossflops.count(model, (rows(4),))
    assert (report.macs, report.uncounted) == (4 * DIM * 2, ())


def test_a_branch_behind_an_open_size_depends_on_it_too():
    """Products in the branches of torch.cond have the rows that a mask leaves: two of three."""
    mask = torch.tensor([True, False, True])
    model = Apply(
        lambda s, x, m: torch.cond(x.sum() > 0, lambda y: s.a(y), lambda y: s.a(s.a(y)), (x[m],)),
        a=nn.Linear(DIM, DIM),
    )
    report = crossflops.count(model, (rows(3), mask))
    products = [node for node in report.nodes if node.macs]
    assert {node.macs for node in products} == {2 * DIM * DIM}
    assert all(node.depends_on_inputs is True for node in products)


def test_tools_draw_what_is_counted():
    """Every run begins at seed 0, so the tools see as many rows, and residuals are 0."""
    tools = ["torch-flop-counter", "torch-profiler", "fvcore", "thop"]
    report = crossflops.compare(layer(DRAWN["rand"]), (rows(40),), tools=tools, isolate=False)
    assert report.residuals == dict.fromkeys(sorted(tools), 0)


def test_weights_that_choose_the_path_are_drawn_alike(tmp_path):
    """A target is built from one seed in every process: another build takes the same path."""
    file = tmp_path / "experts.py"
    file.write_text(
        "import torch\n"
        "class Experts(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.gate = torch.nn.Linear(8, 2)\n"
        "        self.experts = torch.nn.ModuleList([torch.nn.Linear(8, n) for n in (8, 64)])\n"
        "    def forward(self, x):\n"
        "        chosen = self.gate(x).argmax(-1)\n"
        "        return [one(x[chosen == n]) for n, one in enumerate(self.experts)]\n"
    )
    counts = [crossflops.count(f"{file}:Experts", "50x8").macs for _ in range(2)]
    assert counts[0] == counts[1]
    tools = ["torch-flop-counter"]
    report = crossflops.compare(f"{file}:Experts", "50x8", tools=tools)
    assert (report.macs, report.residuals) == (counts[0], {"torch-flop-counter": 0})


def test_what_is_counted_is_what_runs():
    """A model that asks whether it is exported is counted as it runs."""
    report = crossflops.count(Unlike(), (rows(),))
    assert report.macs == 10 * DIM * DIM
    assert {row.path: row.macs for row in report.modules}["other"] == 0


def test_an_operator_whose_fake_kernel_refuses_is_counted_as_it_runs():
    """10 rows, each by its group's 8 x 4: float32 is refused by the shapes' kernel alone."""

    def forward(self, x):
        if torch.compiler.is_exporting():
            return self.a(x)
        return torch._grouped_mm(x, self.weight, offs=torch.tensor([3, 10], dtype=torch.int32))

    model = Apply(forward, a=nn.Linear(DIM, 4 * DIM))
    model.weight = nn.Parameter(torch.randn(2, DIM, 4))
    report = crossflops.count(model, (rows(),))
    assert (report.macs, report.uncounted) == (10 * DIM * 4, ())


def test_asking_without_doing_other_products_changes_nothing():
    """The export stays as it is where a run executes the same products."""
    model = Apply(
        lambda s, x: s.a(x) * (2 if torch.compiler.is_compiling() else 1), a=nn.Linear(DIM, 2)
    )
    report = crossflops.count(model, (rows(),))
    assert report.macs == 10 * DIM * 2
    assert not isinstance(report.observed, Run)


def test_tools_see_the_same_path():
    """Residual 0 for every tool that is part of PyTorch, on a model that no export takes."""
    tools = ["torch-flop-counter", "torch-profiler"]
    report = crossflops.compare(Looped(), (rows(),), tools=tools, isolate=False)
    answered = {profile.tool: getattr(profile, "total", None) for profile in report.profiles}
    assert report.residuals == {tool: 0 for tool, total in answered.items() if total is not None}
    assert report.uncounted == ()


def test_settings_that_are_scalars_of_numpy():
    """np.float64 is a kind of float that JSON does not take; np.int64 is none."""
    model = nn.Sequential(
        nn.Linear(np.int64(DIM), np.int64(4)),
        nn.LeakyReLU(np.float64(0.1)),
        nn.Dropout(np.float64(0.5)),
    )
    report = crossflops.count(model, (rows(),))
    assert report.macs == 10 * DIM * 4
    assert Report.from_json(report.to_json()) == report


@pytest.mark.parametrize("size", [(2, 3, 5, 7), (2, 3, 5, 7, 4)])
def test_a_grid_is_a_product(size):
    """theta (d x d+1) times each point of the base grid: N * prod(points) * d * (d + 1)."""
    dims = len(size) - 2
    model = Apply(lambda s, t: torch.nn.functional.affine_grid(t, size, align_corners=False))
    report = crossflops.count(model, (torch.randn(2, dims, dims + 1),))
    points = int(np.prod(size[2:]))
    assert (report.macs, report.uncounted) == (2 * points * dims * (dims + 1), ())


def test_a_list_of_tensors_is_read_by_the_values_given():
    """Ends 2 and 4: three rows of 8x3 weights."""

    def forward(self, x, ends):
        bounds = torch.tensor([ends.min(), ends.max() - 1])
        return self.layer(x[: int(bounds[1])])

    model = Apply(forward, layer=nn.Linear(DIM, 3))
    report = crossflops.count(model, (rows(), torch.tensor([2, 4])))
    assert (report.macs, report.uncounted) == (3 * DIM * 3, ())


def test_a_number_in_text_is_that_of_the_run():
    """The expert is chosen by a name that is made of a tensor: 8x5 weights, not 8x3."""

    def forward(self, x, which):
        return getattr(self, f"expert_{which:02d}")(x)

    model = Apply(forward, expert_01=nn.Linear(DIM, 3), expert_02=nn.Linear(DIM, 5))
    assert crossflops.count(model, (rows(), torch.tensor(2))).macs == 10 * DIM * 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_layer_is_cast_within_a_forward(dtype):
    """Ten rows of 8x3 weights, and the model stays as it was."""
    layer = nn.Linear(DIM, 3)
    model = Apply(lambda self, x: self.layer.to(dtype)(x.to(dtype)), layer=layer)
    report = crossflops.count(model, (rows(),))
    assert (report.macs, report.params) == (10 * DIM * 3, DIM * 3 + 3)
    assert layer.weight.dtype is torch.float32


def test_a_path_that_nobody_could_check_is_said(monkeypatch):
    """The path of a run is taken, and the reader is told that no run was held against it."""
    monkeypatch.setattr(
        executed_products, "run_model_and_count_product_flops", lambda *_, **__: 1 / 0
    )
    report = crossflops.count(Unlike(), (rows(),))
    assert report.macs == 10 * DIM * DIM
    assert any("could not check" in n and "division by zero" in n for n in report.observed.notes)


class Sloped(nn.Module):
    """Two layers; with `slope` the second runs only where the first one has a gradient."""

    def __init__(self, slope):
        super().__init__()
        self.first, self.second = nn.Linear(DIM, DIM), nn.Linear(DIM, 3)
        self.slope = slope
        self.kept = None

    def forward(self, x):
        """The hidden values are seen by no name once the second layer has run."""
        hidden = self.first(x).exp()
        self.kept = weakref.ref(hidden)
        if self.slope:
            try:
                torch.autograd.grad(hidden.sum(), self.first.weight)
            except Exception:
                return hidden
        result = self.second(hidden)
        del hidden
        self.alive = self.kept() is not None
        return result


@pytest.mark.parametrize("slope", [False, True])
def test_a_checked_run_keeps_no_tensors_unless_the_model_reads_them(slope):
    """Ten rows of 8x8 and 8x3 weights. A model that catches the error is run with its tensors."""
    run = executed_products.run_model_and_count_product_flops
    model = Sloped(slope)
    if slope:
        with pytest.raises(executed_products.SavedTensorsNeededError):
            run(model, (rows(),), {}, saves_tensors=False)
    else:
        ran = run(model, (rows(),), {}, saves_tensors=False)
        assert ran == {"first": 2 * 10 * DIM * DIM, "second": 2 * 10 * DIM * 3}
        assert not model.alive
    # The gradient of the first weights is one more product of 10 rows with 8 x 8 values.
    ran = run(model, (rows(),), {}, saves_tensors=True)
    assert (ran["first"], ran["second"]) == (2 * 10 * DIM * DIM, 2 * 10 * DIM * 3)
    assert sum(ran.values()) == 2 * 10 * DIM * (DIM * (1 + slope) + 3)
    assert model.alive


def test_why_the_values_did_not_help_is_said():
    """Both reasons in one line: a value that is asked for, and then PyTorch is left."""

    def forward(self, x):
        return x if x.sum() > 0 and x.data_ptr() else -x

    reasons = r"data-dependent.*; a trace with the values of tensors also fails: .*data"
    with pytest.raises(NormalizeError, match=reasons) as caught:
        crossflops.count(Apply(forward), (torch.ones(3),))
    assert "\n" not in caught.value.message


def test_what_works_in_place_works_once():
    """A sum of 3 is read: 3 times the layer on 2 rows. Added twice it would be 6."""

    def forward(s, x):
        total = torch.zeros_like(x).index_add_(0, torch.tensor([0, 1]), x)
        for _ in range(int(total.sum())):
            x = s.a(x)
        return x

    x = torch.zeros(2, DIM)
    x[0, 0] = 3
    model = Apply(forward, a=nn.Linear(DIM, DIM))
    assert crossflops.count(model, (x,)).macs == 3 * 2 * DIM * DIM


class Caught(nn.Module):
    """Rows of a mask, twenty times, each with a larger layer instead where it raises."""

    def __init__(self):
        super().__init__()
        self.small = nn.Linear(DIM, DIM, bias=False)
        self.large = nn.Linear(DIM, 100 * DIM, bias=False)

    def forward(self, x):
        """The sum of all results."""
        total = x.new_zeros(())
        for _ in range(20):
            try:
                total = total + self.small(x[x[:, 0] > -9]).sum()
            except RuntimeError:
                total = total + self.large(x).sum()
        return total


@pytest.mark.parametrize("limit", [open_size_limit.OPEN_SIZES, 1000])
def test_many_open_sizes_end_the_export_without_values(monkeypatch, limit):
    """The count, and what is said to depend on values, are the same without that limit."""
    monkeypatch.setattr(open_size_limit, "OPEN_SIZES", limit)
    torch.manual_seed(0)
    model, x = Masked(experts=20), torch.randn(6, DIM)
    report = crossflops.count(model, x)
    # the gate for six rows, and two experts for each of them
    assert report.macs == 6 * DIM * 20 + 6 * 2 * DIM * DIM
    depending = {node.path for node in report.nodes if node.depends_on_inputs and node.macs}
    chosen = set(model.gate(x).topk(2).indices.flatten().tolist())
    assert depending == {f"experts.{number}" for number in chosen}


def test_an_export_without_values_follows_if_values_do_not_help(monkeypatch):
    """Beyond the limit of open sizes, and with no export with values, the sizes stay open."""
    monkeypatch.setattr(tracing, "_export_with_real_values", lambda asked: "it raised ValueError")
    trace = tracing.export_with_values_if_needed(
        tracing.ExportRequest(Masked(experts=20), (torch.randn(6, DIM),), {}, Setting())
    )
    assert trace.notes[-1] == "real values did not help: it raised ValueError"
    assert any(
        is_open for _, is_open in data_dependence.tensor_operators_with_size_flags(trace.program)
    )


@pytest.mark.parametrize("values_help", [True, False])
def test_a_model_that_catches_the_error_of_the_limit_takes_its_usual_path(
    monkeypatch, values_help
):
    """No layer stands in for the one that the model runs, also if values do not help."""
    if not values_help:
        monkeypatch.setattr(tracing, "_export_with_real_values", lambda request: "it raised")
    trace = tracing.export_with_values_if_needed(
        tracing.ExportRequest(Caught(), (torch.randn(6, DIM),), {}, Setting())
    )
    called = {node.args[1].name for node in trace.program.graph.nodes if "linear" in node.name}
    assert called == {"p_small_weight"}


def test_a_result_that_no_node_reads_is_not_kept_while_a_program_is_decomposed():
    """The result of `copy_` shares its storage with all that it was written to."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import PropagateUnbackedSymInts, ShapeEnv

    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.ops.aten.mul.Tensor, (x, x))
    unread = graph.call_function(torch.ops.aten.copy_.default, (y, x))
    graph.output(graph.call_function(torch.ops.aten.neg.default, (y,)))
    with FakeTensorMode(shape_env=ShapeEnv()), data_dependence.replaying_random_values({}):
        interpreter = PropagateUnbackedSymInts(torch.fx.GraphModule({}, graph))
        assert interpreter.run(torch.ones(3)).shape == (3,)
    assert interpreter.env[unread] is None
