"""What thop's rules compute, by hand."""

import pytest

from crossflops.tools import thop
from tests.tools.amounts import amount

NN = "torch.nn.modules"


@pytest.mark.parametrize(
    ("formula", "kind", "source", "result", "weight", "more", "expected"),
    [
        (
            thop.thop_convolution_macs, "Conv2d", (1, 3, 16, 16), (1, 8, 16, 16), (8, 3, 3, 3),
            {"groups": 1, "in_channels": 3}, 55296,
        ),
        (
            thop.thop_convolution_macs, "Conv2d", (3, 16, 16), (8, 16, 16), (8, 3, 3, 3),
            {"groups": 1, "in_channels": 3}, 294912,
        ),
        (
            thop.thop_0_0_31_convolution_macs, "Conv2d", (3, 16, 16), (8, 16, 16), (8, 3, 3, 3),
            {"groups": 1, "in_channels": 3}, 55296,
        ),
        (
            thop.thop_convolution_macs,
            "ConvTranspose2d", (1, 8, 8, 8), (1, 4, 16, 16), (8, 4, 3, 3),
            {"groups": 1, "in_channels": 8}, 73728,
        ),
        (
            thop.thop_convolution_macs,
            "ConvTranspose2d", (1, 8, 8, 8), (1, 4, 16, 16), (8, 2, 3, 3),
            {"groups": 2, "in_channels": 8}, 36864,
        ),
        (
            thop.thop_linear_macs, "Linear", (2, 10, 64), (2, 10, 32), (32, 64),
            {"in_features": 64}, 40960,
        ),
        (
            thop.thop_softmax_operations,
            "Softmax", (2, 10, 64), (2, 10, 64), None, {"dim": -1}, 3820,
        ),
        (
            thop.thop_adaptive_average_operations,
            "AdaptiveAvgPool2d", (1, 8, 16, 16), (1, 8, 1, 1), None,
            {"output_size": 1}, 2056,
        ),
        (
            thop.thop_adaptive_average_operations,
            "AdaptiveAvgPool2d", (1, 8, 16, 16), (1, 8, 5, 5), None,
            {"output_size": 5}, 2248,
        ),
        (
            thop.thop_0_0_31_adaptive_average_operations,
            "AdaptiveAvgPool2d", (1, 8, 16, 16), (1, 8, 5, 5),
            None, {"output_size": 5}, 2000,
        ),
        (
            thop.thop_0_0_31_adaptive_average_operations,
            "AdaptiveAvgPool2d", (1, 8, 16, 15), (1, 8, 5, 2),
            None, {"output_size": [5, 2]}, (3 * 7 + 1) * 80,
        ),
    ],
)  # fmt: skip
def test_thops_rules_by_module(formula, kind, source, result, weight, more, expected):
    """As thop printed them: by output size, with the second axis for the channels."""
    total = amount(formula, f"{NN}.{kind}", {"0": source}, [result], weight, **more)
    assert total == expected


@pytest.mark.parametrize(
    ("kind", "layers", "both", "expected"),
    [
        ("LSTM", 1, False, 66560),
        ("LSTM", 2, True, 389120),
        ("GRU", 1, False, 50240),
        ("RNN", 1, False, 16320),
    ],
)
def test_thops_recurrent_layers(kind, layers, both, expected):
    """Core, gates and biases of I = 16, H = 32, T = 5, B = 2 add up to what thop printed."""
    more = {"input_size": 16, "hidden_size": 32, "num_layers": layers, "bidirectional": both}
    result = [(5, 2, 32 * (1 + both))]
    parts = {
        name: amount(formula, f"{NN}.rnn.{kind}", {"0": (5, 2, 16)}, result, **more)
        for name, formula in (
            ("macs", thop.thop_recurrent_macs),
            ("gates", thop.thop_gate_operations),
            ("biases", thop.thop_recurrent_bias_adds),
        )
    }
    assert sum(parts.values()) == expected
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    assert parts["biases"] == 10 * layers * (1 + both) * 2 * gates * 32


@pytest.mark.parametrize(
    ("kind", "gates", "terms"), [("RNN", 1, 1), ("GRU", 3, 7), ("LSTM", 4, 8)]
)
def test_thops_cells(kind, gates, terms):
    """One step of B = 5, I = 16, H = 32: g H (I + H), and 2 g H of biases."""
    more = {"input_size": 16, "hidden_size": 32}
    target, inputs = f"{NN}.rnn.{kind}Cell", {"0": (5, 16)}
    amounts = [
        amount(getattr(thop, name), target, inputs, [(5, 32)], **more)
        for name in ("thop_cell_macs", "thop_cell_gate_operations", "thop_cell_bias_adds")
    ]
    assert amounts == [5 * gates * 32 * 48, 5 * terms * 32, 5 * 2 * gates * 32]
