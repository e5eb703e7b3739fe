"""Tools that are handed the formulas of the caller, and what they print then.

The layer is 8 x 6 x 6 = 288 MACs. The formula of the operator is 8 x 6 x 4 = 192 MACs and 8 x 4
adds, that of the module 12 MACs for each of its 8 x 6 elements, 576.
"""

import importlib
import json
import sys

import pytest

import crossflops
from crossflops.cli import main
from crossflops.errors import CrossflopsWarning, InputError

pytestmark = pytest.mark.tools

MODEL = """
import torch
from torch import nn

if not hasattr(torch.ops.taught37, "product"):
    LIBRARY = torch.library.Library("taught37", "FRAGMENT")
    LIBRARY.define("product(Tensor x, Tensor w, int times=1) -> Tensor")
    LIBRARY.impl("product", lambda x, w, times=1: x @ w.t(), "CompositeExplicitAutograd")
    LIBRARY.define("taken_apart(Tensor x, Tensor w) -> Tensor")
    LIBRARY.impl("taken_apart", lambda x, w: x @ w.t(), "CompositeImplicitAutograd")

    @torch.library.custom_op("taught37::graded", mutates_args=())
    def graded_product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x @ w.t()

    @graded_product.register_fake
    def _(x, w):
        return x.new_empty(x.shape[0], w.shape[0])

    graded_product.register_autograd(
        lambda ctx, dy: (dy @ ctx.saved_tensors[1], dy.t() @ ctx.saved_tensors[0]),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )


if not hasattr(torch.ops.taught38, "repeated"):
    FURTHER = torch.library.Library("taught38", "FRAGMENT")
    FURTHER.define("repeated(Tensor x, *, Tensor? bias=None, int times=2) -> Tensor")
    FURTHER.impl(
        "repeated", lambda x, bias=None, times=2: x.clone(), "CompositeExplicitAutograd"
    )


class ByKeyword(nn.Module):
    def forward(self, x):
        op = torch.ops.taught38.repeated
        return op(x) + op(x, times=1) + op(x, bias=x[0], times=3)


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6, bias=False)

    def forward(self, x):
        return x * torch.sigmoid(self.inner(x))


class Repeat(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6, bias=False)

    def forward(self, x, times=1):
        for _ in range(times):
            x = self.inner(x)
        return x


class Repeated(nn.Module):
    def __init__(self, **named):
        super().__init__()
        self.repeat, self.named = Repeat(), named

    def forward(self, x):
        return self.repeat(x, **self.named) if self.named else self.repeat(x, 3)


def repeated_by_keyword():
    return Repeated(times=3)


class Model(nn.Module):
    def __init__(self, operator="product"):
        super().__init__()
        self.operator = operator
        self.layer = nn.Linear(6, 6, bias=False)
        self.weight = nn.Parameter(torch.ones(4, 6))

    def forward(self, x):
        return getattr(torch.ops.taught37, self.operator)(self.layer(x), self.weight)


def graded_model():
    return Model("graded")


def apart():
    return Model("taken_apart")


def gated():
    return nn.Sequential(nn.Linear(6, 6, bias=False), Gate())


def twice():
    gate = Gate()
    return nn.Sequential(gate, nn.Sequential(gate))
"""

FORMULAS = """
import crossflops
from crossflops import Cost, Gradient


def back(call, wanted):
    n, d = call.input("x").shape
    return Gradient({name: Cost(macs=n * d * call.input("w").shape[0]) for name in wanted})


@crossflops.operator("taught37::product", backward=back)
def product(call):
    n, d = call.input("x").shape
    rows = call.input("w").shape[0]
    return Cost(macs=n * d * rows, adds=n * rows * call.attributes["times"])


@crossflops.operator("taught37::graded", backward=back)
def count_graded(call):
    return Cost(macs=call.result.numel * call.input("x").shape[1], adds=call.result.numel)


@crossflops.operator("taught37::gate", module="taught_model:Gate", backward="none")
def gate(call):
    assert call.input("inner.weight").shape == (6, 6)
    return Cost(macs=12 * call.input("x").numel)
"""
REPEAT = """

@crossflops.operator("taught37::repeat", module="taught_model:Repeat", backward="none")
def repeat(call):
    return Cost(macs=call.attributes["times"] * call.input("x").numel * 6)
"""

