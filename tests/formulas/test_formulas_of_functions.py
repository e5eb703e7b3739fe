"""Formulas of autograd functions: however a model calls them, and by module and name."""

from pathlib import Path

import pytest

import crossflops

pytestmark = pytest.mark.torch

MODEL = """
import functools

import torch
from torch import nn
from torch.autograd import Function


class Fn(Function):
    @staticmethod
    def forward(ctx, a, b, scale=2.0, causal=False):
        ctx.save_for_backward(a, b)
        return a @ b * scale

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g @ b.T, a.T @ g, None, None


class SetUp(Function):
    @staticmethod
    def forward(a, b, scale=2.0):
        return a @ b * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g @ b.T, a.T @ g, None


TAKEN = Fn.apply


class Product(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.w = nn.Parameter(torch.ones(8, 8))
        self.f = Fn.apply
        self.how = {
            "by name": Fn.apply,
            "of the module": self.f,
            "of the file": TAKEN,
            "partial": functools.partial(TAKEN),
            "set up": SetUp.apply,
        }[how]

    def forward(self, x):
        return self.how(x, self.w)


class Named(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(8, 8))

    def forward(self, x):
        return Fn.apply(x, self.w, 3.0, True)
"""
OTHER = """
import torch
from torch import nn
from torch.autograd import Function

import functions37


class Fn(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a @ b

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g @ b.T, a.T @ g


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.v = nn.Parameter(torch.ones(8, 8)), nn.Parameter(torch.ones(8, 4))
        self.first, self.second = functions37.Fn.apply, Fn.apply

    def forward(self, x):
        return self.second(self.first(x, self.w), self.v)
"""
OWN = """
import crossflops
from crossflops import Cost, Gradient


def back(call, wanted):
    return Gradient({name: Cost(macs={"a": 10, "b": 100}[name]) for name in wanted})


@crossflops.operator("own::Fn", module="functions37:Fn", backward=back)
def fn(call):
    assert call.input("a").shape == (3, 8)
    assert call.input("b").shape == (8, 8)
    return Cost(macs=7 + call.attributes["causal"] * int(call.attributes["scale"]))

"""
OWN_SET_UP = """
import crossflops


@crossflops.operator("own::SetUp", module="functions37:SetUp")
def set_up(call):
    assert call.input("a").shape == (3, 8)
    assert call.attributes == {"scale": 2.0}
    return crossflops.Cost(macs=9)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the models and the formulas."""
    monkeypatch.syspath_prepend(str(tmp_path))
    texts = {"functions37": MODEL, "others37": OTHER, "own37": OWN, "set37": OWN_SET_UP}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


def step_of(target: str, own: Path, **arguments: str) -> tuple[int, int, int]:
    """Return the MACs of a training step: forward, and the gradients of inputs and of weights."""
    report = crossflops.count(target, ["3x8"], train=True, formulas=[own], arguments=arguments)
    assert not report.uncounted
    training = report.training
    assert not training.uncounted
    return training.forward_macs, training.backward_input_macs, training.backward_weight_macs


@pytest.mark.parametrize("how", ["by name", "of the module", "of the file", "partial"])
def test_a_formula_holds_however_the_function_is_applied(folder: Path, how: str) -> None:
    """`Fn.apply`, or what a model took of it before; x has no gradient, the weight has."""
    assert step_of("functions37:Product", folder / "own37.py", how=how) == (7, 0, 100)


def test_the_backward_of_the_function_is_there_without_one_of_the_formula(folder: Path) -> None:
    """Both products of 3 x 8 x 8 run, whatever is asked for; its operands have their names."""
    step = step_of("functions37:Product", folder / "set37.py", how="set up")
    assert step == (9, 3 * 8 * 8, 3 * 8 * 8)


def test_plain_arguments_have_their_names(folder: Path) -> None:
    """A factor of 3, which the formula adds where it is causal."""
    assert step_of("functions37:Named", folder / "own37.py") == (7 + 3, 0, 100)


def test_another_function_of_the_name_has_no_formula(folder: Path) -> None:
    """The second, of 3 x 8 x 4, is counted as it is, forward and back."""
    product = 3 * 8 * 4
    assert step_of("others37:Both", folder / "own37.py") == (7 + product, product, 100 + product)
