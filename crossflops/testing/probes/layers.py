"""One layer each."""

from crossflops.testing.probes.probe import Probe, inside, nn

_IMAGE, _MAPS, _ROWS, _TOKENS = ("1x3x16x16",), ("1x8x16x16",), ("4x64",), ("2x10x64",)
_STEPS = ("5x2x16",)

_CONVOLUTIONS = (
    # outputs x Ci/g x K; transposed: inputs x Co/g x K
    Probe("conv_nobias", inside(nn("Conv2d", 3, 8, 3, padding=1, bias=False)), _IMAGE, 55296),
    Probe("conv_bias", inside(nn("Conv2d", 3, 8, 3, padding=1)), _IMAGE, 55296),
    Probe("conv_bias_batch4", inside(nn("Conv2d", 3, 8, 3, padding=1)), ("4x3x16x16",), 221184),
    Probe("conv_root", nn("Conv2d", 3, 8, 3, padding=1), _IMAGE, 55296),
    Probe(
        "conv_group4",
        inside(nn("Conv2d", 8, 16, 3, padding=1, groups=4, bias=False)),
        _MAPS,
        73728,
    ),
    Probe(
        "conv_dil2",
        inside(nn("Conv2d", 3, 8, 3, padding=2, dilation=2, bias=False)),
        _IMAGE,
        55296,
    ),
    Probe(
        "conv_same_even", inside(nn("Conv2d", 3, 8, 4, padding="same", bias=False)), _IMAGE, 98304
    ),
    Probe("conv_unbatched", inside(nn("Conv2d", 3, 8, 3, padding=1)), ("3x16x16",), 55296),
    Probe("conv1d_bias", inside(nn("Conv1d", 4, 8, 3, padding=1)), ("1x4x40",), 3840),
    Probe(
        "conv3d_nobias",
        inside(nn("Conv3d", 3, 8, 3, padding=1, bias=False)),
        ("1x3x2x6x6",),
        46656,
    ),
    Probe("convT_bias_s2", inside(nn("ConvTranspose2d", 8, 4, 3, 2, 1, 1)), ("1x8x8x8",), 18432),
    Probe(
        "convT_g2_nobias",
        inside(nn("ConvTranspose2d", 8, 4, 3, 2, 1, 1, groups=2, bias=False)),
        ("1x8x8x8",),
        9216,
    ),
    Probe("convT1d", inside(nn("ConvTranspose1d", 8, 4, 4, 2, 1)), ("2x8x9",), 2304),
)
_LINEAR = (
    # rows x in x out
    Probe("linear_bias_2d", inside(nn("Linear", 64, 32)), _ROWS, 8192),
    Probe("linear_bias_3d", inside(nn("Linear", 64, 32)), _TOKENS, 40960),
    Probe("linear_nobias_2d", inside(nn("Linear", 64, 32, bias=False)), _ROWS, 8192),
    Probe("linear_vector", inside(nn("Linear", 64, 32)), ("64",), 2048),
    Probe("linear_root", nn("Linear", 64, 32), _ROWS, 8192),
)
_NORMS = tuple(
    Probe(name, inside(layer), inputs, 0)
    for name, layer, inputs in (
        ("bn1d", nn("BatchNorm1d", 64), _ROWS),
        ("bn2d", nn("BatchNorm2d", 8), _MAPS),
        ("bn2d_noaffine", nn("BatchNorm2d", 8, affine=False), _MAPS),
        ("layernorm", nn("LayerNorm", 64), _TOKENS),
        ("layernorm_noaffine", nn("LayerNorm", 64, elementwise_affine=False), _TOKENS),
        ("groupnorm", nn("GroupNorm", 4, 8), _MAPS),
        ("groupnorm_noaffine", nn("GroupNorm", 4, 8, affine=False), _MAPS),
        ("instnorm_affine", nn("InstanceNorm2d", 8, affine=True), _MAPS),
        ("instnorm", nn("InstanceNorm2d", 8), _MAPS),
        ("rmsnorm", nn("RMSNorm", 64), _TOKENS),
    )
)
_ACTIVATIONS = tuple(
    Probe(f"nn.{name}", inside(nn(name)), _MAPS, 0)
    for name in (
        "ReLU", "ReLU6", "LeakyReLU", "GELU", "SiLU", "Sigmoid", "Tanh", "Hardswish",
        "Hardsigmoid", "PReLU", "ELU", "CELU", "SELU", "Mish", "Softplus",
    )
)  # fmt: skip
_POOLS = tuple(
    Probe(name, inside(layer), inputs, 0)
    for name, layer, inputs in (
        ("MaxPool2", nn("MaxPool2d", 2), _MAPS),
        ("MaxPool3s2p1", nn("MaxPool2d", 3, 2, 1), _MAPS),
        ("AvgPool2", nn("AvgPool2d", 2), _MAPS),
        ("AvgPool1d", nn("AvgPool1d", 2), ("1x8x10",)),
        ("AdaptAvg1", nn("AdaptiveAvgPool2d", 1), _MAPS),
        ("AdaptAvg5", nn("AdaptiveAvgPool2d", 5), _MAPS),
        ("AdaptAvg1d", nn("AdaptiveAvgPool1d", 3), ("1x8x10",)),
        ("AdaptMax1", nn("AdaptiveMaxPool2d", 1), _MAPS),
        ("Up_nearest2", nn("Upsample", scale_factor=2), _MAPS),
        ("Up_linear2", nn("Upsample", scale_factor=2, mode="linear"), ("1x8x10",)),
        ("Up_bilinear2", nn("Upsample", scale_factor=2, mode="bilinear"), _MAPS),
        ("Up_bicubic2", nn("Upsample", scale_factor=2, mode="bicubic"), _MAPS),
        ("Up_trilinear2", nn("Upsample", scale_factor=2, mode="trilinear"), ("1x2x4x4x4",)),
        ("Up_exact2", nn("Upsample", scale_factor=2, mode="nearest-exact"), _MAPS),
        ("nn.Softmax", nn("Softmax", dim=-1), _TOKENS),
        ("nn.LogSoftmax", nn("LogSoftmax", dim=-1), _TOKENS),
        ("nn.Dropout", nn("Dropout"), _MAPS),
        ("nn.PixelShuffle", nn("PixelShuffle", 2), _MAPS),
        ("nn.ZeroPad2d", nn("ZeroPad2d", 1), _MAPS),
        ("Embedding", nn("Embedding", 100, 16), ("2x10:int64",)),
    )
)
_RECURRENT = (
    # T B x the elements of the weight matrices: g H (I + H) per layer and direction
    Probe("LSTM_1l", inside(nn("LSTM", 16, 32)), _STEPS, 61440),
    Probe("LSTM_2l_bi", inside(nn("LSTM", 16, 32, 2, bidirectional=True)), _STEPS, 368640),
    Probe("LSTM_batch_first", inside(nn("LSTM", 16, 32, batch_first=True)), ("2x5x16",), 61440),
    Probe("LSTM_nobias", inside(nn("LSTM", 16, 32, bias=False)), _STEPS, 61440),
    Probe("LSTM_root", nn("LSTM", 16, 32), _STEPS, 61440),
    Probe("GRU_1l", inside(nn("GRU", 16, 32)), _STEPS, 46080),
    Probe("RNN_1l", inside(nn("RNN", 16, 32)), _STEPS, 15360),
    Probe("RNN_relu", inside(nn("RNN", 16, 32, nonlinearity="relu")), _STEPS, 15360),
    # B x g H (I + H)
    Probe("LSTMCell", inside(nn("LSTMCell", 16, 32)), ("5x16",), 30720),
    Probe("GRUCell", inside(nn("GRUCell", 16, 32)), ("5x16",), 23040),
    Probe("RNNCell", inside(nn("RNNCell", 16, 32)), ("5x16",), 7680),
    Probe("GRUCell_root", nn("GRUCell", 16, 32), ("5x16", "5x32"), 23040),
)
PROBES = (
    *_CONVOLUTIONS,
    *_LINEAR,
    *_NORMS,
    *_ACTIVATIONS,
    *_POOLS,
    *_RECURRENT,
)