LAYER, PRODUCT, GATE = 288, 192, 576
OPERATOR_TOOLS = ("fvcore", "torch-flop-counter", "ptflops-aten")
MODULE_TOOLS = ("thop", "ptflops-pytorch")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the current folder, which has the model and the formulas."""
    (tmp_path / "taught_model.py").write_text(MODEL)
    (tmp_path / "own.py").write_text(FORMULAS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("taught_model", None)


def compare(name, tools, **more):
    """Return the report of a model whose tools are taught; all residuals are 0."""
    report = crossflops.compare(
        f"taught_model:{name}",
        ["8x6"],
        tools=list(tools),
        formulas=["own.py"],
        teach_tools=True,
        **{"isolate": False, **more},
    )
    assert report.residuals == dict.fromkeys(tools, 0), report.profiles
    return report


def totals(report):
    """Return what each tool prints."""
    return {profile.tool: profile.total for profile in report.profiles}


def taught(report, tool):
    """Return the calls for which a tool uses each formula that it took."""
    (profile,) = (profile for profile in report.profiles if profile.tool == tool)
    return {lesson.formula: lesson.calls for lesson in profile.taught if not lesson.refused}


def test_operators(folder):
    """2 for each MAC and the adds in FLOPs; MACs alone where the tool prints MACs."""
    report = compare("Model", OPERATOR_TOOLS)
    assert totals(report) == {
        "fvcore": LAYER + PRODUCT,
        "torch-flop-counter": 2 * (LAYER + PRODUCT) + 8 * 4,
        "ptflops-aten": LAYER + PRODUCT,
    }
    steps = report.reconciliation("torch-flop-counter").explanations
    assert ("operator.taught", 32) in [(step.cause, step.amount) for step in steps]
    for tool in OPERATOR_TOOLS:
        assert taught(report, tool) == {"taught37::product": 1, "taught37::graded": 0}


BY_KEYWORD = """
@crossflops.operator("taught38::repeated")
def repeated_product_cost(call):
    macs = call.attributes["times"] * call.input("x").numel
    return Cost(macs=macs + 1000 * call.has_input("bias"))
