"""Libraries whose PyTorch models are built from a config of theirs: Ultralytics, SMP, diffusers.

None of them is given weights, and nothing is downloaded.
"""

import importlib
import json
from collections.abc import Mapping
from pathlib import Path

from crossflops.errors import TargetError
from crossflops.frontends.named import Library, NamedModel, image_input_spec
from crossflops.frontends.pytorch.load.default_inputs import diffusers_input

_RGB = 3
_SIDE, _CLASSIFIER_SIDE = 640, 224  # imgsz of ultralytics/cfg/default.yaml, and of its classifiers
_SMP_SIDE = 224  # of the images on which its encoders were trained


class Ultralytics(Library):
    """The source `ultralytics:NAME`, where NAME is that of a YAML file of the library: yolov8n."""

    prefix = "ultralytics"
    package = "ultralytics"
    names_models = False  # a size, such as the n of yolov8n, is not in the name of a file

    def make_model(
        self, name: str, arguments: Mapping[str, object], sizes: Mapping[str, int]
    ) -> NamedModel:
        """Build the model of a config; return it with the usual image of the library."""
        library = importlib.import_module("ultralytics")
        kind = library.RTDETR if name.lower().startswith("rtdetr") else library.YOLO
        path = f"{name.removesuffix('.pt').removesuffix('.yaml')}.yaml"
        try:
            model = kind(path, **arguments).model.eval()
        except FileNotFoundError as error:
            raise TargetError(
                f"ultralytics has no config {path}",
                "give the name of one, such as ultralytics:yolov8n or ultralytics:yolo11n-seg",
            ) from error
        side = _CLASSIFIER_SIDE if "-cls" in name else _SIDE
        return NamedModel(
            model=model,
            specs=(image_input_spec("0", _RGB, side, side, sizes),),
            origin="the image size of ultralytics",
            sizes=("batch", "image_size"),
        )


class SegmentationModels(Library):
    """The source `smp:NAME` of segmentation_models_pytorch, such as `smp:unet`."""

    prefix = "smp"
    package = "segmentation_models_pytorch"
    names_models = False  # names of architectures are shared with other libraries

    def make_model(
        self, name: str, arguments: Mapping[str, object], sizes: Mapping[str, int]
    ) -> NamedModel:
        """Build the architecture with an untrained encoder, by --arg encoder_name."""
        library = importlib.import_module("segmentation_models_pytorch")
        options: dict[str, object] = {"encoder_weights": None}
        model = library.create_model(name, **{**options, **arguments}).eval()
        channels = arguments.get("in_channels", _RGB)
        return NamedModel(
            model=model,
            specs=(image_input_spec("0", int(str(channels)), _SMP_SIDE, _SMP_SIDE, sizes),),
            origin="the images of its encoders",
            sizes=("batch", "image_size"),
        )


class Diffusers(Library):
    """The source `diffusers:FOLDER`, a folder with the config of one model of a pipeline."""

    prefix = "diffusers"
    package = "diffusers"
    names_models = False  # a name is a folder

    def make_model(
        self, name: str, arguments: Mapping[str, object], sizes: Mapping[str, int]
    ) -> NamedModel:
        """Build the model of a config, with the usual input of one step if its config tells it."""
        library = importlib.import_module("diffusers")
        content = _read_diffusers_config(Path(name).expanduser(), name)
        class_name = content.get("_class_name")
        if class_name is None:
            raise TargetError(
                f"the config.json of {name} names no class of diffusers: _class_name is missing",
                "give the folder of a model that was saved with save_pretrained of diffusers",
            )
        kind = getattr(library, str(class_name), None)
        if kind is None or not hasattr(kind, "from_config"):
            raise TargetError(
                f"the installed diffusers has no model {class_name!r}",
                "update diffusers, or give the folder of another model",
            )
        model = kind.from_config({**content, **arguments}).eval()
        return diffusers_input(model, sizes) or NamedModel(model=model)


def _read_diffusers_config(folder: Path, name: str) -> dict[str, object]:
    """Return the config of a model of diffusers. Raises TargetError."""
    index, path = folder / "model_index.json", folder / "config.json"
    if index.is_file():
        parts = [part.parent.name for part in sorted(folder.glob("*/config.json"))]
        shown = ", ".join(f"diffusers:{name}/{part}" for part in parts)
        raise TargetError(
            f"{name} is a pipeline of several models, which run a different number of times",
            f"count each of them: {shown}" if parts else "give the folder of one of its models",
        )
    if not path.is_file():
        raise TargetError(
            f"{name} is not a folder with a config.json",
            "give the folder of a model of diffusers, such as diffusers:FOLDER/unet",
        )
    content: dict[str, object] = json.loads(path.read_bytes())
    return content


CONFIG_LIBRARIES: tuple[Library, ...] = (Ultralytics(), SegmentationModels(), Diffusers())
