"""Operators, modules and functions of PyTorch: by formulas, by their bodies, or with the lines."""

import shutil
import sys
from pathlib import Path

import pytest

import crossflops
from crossflops.cli import main

pytestmark = pytest.mark.torch

MODEL = """
import torch
from torch import nn

if not hasattr(torch.ops.formulas37, "scan"):
    @torch.library.custom_op("formulas37::scan", mutates_args=())
    def scan(x: torch.Tensor, w: torch.Tensor, steps: int = 3) -> torch.Tensor:
        h = torch.zeros_like(x)
        for _ in range(steps):
            h = torch.tanh(h @ w + x)
        return h

    @scan.register_fake
    def _(x, w, steps=3):
        return torch.empty_like(x)

    @torch.library.custom_op("formulas37::graded", mutates_args=())
    def graded(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x @ w)

    @graded.register_fake
    def _(x, w):
        return x.new_empty(x.shape[0], w.shape[1])

    def setup(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    def back(ctx, gradient):
        x, w, y = ctx.saved_tensors
        gradient = gradient * (1 - y * y)
        return gradient @ w.T, x.T @ gradient

    graded.register_autograd(back, setup_context=setup)

    @torch.library.custom_op("formulas37::valued", mutates_args=())
    def valued(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        kept = x[: int((x.sum() * 0).item()) + 2]
        return (kept @ w).sum(0)

    @valued.register_fake
    def _(x, w):
        return x.new_empty(w.shape[1])

    LIBRARY = torch.library.Library("formulas37", "FRAGMENT")
    LIBRARY.define("held(Tensor x, Tensor w) -> Tensor")
    LIBRARY.impl("held", lambda x, w: x @ w, "CompositeExplicitAutograd")


class Weighted(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w = nn.Parameter(torch.ones(8, width))
        self.lin = nn.Linear(8, 8)


class Scan(Weighted):
    def __init__(self):
        super().__init__(8)

    def forward(self, x):
        return self.lin(torch.ops.formulas37.scan(x, self.w, 5))


class Graded(Weighted):
    def __init__(self):
        super().__init__(6)

    def forward(self, x):
        return torch.ops.formulas37.graded(self.lin(x), self.w)


class Valued(Weighted):
    def __init__(self):
        super().__init__(6)

    def forward(self, x):
        return torch.ops.formulas37.valued(x, self.w)


class Held(Weighted):
    def __init__(self):
        super().__init__(6)

    def forward(self, x):
        return torch.ops.formulas37.held(x, self.w)


class Att(nn.Module):
    heads = 2

    def __init__(self):
        super().__init__()
        self.width, self.q = 8, nn.Linear(8, 8)

    def forward(self, x, mask=None):
        return self.q(x) @ self.q.weight


class Steps(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.mode, self.causal = nn.Linear(8, 8), "stored", True

    def forward(self, x, steps, mask=None, *, mode=None, causal=False, scale=0.5, sizes=()):
        for _ in range(steps):
            x = self.q(x) * scale
        return x


class Stepped(nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = Steps()

    def forward(self, x):
        x = self.steps(x, 2)
        return self.steps(x, steps=3, mode="given", causal=False, sizes=[4, 5])


class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g @ b.T, a.T @ g


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.p = Att(), Att(), nn.Parameter(torch.ones(8, 3))

    def forward(self, x):
        return Fn.apply(self.second(self.first(x)), self.p)
"""
# 3 rows of 8: each of 5 steps multiplies 3 x 8 x 8, as the linear layer does
SCAN, LINEAR = 5 * 3 * 8 * 8, 3 * 8 * 8


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A file of models with operators of their own."""
    (tmp_path / "models37.py").write_text(MODEL)
    return str(tmp_path / "models37.py")


def written(model: str, text: str) -> str:
    """Return the path of a file of formulas beside the models."""
    path = Path(model).with_name("own.py")
    path.write_text(f"import crossflops\nfrom crossflops import Cost, Gradient\n\n{text}")
    return str(path)


def test_a_scan_is_counted_by_its_body(model: str) -> None:
    """The products of its steps, and the report says by what; the digest stays that of a call."""
    report = crossflops.count(f"{model}:Scan", ["3x8"])
    assert (SCAN, LINEAR) == (960, 192)
    assert report.macs == SCAN + LINEAR
    assert not report.uncounted
    (row,) = report.custom_operators
    assert (row.op, row.by, row.run) == ("torch.ops.formulas37.scan.default", "body", "fake")
    assert (row.calls, row.macs, row.exactness) == (1, SCAN, "exact")
    assert sum(node.macs for node in report.nodes) == SCAN + LINEAR


def test_a_formula_goes_over_the_body(model: str) -> None:
    """With names, types and defaults of the schema."""
    own = written(
        model,
        '@crossflops.operator("formulas37::scan")\n'
        "def scan(call):\n"
        "    assert call.names == ('x', 'w')\n"
        "    return Cost(macs=1000 + call.attributes['steps'])\n",
    )
    report = crossflops.count(f"{model}:Scan", ["3x8"], formulas=[own])
    assert report.macs == 1005 + LINEAR
    assert [row.by for row in report.custom_operators] == ["formula"]


def test_a_kernel_of_a_library_in_python_is_opened(model: str) -> None:
    """`Library.impl` with a function of Python, which no definition holds."""
    report = crossflops.count(f"{model}:Held", ["3x8"])
    assert report.macs == 3 * 8 * 6
    assert [row.by for row in report.custom_operators] == ["body"]


def test_a_body_that_reads_values_is_run_for_real(model: str) -> None:
    """Two rows are kept, whatever the numbers are: 2 x 8 x 6."""
    report = crossflops.count(f"{model}:Valued", ["3x8"], weights="real")
    assert report.macs == 2 * 8 * 6
    assert [(row.by, row.run) for row in report.custom_operators] == [("body", "real")]


def test_the_own_backward_of_an_operator_is_in_its_step_once(model: str) -> None:
    """`register_autograd` multiplies twice; the linear layer before it has no input gradient."""
    step = crossflops.count(f"{model}:Graded", ["4x8"], train=True).training
    product = 4 * 8 * 6
    assert step.forward_macs == 4 * 8 * 8 + product
    assert step.backward_input_macs == product
    assert step.backward_weight_macs == 4 * 8 * 8 + product
    assert not step.uncounted


def test_the_backward_of_a_formula_goes_over_all_others(model: str) -> None:
    """By operand, between, and run again."""
    own = written(
        model,
        "def back(call, wanted):\n"
        "    assert wanted == {'x', 'w'}\n"
        "    return Gradient({'x': Cost(macs=5), 'w': Cost(macs=7)}, recomputed=Cost(macs=11))\n"
        '@crossflops.operator("formulas37::graded", backward=back)\n'
        "def graded(call):\n"
        "    return Cost(macs=3)\n",
    )
    step = crossflops.count(f"{model}:Graded", ["4x8"], train=True, formulas=[own]).training
    linear = 4 * 8 * 8
    assert step.forward_macs == linear + 3
    assert (step.backward_input_macs, step.backward_weight_macs) == (5, linear + 7)
    assert step.recomputed_macs == 11


def test_a_formula_of_a_module_sees_the_arguments_of_its_call(model: str) -> None:
    """The arguments of the call by position or keyword, then attributes of the module, then
    defaults.
    """
    own = written(
        model,
        '@crossflops.operator("own::Steps", module="models37:Steps", backward="none")\n'
        "def steps(call):\n"
        "    seen = call.attributes\n"
        "    first = 'stored', True, 0.5, None\n"
        "    second = 'given', False, 0.5, (4, 5)\n"
        "    expected = first if seen['steps'] == 2 else second\n"
        "    found = seen['mode'], seen['causal'], seen['scale'], seen.get('sizes')\n"
        "    assert found == expected, found\n"
        "    assert 'mask' not in seen\n"
        "    return Cost(macs=seen['steps'] * call.input('x').numel * 8)\n",
    )
    report = crossflops.count(f"{model}:Stepped", ["3x8"], formulas=[own])
    assert report.macs == 5 * 3 * 8 * 8
    assert [row.calls for row in report.custom_operators] == [2]


def test_a_module_and_a_function_are_one_node_each(model: str) -> None:
    """With arguments, weights and settings by name; what is inside counts nowhere else."""
    own = written(
        model,
        '@crossflops.operator("own::Att", module="models37:Att", backward="none")\n'
        "def att(call):\n"
        "    assert call.input('x').shape == (3, 8), call.names\n"
        "    assert call.input('q.weight').shape == (8, 8), call.names\n"
        "    return Cost(macs=call.attributes['width'])\n"
        '@crossflops.operator("own::Fn", module="models37:Fn")\n'
        "def fn(call):\n"
        "    assert call.input('b').shape == (8, 3), call.names\n"
        "    return Cost(macs=11)\n",
    )
    report = crossflops.count(f"{model}:Whole", ["3x8"], formulas=[own])
    assert report.macs == 8 + 8 + 11
    assert [node.op for node in report.nodes] == ["own.Att", "own.Att", "own.Fn"]
    assert report.warnings == ()


def test_processes_side_by_side_have_the_formulas(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`table --jobs` spawns them."""
    own = written(
        model,
        '@crossflops.operator("formulas37::scan")\ndef scan(call):\n    return Cost(macs=9)\n',
    )
    target = f"{model}:Scan"
    words = ["table", target, target, "--input", "3x8", "--jobs", "2", "--json"]
    assert main([*words, "--formulas", own]) == 0
    assert capsys.readouterr().out.count(f'"macs": {LINEAR + 9}') == 2