"""


def test_keywords_of_an_operator(folder):
    """Of three calls with 2, 1 and 3 times 48 MACs, and 1000 for a bias; the hook of ptflops gets
    no arguments by keyword, so each is the default of 2 times there.
    """
    (folder / "own.py").write_text(FORMULAS + BY_KEYWORD)
    report = compare("ByKeyword", OPERATOR_TOOLS)
    assert report.macs == (2 + 1 + 3) * 48 + 1000
    assert totals(report) == {
        "fvcore": 6 * 48 + 1000,
        "torch-flop-counter": 2 * (6 * 48 + 1000),
        "ptflops-aten": 3 * 2 * 48,
    }


def test_modules(folder):
    """ptflops divides by the batch of 8."""
    report = compare("gated", MODULE_TOOLS)
    assert totals(report) == {"thop": LAYER + GATE, "ptflops-pytorch": (LAYER + GATE) // 8}
    assert report.macs == LAYER + GATE
    assert not report.reconciliation("thop").explanations
    assert taught(report, "thop") == {"taught37::gate": 1}


def test_plain_arguments_of_a_module(folder):
    """A hook is given those by position; one by keyword has its default there, which is 1."""
    (folder / "own.py").write_text(FORMULAS + REPEAT)
    report = compare("Repeated", MODULE_TOOLS)
    assert report.macs == 3 * LAYER
    assert totals(report) == {"thop": 3 * LAYER, "ptflops-pytorch": 3 * LAYER // 8}
    report = compare("repeated_by_keyword", MODULE_TOOLS)
    assert report.macs == 3 * LAYER
    assert totals(report) == {"thop": LAYER, "ptflops-pytorch": LAYER // 8}


def test_a_pattern_is_not_given_to_a_tool(folder):
    """A tool takes the name of an operator; crossflops itself counts by the pattern."""
    (folder / "own.py").write_text(FORMULAS.replace("taught37::product", "taught37::prod*"))
    report = compare("Model", OPERATOR_TOOLS)
    assert report.macs == LAYER + PRODUCT
    for profile in report.profiles:
        (refused,) = (row.refused for row in profile.taught if row.formula == "taught37::prod*")
        assert refused.endswith("accepts the names of operators, not a pattern for names")


def test_the_root_of_thop(folder):
    """thop adds the rule of the root to what the modules in it have."""
    report = compare("Gate", MODULE_TOOLS)
    assert totals(report) == {"thop": GATE + LAYER, "ptflops-pytorch": GATE // 8}


def test_a_module_of_two_parents(folder):
    """Two chains of parents: thop hooks it twice, and sums its two calls twice."""
    assert totals(compare("twice", ["thop"])) == {"thop": 2 * 2 * 2 * GATE}


def test_a_formula_for_what_no_mode_sees(folder):
    """PyTorch takes such an operator apart, the tool counts its product, a warning names it."""
    (folder / "own.py").write_text(FORMULAS.replace("taught37::product", "taught37::taken_apart"))
    with pytest.warns(CrossflopsWarning, match="of taught37::taken_apart .* no call of the model"):
        report = compare("apart", ["torch-flop-counter"])
    assert totals(report) == {"torch-flop-counter": 2 * (LAYER + PRODUCT)}
    assert taught(report, "torch-flop-counter")["taught37::taken_apart"] == 0


def test_training_step(folder):
    """The formula forwards; backwards two products of each, the layer's only for its weight."""
    report = compare("graded_model", ["torch-flop-counter"], train=True)
    products = 2 * (LAYER + PRODUCT) + 2 * LAYER + 2 * 2 * PRODUCT
    assert totals(report) == {"torch-flop-counter": products + 8 * 4}


def test_what_a_tool_does_not_take_is_named(folder):
    """Each tool says why."""
    report = compare("Model", ["thop", "torchinfo"])
    refused = {
        profile.tool: {lesson.refused for lesson in profile.taught if lesson.refused}
        for profile in report.profiles
    }
    modules_only = (
        "custom_ops of thop.profile accepts only modules, but this formula is for an operator"
    )
    assert refused == {
        "thop": {modules_only},
        "torchinfo": {"the tool has no mechanism for formulas of users"},
    }


def test_in_workers(folder):
    """An object travels by pickle to processes of its own."""
    taught_model = importlib.import_module("taught_model")
    report = crossflops.compare(
        taught_model.Model(),
        [taught_model.torch.zeros(8, 6)],
        tools=["torch-flop-counter"],
        formulas=["own.py"],
        teach_tools=True,
    )
    assert totals(report) == {"torch-flop-counter": 2 * (LAYER + PRODUCT) + 8 * 4}


def test_command(folder, capsys):
    """Workers are forked, and the file has the lessons, which need no formulas to be shown."""
    arguments = "compare taught_model:Model --input 8x6 --teach-tools --tool ptflops-aten"
    assert main([*arguments.split(), "--formulas", "own.py", "-o", "report.json"]) == 0
    (profile,) = json.loads((folder / "report.json").read_text())["profiles"]
    lesson, *_ = profile["taught"]
    assert profile["total"] == LAYER + PRODUCT
    assert (lesson["formula"], lesson["calls"]) == ("taught37::product", 1)
    assert len(lesson["origin"]["digest"]) == 64
    (folder / "own.py").unlink()
    capsys.readouterr()
    assert main(["render", "report.json"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "taught taught37::product (own.py, sha256" in text
    assert "not taught taught37::gate: custom_modules_hooks" in text


def test_without_formulas(folder, capsys):
    """There is nothing to teach."""
    with pytest.raises(InputError, match="--teach-tools has no effect"):
        crossflops.compare("taught_model:Model", ["8x6"], tools=["thop"], teach_tools=True)
    assert main(["compare", "taught_model:Model", "--input", "8x6", "--teach-tools"]) == 2
    assert "--formulas" in capsys.readouterr().err
