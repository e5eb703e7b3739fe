"""How modules are put together: shared, reused, subclassed, dead, fused."""

from collections.abc import Callable
from typing import Any

from crossflops.testing.probes.probe import Probe, function, inside, nn

_MAPS, _TOKENS = ("1x8x16x16",), ("2x10x32",)
_CONV = nn("Conv2d", 8, 8, 3, padding=1, bias=False)  # 147456 on _MAPS


def _shared_two_names() -> Any:
    layer = _CONV()
    return function(
        lambda model, x: model.second(model.first(x)), first=lambda: layer, second=lambda: layer
    )()


def _shared_two_parents() -> Any:
    layer = _CONV()
    parent = inside(lambda: layer)
    return function(lambda model, x: model.b(model.a(x)), a=parent, b=parent)()


def _tied() -> Any:
    model = function(
        lambda model, x: model.b(model.a(x)),
        a=nn("Linear", 32, 32, bias=False),
        b=nn("Linear", 32, 32, bias=False),
    )()
    model.b.weight = model.a.weight
    return model


def _subclassed() -> Any:
    from torch import nn as torch_nn

    class OwnConv(torch_nn.Conv2d):
        pass

    return OwnConv(3, 8, 3, padding=1, bias=False)


def _dead(*layers: Callable[[], Any]) -> Callable[[], Any]:
    def body(model: Any, x: Any) -> Any:
        model.dead(x)
        return model.live(x)

    return function(body, live=_CONV, dead=_sequential(*layers))


def _sequential(*layers: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: nn("Sequential", *(layer() for layer in layers))()


def _attention(**options: Any) -> Callable[[], Any]:
    def body(model: Any, x: Any) -> Any:
        return model.layer(x, x, x, **options)[0]

    return function(body, layer=nn("MultiheadAttention", 32, 4, batch_first=True))


_ENCODER_LAYER = nn("TransformerEncoderLayer", 32, 4, 64, batch_first=True)
_DECODER_LAYER = nn("TransformerDecoderLayer", 32, 4, 64, batch_first=True)

_COMPOSITION = (
    Probe(
        "shared_called_twice",
        function(lambda model, x: model.layer(model.layer(x)), layer=_CONV),
        _MAPS,
        294912,
    ),
    Probe("shared_two_names", _shared_two_names, _MAPS, 294912),
    Probe("shared_two_parents", _shared_two_parents, _MAPS, 294912),
    Probe("tied_weight_two_modules", _tied, ("16x32",), 32768),
    Probe(
        "unused_submodule",
        function(lambda model, x: model.layer(x), layer=_CONV, unused=_CONV),
        _MAPS,
        147456,
    ),
    Probe(
        "direct_forward",
        function(lambda model, x: model.layer.forward(x), layer=_CONV),
        _MAPS,
        147456,
    ),
    Probe("subclassed_conv", inside(_subclassed), ("1x3x16x16",), 55296),
    Probe("dead_conv", _dead(_CONV), _MAPS, 147456),
    Probe("dead_conv_bn", _dead(_CONV, nn("BatchNorm2d", 8)), _MAPS, 147456),
    Probe(
        "py_loop3",
        function(lambda model, x: model.l(model.l(model.l(x))), l=nn("Linear", 8, 8)),
        ("4x8",),
        768,
    ),
    Probe(
        "conv_bn_relu",
        _sequential(
            nn("Conv2d", 3, 8, 3, padding=1, bias=False),
            nn("BatchNorm2d", 8),
            nn("ReLU", inplace=True),
        ),
        ("1x3x16x16",),
        55296,
    ),
)
# Tokens 2 x 10, E = 32: projections 4 x 20 x 32 x 32, products 2 x 2 x 10 x 10 x 32
_ATTENTION = 81920 + 12800
_FEED_FORWARD = 2 * 20 * 32 * 64
_ATTENTION_MODULES = (
    Probe("MHA_noweights", _attention(need_weights=False), _TOKENS, _ATTENTION),
    Probe("MHA_weights", _attention(), _TOKENS, _ATTENTION),
    Probe("TransformerEncLayer", _ENCODER_LAYER, _TOKENS, _ATTENTION + _FEED_FORWARD),
    Probe(
        "TransformerEncoder4",
        lambda: nn("TransformerEncoder", _ENCODER_LAYER(), 4)(),
        _TOKENS,
        4 * (_ATTENTION + _FEED_FORWARD),
    ),
    # 7 tokens of memory: it projects 20 + 20 queries and outputs, 14 + 14 keys and values
    Probe(
        "TransformerDecLayer",
        _DECODER_LAYER,
        (*_TOKENS, "2x7x32"),
        _ATTENTION + (2 * 20 + 2 * 14) * 32 * 32 + 2 * 2 * 10 * 7 * 32 + _FEED_FORWARD,
    ),
)

PROBES = (*_COMPOSITION, *_ATTENTION_MODULES)
