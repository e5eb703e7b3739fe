"""HLO programs: what is read of them, in which order, and what compilation changes."""

import msgspec
import pytest

from crossflops.frontends.jax.observe.xla import xla_view_calls
from crossflops.frontends.jax.record.function import to_pure_function
from crossflops.ir.trace import UNWATCHED, Setting, Trace, View
from crossflops.tools.xla import read_xla_program, xla_call_flops

jax = pytest.importorskip("jax")
pytest.importorskip("jax2onnx")

pytestmark = pytest.mark.jax

VIEWS = {level: View(level=level) for level in ("lowered", "compiled")}


def spec(*shape, dtype="float32"):
    """An input of this shape."""
    return jax.ShapeDtypeStruct(shape, dtype)


def instructions(function, *specs, level="lowered"):
    """The instructions of a function's program, without the call for the whole."""
    program = to_pure_function(function, specs, {}, training=False)
    trace = Trace(calls=(), modules=(), setting=Setting(), framework="jax")
    recorded = tuple(xla_view_calls(program, trace, None, [VIEWS[level]]))
    trace = msgspec.structs.replace(trace, observed=recorded)
    asked = [call for call in recorded if call.level == level]
    return [call for call in read_xla_program(asked, trace) if call.outputs]


def counted(calls):
    """Opcodes and flops of the instructions that count."""
    return [(call.target, xla_call_flops(call)) for call in calls if xla_call_flops(call)]


def test_operands_come_first():
    """XLA visits what an instruction reads, from left to right, and then the instruction."""
    calls = instructions(lambda x, y: (x + 1) * (y - 2), spec(2, 3), spec(3))
    assert counted(calls) == [("add", 6), ("subtract", 3), ("multiply", 6)]
    assert all(
        instruction.level == "lowered" and instruction.setting == Setting().id
        for instruction in calls
    )


def test_shapes_types_and_windows():
    """As they stand in the program."""

    def conv(x, w):
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, w, (2, 1), [(1, 2), (0, -1)], rhs_dilation=(1, 2), dimension_numbers=layout
        )

    specs = spec(1, 9, 9, 4, dtype="bfloat16"), spec(3, 3, 4, 8, dtype="bfloat16")
    (instruction,) = instructions(conv, *specs)
    assert [(value.dtype, value.shape) for value in instruction.inputs] == [
        ("bfloat16", (1, 9, 9, 4)),
        ("bfloat16", (3, 3, 4, 8)),
    ]
    assert instruction.outputs[0].shape == (1, 5, 4, 8)
    names = ("size", "stride", "padding_low", "padding_high", "window_dilation", "base_dilation")
    assert instruction.settings["window"] == [
        dict(zip(names, (3, 2, 1, 2, 1, 1), strict=True)),
        dict(zip(names, (3, 1, 0, -1, 2, 1), strict=True)),
    ]
    assert instruction.settings["input_spatial"] == [1, 2]
    assert instruction.settings["kernel_output"] == 3


def test_names_in_functions_are_whole():
    """A function is traced once; where it is called tells the rest of the name."""

    def run(x):
        with jax.named_scope("first"):
            x = jax.nn.relu(x)
        with jax.named_scope("second"):
            return jax.nn.relu(x)

    calls = [
        instruction
        for instruction in instructions(run, spec(4))
        if instruction.target == "maximum"
    ]
    assert ["first" in instruction.settings["names"] for instruction in calls] == [True, False]
    assert ["second" in instruction.settings["names"] for instruction in calls] == [False, True]
    assert all(instruction.settings["names"].endswith("jit(relu)/max") for instruction in calls)
    assert len({instruction.key for instruction in calls}) == 2


def test_loops_and_branches():
    """In a loop once, and of a condition the most expensive branch."""

    def loop(x, w):
        return jax.lax.scan(lambda c, _: (c @ w, None), x, None, length=3)[0]

    def condition(x, w):
        return jax.lax.cond(x.sum() > 0, lambda x: x @ w @ w, lambda x: x @ w, x)

    specs = spec(4, 8), spec(8, 8)
    (dot,) = [
        instruction for instruction in instructions(loop, *specs) if instruction.target == "dot"
    ]
    assert dot.settings["in_loop"]
    dots = [
        instruction
        for instruction in instructions(condition, *specs)
        if instruction.target == "dot"
    ]
    assert sorted(dot.settings["chosen"] for dot in dots) == [False, True, True]


def test_a_bias_is_told_from_a_sum():
    """It is spread out over what a product or a convolution made."""
    biased = instructions(lambda x, w, b: x @ w + b, spec(2, 4), spec(4, 8), spec(8))
    two = instructions(lambda x, w, y: x @ w + y, spec(2, 4), spec(4, 8), spec(2, 8))
    assert [call.settings["after"] for call in biased + two if call.target == "add"] == [
        "product",
        "",
    ]


def test_what_compilation_changes():
    """A division by a number becomes a product, a clip at infinity goes, the rest is kept."""

    def run(x):
        return jax.numpy.maximum(jax.nn.relu(x) / 3, -jax.numpy.inf)

    calls = instructions(run, spec(4, 4), level="compiled")
    changes = {
        (instruction.target, instruction.settings["change"], instruction.settings["removed"])
        for instruction in calls
        if xla_call_flops(instruction)
    }
    assert changes == {
        ("maximum", "kept", False),
        ("maximum", "rewritten", True),
        ("divide", "rewritten", True),
        ("multiply", "rewritten", False),
    }


def test_a_model_that_cannot_be_lowered():
    """What JAX says stands in one line."""

    def run(x):
        return jax.ffi.ffi_call("nobody_registered_this", spec(4))(x)

    program = to_pure_function(run, (spec(4),), {}, training=False)
    trace = Trace(calls=(), modules=(), setting=Setting(), framework="jax")
    *_, last = xla_view_calls(program, trace, None, [VIEWS["compiled"]])
    assert (last.target, last.level) == (UNWATCHED, "compiled")
    assert "XLA cannot compile the model" in last.settings["reason"]
    assert "\n" not in last.settings["reason"]
