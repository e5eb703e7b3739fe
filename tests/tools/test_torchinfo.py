"""torchinfo's formulas, by hand: parameter elements and the shape of a result."""

import pytest

from crossflops.ir.tensor import TensorSpec
from crossflops.ir.trace import Call, Module, Parameter
from crossflops.tools.formulas.torchinfo import biases, parameters, readable, weights


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


def call(returns, **shapes):
    """A call that returned tensors of these shapes, by place."""
    outputs = tuple(
        TensorSpec(name.removeprefix("_").replace("_", "."), "float32", shape)
        for name, shape in shapes.items()
    )
    return Call(
        key="c",
        parent=None,
        level="module",
        target="my.X",
        module=0,
        outputs=outputs,
        returns=returns,
    )


WEIGHT, BIAS = Parameter("weight", (6, 5), 0), Parameter("bias", (6,), 1)


def test_a_convolution_is_one_by_name():
    """30 weights and 6 biases at 2 x 7 x 7 positions, or for 2 samples."""
    result = call("tensor", _0=(2, 6, 7, 7))
    assert weights(result, module("MyConv", WEIGHT, BIAS)) == 30 * 98
    assert biases(result, module("MyConv", WEIGHT, BIAS)) == 6 * 98
    assert parameters(result, module("Patches", WEIGHT, BIAS)) == 36 * 2


def test_a_name_that_contains_the_word_counts_for_two_axes():
    """weight_hh_l0: 3 steps of 2 samples; what is called otherwise counts nothing."""
    rows = (Parameter("weight_hh_l0", (6, 5), 0), Parameter("gamma", (9,), 1))
    assert parameters(call("tensor", _0=(3, 2, 6)), module("GRU", *rows)) == 30 * 6


def test_one_tensor_under_two_names_counts_once():
    """By its first name."""
    tied = Parameter("weight_too", (6, 5), 0)
    assert parameters(call("tensor", _0=(4, 6)), module("X", WEIGHT, tied)) == 120


def test_of_a_pruned_parameter_the_rest_counts():
    """Under its name before it was pruned, which is that of a convolution's weight."""
    pruned = Parameter("weight_orig", (6, 5), 0, kept=11)
    assert weights(call("tensor", _0=(2, 6, 7, 7)), module("Conv", pruned)) == 11 * 98


@pytest.mark.parametrize(
    ("result", "first"),
    [
        (call("sequence", _0=(4, 6), _1=(9, 9)), 4),
        (call("sequence", _0_0=(3, 6), _0_1=(9, 9), _1=(8, 8)), 3),
        (call("mapping", a=(9, 9), b=(5, 6)), 5),
        (call("mapping", a=(9, 9), b_0=(5, 6), b_1=(7, 7)), 5),
    ],
)
def test_one_shape_stands_for_the_result(result, first):
    """The first tensor of a sequence, of a mapping the first of its last value."""
    assert parameters(result, module("X", WEIGHT)) == 30 * first


def test_torchinfo_fails_where_it_finds_no_axis():
    """No tensor at the first place, or a scalar; a convolution counts once there."""
    for result in (call("tensor", _0=()), call("none"), call("sequence", _1=(4, 6))):
        assert parameters(result, module("Conv", WEIGHT)) == 30
        with pytest.raises(LookupError):
            readable(result, module("X", WEIGHT))


def test_torchinfo_fails_on_objects_and_odd_kernels():
    """What it cannot measure ends it, whether the layer has parameters or not."""
    with pytest.raises(TypeError, match="neither tensors"):
        readable(call("object"), module("X"))
    with pytest.raises(TypeError, match="kernel_size"):
        readable(call("tensor", _0=(1,)), module("X", kernel_size=None))
    assert readable(call("none"), module("X", kernel_size=[3, 3])) == 0
