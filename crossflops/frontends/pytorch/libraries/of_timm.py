"""timm: models by name; their usual input stands in their `pretrained_cfg`."""

import functools
import importlib
from collections.abc import Mapping, Sequence

from crossflops.frontends.named import Library, Named, declared, image

_REGISTERED = r"^@register_model\s*\ndef (\w+)\("


class Timm(Library):
    """`timm:NAME`, a tag of weights after the name being of no matter for a count."""

    prefix = "timm"
    package = "timm"

    def names(self) -> Sequence[str]:
        """What timm's files register."""
        return declared("timm", "models", _REGISTERED)

    def make(self, name: str, arguments: Mapping[str, object], sizes: Mapping[str, int]) -> Named:
        """The model with random weights unless the arguments say else.

        A transformer whose input has one size is built for the size that is asked for.
        """
        timm = importlib.import_module("timm")
        build = functools.partial(timm.create_model, name, **{"pretrained": False, **arguments})
        model = build()
        cfg = getattr(model, "pretrained_cfg", None) or {}
        if "image_size" in sizes and cfg.get("fixed_input_size"):
            model = build(img_size=sizes["image_size"])
        if not cfg.get("input_size"):
            return Named(model=model)
        channels, height, width = cfg["input_size"]
        return Named(
            model=model,
            specs=(image("0", channels, height, width, sizes),),
            origin="its default_cfg in timm",
            sizes=("batch", "image_size"),
        )
