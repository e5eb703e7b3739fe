"""Layers as rules about them seldom expect them: cut windows, appended keys, subclasses."""

from typing import Any

from crossflops.testing.probes.probe import Probe, function, inside, nn

_MAPS, _ROWS, _TOKENS = ("1x8x16x16",), ("4x64",), ("2x10x32",)
_TARGET = (*_TOKENS, "2x7x12", "2x7x20")  # queries, keys, values


def _vmapped(model: Any, x: Any) -> Any:
    import torch

    return torch.vmap(model.layer)(x)


def _subscripts(model: Any, a: Any, b: Any) -> Any:
    import torch

    return torch.einsum(a, [0, 1, 2], b, [0, 2, 3], [0, 1, 3])


def _by_keyword(model: Any, x: Any) -> Any:
    return model.layer(input=x)


def _attend(model: Any, *tensors: Any, **options: Any) -> Any:
    query, key, value = tensors if len(tensors) == 3 else tensors * 3
    return model.layer(query, key, value, **options)[0]


def _attention(*args: Any, call: dict[str, Any] | None = None, **options: Any) -> Any:
    """nn.MultiheadAttention of width 32 with these options, called with those of `call`."""
    layer = nn("MultiheadAttention", 32, 4, *args, **options)
    return function(lambda model, *x: _attend(model, *x, **(call or {})), layer=layer)


def _forward_of_attention(model: Any, x: Any) -> Any:
    return model.layer.forward(x, x, x, need_weights=False)[0]


def _forward_of_linear(model: Any, x: Any) -> Any:
    return model.layer.forward(x)


class _Own:
    """Subclasses of layers, made when a probe is built."""

    @staticmethod
    def with_branch() -> Any:
        """A linear layer with a second product of its own."""
        import torch

        class WithBranch(torch.nn.Linear):
            def forward(self, x: Any) -> Any:
                return super().forward(x) + torch.nn.functional.linear(x, self.weight * 2)

        return WithBranch(64, 32)

    @staticmethod
    def norm_with_children() -> Any:
        """A normalization with an activation and a layer in it."""
        import torch

        class NormAct(torch.nn.BatchNorm2d):
            def __init__(self) -> None:
                super().__init__(8)
                self.act, self.mix = torch.nn.PReLU(), torch.nn.Conv2d(8, 8, 1)

            def forward(self, x: Any) -> Any:
                return self.mix(self.act(super().forward(x))) + x @ x

        return NormAct()

    @staticmethod
    def linear_with_child() -> Any:
        """A linear layer with another one in it, as adapters of low rank have."""
        import torch

        class Adapted(torch.nn.Linear):
            def __init__(self) -> None:
                super().__init__(64, 32)
                self.down, self.up = torch.nn.Linear(64, 4), torch.nn.Linear(4, 32)

            def forward(self, x: Any) -> Any:
                return super().forward(x) + self.up(self.down(x))

        return Adapted()

    @staticmethod
    def free() -> Any:
        """An activation that multiplies."""
        import torch

        class Free(torch.nn.ReLU):
            def forward(self, x: Any) -> Any:
                return super().forward(x @ x)

        return Free()


def _own_product(model: Any, x: Any) -> Any:
    import torch

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x @ x

    return Square.apply(x)


_POOLS = tuple(
    Probe(name, inside(nn(layer, *args, **options)), inputs, 0)
    for name, layer, args, options, inputs in (
        ("AvgPool_padded", "AvgPool2d", (3, 2, 1), {}, _MAPS),
        ("AvgPool_cut", "AvgPool2d", (3, 2, 1), {"count_include_pad": False}, _MAPS),
        ("AvgPool_ceil", "AvgPool2d", ((3, 2), (2, 3)), {"ceil_mode": True}, _MAPS),
        ("AvgPool1d_padded", "AvgPool1d", (3, 2, 1), {}, ("2x8x11",)),
        ("AvgPool3d", "AvgPool3d", (2,), {}, ("1x2x4x5x6",)),
        ("AdaptAvg_uneven", "AdaptiveAvgPool2d", ((3, None),), {}, _MAPS),
        ("nn.Softmin", "Softmin", (-1,), {}, _TOKENS),
        ("rmsnorm_plain", "RMSNorm", (32,), {"elementwise_affine": False}, _TOKENS),
        ("nn.Softmax2d", "Softmax2d", (), {}, _MAPS),
    )
)
_SEQUENCES = (
    # 5 steps of 2 samples: 4 x 32 x (16 + 8) + 32 x 8, once more for 8 inputs
    Probe(
        "LSTM_2l_projected",
        inside(nn("LSTM", 16, 32, 2, proj_size=8)),
        ("5x2x16",),
        10 * (128 * (16 + 8) + 256 + 128 * (8 + 8) + 256),
    ),
    Probe("GRU_bare_steps", inside(nn("GRU", 16, 32)), ("5x16",), 5 * 96 * 48),
    Probe("LSTMCell_vector", inside(nn("LSTMCell", 16, 32)), ("16",), 128 * 48),
)
# rows x E x E for each projection, and 2 x B x L x S x E for the products
_KEYS = (
    Probe(
        "MHA_appended",
        _attention(add_bias_kv=True, add_zero_attn=True, batch_first=True),
        _TOKENS,
        4 * 20 * 1024 + 2 * 2 * 10 * 12 * 32,
    ),
    Probe(
        "MHA_appended_quietly",
        _attention(add_zero_attn=True, call={"need_weights": False}),
        _TOKENS,
        4 * 20 * 1024 + 2 * 10 * 2 * 3 * 32,
    ),
    Probe(
        "MHA_cross",
        _attention(kdim=12, vdim=20, batch_first=True),
        _TARGET,
        2 * 20 * 1024 + 14 * 32 * 32 + 2 * 2 * 10 * 7 * 32,
    ),
    Probe("MHA_unbatched", _attention(), ("10x32",), 4 * 10 * 1024 + 2 * 10 * 10 * 32),
    Probe(
        "MHA_forward",
        function(_forward_of_attention, layer=nn("MultiheadAttention", 32, 4)),
        _TOKENS,
        4 * 20 * 1024 + 2 * 10 * 2 * 2 * 32,
    ),
)
_FUNCTIONS = (
    Probe(
        "vmap_convT", function(_vmapped, layer=nn("ConvTranspose2d", 3, 8, 3)), ("5x3x6x6",), 38880
    ),
    Probe("einsum_subscripts", function(_subscripts), ("2x10x8", "2x8x10"), 1600),
    Probe("einsum_summed", function(_subscripts), ("2x10x8", "1x8x10"), 1600),
    Probe("own_function", function(_own_product), ("6x6",), 216),
    Probe("linear_by_keyword", function(_by_keyword, layer=nn("Linear", 64, 32)), _ROWS, 8192),
    Probe("linear_forward", function(_forward_of_linear, layer=nn("Linear", 64, 32)), _ROWS, 8192),
)
_SUBCLASSES = (
    Probe("linear_with_branch", inside(_Own.with_branch), _ROWS, 2 * 8192),
    Probe(
        "norm_with_children", inside(_Own.norm_with_children), _MAPS, 64 * 256 + 8 * 16 * 16 * 16
    ),
    Probe("linear_with_child", inside(_Own.linear_with_child), _ROWS, 8192 + 4 * 4 * (64 + 32)),
    Probe("activation_with_product", inside(_Own.free), ("6x6",), 216),
)

PROBES = (*_POOLS, *_SEQUENCES, *_KEYS, *_FUNCTIONS, *_SUBCLASSES)
