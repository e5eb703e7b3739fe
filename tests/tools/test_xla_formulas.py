"""What XLA counts for an instruction, against loops that do it, and numbers that it printed."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossflops.ir.graph import TensorSpec
from crossflops.ir.trace import Call
from crossflops.rules.rule import Rule, Share
from crossflops.tools.xla import (
    nearest_float32,
    xla_call_flops,
    xla_convolution_macs,
    xla_total_flops,
)

WINDOW = ("size", "stride", "padding_low", "padding_high", "window_dilation", "base_dilation")


def instruction(opcode, results, *operands, **settings):
    """An instruction of these shapes."""
    return Call(
        key=settings.pop("key", "i"),
        parent=None,
        level="lowered",
        target=opcode,
        module=0,
        settings={"nest": [], **settings},
        inputs=tuple(
            TensorSpec(f"operand_{n}", "float32", shape) for n, shape in enumerate(operands)
        ),
        outputs=(TensorSpec("output_0", "float32", results),),
    )


def taps(image, weights, result, window):
    """The taps along one axis that meet an element, by trying every one."""
    met = 0
    for at, tap in product(range(result), range(weights)):
        place = at * window["stride"] - window["padding_low"] + tap * window["window_dilation"]
        inner, hole = divmod(place, window["base_dilation"])
        met += not hole and 0 <= inner < image
    return met


@given(
    image=st.integers(1, 9),
    weights=st.integers(1, 5),
    result=st.integers(1, 9),
    stride=st.integers(1, 4),
    padding=st.integers(-3, 6),
    dilation=st.integers(1, 3),
    holes=st.integers(1, 6),
)
def test_a_convolution_counts_where_its_filter_meets_the_image(
    image, weights, result, stride, padding, dilation, holes
):
    """Taps on padding and between the elements of a dilated image are no multiplications."""
    window = dict(zip(WINDOW, (weights, stride, padding, 0, dilation, holes), strict=True))
    call = instruction(
        "convolution",
        (2, result, 6),
        (2, image, 4),
        (weights, 2, 6),
        window=[window],
        input_batch=0,
        input_feature=2,
        input_spatial=[1],
        kernel_spatial=[0],
        output_feature=2,
        output_spatial=[1],
        feature_groups=2,
        batch_groups=1,
    )
    assert xla_convolution_macs(call) == 2 * 6 * 2 * taps(image, weights, result, window)


@pytest.mark.parametrize(
    ("call", "expected"),
    [  # printed by the analysis of JAX 0.10.2
        (instruction("add", (3, 5), (3, 5), (3, 5)), 15),
        (instruction("exponential", (3, 5), (3, 5)), 0),
        (instruction("broadcast", (3, 5), ()), 0),
        (instruction("sort", (8, 20), (8, 20)), 1280),
        (instruction("fft", (3, 11), (3, 20), fft_length=[20]), 1920),
        (instruction("cholesky", (2, 5, 5), (2, 5, 5)), 83),
        (instruction("triangular-solve", (2, 5, 7), (2, 5, 5), (2, 5, 7)), 700),
        (instruction("custom-call", (8,), (8,)), -1),
        (instruction("reduce", (4,), (8, 4), (), applied=["add"]), 28),
        (instruction("reduce", (4,), (8, 4), (), applied=["exponential", "add"]), 28),
        (instruction("scatter", (8, 4), (8, 4), (3, 1), (3, 4), applied=["add"]), 12),
        (instruction("scatter", (8, 4), (8, 4), (3, 1), (3, 4), applied=[]), 0),
        (instruction("map", (8, 4), (8, 4), (8, 4), applied=["add"]), 32),
        (instruction("all-reduce", (8, 4), (8, 4)), 32),
        (instruction("batch-norm-inference", (8, 4), (8, 4)), 0),
    ],
    ids=lambda value: getattr(value, "target", ""),
)
def test_instructions(call, expected):
    """One for each element, an estimate, or nothing at all."""
    assert xla_call_flops(call) == expected


def pooled(size, stride, low, high, results, image):
    """A window along the last of two axes."""
    plain = dict(zip(WINDOW, (1, 1, 0, 0, 1, 1), strict=True))
    wide = dict(zip(WINDOW, (size, stride, low, high, 1, 1), strict=True))
    return instruction("reduce-window", results, image, (), window=[plain, wide], applied=["add"])


def test_windows():
    """(window - 1) n(out); as printed for a window over all there is: 4 + 8 - 1."""
    assert xla_call_flops(pooled(2, 2, 0, 0, (4, 4), (4, 8))) == 16
    assert xla_call_flops(pooled(8, 1, 7, 0, (4, 8), (4, 8))) == 7 * 32
    assert xla_call_flops(pooled(15, 1, 7, 7, (4, 8), (4, 8))) == 11


@given(st.integers(-(2**62), 2**62))
def test_whole_numbers_are_rounded_once(value):
    """As the processor does when it converts a 64-bit integer."""
    assert nearest_float32(value) == float(np.int64(value).astype(np.float32))


@given(st.floats(width=32, min_value=-(2.0**60), max_value=2.0**60))
def test_sums_are_those_of_single_precision(value):
    """Doubles hold the exact sum of two such numbers, or what rounds alike."""
    other = np.float32(16_777_217.0)
    assert nearest_float32(value + float(other)) == float(np.float32(value) + other)


def shares(*pairs):
    """What would be booked for additions of so many elements in these functions."""
    rule = Rule(id="c", cause="c.c", level="lowered", kind="part")
    booked = []
    for number, (amount, nest) in enumerate(pairs):
        call = instruction("add", (amount,), (amount,), key=str(number), nest=nest)
        booked.append(Share(rule, amount, call))
    return booked


def test_the_order_of_additions():
    """Ones are lost beside a large number, unless a function adds them up first."""
    large, small = (2**24, []), (1, [])
    assert xla_total_flops(shares(large, small, small)) == 2**24
    assert xla_total_flops(shares(small, small, large)) == 2**24 + 2
    assert xla_total_flops(shares(large, (1, ["call"]), (1, ["call"]))) == 2**24 + 2
    assert xla_total_flops(shares(large, (1, ["call"]), (1, ["other"]))) == 2**24
    assert (
        xla_total_flops(shares(large, (1, ["while", "body"]), (1, ["while", "condition"])))
        == 2**24 + 2
    )
    assert xla_total_flops([]) == 0


def test_a_reduction_is_a_product_of_rounded_numbers():
    """Of what the reducer counts, and of how often it is applied."""
    times = 2**24 + 1
    call = instruction("reduce", (), (times + 1,), (), applied=["add", "compare", "select"])
    rule = Rule(id="c", cause="c.c", level="lowered", kind="part")
    assert xla_call_flops(call) == 3 * times
    assert xla_total_flops([Share(rule, xla_call_flops(call), call)]) == 3 * 2**24
