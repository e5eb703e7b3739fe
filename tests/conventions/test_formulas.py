"""Named formulas on calls written by hand."""

import itertools
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossflops.conventions.formulas import formulas
from crossflops.core.tensor import TensorSpec
from crossflops.core.trace import Call, Module, Parameter


def amount(name, target, inputs, outputs, weight=None, call_settings=None, **module_settings):
    """A formula on a call: inputs by name, outputs and the module's weight by shape."""
    call = Call(
        key="call",
        parent=None,
        storey="operator",
        target=target,
        module=0,
        settings=call_settings or {},
        inputs=tuple(TensorSpec(key, "float32", shape) for key, shape in inputs.items()),
        outputs=tuple(TensorSpec("0", "float32", shape) for shape in outputs),
    )
    module = Module(
        id=0,
        names=("",),
        bases=(target,),
        params=(Parameter("weight", weight, 0),) if weight else (),
        children=(),
        training=False,
        settings=module_settings,
    )
    return formulas()[name](call, module)


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
    found = amount("convolution", target, {"input": source, "weight": weight}, [result])
    assert found == expected


def test_a_general_convolution_says_whether_it_is_transposed():
    """aten.convolution has a flag instead of a name."""
    inputs = {"input": (1, 8, 8, 8), "weight": (8, 4, 3, 3)}
    for transposed, expected in ((True, 64 * 288), (False, 256 * 288)):
        flag = {"transposed": transposed}
        name = "aten.convolution.default"
        result = [(1, 4, 16, 16)]
        assert amount("convolution", name, inputs, result, call_settings=flag) == expected


@pytest.mark.parametrize(
    ("name", "inputs", "result", "expected"),
    [
        ("linear", {"input": (2, 10, 64), "weight": (32, 64)}, (2, 10, 32), 40960),
        ("linear", {"input": (64,), "weight": (32, 64)}, (32,), 2048),
        ("linear", {"input": (4, 64), "weight": (64,)}, (4,), 256),
        ("matmul", {"self": (6, 8), "other": (2, 4, 8, 10)}, (2, 4, 6, 10), 3840),
        ("matmul", {"self": (8,), "other": (8, 10)}, (10,), 80),
        ("matmul", {"self": (8,), "other": (8,)}, (), 8),
        ("matmul", {"self": (10, 4), "mat1": (10, 8), "mat2": (8, 4)}, (10, 4), 320),
        ("matmul", {"self": (1,), "batch1": (2, 5, 8), "batch2": (2, 8, 4)}, (2, 5, 4), 320),
        ("tensordot", {"self": (3, 4, 5), "other": (4, 5, 6)}, (3, 6), 360),
        (
            "scaled_dot_product_attention",
            {"query": (2, 4, 10, 8), "key": (2, 4, 7, 8), "value": (2, 4, 7, 6)},
            (2, 4, 10, 6),
            2 * 4 * 10 * 7 * (8 + 6),
        ),
        ("input_elements", {"self": (2, 3, 4)}, (2,), 24),
        ("output_elements", {"self": (2, 3, 4)}, (2, 5), 10),
        ("fvcore.matmul", {"self": (6, 8), "other": (2, 4, 8, 10)}, (2, 4, 6, 10), 480),
        ("fvcore.matmul", {"self": (5, 8), "mat2": (8, 3)}, (5, 3), 120),
        ("fvcore.normalized_elements", {"input": (2, 8, 4)}, (2, 8, 4), 64),
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
    found = amount("recurrent", "aten.lstm.input", inputs, [(5, 2, 32)])
    assert found == 10 * 128 * (16 + 3 * 32)


def einsum(name, equation, *shapes):
    """An einsum by its equation; the result's shape plays no part."""
    inputs = {f"tensors.{place}": shape for place, shape in enumerate(shapes)}
    return amount(name, "aten.einsum.default", inputs, [()], call_settings={"equation": equation})


@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        ("bij,bjk->bik", [(2, 10, 8), (2, 8, 10)], 1600),
        ("ij,j->ij", [(3, 4), (4,)], 0),
        ("ij,jk,kl->il", [(3, 4), (4, 5), (5, 6)], 3 * 4 * 5 + 3 * 5 * 6),
        ("...ij,...jk->...ik", [(2, 3, 4, 5), (2, 3, 5, 6)], 2 * 3 * 4 * 5 * 6),
        ("...ij,jk->...ik", [(7, 4, 5), (5, 6)], 7 * 4 * 5 * 6),
        ("ij, jk", [(3, 4), (4, 5)], 60),
        ("ii", [(3, 3)], 0),
    ],
)
def test_an_einsum_contracts_pair_by_pair(equation, shapes, expected):
    """From left to right; a product without a sum is no contraction."""
    assert einsum("einsum", equation, *shapes) == expected


