"""The libraries from which PyTorch models are built by name: timm, torchvision, transformers.

Each makes the model without weights from anywhere, and tells its usual input: of timm that stands
in `pretrained_cfg`, of torchvision it is what the transforms of the weights give, of transformers
a model is made from its config alone (`hf:FOLDER`, `hf:config.json`, `hf:org/name`): nothing but
the config is ever fetched, and crossflops runs no code of a repository.
"""

import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from crossflops.errors import MissingExtraError, TargetError, nearest_name_hint
from crossflops.frontends.named import (
    Library,
    NamedModel,
    image_input_spec,
    names_in_package_sources,
    unknown_model_error,
)
from crossflops.frontends.pytorch.load.config_inputs import inputs_from_config
from crossflops.frontends.pytorch.load.config_libraries import CONFIG_LIBRARIES
from crossflops.frontends.pytorch.load.default_inputs import size_option_names
from crossflops.frontends.pytorch.load.expert_loops import make_expert_loops_grouped_products
from crossflops.frontends.pytorch.load.expert_products import set_expert_implementation
from crossflops.frontends.pytorch.load.weight_types import (
    UNPACKED,
    USUAL,
    config_quantization_method,
    config_weight_dtype,
    config_without_dtypes,
    convert_kept_parameters_to_float32,
    split_weight_dtype,
    with_float_dtype,
)
from crossflops.ir.graph import TensorSpec

# timm: its usual input stands in `pretrained_cfg`.

_TIMM_NAMES = r"^@register_model\s*\ndef (\w+)\("
_TIMM_FUSED = "reparameterize"  # not timm's: the branches of training are merged for inference
_TIMM_MERGES = re.compile(r"^ +def (?:fuse|reparameterize)\(self", re.MULTILINE)


class Timm(Library):
    """The source `timm:NAME`; a tag of weights after the name does not matter for a count."""

    prefix = "timm"
    package = "timm"
    listing = "import timm; print(*timm.list_models())"

    def model_names(self) -> Sequence[str]:
        """Return the names of the models in timm's files."""
        return names_in_package_sources("timm", "models", _TIMM_NAMES)

    def alternative_arguments(self, name: str) -> Sequence[Mapping[str, object]]:
        """Return the argument that merges branches for inference, if the file of the model has
        modules that can; timm's benchmark counts some of its models so.
        """
        timm = importlib.import_module("timm")
        module = sys.modules[timm.model_entrypoint(name.partition(".")[0]).__module__]
        return ({_TIMM_FUSED: True},) if _TIMM_MERGES.search(inspect.getsource(module)) else ()

    def make_model(
        self, name: str, arguments: Mapping[str, object], sizes: Mapping[str, int]
    ) -> NamedModel:
        """Build the timm model of this name, with random weights unless the arguments say
        otherwise; return it with its usual input.

        A transformer with a fixed input size is built for the requested size. The argument
        `reparameterize` merges branches and norms as timm's `reparameterize_model` does.
        """
        timm = importlib.import_module("timm")
        dtype, others = split_weight_dtype(arguments)
        is_fused = bool(others.get(_TIMM_FUSED))
        others = {option: value for option, value in others.items() if option != _TIMM_FUSED}
        build = functools.partial(timm.create_model, name, **{"pretrained": False, **others})
        model = build()
        cfg = getattr(model, "pretrained_cfg", None) or {}
        if "image_size" in sizes and cfg.get("fixed_input_size"):
            model = build(img_size=sizes["image_size"])
        if is_fused:
            timm.utils.reparameterize_model(model.eval(), inplace=True)
        model = _with_weight_dtype(model, dtype)
        if not cfg.get("input_size"):
            return NamedModel(model=model)
        channels, height, width = cfg["input_size"]
        return NamedModel(
            model=model,
            specs=with_float_dtype(
                (image_input_spec("0", channels, height, width, sizes),), dtype
            ),
            origin="its default_cfg in timm",
            sizes=("batch", "image_size"),
        )


def _with_weight_dtype(model: Any, dtype: str) -> Any:
    """Return the model with its weights in this dtype; unchanged for ""."""
    if not dtype:
        return model
    import torch

    return model.to(getattr(torch, dtype))


# torchvision: its usual input is what the transforms of its weights give.

_TORCHVISION_NAMES = r"^@register_model\(\)\n(?:.*\n)*?def (\w+)\("
_CLIP = 16  # of a clip: the length that torchvision's video models were trained for
_RGB = 3
_FLOW = (520, 960)  # gallery/others/plot_optical_flow.py of torchvision


