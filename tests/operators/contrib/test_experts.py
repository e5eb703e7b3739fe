"""A mixture of experts: all parameters, and those that one token uses."""

import msgspec
import numpy as np
import pytest

import crossflops
from crossflops.render.page import Table
from crossflops.render.pages.summary import summary_page
from tests.onnx_files import saved, with_weights

MS = "com.microsoft"
# 4 experts of 8 x 6 and 6 x 8 weights with 6 biases; a router of 8 x 4.
TEXT = f"""
g (float[tokens,8] x, float[8,4] r, float[4,6,8] f, float[4,6] b, float[4,8,6] o) => (y) {{
  p = MatMul (x, r) y = {MS}.MoE <k = CHOSEN> (x, p, f, b, o)
}}"""
EXPERT, ROUTER = 48 + 6 + 48, 32


@pytest.mark.parametrize(("tokens", "used"), [(1, 2), (9, 2), (9, 4)])
def test_experts_that_a_token_does_not_choose_are_not_active(tokens, used, tmp_path):
    """A token chooses 2 of 4 experts, or all of them, however many tokens there are."""
    text = TEXT.replace("CHOSEN", str(used))
    path = saved(tmp_path, with_weights(text, "r", "f", "b", "o"))
    report = crossflops.count(path, dims={"tokens": tokens})
    assert report.totals.macs == tokens * (32 + used * 96)
    assert report.totals.params == 4 * EXPERT + ROUTER
    active = used * EXPERT + ROUTER
    shown = any("are active" in str(block) for block in summary_page(report).blocks)
    if used == 4:
        assert report.totals.active_params is msgspec.UNSET
        assert "active_params" not in msgspec.to_builtins(report.totals)
        assert not shown
    else:
        assert msgspec.to_builtins(report.totals)["active_params"] == active
        assert any(
            str(active) in row.cells[1]
            for block in summary_page(report).blocks
            if isinstance(block, Table)
            for row in block.rows
        )
        assert shown


# 6 tokens, each to 2 of 8 experts of 32 inputs and 64 inner units, in both layouts.
LAYOUTS = {
    "today": ("8,{F},32", "8,32,64", "8,64,32"),
    "first": ("8,32,{F}", "8,64,32", "8,32,64"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("attributes", "wide", "third", "macs"),
    [
        ('activation_type = "relu"', 64, False, 6 * 2 * (32 * 64 + 64 * 32)),
        ('activation_type = "swiglu", swiglu_fusion = 1', 128, False, 6 * 2 * 3 * 32 * 64),
        ('activation_type = "silu"', 64, True, 6 * 2 * 3 * 32 * 64),
    ],
)
def test_the_layout_of_the_weights_says_nothing_of_the_work(
    layout, attributes, wide, third, macs, tmp_path
):
    """The products of an expert are those of its layers, in whichever order their sizes stand."""
    first, second, last = LAYOUTS[layout]
    operands, inputs = "x, p, f, , o", ""
    if third:
        operands, inputs = f"{operands}, , t", f", float[{last}] t"
    text = f"""g (float[6,32] x, float[6,8] p, float[{first.format(F=wide)}] f, float[{second}] o
    {inputs}) => (y) {{ y = {MS}.MoE <k = 2, {attributes}> ({operands}) }}"""
    names = ("f", "o", "t") if third else ("f", "o")
    report = crossflops.count(saved(tmp_path, with_weights(text, *names)))
    assert report.totals.macs == macs
    assert report.totals.params == 8 * macs // 12


@pytest.mark.onnxruntime
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("inner", [32, 64])
@pytest.mark.parametrize("first", ["rows", "columns"])
@pytest.mark.parametrize("second", ["rows", "columns"])
def test_layouts_are_taken_and_refused_as_onnxruntime_does(fused, inner, first, second, tmp_path):
    """H = 32 against I = 32, where only a fused fc1 tells the layouts apart, and against 64."""
    onnxruntime = pytest.importorskip("onnxruntime")
    wide = 2 * inner if fused else inner
    sizes = f"8,{wide},32" if first == "rows" else f"8,32,{wide}"
    back = f"8,32,{inner}" if second == "rows" else f"8,{inner},32"
    kind = 'activation_type = "swiglu", swiglu_fusion = 1' if fused else 'activation_type = "relu"'
    text = f"""g (float[6,32] x, float[6,8] p, float[{sizes}] f, float[{back}] o)
    => (float[6,32] y) {{ y = {MS}.MoE <k = 2, {kind}> (x, p, f, , o) }}"""
    path = saved(tmp_path, with_weights(text, "f", "o"))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds = {"x": np.ones((6, 32), np.float32), "p": np.ones((6, 8), np.float32)}
    try:
        session.run(None, feeds)
        runs = True
    except Exception:
        runs = False
    if not runs:
        with pytest.raises(crossflops.CrossflopsError, match="cannot run"):
            crossflops.count(path)
    else:
        assert crossflops.count(path).totals.macs == 6 * 2 * (32 * wide + inner * 32)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    ("fused", "first", "second", "macs"),
    [
        (False, (64, 32), (32, 64), 12 * 2 * 32 * 64),
        (False, (32, 64), (64, 32), 12 * 2 * 32 * 64),
        (True, (128, 32), (32, 64), 12 * 3 * 32 * 64),
        (True, (32, 128), (64, 32), 12 * 3 * 32 * 64),
        (True, (64, 32), (32, 32), 12 * 3 * 32 * 32),
        (True, (32, 64), (32, 32), 12 * 3 * 32 * 32),
        (False, (64, 32), (64, 32), None),
        (True, (32, 128), (32, 64), None),
    ],
)
def test_packed_weights_lie_in_either_layout(bits, fused, first, second, macs, tmp_path):
    """Each is packed along its last axis; onnxruntime refuses those without MACs here."""
    pack = 8 // bits
    wide = max(first)
    kind = 'activation_type = "swiglu", swiglu_fusion = 1' if fused else 'activation_type = "relu"'
    text = f"""g (float[6,32] x, float[6,8] p, uint8[8,{first[0]},{first[1] // pack}] f,
    float[8,{wide}] s, uint8[8,{second[0]},{second[1] // pack}] o, float[8,32] t) => (y) {{
    y = {MS}.QMoE <k = 2, expert_weight_bits = {bits}, {kind}> (x, p, f, s, , o, t) }}"""
    path = saved(tmp_path, with_weights(text, "f", "s", "o", "t"))
    if macs is None:
        with pytest.raises(crossflops.CrossflopsError, match="cannot run"):
            crossflops.count(path)
    else:
        assert crossflops.count(path).totals.macs == macs


def test_rows_that_do_not_halve_are_refused(tmp_path):
    """A fused fc1 has two rows for each inner unit."""
    text = f"""g (float[6,8] x, float[6,4] p, float[4,5,8] f, float[4,8,2] o) => (y) {{
    y = {MS}.MoE <k = 2, activation_type = "swiglu", swiglu_fusion = 1> (x, p, f, , o) }}"""
    with pytest.raises(crossflops.CrossflopsError, match="needs to be 4x4x8"):
        crossflops.count(saved(tmp_path, with_weights(text, "f", "o")))
