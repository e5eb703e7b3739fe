"""Build models of keras.applications by name, with the inputs that they are built with."""

import importlib
from collections.abc import Mapping, Sequence

from crossflops.frontends.named import (
    Library,
    NamedModel,
    names_in_package_sources,
    unknown_model_error,
)
from crossflops.frontends.tensorflow.load.default_inputs import default_keras_input
from crossflops.ir.graph import TensorSpec

_TOKENS, _SIDE = 128, 224  # of inputs that a backbone leaves open
_EXPORTED = r"\)\ndef ([A-Z]\w*)\("  # below the decorator that gives it a public name


class Applications(Library):
    """The library of targets `keras:NAME`; case is ignored: `keras:resnet50` is ResNet50."""

    prefix = "keras"
    package = "keras"
    listing = "import keras; print(*dir(keras.applications))"

    def model_names(self) -> Sequence[str]:
        """Return the names that keras.applications exports, () without Keras."""
        return names_in_package_sources("keras", "src/applications", _EXPORTED)

    def make_model(
        self, name: str, arguments: Mapping[str, object], sizes: Mapping[str, int]
    ) -> NamedModel:
        """Return the model without pretrained weights, built for the requested image size."""
        applications = importlib.import_module("keras.applications")
        known = {public.casefold(): public for public in dir(applications) if public[0].isupper()}
        if name.casefold() not in known:
            raise unknown_model_error(self, name, list(known.values()))
        options: dict[str, object] = {"weights": None}
        if side := sizes.get("image_size"):
            options["input_shape"] = (side, side, 3)
        model = getattr(applications, known[name.casefold()])(**{**options, **arguments})
        shape = tuple(model.inputs[0].shape)[1:]
        if not all(isinstance(size, int) for size in shape):
            return NamedModel(model=model)
        return NamedModel(
            model=model,
            specs=(TensorSpec("0", "float32", (sizes.get("batch", 1), *shape), "input"),),
            origin="the input of its constructor",
            sizes=("batch", "image_size"),
        )


class KerasHub(Library):
    """The library of targets `keras_hub:PRESET`, where the preset is a folder or a name."""

    prefix = "keras_hub"
    package = "keras_hub"
    names_models = False  # presets are not in the files of the library

    def make_model(
        self, name: str, arguments: Mapping[str, object], sizes: Mapping[str, int]
    ) -> NamedModel:
        """Return the backbone model of a KerasHub preset, without its weights."""
        hub = importlib.import_module("keras_hub")
        options: dict[str, object] = {"load_weights": False}
        model = hub.models.Backbone.from_preset(name, **{**options, **arguments})
        usual = default_keras_input(model, {"seq": _TOKENS, "image_size": _SIDE, **sizes})
        return usual or NamedModel(model=model)


LIBRARIES: tuple[Library, ...] = (Applications(), KerasHub())
