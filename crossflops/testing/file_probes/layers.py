"""Layers in the forms that other exporters give them."""

from crossflops.testing.file_probes.probe import FileProbe

_CONV = "Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>"
# 2x3x8x8 to 4 maps, 3x3
_CONV_MACS = 2 * 4 * 64 * 27

FILES = (
    FileProbe(
        "conv_with_bias",
        f"g (float[2,3,8,8] x, float[4,3,3,3] w, float[4] b) => (float[2,4,8,8] y)"
        f" {{ y = {_CONV}(x, w, b) }}",
        _CONV_MACS,
        ("w", "b"),
    ),
    FileProbe(
        "conv_with_a_nameless_bias",
        f"g (float[2,3,8,8] x, float[4,3,3,3] w) => (float[2,4,8,8] y)"
        f' {{ y = {_CONV}(x, w, "") }}',
        _CONV_MACS,
        ("w",),
    ),
    FileProbe(
        "conv_without_kernel_shape",
        "g (float[2,3,8,8] x, float[4,3,3,3] w) => (float[2,4,8,8] y)"
        " { y = Conv<pads = [1, 1, 1, 1]>(x, w) }",
        _CONV_MACS,
        ("w",),
    ),
    FileProbe(
        "conv_transpose_in_groups",
        "g (float[1,4,5,5] x, float[4,3,2,2] w, float[6] b) => (float[1,6,10,10] y)"
        " { y = ConvTranspose<kernel_shape = [2, 2], strides = [2, 2], group = 2>(x, w, b) }",
        4 * 25 * 3 * 4,
        ("w", "b"),
    ),
    FileProbe(
        "quantized_conv",
        "g (uint8[1,2,6,6] x, float s, uint8 z, uint8[3,2,3,3] w, int32[3] b)"
        " => (uint8[1,3,4,4] y)"
        " { y = QLinearConv<kernel_shape = [3, 3]>(x, s, z, w, s, z, s, z, b) }",
        3 * 16 * 18,
        ("s", "z", "w", "b"),
    ),
    FileProbe(
        "integer_conv",
        "g (uint8[1,2,6,6] x, uint8[3,2,3,3] w) => (int32[1,3,4,4] y)"
        " { y = ConvInteger<kernel_shape = [3, 3]>(x, w) }",
        3 * 16 * 18,
        ("w",),
    ),
    FileProbe(
        "gemm_transposed_twice",
        "g (float[5,3] a, float[4,5] b, float[4] c) => (float[3,4] y)"
        " { y = Gemm<transA = 1, transB = 1>(a, b, c) }",
        3 * 4 * 5,
        ("b", "c"),
    ),
    FileProbe(
        "matmul_with_batches_of_b_alone",
        "g (float[6,8] a, float[2,4,8,10] b) => (float[2,4,6,10] y) { y = MatMul(a, b) }",
        8 * 6 * 8 * 10,
    ),
    FileProbe(
        "matmul_by_a_vector",
        "g (float[3,4,5] a, float[5] b) => (float[3,4] y) { y = MatMul(a, b) }",
        60,
    ),
    FileProbe(
        "integer_matmul",
        "g (uint8[4,6] a, uint8[6,5] b, uint8 z) => (int32[4,5] y) { y = MatMulInteger(a, b, z) }",
        120,
        ("b", "z"),
    ),
    FileProbe(
        "quantized_matmul",
        "g (uint8[4,6] a, float s, uint8 z, uint8[6,5] b) => (uint8[4,5] y)"
        " { y = QLinearMatMul(a, s, z, b, s, z, s, z) }",
        120,
        ("s", "z", "b"),
    ),
    FileProbe(
        "einsum_of_two",
        "g (float[3,4] a, float[4,5] b) => (float[3,5] y)"
        ' { y = Einsum<equation = "ij,jk->ik">(a, b) }',
        60,
    ),
    FileProbe(
        "einsum_without_arrow",
        "g (float[3,4] a, float[4,5] b) => (float[3,5] y)"
        ' { y = Einsum<equation = "ij,jk">(a, b) }',
        60,
    ),
    FileProbe(
        "einsum_of_one",
        'g (float[3,4] a) => (float[4,3] y) { y = Einsum<equation = "ij->ji">(a) }',
        0,
    ),
    FileProbe(
        "lstm_with_bias",
        "g (float[5,2,6] x, float[1,16,6] w, float[1,16,4] r, float[1,32] b)"
        " => (float[5,1,2,4] y, float[1,2,4] h, float[1,2,4] c)"
        " { y, h, c = LSTM<hidden_size = 4>(x, w, r, b) }",
        5 * 2 * 16 * 10,
        ("w", "r", "b"),
    ),
    FileProbe(
        "lstm_without_bias",
        "g (float[5,2,6] x, float[1,16,6] w, float[1,16,4] r) => (float[5,1,2,4] y)"
        " { y = LSTM<hidden_size = 4>(x, w, r) }",
        5 * 2 * 16 * 10,
        ("w", "r"),
    ),
    FileProbe(
        "lstm_without_its_sequence",
        "g (float[5,2,6] x, float[1,16,6] w, float[1,16,4] r, float[1,32] b)"
        ' => (float[1,2,4] h) { "", h = LSTM<hidden_size = 4>(x, w, r, b) }',
        5 * 2 * 16 * 10,
        ("w", "r", "b"),
    ),
    FileProbe(
        "gru_with_one_result",
        "g (float[5,2,6] x, float[1,12,6] w, float[1,12,4] r, float[1,24] b)"
        " => (float[5,1,2,4] y) { y = GRU<hidden_size = 4>(x, w, r, b) }",
        5 * 2 * 12 * 10,
        ("w", "r", "b"),
    ),
    FileProbe(
        "gru_with_two_results",
        "g (float[5,2,6] x, float[1,12,6] w, float[1,12,4] r, float[1,24] b)"
        " => (float[5,1,2,4] y, float[1,2,4] h)"
        " { y, h = GRU<hidden_size = 4>(x, w, r, b) }",
        5 * 2 * 12 * 10,
        ("w", "r", "b"),
    ),
    FileProbe(
        "rnn",
        "g (float[5,2,6] x, float[1,4,6] w, float[1,4,4] r, float[1,8] b)"
        " => (float[5,1,2,4] y) { y = RNN<hidden_size = 4>(x, w, r, b) }",
        5 * 2 * 4 * 10,
        ("w", "r", "b"),
    ),
    FileProbe(
        "lstm_that_waits_for_itself",
        "g (float[5,2,6] x, float[1,16,6] w, float[1,16,4] r, float[1,32] b, float[1,2,4] i)"
        " => (float[1,2,4] z, float[5,2,6] y)"
        ' { "", h = LSTM<hidden_size = 4>(x, w, r, b, "", i, i) z = Tanh(h) y = Exp(x) }',
        5 * 2 * 16 * 10,
        ("w", "r", "b", "i"),
    ),
    FileProbe(
        "integer_matmul_of_four",
        "g (uint8[4,6] a, uint8[6,5] b, uint8 z) => (int32[4,5] y)"
        " { y = MatMulInteger(a, b, z, z) }",
        120,
        ("b", "z"),
    ),
)
