"""Nodes with operands that fit which ONNX's node tests have not: onnxruntime's own, and of ML."""

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

# the same of any domain and with any results: inputs, stored values, the results and their node
OTHERS = (
    ("float[2,3,8] x, float[4] s", "",
     "out = com.microsoft.BranchwiseRMSNorm <num_branches=2> (x, s)"),
    ("float[2,4,8] x, float[4,1,3] w, float[4] b, float[2,4,2] p", "",
     "y, z = com.microsoft.CausalConvWithState (x, w, b, p)"),
    ("float[2,4,8] x, float[4,1,3] w", "",
     'y, z = com.microsoft.CausalConvWithState <activation="silu"> (x, w)'),
    ("float[1,2,4,4] x, float[2,3,3,3] w, int64[4] p, float[3] b", "",
     "out = com.microsoft.ConvTransposeWithDynamicPads <kernel_shape=[3,3], strides=[2,2]> "
     "(x, w, p, b)"),
    ("float[2,1,8] q, float[2,2,5,4] k, float[2,2,5,4] v", "",
     "out = com.microsoft.DecoderMaskedMultiHeadAttention <num_heads=2> (q, k, v)"),
    ("float[2,1,8] q, float[2,1,8] k, float[2,1,8] v, float[2,2,6,4] p, float[2,2,6,4] r",
     "int32[1] s = {3}",
     "y, pk, pv = com.microsoft.DecoderMaskedMultiHeadAttention <num_heads=2, "
     "past_present_share_buffer=1> (q, k, v, , , p, r, s)"),
    ("uint8[3,4] x, float s, uint8 z", "",
     "out = com.microsoft.DequantizeLinear (x, s, z)"),
    ("uint8[3,4] x, float[4] s, uint8[4] z", "",
     "out = com.microsoft.DequantizeLinear <axis=1> (x, s, z)"),
    ("float[3,4] x, float[4] s, uint8[4] z", "",
     "out = com.microsoft.QuantizeLinear <axis=1> (x, s, z)"),
    ("float[3,4] x, float s, uint8 z", "",
     "out = com.microsoft.QuantizeLinear (x, s, z)"),
    ("float[1,3,4] x", "",
     "out = com.microsoft.DynamicTimeWarping (x)"),
    ("float[2,3,2,8] k, float[2,3,2,8] q, float[2,3,8] v, float[2,8] a, float[2,8] b, "
     "float[2,8] c", "",
     "y, z = com.microsoft.EngramGate (k, q, v, a, b, c)"),
    ("float[2,3] x", "int32 a = {1}",
     "out = com.microsoft.ExpandDims (x, a)"),
    ("float[2,3,4] x, float[2,3,4] y, float[2,3,1] g", "",
     "z = com.microsoft.GatedAdd (x, y, g)"),
    ("float[2,3,4] x, float[4] s, float[2,3,4] g", "",
     "out = com.microsoft.GatedRMSNorm (x, s, g)"),
    ("uint8[4,16] d, int64[2] i, float[4,2] s", "",
     "out = com.microsoft.GatherBlockQuantized <block_size=16, bits=4, quantize_axis=1, "
     "gather_axis=0> (d, i, s)"),
    ("uint8[4,32] d, int64[2] i, float[4,2] s, uint8[4,2] z", "",
     "out = com.microsoft.GatherBlockQuantized <block_size=16, bits=8, quantize_axis=1, "
     "gather_axis=0> (d, i, s, z)"),
    ("float[3,4,5] d, int64[2,2] i", "",
     "out = com.microsoft.GatherND (d, i)"),
    ("float[3,4] x", "",
     "out = com.microsoft.Gelu (x)"),
    ("float[1,2,4,4] x, float[1,3,3,2] g", "",
     "out = com.microsoft.GridSample (x, g)"),
    ("float[1,2,12] q, float[1,2,6] k, float[1,2,10] v", "",
     "y, s = com.microsoft.LinearAttention <q_num_heads=4, kv_num_heads=2, "
     'update_rule="linear"> (q, k, v)'),
    ("float[1,2,6] q, float[1,2,6] k, float[1,2,10] v, float[1,2,3,5] p, float[1,2,2] d, "
     "float[1,2,2] b", "",
     "y, s = com.microsoft.LinearAttention <q_num_heads=2, kv_num_heads=2, "
     'update_rule="gated_delta"> (q, k, v, p, d, b)'),
    ("float[2,3,4] a, float[4] t, float[4] d, float[2,3,4] b", "",
     "y, z = com.microsoft.LinearAttentionGate (a, t, d, b)"),
    ("float[2,3,16] x, int64[3,2,3] p, float[9,4] c, float[9,4] s", "",
     "out = com.microsoft.MRotaryEmbedding <num_heads=2, mrope_section=[1,1,2]> (x, p, c, s)"),
    ("float[3,64] a, uint8[256] b, float[16] m", "",
     "out = com.microsoft.MatMulBnb4 <K=64, N=8, block_size=32, quant_type=1> (a, b, m)"),
    ("int16[3,4] a, int16[4,5] b", "",
     "out = com.microsoft.MatMulInteger16 (a, b)"),
    ("float[1,2,4,4] x, int32[1,2,4,4] m", "",
     "out = com.microsoft.MaxpoolWithMask <kernel_shape=[2,2]> (x, m)"),
    ("uint8[1,4,4,2] x", "",
     "out = com.microsoft.NhwcMaxPool <kernel_shape=[2,2]> (x)"),
    ("float[2,3] x", "int64[4] p = {0,1,0,1}",
     "out = com.microsoft.Pad (x, p)"),
    ("int32[2,3] i, int32[2,3] t, uint8[9,4] w, uint8[7,4] p, uint8[2,4] s, uint8[4] g, "
     "uint8[4] b, float sw, float sp, float ss, float sg, float sb, uint8 zw, uint8 zp, "
     "uint8 zs, uint8 zg, uint8 zb", "",
     "y, m = com.microsoft.QEmbedLayerNormalization (i, t, w, p, s, g, b, , sw, sp, ss, sg, "
     "sb, zw, zp, zs, zg, zb)"),
    ("uint8[1,2,5,5] x, float xs, uint8 xz, uint8[3,2,3,3] w, float ws, uint8 wz, float ys, "
     "uint8 yz, int32[3] b", "",
     "out = com.microsoft.QLinearConv (x, xs, xz, w, ws, wz, ys, yz, b)"),
    ("uint8[1,5,5,2] x, float xs, uint8 xz, uint8[3,2,3,3] w, float ws, uint8 wz, float ys, "
     "uint8 yz, int32[3] b", "",
     "out = com.microsoft.QLinearConv <channels_last=1> (x, xs, xz, w, ws, wz, ys, yz, b)"),
    ("uint8[2,5] x, float s, uint8 z, float t, uint8 y", "",
     "out = com.microsoft.QLinearSoftmax <opset=13, axis=-1> (x, s, z, t, y)"),
    ("float[3,32] x, float[3,4] p, uint8[4,64,16] f, float[4,64] s, uint8[4,32,32] g, "
     "float[4,32] t", "",
     'out = com.microsoft.QMoE <k=2, activation_type="relu", expert_weight_bits=4> (x, p, '
     "f, s, , g, t)"),
    ("float[3,32] x, float[3,4] p, uint8[4,64,32] f, float[4,64] s, uint8[4,32,64] g, "
     "float[4,32] t", "",
     'out = com.microsoft.QMoE <k=2, activation_type="relu", expert_weight_bits=8> (x, p, '
     "f, s, , g, t)"),
    ("float[3,4] x", "",
     "out = com.microsoft.QuickGelu (x)"),
    ("", "float s = {0}, float l = {5}, float d = {1}",
     "out = com.microsoft.Range (s, l, d)"),
    ("float[3,4] x, float s", "",
     "out = com.microsoft.ScaledSiLU (x, s)"),
    ("float[3,4] a, float[4,5] b", "",
     "out = com.microsoft.TransposeMatMul (a, b)"),
    ("float[4,3] a, float[5,4] b", "",
     "out = com.microsoft.TransposeMatMul <transA=1,transB=1> (a, b)"),
    ("float[2,4,3] x", "int64 k = {1}",
     "out = com.microsoft.Trilu (x, k)"),
    ("float[2,8] x", "",
     "out = com.microsoft.UnfoldTensor <dim=1, size=3, step=2> (x)"),
    ("uint8[1,4,4,2] x, float s, uint8 z, float u, uint8 v", "",
     "out = com.microsoft.QLinearAveragePool <kernel_shape=[2,2], channels_last=1> (x, s, "
     "z, u, v)"),
    ("uint8[1,4,4,2] x, float s, uint8 z, float u, uint8 v", "",
     "out = com.microsoft.QLinearGlobalAveragePool <channels_last=1> (x, s, z, u, v)"),
    ("float[2,3,8] q, float[2,5,8] k, float[2,5,8] v, int32[2,5] m", "",
     "out = com.microsoft.MultiHeadAttention <num_heads=2> (q, k, v, , m)"),
    ("float[2,3,8] q, float[2,5,8] k, float[2,5,8] v, float[1,2,3,5] m", "",
     "out = com.microsoft.MultiHeadAttention <num_heads=2> (q, k, v, , , m)"),
    ("float[2,1,8] q, float[2,1,8] k, float[2,1,8] v, float[2,2,6,4] p, float[2,2,6,4] r", "",
     "y, pk, pv = com.microsoft.MultiHeadAttention <num_heads=2> (q, k, v, , , , p, r)"),
    ("float[2,3,8] x, float[8,24] w, float[24] b, int32[2,3] m", "",
     "out = com.microsoft.Attention <num_heads=2> (x, w, b, m)"),
    ("float[2,3,8] x, float[8,24] w, float[24] b, int32[2] m", "",
     "out = com.microsoft.Attention <num_heads=2> (x, w, b, m)"),
    ("float[2,1,8] x, float[8,24] w, float[24] b, float[2,2,2,5,4] p", "",
     "y, pr = com.microsoft.Attention <num_heads=2> (x, w, b, , p)"),
    ("float[2,3,8] x, float[8,24] w, float[24] b, float[2,2,3,3] a", "",
     "out = com.microsoft.Attention <num_heads=2> (x, w, b, , , a)"),
    ("float[2,3,8] x, float[8,24] w, float[24] b", "",
     "out = com.microsoft.Attention <num_heads=2, unidirectional=1> (x, w, b)"),
    ("float[2,1,64] q, float[2,1,32] k, float[2,1,32] v, float[2,2,4,16] p, float[2,2,4,16] "
     "r, float[9,8] c, float[9,8] n", "int32[2] s = {4, 4}, int32 t = {5}",
     "y, pk, pv = com.microsoft.GroupQueryAttention <num_heads=4, kv_num_heads=2, "
     "do_rotary=1> (q, k, v, p, r, s, t, c, n)"),
    ("float[2,3,128] q, float[2,2,0,16] p, float[2,2,0,16] r",
     "int32[2] s = {2, 2}, int32 t = {3}",
     "y, pk, pv = com.microsoft.GroupQueryAttention <num_heads=4, kv_num_heads=2> (q, , , "
     "p, r, s, t)"),
    ("float[2,3,64] x, uint8[8,2,16] b, float[16] s, uint8[8] z", "",
     "out = com.microsoft.MatMulNBits <K=64, N=8, bits=4, block_size=32> (x, b, s, z)"),
    ("float[2,3,64] x, uint8[8,2,32] b, float[8,2] s, uint8[8,2] z", "",
     "out = com.microsoft.MatMulNBits <K=64, N=8, bits=8, block_size=32> (x, b, s, z)"),
    ("float[2,3,64] x, uint8[8,2,16] b, float[16] s, float[8] c", "",
     "out = com.microsoft.MatMulNBits <K=64, N=8, bits=4, block_size=32> (x, b, s, , , c)"),
    ("uint8[3,4] a, uint8[4,5] b, float[1] s, float[5] t, uint8 y, uint8[5] z, float[5] c", "",
     "out = com.microsoft.MatMulIntegerToFloat (a, b, s, t, y, z, c)"),
    ("float[3,4] a, int8[4,5] b, float[5] t, int8[5] z, float[5] c", "",
     "out = com.microsoft.DynamicQuantizeMatMul (a, b, t, z, c)"),
    ("float[1,4,5,5] x, float[6,2,3,3] w, float[6] b, float[1,6,3,3] z", "",
     'out = com.microsoft.FusedConv <group=2, activation="Relu"> (x, w, b, z)'),
    ("float[2,3,8] x, int64[2,3] p, float[9,2] c, float[9,2] s", "",
     "out = com.microsoft.RotaryEmbedding <num_heads=2> (x, p, c, s)"),
    ("float[1,16,4,4] x, float[16,16,3,3] w", "",
     "out = com.microsoft.nchwc.Conv (x, w)"),
    ("float[1,2,4,4] x", "",
     "out = GlobalLpPool (x)"),
    ("float[1,2,6,6] x, float[3,5] r", "",
     "out = MaxRoiPool <pooled_shape=[2,2]> (x, r)"),
    ("float[2,5] x", "",
     "out = Multinomial <sample_size=3> (x)"),
    ("float[2,3,4] x, float[4] g", "",
     "out = SimplifiedLayerNormalization (x, g)"),
    ("float[3,4] x", "",
     "y, z = ai.onnx.ml.LinearClassifier <coefficients=[1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0], "
     "intercepts=[0.0,0.0], classlabels_ints=[0,1]> (x)"),
    ("float[3,4] x", "",
     "out = ai.onnx.ml.LinearRegressor <coefficients=[1.0,1.0,1.0,1.0], intercepts=[0.0]> "
     "(x)"),
    ("float[3,4] x", "",
     "out = ai.onnx.ml.LinearRegressor <targets=2, "
     "coefficients=[1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0], intercepts=[0.0,0.0]> (x)"),
    ("float[3,2] x", "",
     "out = ai.onnx.ml.SVMRegressor <coefficients=[1.0,1.0], kernel_params=[0.5,0.0,3.0], "
     'kernel_type="RBF", n_supports=2, rho=[0.0], support_vectors=[1.0,2.0,3.0,4.0]> (x)'),
    ("float[3,2] x", "",
     "y, z = ai.onnx.ml.SVMClassifier <classlabels_ints=[0,1], coefficients=[1.0,1.0], "
     'kernel_params=[0.5,0.0,3.0], kernel_type="RBF", rho=[0.0], '
     "support_vectors=[1.0,2.0,3.0,4.0], vectors_per_class=[1,1]> (x)"),
    ("float[3,4] x", "",
     "out = ai.onnx.ml.Scaler <offset=[0.0,0.0,0.0,0.0], scale=[1.0,1.0,1.0,1.0]> (x)"),
    ("float[3,4] x", "",
     "out = ai.onnx.ml.Imputer <imputed_value_floats=[1.0], replaced_value_float=0.0> (x)"),
    ("float[3,4] x", "",
     "out = ai.onnx.ml.Imputer <imputed_value_floats=[1.0,1.0,1.0,1.0], "
     "replaced_value_float=0.0> (x)"),
    ("float[3,4] x", "",
     'out = ai.onnx.ml.Normalizer <norm="L2"> (x)'),
    ("int64[3,1] x", "",
     "out = ai.onnx.ml.OneHotEncoder <cats_int64s=[0,1,2]> (x)"),
    ("float[3,4] x, float[3,2] y", "",
     "z = ai.onnx.ml.FeatureVectorizer <inputdimensions=[4,2]> (x, y)"),
    ("float[3,4] x", "",
     "out = ai.onnx.ml.TreeEnsembleRegressor <n_targets=1, nodes_treeids=[0,0,0], "
     "nodes_nodeids=[0,1,2], nodes_featureids=[2,0,0], nodes_values=[0.5,0.0,0.0], "
     'nodes_modes=["BRANCH_LEQ","LEAF","LEAF"], nodes_truenodeids=[1,0,0], '
     "nodes_falsenodeids=[2,0,0], target_treeids=[0,0], target_nodeids=[1,2], "
     "target_ids=[0,0], target_weights=[1.0,2.0]> (x)"),
    ("float[3,4] x", "",
     "y, z = ai.onnx.ml.TreeEnsembleClassifier <classlabels_int64s=[0,1], "
     "nodes_treeids=[0,0,0], nodes_nodeids=[0,1,2], nodes_featureids=[2,0,0], "
     'nodes_values=[0.5,0.0,0.0], nodes_modes=["BRANCH_LEQ","LEAF","LEAF"], '
     "nodes_truenodeids=[1,0,0], nodes_falsenodeids=[2,0,0], class_treeids=[0,0], "
     "class_nodeids=[1,2], class_ids=[0,1], class_weights=[1.0,2.0]> (x)"),
)  # fmt: skip


def models() -> dict[str, onnx.ModelProto]:
    """A model of one node for each case, by the words of the node."""
    by_words = {}
    for inputs, stored, words in CONTRIB:
        results = "out, mask" if words.startswith("Embed") else "out"
        line = f"{results} = com.microsoft.{words}"
        by_words[f"{words} of {inputs}"] = _model(inputs, stored, line)
    for inputs, stored, line in OTHERS:
        by_words[f"{line} of {inputs}"] = _model(inputs, stored, line)
    return by_words


def _model(inputs: str, stored: str, line: str) -> onnx.ModelProto:
    kept = f"<{stored}>" if stored else ""
    model = parsed(f"g ({inputs}) => ({line.partition(' = ')[0]}) {kept} {{ {line} }}")
    model.opset_import.add(domain="ai.onnx.ml", version=3)
    model.opset_import.add(domain="com.microsoft.nchwc", version=1)
    return model
