"""Nodes of onnxruntime's own operators with operands that fit, one file of each."""

import onnx

from tests.onnx_files import parsed

# inputs, stored values, the operator with its attributes and operands
CONTRIB = (
    ("float[1,4,5,5] x, float[6,2,3,3] w, float[6] b", "", "FusedConv <group=2> (x, w, b)"),
    ("float[3,4] a, float[4,5] b, float[5] c", "", 'FusedGemm <activation="Relu"> (a, b, c)'),
    ("float[4,3] a, float[5,4] b", "", 'FusedGemm <transA=1, transB=1, activation="Relu"> (a, b)'),
    ("float[2,3,4] a, float[2,4,5] b", "", "FusedMatMul (a, b)"),
    ("float[2,4,3] a, float[2,5,4] b", "", "FusedMatMul <transA=1, transB=1> (a, b)"),
    ("float[2,3,4] a, float[4] b", "", "BiasGelu (a, b)"),
    ("float[2,3,4] a, float[4] b", "", "FastGelu (a, b)"),
    ("float[2,3,4] x, float[2,3,4] s, float[4] g, float[4] b", "",
     "SkipLayerNormalization (x, s, g, b)"),
    ("float[2,3,4] x, float[2,3,4] s, float[4] g, float[4] b, float[4] c", "",
     "SkipLayerNormalization (x, s, g, b, c)"),
    ("float[2,3,4] x, float[2,3,4] s, float[4] g", "",
     "SkipSimplifiedLayerNormalization (x, s, g)"),
    ("int32[2,3] i, int32[2,3] t, float[9,4] w, float[7,4] p, float[2,4] s, float[4] g, "
     "float[4] b", "", "EmbedLayerNormalization (i, t, w, p, s, g, b)"),
    ("float[2,3,8] x, float[8,24] w, float[24] b", "", "Attention <num_heads=2> (x, w, b)"),
    ("float[2,3,8] x, float[8,20] w, float[20] b", "",
     "Attention <num_heads=2, qkv_hidden_sizes=[8, 8, 4]> (x, w, b)"),
    ("float[2,3,8] q, float[2,5,8] k, float[2,5,6] v", "",
     "MultiHeadAttention <num_heads=2> (q, k, v)"),
    ("float[2,3,8] q, float[2,5,8] k, float[2,5,8] v, float[24] b", "",
     "MultiHeadAttention <num_heads=2> (q, k, v, b)"),
    ("float[2,3,8] q, float[2,2,5,4] k, float[2,2,5,4] v", "",
     "MultiHeadAttention <num_heads=2> (q, k, v)"),
    ("float[2,3,64] q, float[2,3,32] k, float[2,3,32] v, float[2,2,0,16] p, float[2,2,0,16] r",
     "int32[2] s = {2, 2}, int32 t = {3}",
     "GroupQueryAttention <num_heads=4, kv_num_heads=2> (q, k, v, p, r, s, t)"),
    ("float[2,3,32] x, uint8[8,1,16] b, float[8] s", "",
     "MatMulNBits <K=32, N=8, bits=4, block_size=32> (x, b, s)"),
    ("uint8[3,4] a, uint8[4,5] b, float[1] s, float[1] t", "",
     "MatMulIntegerToFloat (a, b, s, t)"),
    ("float[3,4] a, uint8[4,5] b, float[1] t", "", "DynamicQuantizeMatMul (a, b, t)"),
    ("uint8[3,4] a, float s, uint8 z, uint8[4,5] b, float t, uint8 y, int32[5] c", "",
     "QGemm (a, s, z, b, t, y, c)"),
    ("uint8[2,3] a, float s, uint8 z, uint8[2,3] b, float t, uint8 y, float u, uint8 v", "",
     "QLinearAdd (a, s, z, b, t, y, u, v)"),
    ("uint8[2,3] a, float s, uint8 z, uint8[1,3] b, float t, uint8 y, float u, uint8 v", "",
     "QLinearMul (a, s, z, b, t, y, u, v)"),
    ("float u, uint8 v, uint8[2,3] a, float s, uint8 z, uint8[2,4] b, float t, uint8 y", "",
     "QLinearConcat <axis=1> (u, v, a, s, z, b, t, y)"),
    ("uint8[2,3] a, float s, uint8 z, float u, uint8 v", "", "QLinearSigmoid (a, s, z, u, v)"),
    ("uint8[2,3] a, float s, uint8 z, float u, uint8 v", "", "QLinearLeakyRelu (a, s, z, u, v)"),
    ("uint8[1,2,5,5] a, float s, uint8 z, float u, uint8 v", "",
     "QLinearGlobalAveragePool (a, s, z, u, v)"),
    ("uint8[1,2,5,5] a, float s, uint8 z, float u, uint8 v", "",
     "QLinearAveragePool <kernel_shape=[3, 3]> (a, s, z, u, v)"),
    ("bool[2,3] c, uint8[2,3] a, float s, uint8 z, uint8[2,3] b, float t, uint8 y, float u, "
     "uint8 v", "", "QLinearWhere (c, a, s, z, b, t, y, u, v)"),
    ("float[5,2,3] x, int8[1,3,16] w, int8[1,4,16] r, float[1,32] b",
     "float[1] s = {1}, int8[1] z = {0}",
     "DynamicQuantizeLSTM <hidden_size=4> (x, w, r, b, , , , , s, z, s, z)"),
    ("float[3,4] a, float[5,4] b", "", "CDist (a, b)"),
    ("float[2,3,3] x", "", "Inverse (x)"),
    ("float[1,2,6,6] x, float[3,4] r, int32[3] i", "int32[2] c = {2, 2}",
     "CropAndResize (x, r, i, c)"),
    ("float[2,3,8] x, int64[1] p, float[9,2] c, float[9,2] s", "",
     "RotaryEmbedding <num_heads=2> (x, p, c, s)"),
    ("float[2,2,3,4] x, int64[1] p, float[9,2] c, float[9,2] s", "",
     "RotaryEmbedding (x, p, c, s)"),
    ("uint8[2,3,8] x, uint8[8,24] w, float[24] b, float s, float t", "",
     "QAttention <num_heads=2> (x, w, b, s, t)"),
    ("float[3,8] x, float[3,4] p, float[4,8,16] f, float[4,16] b, float[4,16,8] g, float[4,8] c",
     "", "MoE <k=2, activation_type=\"relu\"> (x, p, f, b, g, c)"),
)  # fmt: skip


def models() -> dict[str, onnx.ModelProto]:
    """A model of one node for each case, by the words of the node."""
    found = {}
    for inputs, stored, words in CONTRIB:
        more = ", mask" if words.startswith("Embed") else ""
        kept = f"<{stored}>" if stored else ""
        text = f"g ({inputs}) => (out{more}) {kept} {{ out{more} = com.microsoft.{words} }}"
        found[f"{words} of {inputs}"] = parsed(text)
    return found
