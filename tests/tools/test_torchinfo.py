"""torchinfo's formulas, by hand: parameter elements and the shape of a result."""

import pytest

from crossflops.ir.graph import TensorSpec
from crossflops.ir.trace import Call, Module, Parameter, Setting, Trace
from crossflops.rules.conditions import Site
from crossflops.tools.torchinfo import (
    reject_unreadable_result,
    torchinfo_bias_multiply_adds,
    torchinfo_parameter_multiply_adds,
    torchinfo_weight_multiply_adds,
)


def module(name, *params, **settings):
    """A layer of this class."""
    return Module(
        id=0,
        names=("",),
        bases=(f"my.{name}",),
        params=params,
        children=(),
        training=False,
        settings=settings,
    )


def call(row, returns, **shapes):
    """A call of this layer that returned tensors of these shapes, by place."""
    outputs = tuple(
        TensorSpec(name.removeprefix("_").replace("_", "."), "float32", shape)
        for name, shape in shapes.items()
    )
    made = Call(
        key="c",
        parent=None,
        level="module",
        target="my.X",
        module=0,
        outputs=outputs,
        returns=returns,
    )
    return Site(made, Trace(calls=(made,), modules=(row,), setting=Setting()))


WEIGHT, BIAS = Parameter("weight", (6, 5), 0), Parameter("bias", (6,), 1)


def test_a_convolution_is_one_by_name():
    """30 weights and 6 biases at 2 x 7 x 7 positions, or for 2 samples."""
    shape = (2, 6, 7, 7)
    by_name = call(module("MyConv", WEIGHT, BIAS), "tensor", _0=shape)
    assert torchinfo_weight_multiply_adds(by_name) == 30 * 98
    assert torchinfo_bias_multiply_adds(by_name) == 6 * 98
    assert (
        torchinfo_parameter_multiply_adds(
            call(module("Patches", WEIGHT, BIAS), "tensor", _0=shape)
        )
        == 36 * 2
    )


def test_a_name_that_contains_the_word_counts_for_two_axes():
    """weight_hh_l0: 3 steps of 2 samples; what is called otherwise counts nothing."""
    rows = (Parameter("weight_hh_l0", (6, 5), 0), Parameter("gamma", (9,), 1))
    assert (
        torchinfo_parameter_multiply_adds(call(module("GRU", *rows), "tensor", _0=(3, 2, 6)))
        == 30 * 6
    )


def test_one_tensor_under_two_names_counts_once():
    """By its first name."""
    tied = Parameter("weight_too", (6, 5), 0)
    assert (
        torchinfo_parameter_multiply_adds(call(module("X", WEIGHT, tied), "tensor", _0=(4, 6)))
        == 120
    )


def test_of_a_pruned_parameter_the_rest_counts():
    """Under its name before it was pruned, which is that of a convolution's weight."""
    pruned = Parameter("weight_orig", (6, 5), 0, kept=11)
    assert (
        torchinfo_weight_multiply_adds(call(module("Conv", pruned), "tensor", _0=(2, 6, 7, 7)))
        == 11 * 98
    )


@pytest.mark.parametrize(
    ("returns", "shapes", "first"),
    [
        ("sequence", {"_0": (4, 6), "_1": (9, 9)}, 4),
        ("sequence", {"_0_0": (3, 6), "_0_1": (9, 9), "_1": (8, 8)}, 3),
        ("mapping", {"a": (9, 9), "b": (5, 6)}, 5),
        ("mapping", {"a": (9, 9), "b_0": (5, 6), "b_1": (7, 7)}, 5),
    ],
)
def test_one_shape_stands_for_the_result(returns, shapes, first):
    """The first tensor of a sequence, of a mapping the first of its last value."""
    assert (
        torchinfo_parameter_multiply_adds(call(module("X", WEIGHT), returns, **shapes))
        == 30 * first
    )


def test_torchinfo_fails_where_it_finds_no_axis():
    """No tensor at the first place, or a scalar; a convolution counts once there."""
    for returns, shapes in (("tensor", {"_0": ()}), ("none", {}), ("sequence", {"_1": (4, 6)})):
        assert (
            torchinfo_parameter_multiply_adds(call(module("Conv", WEIGHT), returns, **shapes))
            == 30
        )
        with pytest.raises(LookupError):
            reject_unreadable_result(call(module("X", WEIGHT), returns, **shapes))


def test_torchinfo_fails_on_objects_and_odd_kernels():
    """What it cannot measure ends it, whether the layer has parameters or not."""
    with pytest.raises(TypeError, match="neither tensors"):
        reject_unreadable_result(call(module("X"), "object"))
    with pytest.raises(TypeError, match="kernel_size"):
        reject_unreadable_result(call(module("X", kernel_size=None), "tensor", _0=(1,)))
    assert reject_unreadable_result(call(module("X", kernel_size=[3, 3]), "none")) == 0
