"""Shapes that go on behind the operators of onnxruntime, through whole layers."""

import pytest

from crossflops.ir.ledger import CountedNode
from tests.onnx_files import graph_of, ledger_of, parsed, saved, shapes_of, with_weights

MS = "com.microsoft"
X = "float[2,3,8] x"


@pytest.mark.parametrize(
    ("inputs", "node", "outputs", "expected"),
    [
        (
            "float[2,3,8] x, float[8,24] w, float[2,2,2,5,4] p",
            f"{MS}.Attention <num_heads = 2> (x, w, , , p)",
            "y, present",
            [(2, 3, 8), (2, 2, 2, 8, 4)],
        ),
        (
            "float[2,3,8] q, float[2,2,5,4] p",
            f"{MS}.MultiHeadAttention <num_heads = 2> (q, q, q, , , , p, p)",
            "y, k, v",
            [(2, 3, 8), (2, 2, 8, 4), (2, 2, 8, 4)],
        ),
        (
            "float[2,3,16] q, float[2,1,5,4] p, int32[2] l, int32 t",
            f"{MS}.GroupQueryAttention <num_heads = 2, kv_num_heads = 1> (q, , , p, p, l, t)",
            "y, k, v",
            [(2, 3, 8), (2, 1, 8, 4), (2, 1, 8, 4)],
        ),
        (
            f"{X}, float[8] g",
            f"{MS}.SkipLayerNormalization (x, x, g)",
            "y, m, i, s",
            [(2, 3, 8), (2, 3, 1), (2, 3, 1), (2, 3, 8)],
        ),
        (
            "int32[2,3] i, float[99,8] w, float[9,8] p, float[8] g, int32[2,3] m",
            f"{MS}.EmbedLayerNormalization (i, , w, p, , g, g, m)",
            "y, k, e",
            [(2, 3, 8), (2,), (2, 3, 8)],
        ),
        (
            f"{X}, float[8] g, uint8[5,1,16] a, uint8[4,1,16] b, float[5] s",
            f"{MS}.MatMulNBitsQkv <K = 8, Nq = 5, Nkv = 4, block_size = 32> "
            "(x, x, g, a, s, , b, s, , b, s)",
            "q, k, v, r",
            [(2, 3, 5), (2, 3, 4), (2, 3, 4), (2, 3, 8)],
        ),
    ],
    ids=["Attention", "MultiHead", "GroupQuery", "Skip", "Embed", "Qkv"],
)
def test_the_results_of_one_node_have_shapes(inputs, node, outputs, expected, tmp_path):
    """Caches and sums that are handed on have shapes, too."""
    assert [shape for shape, _ in shapes_of(tmp_path, inputs, node, outputs)] == expected


def test_shapes_go_through_a_whole_layer(tmp_path):
    """A layer as onnxruntime writes it, with nodes of ai.onnx between and a body around some."""
    text = f"""
    g (int64[2,5] i, int32[2,5] m,
      float[99,8] words, float[9,8] places, float[8] g, float[8,24] wqkv, float[24] bqkv,
      float[8,8] wo, float[8,16] w1, float[16] b1, float[16,8] w2) => (y) {{
      i32 = Cast <to = 6> (i)
      h, k = {MS}.EmbedLayerNormalization (i32, , words, places, , g, g, m)
      a = {MS}.Attention <num_heads = 2> (h, wqkv, bqkv, k)
      o = MatMul (a, wo)
      n, u, v, t = {MS}.SkipLayerNormalization (h, o, g, g)
      shape = Shape (n)
      c = Constant <value = bool {{1}}> ()
      f = If (c) <then_branch = b () => (q) {{
        p = MatMul (n, w1) r = {MS}.BiasGelu (p, b1) q = MatMul (r, w2)
      }}, else_branch = e () => (q2) {{ q2 = Identity (n) }}>
      w = {MS}.SkipLayerNormalization (f, n, g, g)
      y = Reshape (w, shape)
    }}"""
    weights = ("words", "places", "g", "wqkv", "bqkv", "wo", "w1", "b1", "w2")
    path = saved(tmp_path, with_weights(text, *weights))
    ledger = ledger_of(path)
    assert not ledger.uncounted
    tokens, hidden = 10, 8
    scores = 2 * 2 * 5 * 5 * (4 + 4)
    assert ledger.total.macs == tokens * hidden * (24 + 8 + 16 + 16) + scores
    types = {row.node.op.type: row.node for row in ledger.counts}
    assert types["EmbedLayerNormalization"].outputs[1].shape == (2,)
    assert types["Reshape"].outputs[0].shape == (2, 5, 8)
    assert types["BiasGelu"].inputs[0].shape == (2, 5, 16)