@pytest.mark.parametrize(
    ("equation", "shapes", "expected"),
    [
        ("abc,abd->acd", [(2, 10, 8), (2, 10, 7)], 2 * 10 * 8 * 7),
        ("xyz,xzw->xwy", [(2, 10, 8), (2, 8, 7)], 2 * 10 * 8 * 7),
        ("nchw,co->nohw", [(2, 3, 4, 5), (3, 6)], 2 * 3 * 4 * 5 * 6),
    ],
)
def test_fvcores_einsum_is_exact_where_four_digits_suffice(equation, shapes, expected):
    """Two equations are known, under any letters; a small cost is printed whole."""
    assert einsum("fvcore.einsum", equation, *shapes) == expected


def test_fvcores_einsum_keeps_four_digits():
    """457 x 2367 x 457 = 494 345 583 MACs are printed as 9.887e+08 operations, and halved."""
    assert einsum("fvcore.einsum", "ij,jk->ik", (457, 2367), (2367, 457)) == 494_350_000


labels = st.sampled_from("abcd")


@given(
    st.lists(labels, max_size=3, unique=True),
    st.lists(labels, max_size=3, unique=True),
    st.data(),
)
@settings(max_examples=60)
def test_an_einsum_of_two_equals_a_loop(left, right, data):
    """One multiply-accumulate per combination of labels, where anything is summed over both.

    Labels of one operand alone that the result does not need are summed before, by additions.
    """
    everything = sorted(set(left) | set(right))
    result = [one for one in everything if data.draw(st.booleans())]
    extent = {one: data.draw(st.integers(1, 3)) for one in everything}
    shared = set(left) & set(right)
    taking_part = [one for one in everything if one in result or one in shared]
    loop = 0
    if any(one not in result for one in taking_part):
        loop = sum(1 for _ in itertools.product(*(range(extent[one]) for one in taking_part)))
    found = einsum(
        "einsum",
        f"{''.join(left)},{''.join(right)}->{''.join(result)}",
        tuple(extent[one] for one in left),
        tuple(extent[one] for one in right),
    )
    assert found == loop


NN = "torch.nn.modules"


