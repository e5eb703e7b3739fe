"""The metadata of a .gguf file -> the contents of a config of transformers."""

from collections.abc import Iterator
from typing import Any

from crossflops.errors import TargetError
from crossflops.frontends.gguf.architectures import (
    ARCHITECTURES,
    LLAMA,
    MIXTRAL,
    WITHOUT_EFFECT,
    GgufArchitecture,
)
from crossflops.frontends.gguf.reading import GgufFile

_ELSEWHERE = (
    "count the model that the .gguf file was converted from instead, by its config: "
    "hf:path/to/config.json or hf:org/name"
)
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"


def find_architecture(file: GgufFile) -> GgufArchitecture:
    """Return the architecture of a file. Raises TargetError for one that is not known."""
    name = file.architecture
    if name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise TargetError(
            f"{file.path} has the architecture {name!r}, which crossflops does not know",
            f"{_ELSEWHERE}; known architectures: {known}",
        )
    architecture = ARCHITECTURES[name]
    return (
        MIXTRAL
        if architecture is LLAMA and _metadata_value(file, "expert_count")
        else architecture
    )


def transformers_config_content(file: GgufFile) -> dict[str, Any]:
    """Return the contents of the config of transformers that a file's metadata describe.

    Raises TargetError for metadata that no such config can have.
    """
    architecture = find_architecture(file)
    if _EMBEDDING not in file.tensors:
        raise TargetError(
            f"{file.path} has no tensor {_EMBEDDING}, so it is not a whole language model",
            "give the file of the model, and not one of an adapter or a vision part",
        )
    content: dict[str, Any] = {
        "model_type": architecture.model_type,
        "architectures": [architecture.class_name],
        "vocab_size": file.tensors[_EMBEDDING].shape[0],
        "tie_word_embeddings": _OUTPUT not in file.tensors,
        # the tokens of usual configs may not be in this vocabulary
        **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")),
    }
    for key, name in architecture.keys.items():
        value = _metadata_value(file, key)
        if value is not None:
            content[name] = _value_equal_in_all_layers(file, key, value)
    for name, tensor in architecture.biases.items():
        content[name] = f"blk.0.{tensor}" in file.tensors
    missing = [
        key
        for key in ("block_count", "embedding_length", "attention.head_count")
        if architecture.keys[key] not in content
    ]
    if missing:
        raise TargetError(
            f"{file.path} has no metadata {file.architecture}.{missing[0]}",
            "write the file again with llama.cpp's convert_hf_to_gguf.py",
        )
    _set_rotated_share(file, architecture, content)
    return content


def metadata_keys_without_use(file: GgufFile) -> Iterator[str]:
    """Yield the keys of the architecture's metadata that may change a count and are not used."""
    architecture = find_architecture(file)
    prefix = f"{file.architecture}."
    for key in file.metadata:
        name = key.removeprefix(prefix)
        if key.startswith(prefix) and name not in architecture.keys:
            is_idle = name.startswith("expert_") and not file.metadata[key]
            if not name.startswith(WITHOUT_EFFECT) and not is_idle:
                yield key


def _metadata_value(file: GgufFile, key: str) -> Any:
    """Return the value of a key of the file's architecture, None without one."""
    return file.metadata.get(f"{file.architecture}.{key}")


def _value_equal_in_all_layers(file: GgufFile, key: str, value: Any) -> Any:
    """Return a value, or that of all layers. Raises TargetError where layers differ."""
    if not isinstance(value, list):
        return value
    if len(set(value)) != 1:
        raise TargetError(
            f"{file.path} has layers of different sizes ({file.architecture}.{key}), which "
            "configs of this architecture do not have",
            _ELSEWHERE,
        )
    return value[0]


def _set_rotated_share(
    file: GgufFile, architecture: GgufArchitecture, content: dict[str, Any]
) -> None:
    """Set in a model's config (`content`) the share of each head that rotary embeddings rotate.
    Raises TargetError if configs of this architecture cannot have the sizes of the file.
    """
    heads = content[architecture.keys["attention.head_count"]]
    head_size = content.get("head_dim") or content[architecture.keys["embedding_length"]] // heads
    values = _metadata_value(file, "attention.value_length")
    if values is not None and values != head_size:
        raise TargetError(
            f"{file.path} has {values} elements for each value and {head_size} for each key of a "
            "head, which configs of this architecture do not have",
            _ELSEWHERE,
        )
    rotated = _metadata_value(file, "rope.dimension_count")
    if rotated is None or rotated == head_size:
        if architecture.partly_rotated:
            content["partial_rotary_factor"] = 1.0
        return
    if not architecture.partly_rotated:
        raise TargetError(
            f"{file.path} has rotary embeddings of {rotated} of the {head_size} elements of a "
            "head, which configs of this architecture do not have",
            _ELSEWHERE,
        )
    content["partial_rotary_factor"] = rotated / head_size