def test_a_decoder_step_counts_what_its_cache_holds(tmp_path):
    """A layer of a language model with four-bit weights, at 1 new and 6 past tokens."""
    size = "<K = 16, N = {}, bits = 4, block_size = 16>"
    text = f"""
    g (float[1,1,16] x, float[1,2,past,4] pk, float[1,2,past,4] pv, int32[1] l, int32 t,
      float[16] g, uint8[32,1,8] wqkv, float[32] sqkv, uint8[16,1,8] wo, float[16] so,
      uint8[24,1,8] wg, float[24] sg, float[24,16] wd, float[99,2] cos) => (z, k, v) {{
      n = SimplifiedLayerNormalization (x, g)
      q = {MS}.MatMulNBits {size.format(32)} (n, wqkv, sqkv)
      a, k, v = {MS}.GroupQueryAttention <num_heads = 4, kv_num_heads = 2, do_rotary = 1>
        (q, , , pk, pv, l, t, cos, cos)
      o = {MS}.MatMulNBits {size.format(16)} (a, wo, so)
      m, m1, m2, r = {MS}.SkipSimplifiedLayerNormalization (x, o, g)
      u = {MS}.MatMulNBits {size.format(24)} (m, wg, sg)
      b = {MS}.QuickGelu <alpha = 1.0> (u)
      d = MatMul (b, wd)
      z = Add (r, d)
    }}"""
    weights = ("g", "wqkv", "sqkv", "wo", "so", "wg", "sg", "wd", "cos")
    path = saved(tmp_path, with_weights(text, *weights))
    ledger = ledger_of(path, dims={"past": 6})
    assert not ledger.uncounted
    assert ledger.total.macs == 16 * (32 + 16 + 24 + 24) + 4 * 7 * (4 + 4)
    graph = graph_of(path, dims={"past": 6})
    assert graph.outputs[1].shape == (1, 2, 7, 4)
    # 16 (32 + 16 + 24) packed in four bits, 24 * 16 in floats, and the scale of two norms, once.
    assert graph.params == 16 * (32 + 16 + 24) + 24 * 16 + 16
    bound = [
        row for row in ledger.counts if isinstance(row, CountedNode) and row.exactness == "bound"
    ]
    assert [row.node.op.type for row in bound] == ["GroupQueryAttention"]


def test_the_blocks_of_a_convolution_say_how_many_channels_go_in(tmp_path):
    """3 channels fill a block of 8: what the filter takes, and what runs, is 8."""
    text = f"""
    g (float[1,3,9,9] x, float[16,8,3,3] w) => (y) {{
      a = {MS}.nchwc.ReorderInput (x)
      b = {MS}.nchwc.Conv <kernel_shape = [3,3], activation = "Relu"> (a, w)
      c = {MS}.nchwc.MaxPool <kernel_shape = [7,7]> (b)
      y = {MS}.nchwc.ReorderOutput <channels = 12> (c)
    }}"""
    model = parsed(text)
    model.opset_import.add(domain=f"{MS}.nchwc", version=1)
    ledger = ledger_of(saved(tmp_path, model))
    assert not ledger.uncounted
    assert ledger.total.macs == 16 * 49 * 8 * 9
    assert ledger.counts[-1].node.outputs[0].shape == (1, 12, 1, 1)


def test_the_file_keeps_its_nodes(tmp_path):
    """What stands in during inference is gone afterwards, with every value that it made."""
    text = (
        f"g (float[2,8] x, float[8,4] w) => (y) {{ a = {MS}.Gelu (x) y = {MS}.FusedGemm (a, w) }}"
    )
    graph = graph_of(saved(tmp_path, parsed(text)))
    assert [str(node.op) for node in graph.nodes] == [f"{MS}.Gelu", f"{MS}.FusedGemm"]
    assert graph.outputs[0].shape == (2, 4)


def test_the_bodies_of_an_attention_run_once(tmp_path):
    """2*4*3*5 scores are capped in one body and shifted in the other."""
    text = """
    g (float[2,4,3,8] q, float[2,2,5,8] k, float[2,2,5,6] v) => (y) {
      y = ai.onnx.preview.FlexAttention <
        score_mod = s (a) => (b) {
          two = Constant <value = float {2.0}> () c = Div (a, two) d = Tanh (c) b = Mul (d, two)
        },
        prob_mod = p (e) => (f) { one = Constant <value = float {1.0}> () f = Add (e, one) }
      > (q, k, v)
    }"""
    model = parsed(text, opset=24)
    model.opset_import.add(domain="ai.onnx.preview", version=1)
    ledger = ledger_of(saved(tmp_path, model))
    assert not ledger.uncounted
    work = {row.node.op.type: row.cost for row in ledger.counts if row.cost.flops}
    assert list(work) == ["FlexAttention", "Div", "Tanh", "Mul", "Add"]
    assert work["FlexAttention"].macs == 120 * (8 + 6)
    assert {name: cost.flops for name, cost in work.items() if name != "FlexAttention"} == {
        **dict.fromkeys(("Div", "Tanh", "Mul", "Add"), 120)
    }
