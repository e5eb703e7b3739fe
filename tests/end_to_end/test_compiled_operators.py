"""Operators in C++ next to all tools, with and without a formula, forward and in a training step.

The layer is 8 x 6 x 6 = 288 MACs, a product of its result with 4 x 6 is 8 x 6 x 4 = 192. No tool
sees into an operator that is a loop in C++; of one that calls PyTorch they see what it calls.
"""

import shutil
import sys

import pytest

import crossflops
from tests.models import Apply, nn, torch

pytestmark = [
    pytest.mark.tools,
    pytest.mark.skipif(shutil.which("g++") is None, reason="there is no compiler"),
    pytest.mark.skipif(sys.platform == "win32", reason="the flags are those of g++"),
]
LAYER, PRODUCT = 8 * 6 * 6, 8 * 6 * 4

EXTENSION = """
#include <torch/library.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
using at::Tensor;
Tensor product(const Tensor& x, const Tensor& w, double scale) { return at::linear(x, w); }
std::tuple<Tensor, Tensor> pair(const Tensor& x, const Tensor& w) {
  return {at::linear(x, w), at::relu(at::linear(x, w))};
}
Tensor loop(const Tensor& x, const Tensor& w) {
  auto a = x.contiguous(), b = w.contiguous(), y = at::empty({x.size(0), w.size(0)}, x.options());
  const int64_t n = x.size(0), m = w.size(0), d = x.size(1);
  float *p = a.data_ptr<float>(), *q = b.data_ptr<float>(), *r = y.data_ptr<float>();
  for (int64_t i = 0; i < n; i++) for (int64_t j = 0; j < m; j++) {
    r[i * m + j] = 0;
    for (int64_t k = 0; k < d; k++) r[i * m + j] += p[i * d + k] * q[j * d + k];
  }
  return y;
}
void fill(const Tensor& x, const Tensor& w, Tensor out) { out.copy_(at::linear(x, w)); }
TORCH_LIBRARY(compiled37, m) {
  m.def("product(Tensor x, Tensor w, float scale=2.0) -> Tensor");
  m.def("pair(Tensor x, Tensor w) -> (Tensor, Tensor)");
  m.def("loop(Tensor x, Tensor w) -> Tensor");
  m.def("fill(Tensor x, Tensor w, Tensor(a!) out) -> ()");
}
TORCH_LIBRARY_IMPL(compiled37, CPU, m) {
  m.impl("product", &product);
  m.impl("pair", &pair);
  m.impl("loop", &loop);
  m.impl("fill", &fill);
}
"""

FORMULAS = """
from crossflops import Cost, Gradient, operator


def back(call, wanted):
    macs = sum(result.numel for result in call.outputs) * call.input("x").shape[1]
    return Gradient({name: Cost(macs=macs) for name in wanted})


@operator("compiled37::product", backward=back)
@operator("compiled37::pair", backward=back)
@operator("compiled37::loop", backward=back)
def product(call):
    return Cost(macs=sum(result.numel for result in call.outputs) * call.input("x").shape[1])


@operator("compiled37::fill", backward="none")
def fill(call):
    return Cost(macs=call.input("out").numel * call.input("x").shape[1])
"""


@pytest.fixture(scope="module")
def formulas(tmp_path_factory):
    """Compile the operators, and return the path of their formulas."""
    from torch.utils.cpp_extension import load_inline

    folder = tmp_path_factory.mktemp("compiled")
    load_inline(
        "compiled37", EXTENSION, is_python_module=False, build_directory=str(folder),
        extra_cflags=["-O0"], no_implicit_headers=True,
    )  # fmt: skip

    def fake_product(x, w, scale=2.0):
        return x.new_empty(x.shape[0], w.shape[0])

    def keep(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])
        ctx.further = len(inputs) - 2

    def differentiate(ctx, *gradients):
        x, w = ctx.saved_tensors
        total = sum(gradients)
        return total @ w, total.t() @ x, *([None] * ctx.further)

    for name in ("product", "loop"):
        torch.library.register_fake(f"compiled37::{name}")(fake_product)
    torch.library.register_fake("compiled37::pair")(
        lambda x, w: (fake_product(x, w), fake_product(x, w))
    )
    torch.library.register_fake("compiled37::fill")(lambda x, w, out: None)
    for name in ("product", "loop", "pair"):
        torch.library.register_autograd(f"compiled37::{name}", differentiate, setup_context=keep)
    path = folder / "own.py"
    path.write_text(FORMULAS)
    return path


