"""List the layer classes of torch.nn, and the PyTorch operators that do their products."""

# Undecomposed operators that contract, by the family of their formula in `contractions`.
CONTRACTIONS: dict[str, tuple[str, ...]] = {
    "convolution": (
        "aten.conv1d.*", "aten.conv2d.*", "aten.conv3d.*", "aten.convolution.default",
        "aten._convolution.*", "aten.conv_transpose1d.*", "aten.conv_transpose2d.*",
        "aten.conv_transpose3d.*",
    ),
    "linear": ("aten.linear.default",),
    "matmul": (
        "aten.matmul.default", "aten.mm.default", "aten.bmm.default", "aten.addmm.default",
        "aten.baddbmm.default", "aten.linalg_matmul.default",
    ),
    "tensordot": ("aten.tensordot.default", "aten.inner.default"),
    "einsum": ("aten.einsum.default",),
    "scaled_dot_product_attention": ("aten.scaled_dot_product_attention.default",),
    "recurrent": (
        "aten.lstm.input", "aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input",
    ),
    "recurrent_cell": (
        "aten.lstm_cell.default", "aten.gru_cell.default", "aten.rnn_tanh_cell.default",
        "aten.rnn_relu_cell.default",
    ),
}  # fmt: skip

NN = "torch.nn.modules"
CONVOLUTIONS = tuple(f"{NN}.conv.Conv{d}d" for d in (1, 2, 3))
TRANSPOSED = tuple(f"{NN}.conv.ConvTranspose{d}d" for d in (1, 2, 3))
LINEAR = (f"{NN}.linear.Linear",)
BATCH_NORMS = (
    *(f"{NN}.batchnorm.BatchNorm{d}d" for d in (1, 2, 3)),
    f"{NN}.batchnorm.SyncBatchNorm",
)
INSTANCE_NORMS = tuple(f"{NN}.instancenorm.InstanceNorm{d}d" for d in (1, 2, 3))
LAYER_NORM = (f"{NN}.normalization.LayerNorm",)
AVERAGE_POOLS = tuple(f"{NN}.pooling.AvgPool{d}d" for d in (1, 2, 3))
ADAPTIVE_POOLS = tuple(f"{NN}.pooling.AdaptiveAvgPool{d}d" for d in (1, 2, 3))
UPSAMPLINGS = tuple(
    f"{NN}.upsampling.{name}"
    for name in ("Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d")
)
RECURRENT = tuple(f"{NN}.rnn.{name}" for name in ("RNN", "GRU", "LSTM"))
CELLS = tuple(f"{NN}.rnn.{name}Cell" for name in ("RNN", "GRU", "LSTM"))
CONTRACTING = (*CONVOLUTIONS, *TRANSPOSED, *LINEAR, *RECURRENT, *CELLS)

_FAMILIES = {
    "convolution": (*CONVOLUTIONS, *TRANSPOSED),
    "linear": LINEAR,
    "recurrent": RECURRENT,
    "recurrent_cell": CELLS,
}


def operators_of_layers(classes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the operators that do the products of these layer classes."""
    return tuple(
        operator
        for family, members in _FAMILIES.items()
        if not set(classes).isdisjoint(members)
        for operator in CONTRACTIONS[family]
    )