class Torchvision(Library):
    """The source `torchvision:NAME`, with the names of `torchvision.models.get_model`."""

    prefix = "torchvision"
    package = "torchvision"
    listing = "import torchvision; print(*torchvision.models.list_models())"

    def model_names(self) -> Sequence[str]:
        """Return the names of the models in torchvision's files, without quantized ones."""
        return names_in_package_sources("torchvision", "models", _TORCHVISION_NAMES)

    def alternative_arguments(self, name: str) -> Sequence[Mapping[str, object]]:
        """Return the other choice of an auxiliary classifier, if the model has one.

        With weights torchvision builds a segmentation model with it, and takes it away from
        GoogLeNet (models/googlenet.py, models/segmentation).
        """
        build = importlib.import_module("torchvision").models.get_model_builder(name)
        signature = inspect.signature(build)
        taken = dict(signature.parameters)
        if inspect.isclass(signature.return_annotation):
            taken |= inspect.signature(signature.return_annotation).parameters
        return tuple(
            {option: not taken[option].default}
            for option in ("aux_loss", "aux_logits")
            if option in taken
        )

    def make_model(
        self, name: str, arguments: Mapping[str, object], sizes: Mapping[str, int]
    ) -> NamedModel:
        """Build the torchvision model of this name with random weights, those of its backbone too;
        return it with its usual input.

        A transformer with a fixed input size is built for the requested size.
        """
        models = importlib.import_module("torchvision").models
        known = models.list_models()
        if name.lower() not in known:
            raise unknown_model_error(self, name, known)
        weights = models.get_model_weights(name)
        dtype, arguments = split_weight_dtype(arguments)
        options: dict[str, object] = {"weights": None}
        if _has_backbone(models, name):
            options["weights_backbone"] = None
        model = models.get_model(name, **{**options, **arguments})
        if "image_size" in sizes and hasattr(model, "image_size"):
            more = {"image_size": sizes["image_size"]}
            model = models.get_model(name, **{**options, **more, **arguments})
        model = _with_weight_dtype(model, dtype)
        specs, origin = _torchvision_input_specs(model, weights, sizes)
        if not specs:
            return NamedModel(model=model)
        return NamedModel(
            model=model,
            specs=with_float_dtype(specs, dtype),
            origin=origin,
            sizes=("batch", "image_size"),
        )


def _has_backbone(models: Any, name: str) -> bool:
    """Return True if the builder of a torchvision model has the argument `weights_backbone`."""
    return "weights_backbone" in inspect.signature(models.get_model_builder(name)).parameters


def _torchvision_input_specs(
    model: Any, weights: Any, sizes: Mapping[str, int]
) -> tuple[tuple[TensorSpec, ...], str]:
    """Return the specs of images or clips for a torchvision model, and where they are from.

    For segmentation the transforms of the weights only resize. A model of detection resizes its
    images itself, a batch of which is as good as a list. Optical flow is between two images.
    """
    kind = type(model).__module__.removeprefix("torchvision.models.").partition(".")[0]
    if kind == "detection":
        height, width = _detection_image_size(model.transform)
        spec = image_input_spec("0", _RGB, height, width, sizes)
        return (spec,), "the size to which the model resizes its images"
    if kind == "optical_flow":
        images = tuple(image_input_spec(name, _RGB, *_FLOW, sizes) for name in ("0", "1"))
        return images, "torchvision's example of optical flow"
    default = getattr(weights, "DEFAULT", None)
    transforms = default.transforms() if default is not None else None
    area = getattr(transforms, "crop_size", None) or getattr(transforms, "resize_size", None)
    if not area:
        return (), ""
    height, width = area if len(area) == 2 else (area[0], area[0])
    spec = image_input_spec("0", _RGB, height, width, sizes)
    if kind == "video":
        batch, channels, *area = spec.shape or ()
        spec = TensorSpec("0", "float32", (batch, channels, _CLIP, *area), "input")
    return (spec,), "the transforms of its weights in torchvision"


def _detection_image_size(transform: Any) -> tuple[int, int]:
    """Return height and width of a square image as a detection model resizes it, or its fixed
    size.
    """
    if transform.fixed_size is not None:
        width, height = transform.fixed_size
        return int(height), int(width)
    side = int(min(transform.min_size[-1], transform.max_size))
    return side, side


# transformers: a model from its config alone.

_CONFIG = "config.json"
_LARGE = 10**9  # parameters: from here on a model has no numbers in its weights


class Transformers(Library):
    """The source `hf:` with a folder, a config, or the name of a repository on the Hugging Face
    hub.
    """

    prefix = "hf"
    package = "transformers"
    names_models = False  # the repositories of the Hugging Face hub are not listed
    config = _CONFIG

    def make_model(
        self, name: str, arguments: Mapping[str, object], sizes: Mapping[str, int]
    ) -> NamedModel:
        """Build the transformers model of a config with random weights; return it with its usual
        inputs.

        From 10^9 parameters on the weights never have values (PyTorch's device "meta"), so that no
        memory is needed. The key-value cache is disabled.
        """
        transformers = importlib.import_module("transformers")
        content = _read_config_content(transformers, name)
        return build_transformers_config_model(content, f"hf:{name}", arguments, sizes)


