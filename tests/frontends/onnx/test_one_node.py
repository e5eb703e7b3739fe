"""One-node files with analytic truth, each wrong in some counter."""

import pytest

from crossflops import count
from tests.onnx_files import parsed, saved

BODY = "(int64 i, bool c, float[4,16] a) => (d, e) { d = Identity(c) e = MatMul(a, w) }"
# The MACs stand on the left, as a product of the letters of the operator's page.
MODELS = {
    "Conv with bias": (
        14 * 14 * 8 * 3 * 9,
        "g (float[1,3,16,16] x, float[8,3,3,3] w, float[8] b) => (y) "
        "{ y = Conv <kernel_shape = [3,3]> (x, w, b) }",
    ),
    "Conv depthwise": (
        14 * 14 * 8 * 9,
        "g (float[1,8,16,16] x, float[8,1,3,3] w) => (y) { y = Conv <group = 8> (x, w) }",
    ),
    "Conv of one dimension": (
        14 * 8 * 3 * 3,
        "g (float[1,3,16] x, float[8,3,3] w) => (y) { y = Conv (x, w) }",
    ),
    "Conv without kernel_shape": (
        14 * 14 * 8 * 3 * 9,
        "g (float[1,3,16,16] x, float[8,3,3,3] w) => (y) { y = Conv (x, w) }",
    ),
    "ConvTranspose": (
        8 * 8 * 8 * 16 * 16,
        "g (float[1,8,8,8] x, float[8,16,4,4] w) => (y) "
        "{ y = ConvTranspose <strides = [2,2]> (x, w) }",
    ),
    "ConvTranspose in groups": (
        8 * 8 * 8 * 4 * 16,
        "g (float[1,8,8,8] x, float[8,4,4,4] w) => (y) "
        "{ y = ConvTranspose <strides = [2,2], group = 4> (x, w) }",
    ),
    "Gemm transB": (
        4 * 8 * 16,
        "g (float[4,16] a, float[8,16] b, float[8] c) => (y) { y = Gemm <transB = 1> (a, b, c) }",
    ),
    "Gemm transA": (
        4 * 8 * 16,
        "g (float[16,4] a, float[16,8] b) => (y) { y = Gemm <transA = 1> (a, b) }",
    ),
    "MatMul that broadcasts": (
        5 * 6 * 4 * 8 * 16,
        "g (float[5,1,4,16] a, float[6,16,8] b) => (y) { y = MatMul (a, b) }",
    ),
    "MatMul of a row": (16 * 8, "g (float[16] a, float[16,8] b) => (y) { y = MatMul (a, b) }"),
    "MatMul of a column": (8 * 16, "g (float[8,16] a, float[16] b) => (y) { y = MatMul (a, b) }"),
    "Einsum": (
        2 * 3 * 4 * 5,
        "g (float[2,3,4] a, float[2,4,5] b) => (y) "
        '{ y = Einsum <equation = "bij,bjk->bik"> (a, b) }',
    ),
    "LSTM": (
        10 * 2 * 4 * 16 * (8 + 16),
        "g (float[10,2,8] x, float[1,64,8] w, float[1,64,16] r) => (y) "
        "{ y, h, c = LSTM <hidden_size = 16> (x, w, r) }",
    ),
    "GRU in two directions": (
        2 * 10 * 2 * 3 * 16 * (8 + 16),
        "g (float[10,2,8] x, float[2,48,8] w, float[2,48,16] r) => (y) "
        '{ y, h = GRU <hidden_size = 16, direction = "bidirectional"> (x, w, r) }',
    ),
    "Attention with shared keys": (
        8 * 10 * 10 * (8 + 8),
        "g (float[1,10,64] q, float[1,10,16] k, float[1,10,16] v) => (y) "
        "{ y = Attention <q_num_heads = 8, kv_num_heads = 2> (q, k, v) }",
    ),
    "Attention with a past": (
        8 * 4 * (6 + 4) * (8 + 8),
        "g (float[1,8,4,8] q, float[1,8,4,8] k, float[1,8,4,8] v, float[1,8,6,8] p, "
        "float[1,8,6,8] r) => (y, s, t) { y, s, t = Attention (q, k, v, , p, r) }",
    ),
    "MultiHeadAttention": (
        8 * 10 * 10 * (8 + 8),
        "g (float[1,10,64] q, float[1,10,64] k, float[1,10,64] v) => (float[1,10,64] y) "
        "{ y = com.microsoft.MultiHeadAttention <num_heads = 8> (q, k, v) }",
    ),
    "MatMulNBits": (
        4 * 64 * 32,
        "g (float[4,64] a, uint8[32,2,16] b, float[64] s) => (float[4,32] y) "
        "{ y = com.microsoft.MatMulNBits <K = 64, N = 32, bits = 4, block_size = 32> (a, b, s) }",
    ),
    "FusedMatMul": (
        4 * 8 * 16,
        "g (float[16,4] a, float[16,8] b) => (float[4,8] y) "
        "{ y = com.microsoft.FusedMatMul <transA = 1> (a, b) }",
    ),
    "Loop of ten": (
        10 * 4 * 16 * 16,
        "g (float[4,16] x, float[16,16] w) => (y) <int64 m = {10}, bool t = {1}> "
        f"{{ y = Loop (m, t, x) <body = b {BODY}> }}",
    ),
    "If": (
        8 * 8 * 16,
        "g (bool c, float[8,16] x, float[16,8] w) => (y) { y = If (c) "
        "<then_branch = t () => (p) { p = MatMul (x, w) }, "
        "else_branch = e () => (q) { q = Constant <value = float {0}> () }> }",
    ),
    "a function called twice": (
        2 * 4 * 16 * 16,
        "g (float[4,16] x, float[16,16] w) => (y) { a = local.F (x, w) y = local.F (a, w) } "
        '<domain: "local", opset_import: ["": 17]> F (p, q) => (r) { r = MatMul (p, q) }',
    ),
}


# What the products above come to, as they were published with the models.
PUBLISHED = (
    *(42336, 14112, 1008, 42336, 131072, 32768, 512, 512, 15360, 128, 128, 120, 30720, 46080),
    *(12800, 5120, 12800, 8192, 512, 10240, 1024, 2048),
)


@pytest.mark.parametrize(("name", "published"), list(zip(MODELS, PUBLISHED, strict=True)))
def test_the_macs_are_exact(name, published, tmp_path):
    """The MACs are those by hand, and every node is counted."""
    macs, text = MODELS[name]
    assert macs == published
    model = parsed(text, opset=23 if name.startswith("Attention") else 17)
    report = count(saved(tmp_path, model))
    assert not report.uncounted
    assert report.macs == macs
