"""torchvision: models by name; their usual input is what the transforms of their weights give."""

import importlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from crossflops.errors import TargetError, nearest
from crossflops.frontends.named import Library, Named, declared, image
from crossflops.ir.graph import TensorSpec

_REGISTERED = r"^@register_model\(\)\n(?:.*\n)*?def (\w+)\("
_FRAMES = 16  # of a clip: the length that torchvision's video models were trained for
_RGB = 3


class Torchvision(Library):
    """`torchvision:NAME`, as `torchvision.models.get_model` takes it."""

    prefix = "torchvision"
    package = "torchvision"

    def names(self) -> Sequence[str]:
        """What torchvision's files register; quantized models apart, which no exporter takes."""
        return declared("torchvision", "models", _REGISTERED)

    def make(self, name: str, arguments: Mapping[str, object], sizes: Mapping[str, int]) -> Named:
        """The model without weights, its backbone's too.

        A transformer whose input has one size is built for the size that is asked for.
        """
        models = importlib.import_module("torchvision.models")
        known = models.list_models()
        if name.lower() not in known:
            raise TargetError(f"torchvision has no model {name!r}", nearest(name, known))
        weights = models.get_model_weights(name)
        options: dict[str, object] = {"weights": None}
        if _has_backbone(models, name):
            options["weights_backbone"] = None
        model = models.get_model(name, **{**options, **arguments})
        if "image_size" in sizes and hasattr(model, "image_size"):
            more = {"image_size": sizes["image_size"]}
            model = models.get_model(name, **{**options, **more, **arguments})
        spec = _usual(name, model, weights, sizes)
        if spec is None:
            return Named(model=model)
        return Named(
            model=model,
            specs=(spec,),
            origin="the transforms of its weights in torchvision",
            sizes=("batch", "image_size"),
        )


def _has_backbone(models: Any, name: str) -> bool:
    return "weights_backbone" in inspect.signature(models.get_model_builder(name)).parameters


def _usual(name: str, model: Any, weights: Any, sizes: Mapping[str, int]) -> TensorSpec | None:
    """The input of one image or clip; None where the model takes something else.

    Of segmentation the transforms only resize; detection and optical flow take lists and pairs.
    """
    kind = type(model).__module__.removeprefix("torchvision.models.").partition(".")[0]
    if kind in ("detection", "optical_flow"):
        return None
    default = getattr(weights, "DEFAULT", None)
    if default is None:
        return None
    transforms = default.transforms()
    area = getattr(transforms, "crop_size", None) or getattr(transforms, "resize_size", None)
    if not area:
        return None
    height, width = area if len(area) == 2 else (area[0], area[0])
    spec = image("0", _RGB, height, width, sizes)
    if kind != "video":
        return spec
    batch, channels, *area = spec.shape or ()
    return TensorSpec("0", "float32", (batch, channels, _FRAMES, *area), "input")