def build_transformers_config_model(
    content: Mapping[str, Any],
    target: str,
    arguments: Mapping[str, object],
    sizes: Mapping[str, int],
    with_type_note: bool = True,
) -> NamedModel:
    """Return the transformers model of a config's contents, with its usual input.

    Messages and notes call it by its `target`; with `with_type_note` a note is about the type of
    its weights. Raises TargetError.
    """
    transformers = importlib.import_module("transformers")
    named_type, others = split_weight_dtype(arguments)
    dtype = named_type or config_weight_dtype(content, target)
    type_notes = (
        _weight_dtype_notes(target, content, dtype, bool(named_type)) if with_type_note else ()
    )
    notes = [*type_notes]
    dtype = dtype or (UNPACKED if config_quantization_method(content) else "")
    config = _make_transformers_config(transformers, target, {**content, **others}, dtype)
    _check_config_arguments(target, config, others)
    if getattr(config, "use_cache", False):
        config.use_cache = False
        notes.append(f"{target} is counted without a key-value cache")
    _set_image_size(config, sizes)
    model = _build_model_of_config(transformers, config, target)
    if experts := set_expert_implementation(model, has_values=not _is_large(model)):
        notes.append(f"the experts of {target} run by transformers' {experts!r}")
    elif make_expert_loops_grouped_products(model):
        notes.append(
            f"the experts of {target} run as one grouped product for each matrix, because "
            "weights without values cannot choose experts in the loop of the model"
        )
    usual = inputs_from_config(model, config, sizes, dtype)
    specs = usual.specs
    notes += [f"{target} {note}" for note in usual.notes]
    return NamedModel(
        model=model,
        specs=specs,
        values=usual.values,
        origin=f"its config, model_type {config.model_type}",
        sizes=tuple(size_option_names(specs)),
        notes=tuple(notes),
    )


