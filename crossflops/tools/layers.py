"""The layers of torch.nn by class, and the operators by which they contract."""

from crossflops.tools.contractions import (
    OPERATORS,
    convolution,
    linear,
    recurrent,
    recurrent_cell,
)

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
    convolution: (*CONVOLUTIONS, *TRANSPOSED),
    linear: LINEAR,
    recurrent: RECURRENT,
    recurrent_cell: CELLS,
}


def operators(classes: tuple[str, ...]) -> tuple[str, ...]:
    """The operators by which these layers contract: what a rule about them stands for."""
    return tuple(
        operator
        for family, members in _FAMILIES.items()
        if not set(classes).isdisjoint(members)
        for operator in OPERATORS[family]
    )
