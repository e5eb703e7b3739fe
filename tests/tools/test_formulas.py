"""Named formulas on calls written by hand."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossflops.rules.conditions import input_elements, output_elements
from crossflops.tools import contractions, fvcore, thop
from tests.tools.amounts import amount


@pytest.mark.parametrize(
    ("target", "source", "weight", "result", "expected"),
    [
        ("aten.conv2d.default", (1, 3, 16, 16), (8, 3, 3, 3), (1, 8, 16, 16), 55296),
        ("aten.conv2d.default", (4, 3, 16, 16), (8, 3, 3, 3), (4, 8, 16, 16), 221184),
        ("aten.conv2d.default", (3, 16, 16), (8, 3, 3, 3), (8, 16, 16), 55296),
        ("aten.conv2d.default", (1, 8, 16, 16), (16, 2, 3, 3), (1, 16, 16, 16), 73728),
        ("aten.conv1d.default", (1, 4, 40), (8, 4, 3), (1, 8, 40), 3840),
        ("aten.conv_transpose2d.input", (1, 8, 8, 8), (8, 4, 3, 3), (1, 4, 16, 16), 18432),
        ("aten.conv_transpose2d.input", (1, 8, 8, 8), (8, 2, 3, 3), (1, 4, 16, 16), 9216),
    ],
)
def test_a_convolution_is_positions_times_weights(target, source, weight, result, expected):
    """Output positions, or input positions when transposed; groups are in the weight."""
    macs = amount(
        contractions.exact_convolution_macs, target, {"input": source, "weight": weight}, [result]
    )
    assert macs == expected


def test_a_general_convolution_says_whether_it_is_transposed():
    """aten.convolution has a flag instead of a name."""
    inputs = {"input": (1, 8, 8, 8), "weight": (8, 4, 3, 3)}
    for transposed, expected in ((True, 64 * 288), (False, 256 * 288)):
        flag = {"transposed": transposed}
        name = "aten.convolution.default"
        result = [(1, 4, 16, 16)]
        assert (
            amount(contractions.exact_convolution_macs, name, inputs, result, call_settings=flag)
            == expected
        )


@pytest.mark.parametrize(
    ("name", "inputs", "result", "expected"),
    [
        (
            contractions.exact_linear_macs,
            {"input": (2, 10, 64), "weight": (32, 64)},
            (2, 10, 32),
            40960,
        ),
        (contractions.exact_linear_macs, {"input": (64,), "weight": (32, 64)}, (32,), 2048),
        (contractions.exact_linear_macs, {"input": (4, 64), "weight": (64,)}, (4,), 256),
        (
            contractions.exact_matmul_macs,
            {"self": (6, 8), "other": (2, 4, 8, 10)},
            (2, 4, 6, 10),
            3840,
        ),
        (contractions.exact_matmul_macs, {"self": (8,), "other": (8, 10)}, (10,), 80),
        (contractions.exact_matmul_macs, {"self": (8,), "other": (8,)}, (), 8),
        (
            contractions.exact_matmul_macs,
            {"self": (10, 4), "mat1": (10, 8), "mat2": (8, 4)},
            (10, 4),
            320,
        ),
        (
            contractions.exact_matmul_macs,
            {"self": (1,), "batch1": (2, 5, 8), "batch2": (2, 8, 4)},
            (2, 5, 4),
            320,
        ),
        (contractions.exact_tensordot_macs, {"self": (3, 4, 5), "other": (4, 5, 6)}, (3, 6), 360),
        (
            contractions.exact_attention_macs,
            {"query": (2, 4, 10, 8), "key": (2, 4, 7, 8), "value": (2, 4, 7, 6)},
            (2, 4, 10, 6),
            2 * 4 * 10 * 7 * (8 + 6),
        ),
        (input_elements, {"self": (2, 3, 4)}, (2,), 24),
        (output_elements, {"self": (2, 3, 4)}, (2, 5), 10),
        (fvcore.fvcore_matmul_macs, {"self": (6, 8), "other": (2, 4, 8, 10)}, (2, 4, 6, 10), 480),
        (fvcore.fvcore_matmul_macs, {"self": (5, 8), "mat2": (8, 3)}, (5, 3), 120),
        (fvcore.fvcore_norm_elements, {"input": (2, 8, 4)}, (2, 8, 4), 64),
    ],
)
def test_products_by_their_shapes(name, inputs, result, expected):
    """Derived by hand; fvcore loses batch axes that only the second operand has."""
    assert amount(name, "aten.x.default", inputs, [result]) == expected


def test_recurrent_layers_are_steps_times_weights():
    """Every matrix of every layer and direction once per sample-step, biases not.

    LSTM 16 to 32, two layers, one direction: 10 * (128*16 + 128*32 + 128*32 + 128*32).
    """
    inputs = {
        "input": (5, 2, 16),
        "hx.0": (2, 2, 32),
        "params.0": (128, 16),
        "params.1": (128, 32),
        "params.2": (128,),
        "params.3": (128, 32),
        "params.4": (128, 32),
    }
    macs = amount(contractions.exact_recurrent_macs, "aten.lstm.input", inputs, [(5, 2, 32)])
    assert macs == 10 * 128 * (16 + 3 * 32)


@pytest.mark.parametrize(
    ("name", "inputs", "more"),
    [
        (contractions.exact_convolution_macs, {"weight": (8, 3, 3, 3)}, {}),
        (contractions.exact_linear_macs, {"input": (2, 3)}, {}),
        (input_elements, {}, {}),
        (fvcore.fvcore_matmul_macs, {"self": (10, 8), "other": (8,)}, {}),
        (fvcore.fvcore_norm_elements, {"input": (2, 3, 4, 5, 6, 7)}, {}),
        (fvcore.fvcore_norm_elements, {"input": (2,)}, {}),
        (thop.thop_linear_macs, {"0": (2, 3)}, {}),
        (thop.thop_convolution_macs, {"x": (1, 3, 4, 4)}, {"groups": 1}),
        (thop.thop_0_0_31_adaptive_average_operations, {"0": (1, 8, 16, 16)}, {}),
    ],
)
def test_where_the_tool_fails_there_is_no_number(name, inputs, more):
    """A tensor that is missing, or a rank that the tool refuses, raises LookupError."""
    with pytest.raises(LookupError):
        amount(name, "aten.x.default", inputs, [(2, 3)], **more)


@given(st.lists(st.integers(1, 10**9), min_size=2, max_size=5))
def test_amounts_are_exact_at_any_size(shape):
    """No float is on the way from shapes to an amount."""
    *rows, inner = shape
    inputs = {"input": tuple(shape), "weight": (10**9 + 7, inner)}
    assert amount(contractions.exact_linear_macs, "aten.linear.default", inputs, [()]) == prod(
        shape
    ) * (10**9 + 7)
    result = [(*rows, 10**9 + 7)]
    operands = {"self": tuple(shape), "other": (inner, 10**9 + 7)}
    assert amount(contractions.exact_matmul_macs, "aten.matmul.default", operands, result) == prod(
        shape
    ) * (10**9 + 7)
