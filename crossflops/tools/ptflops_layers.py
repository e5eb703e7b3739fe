"""The classes for which ptflops has a hook, by exact type: pytorch_ops.py: MODULES_MAPPING."""

from crossflops.tools.layers import (
    ADAPTIVE_POOLS,
    AVERAGE_POOLS,
    BATCH_NORMS,
    CELLS,
    CONVOLUTIONS,
    INSTANCE_NORMS,
    LAYER_NORM,
    LINEAR,
    NN,
    RECURRENT,
    TRANSPOSED,
)

NORMS = {
    "norm.batch": tuple(one for one in BATCH_NORMS if "Sync" not in one),
    "norm.instance": INSTANCE_NORMS,
    "norm.group": (f"{NN}.normalization.GroupNorm",),
    "norm.layer": LAYER_NORM,
}
ACTIVATIONS = {
    "act.relu": (f"{NN}.activation.ReLU",),
    "act.piecewise-other": tuple(
        f"{NN}.activation.{name}" for name in ("PReLU", "LeakyReLU", "ReLU6")
    ),
    "act.transcendental": tuple(f"{NN}.activation.{name}" for name in ("ELU", "GELU")),
}
POOLS = {
    "pool.max": tuple(
        f"{NN}.pooling.{kind}Pool{d}d" for kind in ("Max", "AdaptiveMax") for d in (1, 2, 3)
    ),
    "pool.avg": AVERAGE_POOLS,
    "pool.adaptive": ADAPTIVE_POOLS,
}
UPSAMPLE = (f"{NN}.upsampling.Upsample",)
ATTENTION = (f"{NN}.activation.MultiheadAttention",)
# timm up to 0.9 has it in the file of its vision transformer
TIMM = ("timm.layers.attention.Attention", "timm.models.vision_transformer.Attention")
SUPPORTED = frozenset(
    {
        *(*CONVOLUTIONS, *TRANSPOSED, *LINEAR, *RECURRENT, *CELLS),
        *(one for table in (NORMS, ACTIVATIONS, POOLS) for row in table.values() for one in row),
        *(*UPSAMPLE, *ATTENTION, *TIMM),
    }
)