class Opaque(torch.autograd.Function):
    """A function whose two passes are the loop in C++."""

    @staticmethod
    def forward(ctx, x, w):
        """Multiply."""
        ctx.save_for_backward(x, w)
        return torch.ops.compiled37.loop(x, w)

    @staticmethod
    def backward(ctx, gradient):
        """Multiply with both factors."""
        x, w = ctx.saved_tensors
        loop = torch.ops.compiled37.loop
        return loop(gradient, w.t()), loop(gradient.t(), x.t())


class Leaf(nn.Module):
    """A module around an operator."""

    def __init__(self, function):
        super().__init__()
        self.function, self.w = function, nn.Parameter(torch.ones(4, 6))

    def forward(self, x):
        """Apply it to the weight."""
        return self.function(x, self.w)


def fill_new_tensor(x, w):
    """Return what an operator writes, and a product that has a gradient."""
    out = x.new_zeros(8, 4)
    torch.ops.compiled37.fill(x.detach(), w.detach(), out)
    return out + x @ w.t()


def multiplied_twice(x, w):
    """Return two calls of an operator with other arguments."""
    return sum(torch.ops.compiled37.product(x, w, scale) for scale in (2.0, 3.0))


class Model(nn.Module):
    """A layer, and the sum of all functions, each in nested modules."""

    def __init__(self):
        super().__init__()
        functions = (
            multiplied_twice,
            lambda x, w: sum(torch.ops.compiled37.pair(x, w)),
            lambda x, w: torch.ops.compiled37.loop(x, w),
            lambda x, w: Opaque.apply(x, w),
            fill_new_tensor,
        )
        self.layer = nn.Linear(6, 6, bias=False)
        self.leaves = nn.ModuleList(
            nn.Sequential(nn.Sequential(Leaf(function), nn.Tanh())) for function in functions
        )

    def forward(self, x):
        """Add what all of them make of the layer's result."""
        x = self.layer(x)
        return sum(leaf(x) for leaf in self.leaves)


# Two calls, the two results of a pair, the loop twice, what fill writes; and a product next to it.
COUNTED, PLAIN = (2 + 2 + 1 + 1 + 1) * PRODUCT, PRODUCT
TRAINING = {"calflops", "deepspeed", "torch-flop-counter", "torch-profiler"}
TOOLS = TRAINING | {
    "calflops-macs", "deepspeed-macs", "fvcore", "onnx-opcounter", "onnx-tool", "ptflops-aten",
    "ptflops-pytorch", "thop", "torchinfo", "torchprofile",
}  # fmt: skip
FAILS = {"onnx-tool", "onnx-opcounter"}  # neither of them knows an operator of another domain


@pytest.mark.parametrize("train", [False, True], ids=["forward", "train"])
def test_all_tools_are_explained(train, formulas):
    """A residual of 0 for each tool, without formulas and with them."""
    tools = TRAINING if train else TOOLS
    for own in ([], [formulas]):
        report = crossflops.compare(
            Model(), ["8x6"], train=train, formulas=own, isolate=False, tools=sorted(tools)
        )
        assert report.macs == LAYER + PLAIN + (COUNTED if own else 0)
        assert len(report.uncounted) == (0 if own else 6)
        assert report.residuals == dict.fromkeys(tools - FAILS, 0)
        if train and own:
            step = report.training
            products = 2 * (COUNTED - PRODUCT + PLAIN)
            assert step.uncounted == ()
            assert step.backward_input_macs + step.backward_weight_macs == products + LAYER


def test_lines_to_write_of_an_operator_that_writes(formulas):
    """The reason names the operator of the model, and the lines its operands."""
    report = crossflops.count(Apply(lambda s, x: fill_new_tensor(x, torch.ones(4, 6))), ["8x6"])
    (row,) = report.uncounted
    assert "crossflops_written" not in row.reason + row.stub
    assert "its kernel for CPU is compiled" in row.reason
    assert '@crossflops.operator("compiled37::fill"' in row.stub