@pytest.mark.parametrize(
    ("name", "kind", "source", "result", "weight", "more", "expected"),
    [
        (
            "thop.convolution", "Conv2d", (1, 3, 16, 16), (1, 8, 16, 16), (8, 3, 3, 3),
            {"groups": 1, "in_channels": 3}, 55296,
        ),
        (
            "thop.convolution", "Conv2d", (3, 16, 16), (8, 16, 16), (8, 3, 3, 3),
            {"groups": 1, "in_channels": 3}, 294912,
        ),
        (
            "thop.convolution_by_module", "Conv2d", (3, 16, 16), (8, 16, 16), (8, 3, 3, 3),
            {"groups": 1, "in_channels": 3}, 55296,
        ),
        (
            "thop.convolution", "ConvTranspose2d", (1, 8, 8, 8), (1, 4, 16, 16), (8, 4, 3, 3),
            {"groups": 1, "in_channels": 8}, 73728,
        ),
        (
            "thop.convolution", "ConvTranspose2d", (1, 8, 8, 8), (1, 4, 16, 16), (8, 2, 3, 3),
            {"groups": 2, "in_channels": 8}, 36864,
        ),
        (
            "thop.linear", "Linear", (2, 10, 64), (2, 10, 32), (32, 64),
            {"in_features": 64}, 40960,
        ),
        ("thop.softmax", "Softmax", (2, 10, 64), (2, 10, 64), None, {"dim": -1}, 3820),
        (
            "thop.adaptive_average", "AdaptiveAvgPool2d", (1, 8, 16, 16), (1, 8, 1, 1), None,
            {"output_size": 1}, 2056,
        ),
        (
            "thop.adaptive_average", "AdaptiveAvgPool2d", (1, 8, 16, 16), (1, 8, 5, 5), None,
            {"output_size": 5}, 2248,
        ),
        (
            "thop.adaptive_average_floored", "AdaptiveAvgPool2d", (1, 8, 16, 16), (1, 8, 5, 5),
            None, {"output_size": 5}, 2000,
        ),
        (
            "thop.adaptive_average_floored", "AdaptiveAvgPool2d", (1, 8, 16, 15), (1, 8, 5, 2),
            None, {"output_size": [5, 2]}, (3 * 7 + 1) * 80,
        ),
    ],
)  # fmt: skip
def test_thops_rules_by_module(name, kind, source, result, weight, more, expected):
    """As thop printed them: by output size, with the second axis for the channels."""
    found = amount(name, f"{NN}.{kind}", {"0": source}, [result], weight, **more)
    assert found == expected


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
        name: amount(f"thop.{name}", f"{NN}.rnn.{kind}", {"0": (5, 2, 16)}, result, **more)
        for name in ("recurrent", "recurrent_gates", "recurrent_bias")
    }
    assert sum(parts.values()) == expected
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind]
    assert parts["recurrent_bias"] == 10 * layers * (1 + both) * 2 * gates * 32


@pytest.mark.parametrize(
    ("kind", "gates", "terms"), [("RNN", 1, 1), ("GRU", 3, 7), ("LSTM", 4, 8)]
)
def test_thops_cells(kind, gates, terms):
    """One step of B = 5, I = 16, H = 32: g H (I + H), and 2 g H of biases."""
    more = {"input_size": 16, "hidden_size": 32}
    target, inputs = f"{NN}.rnn.{kind}Cell", {"0": (5, 16)}
    found = [
        amount(f"thop.{name}", target, inputs, [(5, 32)], **more)
        for name in ("cell", "cell_gates", "cell_bias")
    ]
    assert found == [5 * gates * 32 * 48, 5 * terms * 32, 5 * 2 * gates * 32]


@pytest.mark.parametrize(
    ("name", "inputs", "more"),
    [
        ("convolution", {"weight": (8, 3, 3, 3)}, {}),
        ("linear", {"input": (2, 3)}, {}),
        ("input_elements", {}, {}),
        ("fvcore.matmul", {"self": (10, 8), "other": (8,)}, {}),
        ("fvcore.normalized_elements", {"input": (2, 3, 4, 5, 6, 7)}, {}),
        ("fvcore.normalized_elements", {"input": (2,)}, {}),
        ("thop.linear", {"0": (2, 3)}, {}),
        ("thop.convolution", {"x": (1, 3, 4, 4)}, {"groups": 1}),
        ("thop.adaptive_average_floored", {"0": (1, 8, 16, 16)}, {}),
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
    assert amount("linear", "aten.linear.default", inputs, [()]) == prod(shape) * (10**9 + 7)
    result = [(*rows, 10**9 + 7)]
    operands = {"self": tuple(shape), "other": (inner, 10**9 + 7)}
    assert amount("matmul", "aten.matmul.default", operands, result) == prod(shape) * (10**9 + 7)