def _read_config_content(transformers: Any, name: str) -> dict[str, Any]:
    """Return the content of a config; `name` is its file, its folder, or its repository on the
    hub.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        path = path / _CONFIG
    if not path.is_file():
        path = Path(_fetch_hub_config(name))
    read = transformers.PretrainedConfig.get_config_dict
    content: dict[str, Any] = read(str(path.parent), _configuration_file=path.name)[0]
    return content


def _weight_dtype_notes(
    target: str, content: Mapping[str, Any], dtype: str, is_argument: bool
) -> Iterator[str]:
    """Yield notes on the dtype of the weights and where it is from, and on stored weights that are
    quantized.
    """
    origin = "--arg" if is_argument else "its config"
    method = config_quantization_method(content)
    if dtype:
        yield f"the weights of {target} have the type {dtype}, from {origin}"
    elif not method:
        yield (
            f"the weights of {target} have the type {USUAL}, because its config names no type; "
            "--arg dtype=bfloat16 sets one"
        )
    if method:
        yield (
            f"the config of {target} stores quantized weights ({method}): they are counted as "
            f"{dtype or UNPACKED}, so the bytes of weights are larger than stored"
        )


def _make_transformers_config(
    transformers: Any, target: str, contents: Mapping[str, Any], dtype: str
) -> Any:
    """Return the config object of transformers with this content and dtype of weights."""
    content = config_without_dtypes(contents)
    if dtype:
        content["torch_dtype"] = dtype  # which every transformers reads
    kind = content.pop("model_type", None)
    known = transformers.CONFIG_MAPPING
    if kind is None:
        raise TargetError(
            f"the config of {target} has no model_type",
            'add "model_type" to its config.json, such as "llama"',
        )
    if kind not in known:
        raise TargetError(
            f"{target} has the model_type {kind!r}, which the installed transformers does "
            "not have",
            nearest_name_hint(
                str(kind),
                list(known.keys()),
                "update transformers; crossflops runs no code of a repository",
            ),
        )
    return transformers.AutoConfig.for_model(kind, **content)


def _check_config_arguments(target: str, config: Any, arguments: Mapping[str, object]) -> None:
    """Raise TargetError for an argument that a config of this kind does not have.

    Configs store any argument, but no model reads an unknown one.
    """
    try:
        plain = type(config)()
    except (TypeError, ValueError, KeyError):  # this kind has no config without arguments
        return
    strays = [
        key for key in arguments if not hasattr(plain, key) and not hasattr(plain, f"_{key}")
    ]
    if strays:
        known = sorted(key for key in vars(plain) if not key.startswith("_"))
        raise TargetError(
            f"a config of {config.model_type} has no {strays[0]!r}: --arg {strays[0]} changes"
            f" nothing in {target}",
            nearest_name_hint(strays[0], known, f"leave out --arg {strays[0]}"),
        )


def _fetch_hub_config(name: str) -> str:
    """Return the path of a repository's config file, from the local cache or fetched from the
    hub.
    """
    if name.endswith(".json") or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise TargetError(
            f"file or folder {name} does not exist",
            "give hf:FOLDER, hf:config.json or hf:org/name",
        )
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise MissingExtraError(
            "huggingface_hub is not installed", "pip install huggingface_hub"
        ) from error
    cached = hub.try_to_load_from_cache(name, _CONFIG)
    if isinstance(cached, str):
        return cached
    try:
        # says at once that there is no network, where the download tries for half a minute
        hub.get_hf_file_metadata(hub.hf_hub_url(name, _CONFIG))
        fetched: str = hub.hf_hub_download(name, _CONFIG)
    except Exception as error:
        raise TargetError(
            f"the config of {name} is not in the local cache, and was not fetched: {error}",
            "check the name and the network, or give hf:config.json",
        ) from error
    return fetched


def _build_model_of_config(transformers: Any, config: Any, target: str) -> Any:
    """Build a model of the class that a config names, else of the base class of its type; return
    it.
    """
    import torch

    from crossflops.frontends.pytorch.load.fakes import is_building_fake_model

    classes = [
        getattr(transformers, architecture, None) for architecture in config.architectures or ()
    ]
    kind = next(filter(None, classes), None)
    if kind is None:
        kind = transformers.MODEL_MAPPING.get(type(config), None)
    if kind is None:
        raise TargetError(
            f"the config of {target} does not name a class of the installed transformers",
            'add "architectures" to its config.json, such as ["LlamaForCausalLM"]',
        )
    if kind.forward is torch.nn.Module.forward:
        parts = [key for key in config.sub_configs if getattr(config, key, None)]
        raise TargetError(
            f"{target} cannot run a single pass: {kind.__name__} has generate(), but no forward()",
            f'count one part: copy "{parts[0]}" from its config.json into a new file, add '
            '"architectures": [CLASS], and give hf:FILE'
            if parts
            else "give the model as file.py:callable, with a part that has forward()",
        )
    if is_building_fake_model():
        return _build_model_of_class(kind, config)
    with torch.device("meta"):
        plain = _build_model_of_class(kind, config)
    if _is_large(plain):
        return plain
    return _build_model_of_class(kind, config)


def _is_large(model: Any) -> bool:
    """Return whether a model has so many parameters that its weights have no values."""
    return bool(sum(weight.numel() for weight in model.parameters()) >= _LARGE)


def _build_model_of_class(kind: Any, config: Any) -> Any:
    """Build a model of this class with random weights; return it in evaluation mode."""
    model = kind._from_config(config)  # from_config of the classes that choose one ends here
    convert_kept_parameters_to_float32(model)
    return model.eval()


def _set_image_size(config: Any, sizes: Mapping[str, int]) -> None:
    """Set the requested image size in the config, if the config has one."""
    seen = getattr(config, "vision_config", None) or config
    if "image_size" in sizes and hasattr(seen, "image_size"):
        seen.image_size = sizes["image_size"]


LIBRARIES: tuple[Library, ...] = (Timm(), Torchvision(), Transformers(), *CONFIG_LIBRARIES)


# Importing torchvision beside a CPU build of torch.
#
# torchvision's wheel declares fake implementations for two operators of its CUDA library when it
# is imported. Without that library the operators do not exist, and the import raises "operator
# torchvision::nms does not exist". Declaring their schemas is enough for all of
# `torchvision.models` but detection.

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_libraries: list[Any] = []  # a library that is collected takes its operators with it


def repair_torchvision_import(error: Exception) -> bool:
    """Return True if the error is about missing operators of torchvision, which are declared then,
    so that a new import works.
    """
    if not _is_torchvision_operator_error(error) or _libraries:
        return False
    _declare_torchvision_schemas()
    return True


def _is_torchvision_operator_error(error: BaseException | None) -> bool:
    """Return True if an error, or one of its causes, is about torchvision's operators."""
    while error is not None:
        if isinstance(error, RuntimeError) and "torchvision::" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _declare_torchvision_schemas() -> None:
    """Declare the schemas of torchvision's operators, and remove its half-imported modules."""
    import torch

    # What the failed import left behind is half a module.
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _SCHEMAS:
        library.define(schema)
    _libraries.append(library)
