"""The dtype of the weights of a model that is given by name, from an argument or the model's
config.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from crossflops.errors import TargetError
from crossflops.ir.graph import TensorSpec

TYPES = ("float32", "bfloat16", "float16", "float64")  # that a layer of PyTorch computes in
USUAL = "float32"
UNPACKED = "bfloat16"  # what quantized weights are computed in where no type is named
_KEYS = ("dtype", "torch_dtype")  # the second is that of older configs
_QUANTIZATIONS = ("quantization_config", "compression_config")
_SETS_ONE = "--arg dtype=bfloat16 sets one"


def split_weight_dtype(arguments: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """Return the dtype of weights that the arguments name ("" for none), and the other arguments.

    Raises TargetError for a type that weights cannot have.
    """
    others = {key: value for key, value in arguments.items() if key not in _KEYS}
    named = next((arguments[key] for key in _KEYS if key in arguments), None)
    return _weight_dtype_name(named, "--arg dtype"), others


def config_weight_dtype(content: Mapping[str, Any], target: str) -> str:
    """Return the dtype of weights that a config, or a nested config, names; "" for none.

    The text model of several is preferred, as transformers builds all of them in one type. Raises
    TargetError for a type that weights cannot have.
    """
    configs = sorted(
        _config_and_nested_configs(content), key=lambda index: index[0] not in ("", "text_config")
    )
    for key, config in configs:
        for name in _KEYS:
            where = f"{target}, {key}.{name}" if key else f"{target}, {name}"
            if known := _weight_dtype_name(config.get(name), where):
                return known
    return ""


def config_without_dtypes(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a config without dtypes of weights and settings of quantization."""
    left = (*_KEYS, *_QUANTIZATIONS)
    return {
        key: config_without_dtypes(value)
        if isinstance(value, dict) and _is_nested_config_key(key)
        else value
        for key, value in content.items()
        if key not in left
    }


def config_quantization_method(content: Mapping[str, Any]) -> str:
    """Return the name of the method by which a config says that stored weights are quantized; ""
    if they are not.
    """
    for _, config in _config_and_nested_configs(content):
        for key in _QUANTIZATIONS:
            if isinstance(stored := config.get(key), dict):
                loaded = next(
                    (k for k, on in stored.items() if k.startswith("load_in") and on), ""
                )
                return str(stored.get("quant_method") or loaded or key)
    return ""


def with_float_dtype(specs: Sequence[TensorSpec], dtype: str) -> tuple[TensorSpec, ...]:
    """Return the input specs with float32 replaced by the dtype of the weights, if that is not
    "".
    """
    return tuple(
        msgspec.structs.replace(spec, dtype=dtype or USUAL) if spec.dtype == USUAL else spec
        for spec in specs
    )


def convert_kept_parameters_to_float32(model: Any) -> None:
    """Convert to float32 the parameters of 16 bits that transformers keeps in float32, in place.

    `_keep_in_fp32_modules_strict` names them for both types of 16 bits, `_keep_in_fp32_modules`
    for float16 alone. Source: transformers/modeling_utils.py (`_get_dtype_plan`).
    """
    import torch

    names = set(getattr(model, "_keep_in_fp32_modules_strict", None) or ())
    if getattr(model, "dtype", None) == torch.float16:
        names |= set(getattr(model, "_keep_in_fp32_modules", None) or ())
    if not names:
        return
    pattern = re.compile("|".join(rf"(?:^|\.){name}(?:\.|$)" for name in sorted(names)))
    for path, parameter in list(model.named_parameters()):
        if pattern.search(path) and parameter.dtype in (torch.float16, torch.bfloat16):
            owner, _, own_name = path.rpartition(".")
            wide = torch.nn.Parameter(parameter.detach().float(), parameter.requires_grad)
            setattr(model.get_submodule(owner), own_name, wide)


def _weight_dtype_name(value: object, where: str) -> str:
    """Return the name of a dtype that weights can have; "" for None and "auto". Raises TargetError
    for another value.
    """
    if value is None or value == "auto":
        return ""
    name = str(value).removeprefix("torch.")
    if name not in TYPES:
        raise TargetError(
            f"{where} is {value!r}, which is not a type of weights that PyTorch layers support",
            f"give {', '.join(TYPES[:-1])} or {TYPES[-1]}: {_SETS_ONE}",
        )
    return name


def _config_and_nested_configs(
    content: Mapping[str, Any], key: str = ""
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (key, content) of a config and of each config nested in it."""
    yield key, content
    for name, value in content.items():
        if isinstance(value, dict) and _is_nested_config_key(name):
            yield from _config_and_nested_configs(value, name)


def _is_nested_config_key(key: str) -> bool:
    """Return True if a key of a config has a nested config as its value, such as "text_config"."""
    return (key.endswith("_config") and key not in _QUANTIZATIONS) or key in ("encoder", "decoder")
