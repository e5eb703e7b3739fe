"""The `flops_profiler` block of a DeepSpeed configuration: what is profiled, and what is shown."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from crossflops.errors import InputError

BLOCK = "flops_profiler"
_HINT = 'write, for example, {"flops_profiler": {"enabled": true, "profile_step": 5}}'


class ProfilerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of the block, with DeepSpeed's documented defaults.

    `profile_step` counts from 1; `module_depth` -1 shows all levels, `top_modules` are shown at
    each of them; without `detailed` the tree is left out. `recompute_fwd_factor` is the share of
    the forward pass that the backward pass runs again: here that is seen, and the factor is only
    compared. Source: deepspeed.ai/docs/config-json, "Flops Profiler".
    """

    enabled: bool = False
    recompute_fwd_factor: float = 0.0
    profile_step: int = 1
    module_depth: int = -1
    top_modules: int = 1
    detailed: bool = True
    output_file: str | None = None


def read_flops_profiler_settings(config: str | Path | Mapping[str, Any]) -> ProfilerSettings:
    """Return the settings of the `flops_profiler` block in `config`: a file, its content, or the
    block alone.

    Without such a block the profiler is not enabled. Raises InputError for what is no such thing.
    """
    if isinstance(config, str | Path):
        config = _read_deepspeed_json(Path(config))
    if not isinstance(config, Mapping):
        raise InputError("a DeepSpeed configuration must be a JSON object", _HINT)
    fields = ProfilerSettings.__struct_fields__
    alone = bool(config) and all(name in fields for name in config)
    block = config if alone else config.get(BLOCK, {})
    try:
        read = msgspec.convert(block, ProfilerSettings)
    except msgspec.ValidationError as error:
        raise InputError(f"the block {BLOCK!r} is invalid: {error}", _HINT) from error
    if read.profile_step < 1 or read.module_depth < -1 or read.top_modules < 1:
        raise InputError(
            f"the block {BLOCK!r} has a value out of range",
            "profile_step and top_modules must be at least 1, module_depth at least -1",
        )
    return read


def _read_deepspeed_json(path: Path) -> Any:
    """Return the content of a DeepSpeed configuration file; raise InputError if it is not readable
    JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(
            f"cannot read the DeepSpeed configuration {path}: {error.strerror}",
            "give the path of a readable DeepSpeed configuration, such as ds_config.json",
        ) from error
    except ValueError as error:
        raise InputError(
            f"the DeepSpeed configuration {path} is not valid JSON: {error}", _HINT
        ) from error