CHECKED = """
def plain(x, w, steps):
    import torch
    h = torch.zeros_like(x)
    for _ in range(steps):
        h = torch.tanh(h @ w + x)
    return h

def back(call, wanted):
    n, d = call.input("x").shape
    s = call.attributes["steps"]
    return Gradient({"w": Cost(macs=s * n * d * d)}, inner=Cost(macs=(s - 1) * n * d * d))

@crossflops.operator(
    "formulas37::scan", reference=plain, backward=back,
    shapes={"x": "n d", "w": "d d", "steps": [1, 2]},
)
def scan(call):
    n, d = call.input("x").shape
    s = call.attributes["steps"]
    return Cost(macs=s * n * d * d, adds=s * n * d, specials=s * n * d)
"""


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("", "", ""),
        (
            "Cost(macs=s * n * d * d, a",
            "Cost(macs=s * n * n * d * d, a",
            "not linear in the batch",
        ),
        (
            "Cost(macs=s * n * d * d, a",
            "Cost(macs=s * n * d * d // 1 + 1, a",
            "the reference does",
        ),
        ("inner=Cost(macs=(s - 1)", "inner=Cost(macs=(s + 1)", "autograd of the reference runs"),
        ("Cost(macs=s * n * d * d, a", "Cost(macs=s * n * d / 1, a", "returns macs="),
        ("reference=plain,", "", "has shapes=, but no reference="),
    ],
)
def test_a_formula_is_held_against_its_reference(
    model: str, old: str, new: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that agrees ends with 0; each mistake is told, and ends with 1."""
    own = written(model, CHECKED.replace(old, new, 1) if old else CHECKED)
    status = main(["check-formula", own, "--cases", "2"])
    written_out = capsys.readouterr()
    shown = " ".join((written_out.out + written_out.err).split())
    assert says in shown
    expected = 0 if not says else 2 if "no reference" in says else 1
    assert status == expected, shown


EXTENSION = """
#include <torch/library.h>
#include <ATen/ops/matmul.h>
at::Tensor twice(const at::Tensor& x, const at::Tensor& w, double scale) {
  return at::matmul(x, w);
}
TORCH_LIBRARY(extension37, m) { m.def("twice(Tensor x, Tensor w, float scale=2.0) -> Tensor"); }
TORCH_LIBRARY_IMPL(extension37, CPU, m) { m.impl("twice", &twice); }
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no compiler")
@pytest.mark.skipif(sys.platform == "win32", reason="the flags are those of g++")
def test_a_compiled_operator_comes_with_its_lines(model: str, tmp_path: Path) -> None:
    """It is named with where it was compiled, and counted after the lines are pasted."""
    import torch
    from torch.utils.cpp_extension import load_inline

    load_inline(
        "extension37", EXTENSION, is_python_module=False, build_directory=str(tmp_path),
        extra_cflags=["-O0"], no_implicit_headers=True,
    )  # fmt: skip
    torch.library.register_fake("extension37::twice")(
        lambda x, w, scale=2.0: x.new_empty(x.shape[0], w.shape[1])
    )

    class Twice(torch.nn.Module):
        def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = torch.ops.extension37.twice(x, w)
            return result

    inputs = (torch.zeros(4, 8), torch.zeros(8, 5))
    report = crossflops.count(Twice(), inputs)
    (row,) = report.uncounted
    assert "its kernel for CPU is compiled" in row.reason
    assert "main.cpp" in row.reason
    assert 'a, b = call.input("x").shape  # x: 4x8 float32' in row.stub
    assert 'scale = call.attributes["scale"]  # 2.0' in row.stub
    own = tmp_path / "pasted.py"
    own.write_text(row.stub.replace("macs=...", "macs=a * b * c"))
    assert crossflops.count(Twice(), inputs, formulas=[own]).macs == 4 * 8 * 5


def test_the_formula_of_the_page_holds(tmp_path: Path) -> None:
    """The formula of docs/formulas.md agrees with its reference."""
    from crossflops.testing.formulas import assert_formulas_hold

    page = (Path(__file__).parents[2] / "docs" / "formulas.md").read_text(encoding="utf-8")
    file = tmp_path / "formulas.py"
    file.write_text(page.partition("```python\n")[2].partition("```")[0])
    assert_formulas_hold(file, cases=2)
