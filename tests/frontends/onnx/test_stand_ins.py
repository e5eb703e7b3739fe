"""Shapes behind the operators of onnxruntime, which ONNX's own inference does not know."""

import pytest

from tests.onnx_files import graph_of, parsed, saved, shapes_of

MS = "com.microsoft"


X = "float[2,3,8] x"
HALF = "float16[2,3,8] x"
CONV = "float[1,8,9,9] x, float[4,8,3,3] w"
BYTES = "uint8[2,3,8] a, float s, uint8 z"
QCONV = "uint8[1,8,9,9] x, float s, uint8 z, uint8[4,8,3,3] w"

CASES = [
    (HALF, f"{MS}.FastGelu (x)", [((2, 3, 8), "float16")]),
    (f"{X}, float[8] b", f"{MS}.BiasSplitGelu (x, b)", [((2, 3, 4), "float32")]),
    (f"{X}, float[8] w", "SimplifiedLayerNormalization (x, w)", [((2, 3, 8), "float32")]),
    ("float[3,5,4,7] x, float[3,5,2,7] w", f"{MS}.FusedMatMul <transB = 1> (x, w)",
     [((3, 5, 4, 2), "float32")]),
    ("float[4,3,5,7] x, float[3,5,7,2] w", f"{MS}.FusedMatMul <transBatchA = 1> (x, w)",
     [((3, 5, 4, 2), "float32")]),
    ("float[7,4] x, float[7,2] w", f"{MS}.FusedGemm <transA = 1, activation = \"Relu\"> (x, w)",
     [((4, 2), "float32")]),
    (f"{HALF}, uint8[5,1,16] w, float16[5] s", f"{MS}.MatMulNBits <K = 8, N = 5> (x, w, s)",
     [((2, 3, 5), "float16")]),
    (f"{X}, uint8[20,1] w, float[1] s", f"{MS}.MatMulBnb4 <K = 8, N = 5> (x, w, s)",
     [((2, 3, 5), "float32")]),
    ("uint8[2,3,8] x, int8[8,5] w, float s, float t",
     f"{MS}.MatMulIntegerToFloat (x, w, s, t)", [((2, 3, 5), "float32")]),
    (f"{X}, int8[8,5] w, float s", f"{MS}.DynamicQuantizeMatMul (x, w, s)",
     [((2, 3, 5), "float32")]),
    ("uint8[3,8] a, float s, uint8 z, uint8[5,8] b",
     f"{MS}.QGemm <transB = 1> (a, s, z, b, s, z)", [((3, 5), "float32")]),
    ("uint8[3,8] a, float s, uint8 z, uint8[8,5] b",
     f"{MS}.QGemm (a, s, z, b, s, z, , s, z)", [((3, 5), "uint8")]),
    (CONV, f"{MS}.FusedConv <pads = [1,1,1,1], activation = \"Relu\"> (x, w)",
     [((1, 4, 9, 9), "float32")]),
    ("float[1,9,9,8] x, float[4,8,3,3] w", f"{MS}.NhwcFusedConv <strides = [2,2]> (x, w)",
     [((1, 4, 4, 4), "float32")]),
    ("float[1,9,9,8] x, float[4,8,3,3] w", "com.ms.internal.nhwc.Conv (x, w)",
     [((1, 7, 7, 4), "float32")]),
    (QCONV, f"{MS}.QLinearConv (x, s, z, w, s, z, s, z)", [((1, 4, 7, 7), "uint8")]),
    (QCONV.replace("8,9,9]", "9,9,8]"),
     f"{MS}.QLinearConv <channels_last = 1> (x, s, z, w, s, z, s, z)", [((1, 7, 7, 4), "uint8")]),
    ("uint8[1,9,9,8] x", f"{MS}.NhwcMaxPool <kernel_shape = [3,3], strides = [3,3]> (x)",
     [((1, 3, 3, 8), "uint8")]),
    ("uint8[1,8,9,9] x, float s, uint8 z",
     f"{MS}.QLinearAveragePool <kernel_shape = [3,3]> (x, s, z, s, z)", [((1, 8, 7, 7), "uint8")]),
    ("uint8[1,9,9,8] x, float s, uint8 z",
     f"{MS}.QLinearGlobalAveragePool <channels_last = 1> (x, s, z, s, z)",
     [((1, 1, 1, 8), "uint8")]),
    ("float[1,9,9,8] x", f"{MS}.nchwc.ReorderInput <channels_last = 1> (x)",
     [((1, 8, 9, 9), "float32")]),
    ("float[1,16,9,9] x", f"{MS}.nchwc.ReorderOutput <channels = 12> (x)",
     [((1, 12, 9, 9), "float32")]),
    ("float[1,16,9,9] x", f"{MS}.nchwc.ReorderOutput <channels = 12, channels_last = 1> (x)",
     [((1, 9, 9, 12), "float32")]),
    ("float[1,16,4,4] x", f"{MS}.nchwc.Upsample <scales = [1,1,2,2]> (x)",
     [((1, 16, 8, 8), "float32")]),
    ("float[1,4,4,8] x", "com.ms.internal.nhwc.DepthToSpace <blocksize = 2> (x)",
     [((1, 8, 8, 2), "float32")]),
    (f"{BYTES}, uint8[8] b", f"{MS}.QLinearAdd (a, s, z, b, s, z, s, z)",
     [((2, 3, 8), "uint8")]),
    (BYTES, f"{MS}.QLinearConcat <axis = 1> (s, z, a, s, z, a, s, z)", [((2, 6, 8), "uint8")]),
    (f"bool[3,1] c, {BYTES}", f"{MS}.QLinearWhere (c, a, s, z, a, s, z, s, z)",
     [((2, 3, 8), "uint8")]),
    (BYTES, f"{MS}.QLinearReduceMean <axes = [-1], keepdims = 0> (a, s, z, s, z)",
     [((2, 3), "uint8")]),
    (BYTES, f"{MS}.DequantizeLinear (a, s, z)", [((2, 3, 8), "float32")]),
    (f"{X}, float s, int8 z", f"{MS}.QuantizeLinear (x, s, z)", [((2, 3, 8), "int8")]),
    ("uint8[99,4] d, int64[2,3] i, float[99,1] s", f"{MS}.GatherBlockQuantized (d, i, s)",
     [((2, 3, 8), "float32")]),
    (f"{X}, float[2,3,4] r, float[4,6,8] f, float[4,8,6] o",
     f"{MS}.MoE <k = 2> (x, r, f, , o)", [((2, 3, 8), "float32")]),
    (f"{X}, int64[2,3] p, float[9,2] c", f"{MS}.RotaryEmbedding (x, p, c, c)",
     [((2, 3, 8), "float32")]),
    (f"{X}, float[8,20] w", f"{MS}.Attention <num_heads = 2, qkv_hidden_sizes = [8,8,4]> (x, w)",
     [((2, 3, 4), "float32")]),
    ("float[2,3,8] q, float[2,5,8] k, float[2,5,4] v",
     f"{MS}.MultiHeadAttention <num_heads = 2> (q, k, v)", [((2, 3, 4), "float32")]),
    ("float[2,3,8] q, float[2,2,5,4] k", f"{MS}.MultiHeadAttention <num_heads = 2> (q, k, k)",
     [((2, 3, 8), "float32")]),
    ("float[2,3,2,3,4] q", f"{MS}.MultiHeadAttention <num_heads = 2> (q)",
     [((2, 3, 8), "float32")]),
    ("float[7,8] q, int32[2,5] t, int32[3] c",
     f"{MS}.PackedMultiHeadAttention <num_heads = 2> (q, q, q, , t, c)", [((7, 8), "float32")]),
    ("float[2,3,8] q, float[2,3,4] k, float[2,3,6] v",
     f"{MS}.LinearAttention <q_num_heads = 4, kv_num_heads = 2> (q, k, v)",
     [((2, 3, 12), "float32")]),
    ("float[5,2,3] x, int8[1,3,16] w, int8[1,4,16] r, float s, uint8 z",
     f"{MS}.DynamicQuantizeLSTM <hidden_size = 4> (x, w, r, , , , , , s, z, s, z)",
     [((5, 1, 2, 4), "float32")]),
    ("float[4,9] x", f"{MS}.UnfoldTensor <size = 3, step = 2> (x)", [((4, 4, 3), "float32")]),
    ("float[4,9] x", f"{MS}.Rfft <signal_ndim = 1> (x)", [((4, 5, 2), "float32")]),
    ("float[4,5,2] x", f"{MS}.Irfft <signal_ndim = 1> (x)", [((4, 8), "float32")]),
    ("float[3,5] x, float[2,5] z", f"{MS}.CDist (x, z)", [((3, 2), "float32")]),
    (X, f"{MS}.IsAllFinite (x)", [((), "bool")]),
    ("float[7,8] x, int32[2,5] o", f"{MS}.RestorePadding (x, o)", [((2, 5, 8), "float32")]),
    ("float[1,3,9,9] x, float[1,4,5,2] g", f"{MS}.GridSample (x, g)",
     [((1, 3, 4, 5), "float32")]),
    ("float[2,12] x, float[2,3] m", f"{MS}.HyperConnectionPreMix <num_branches = 3> (x, m)",
     [((2, 4), "float32")]),
    ("float[4,32] q, float[1,4,5,3] s", f"{MS}.GatedDeltaNet (q, , , , , , s)",
     [((4, 4, 5), "float32")]),
    (f"{X}, float s", f"{MS}.QuantizeWithOrder (x, s)", [((2, 3, 8), "int8")]),
]  # fmt: skip


@pytest.mark.parametrize(("inputs", "node", "expected"), CASES, ids=lambda v: str(v)[:40])
def test_the_result_of_one_node_has_a_shape(inputs, node, expected, tmp_path):
    """The shape and the element type follow from the operands and the attributes."""
    assert shapes_of(tmp_path, inputs, node) == expected


def test_of_two_versions_of_a_domain_the_last_holds(tmp_path):
    """Version 13 has no LayerNormalization, which onnxruntime has there: it stands in."""
    model = parsed("g (float[2,4] x, float[4] w) => (y) { y = LayerNormalization (x, w) }", 17)
    model.opset_import.add(domain="ai.onnx", version=13)
    (node,) = graph_of(saved(tmp_path, model)).nodes
    assert node.outputs[0].shape == (2, 4)
