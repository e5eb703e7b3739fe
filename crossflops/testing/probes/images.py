"""Heads and oddities behind one image: some tools are asked about nothing else."""

from typing import Any

from crossflops.testing.probes.probe import Probe, function, nn

_IMAGE, _MAPS = ("1x3x4x4",), ("1x8x8x8",)


def _bilinear(model: Any, x: Any) -> Any:
    rows = x.flatten(1)
    return model.layer(rows[:, :6], rows[:, 6:10])


def _classes(model: Any, x: Any) -> Any:
    return model.softmax(model.layer(x.flatten(1)))


PROBES = (
    # 48 features to 5 classes
    Probe(
        "image_classifier",
        function(_classes, layer=nn("Linear", 48, 5), softmax=nn("Softmax", -1)),
        _IMAGE,
        240,
    ),
    # x1 W x2 for 3 outputs: 3 x (6 x 4 for the first product, and 4 for the second)
    Probe("image_bilinear", function(_bilinear, layer=nn("Bilinear", 6, 4, 3)), _IMAGE, 3 * 28),
    # 12 rows of 4 features
    Probe(
        "image_rows",
        function(lambda model, x: model.layer(x), layer=nn("Linear", 4, 5)),
        _IMAGE,
        12 * 20,
    ),
    # a class whose base is there as well, before it
    Probe(
        "image_relu6_after_its_base",
        function(
            lambda model, x: model.relu6(model.hardtanh(x)),
            hardtanh=nn("Hardtanh"),
            relu6=nn("ReLU6"),
        ),
        _MAPS,
        0,
    ),
    Probe(
        "image_softmax_of_a_vector",
        function(lambda model, x: model.softmax(x.flatten()), softmax=nn("Softmax", 0)),
        _IMAGE,
        0,
    ),
    Probe(
        "image_indices",
        function(lambda model, x: model.pool(x)[0], pool=nn("MaxPool2d", 2, return_indices=True)),
        _MAPS,
        0,
    ),
    # called once as asked, and before with another shape: a tool may keep the last call only
    Probe(
        "image_twice",
        function(
            lambda model, x: model.conv(model.conv(x)[:, :, :5]), conv=nn("Conv2d", 8, 8, 3, 1, 1)
        ),
        _MAPS,
        (64 + 40) * 8 * 8 * 9,
    ),
)
