"""transformers: a model from its config alone: `hf:FOLDER`, `hf:config.json`, `hf:org/name`.

Nothing but the config is ever fetched, and no code of a repository is run.
"""

import importlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from crossflops.errors import MissingExtraError, TargetError, nearest
from crossflops.frontends.named import Library, Named, image
from crossflops.ir.graph import TensorSpec

_CONFIG = "config.json"
_LARGE = 10**9  # parameters: from here on a model has no numbers in its weights
_TOKENS = 128
_SECOND = 16_000  # samples of audio
_FRAMES = 3000  # of a spectrogram, 30 s as Whisper hears them
_SIDE = 224


class Transformers(Library):
    """`hf:` and a folder, a config, or the name of a repository on the Hugging Face hub."""

    prefix = "hf"
    package = "transformers"
    names_models = False

    def names(self) -> Sequence[str]:
        """None: a repository is no name of the library."""
        return ()

    def make(self, name: str, arguments: Mapping[str, object], sizes: Mapping[str, int]) -> Named:
        """The class that the config names, with random weights; `arguments` change the config.

        From 10^9 parameters on the weights have no numbers in any case (PyTorch's device "meta"),
        so that no memory is needed. A cache of keys and values is switched off.
        """
        transformers = importlib.import_module("transformers")
        config = _config(transformers, name, arguments)
        notes = []
        if getattr(config, "use_cache", False):
            config.use_cache = False
            notes.append(f"hf:{name} is counted without a cache of keys and values")
        _resize(config, sizes)
        model = _model(transformers, config, name)
        specs = tuple(_inputs(model, config, sizes))
        return Named(
            model=model,
            specs=specs,
            origin=f"its config, model_type {config.model_type}",
            sizes=tuple(_sizes(specs)),
            notes=tuple(notes),
        )


def _config(transformers: Any, name: str, arguments: Mapping[str, object]) -> Any:
    """The config of a file, of a folder, of the hub's cache here, or of the hub."""
    path = Path(name).expanduser()
    if path.is_dir():
        path = path / _CONFIG
    if not path.is_file():
        path = Path(_fetched(name))
    read = transformers.PretrainedConfig.get_config_dict
    content = {**read(str(path.parent), _configuration_file=path.name)[0], **arguments}
    kind = content.pop("model_type", None)
    known = transformers.CONFIG_MAPPING
    if kind not in known:
        raise TargetError(
            f"hf:{name} has the model_type {kind!r}, which this transformers does not have",
            nearest(str(kind), list(known.keys()), "update transformers; no code of a repository"
                    " is run"),
        )  # fmt: skip
    return transformers.AutoConfig.for_model(kind, **content)


def _fetched(name: str) -> str:
    """The config of a repository, from the cache or else from the hub. Never the weights."""
    if name.endswith(".json") or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise TargetError(f"there is no {name}", "give hf:FOLDER, hf:config.json or hf:org/name")
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


def _model(transformers: Any, config: Any, name: str) -> Any:
    """The model of the class that the config names, else of the bare class of its type."""
    import torch

    from crossflops.frontends.pytorch.fakes import is_building

    classes = [
        getattr(transformers, architecture, None) for architecture in config.architectures or ()
    ]
    kind = next(filter(None, classes), None)
    if kind is None:
        kind = transformers.MODEL_MAPPING.get(type(config))
    if kind is None:
        raise TargetError(
            f"hf:{name} names no class that transformers has", "add architectures to its config"
        )
    if is_building():
        return kind(config).eval()
    with torch.device("meta"):
        bare = kind(config)
    if sum(weight.numel() for weight in bare.parameters()) >= _LARGE:
        return bare.eval()
    return kind(config).eval()


def _resize(config: Any, sizes: Mapping[str, int]) -> None:
    """A model whose images have one size is built for the size that is asked for."""
    seen = getattr(config, "vision_config", None) or config
    if "image_size" in sizes and hasattr(seen, "image_size"):
        seen.image_size = sizes["image_size"]


def _inputs(model: Any, config: Any, sizes: Mapping[str, int]) -> Iterator[TensorSpec]:
    """The main input of the model, and what has to come with it."""
    main, batch = model.main_input_name, sizes.get("batch", 1)
    text = getattr(config, "text_config", None) or config
    most = getattr(text, "max_position_embeddings", None) or math.inf
    length = sizes.get("seq", int(min(_TOKENS, most)))
    if main in ("input_values", "input_features"):
        bins = getattr(config, "num_mel_bins", 80)
        shape = (batch, _SECOND) if main == "input_values" else (batch, bins, _FRAMES)
        yield TensorSpec(main, "float32", shape, "input")
    if main == "input_ids":
        yield TensorSpec(main, "int64", (batch, length), "input")
    seen = getattr(config, "vision_config", None)
    if main == "pixel_values" or seen is not None:
        seen = seen or config
        side = getattr(seen, "image_size", None) or _SIDE
        height, width = side if isinstance(side, list | tuple) else (side, side)
        yield image("pixel_values", getattr(seen, "num_channels", 3), height, width, sizes)
    if getattr(config, "is_encoder_decoder", False):
        yield TensorSpec("decoder_input_ids", "int64", (batch, length), "input")


def _sizes(specs: Sequence[TensorSpec]) -> Iterator[str]:
    yield "batch"
    names = {spec.name for spec in specs}
    if names & {"input_ids", "decoder_input_ids"}:
        yield "seq"
    if "pixel_values" in names:
        yield "image_size"
