"""The metadata and the tensor table of a .gguf file, of all its parts, without any weight."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from crossflops.errors import TargetError, unreadable_file_error
from crossflops.frontends.frontend import require_packages
from crossflops.ir.graph import BLOCK_TYPES

_FLOATS = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64"}
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
_TEXTS = ("tokenizer.",)  # long lists of words, which no count needs
_AGAIN = "download the file again, or write it again with llama.cpp's convert_hf_to_gguf.py"


class StoredTensor(msgspec.Struct, frozen=True):
    """A row of the tensor table: `shape` as PyTorch has it, rows first, and the bytes stored."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


class GgufFile(msgspec.Struct, frozen=True):
    """The metadata of a file by key, without those of the tokenizer, and its tensors by name."""

    path: str
    metadata: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]

    @property
    def architecture(self) -> str:
        """The name of the architecture, as llama.cpp has it; "" if the file names none."""
        return str(self.metadata.get("general.architecture") or "")


def read_gguf_file(target: str) -> GgufFile:
    """Return metadata and tensors of a .gguf file, and of all parts of one that is split.

    Raises TargetError, and MissingExtraError without the package gguf.
    """
    path = Path(target).expanduser()
    if not path.is_file():
        raise TargetError(f"file {target} does not exist", "give the path of a .gguf file")
    require_packages(("gguf",), f"read {path.name}", "gguf")
    metadata: dict[str, Any] = {}
    tensors: dict[str, StoredTensor] = {}
    for index, part in enumerate(_all_part_files(path)):
        reader = _open_reader(part)
        if index == 0:
            metadata = dict(_metadata_values(reader))
        tensors.update((tensor.name, tensor) for tensor in _tensor_rows(reader, part))
    return GgufFile(str(target), metadata, tensors)


def _all_part_files(path: Path) -> list[Path]:
    """Return the files of a model that is split into parts, in their order, else the file."""
    match = _PART.fullmatch(path.name)
    if match is None:
        return [path]
    stem, _, number = match.groups()
    parts = [
        path.with_name(f"{stem}-{index:05}-of-{number}.gguf")
        for index in range(1, int(number) + 1)
    ]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise TargetError(
            f"{path} is one of {int(number)} parts, and {missing[0]} is not in its folder",
            "put all parts of the model into one folder",
        )
    return parts


def _open_reader(path: Path) -> Any:
    """Return gguf's reader of a file. Raises TargetError if it is not a .gguf file."""
    import gguf

    try:
        return gguf.GGUFReader(path)
    except PermissionError as error:
        raise unreadable_file_error(path, error) from error
    except Exception as error:  # of a damaged file it raises many kinds
        raise TargetError(f"{path} cannot be read as a .gguf file: {error}", _AGAIN) from error


def _metadata_values(reader: Any) -> Iterator[tuple[str, Any]]:
    """Yield keys and values of the metadata, those of the tokenizer excluded."""
    for key, field in reader.fields.items():
        if not key.startswith(("GGUF.", *_TEXTS)):
            yield key, field.contents()


def _tensor_rows(reader: Any, path: Path) -> Iterator[StoredTensor]:
    """Yield the rows of the tensor table. Raises TargetError for a type that is not known."""
    for tensor in reader.tensors:
        kind = tensor.tensor_type.name.lower()
        dtype = _FLOATS.get(kind, kind)
        if dtype not in (*BLOCK_TYPES, *_FLOATS.values()):
            raise TargetError(
                f"{path} stores {tensor.name} as {tensor.tensor_type.name}, a type whose size "
                "crossflops does not know",
                "write the file with another quantization",
            )
        shape = tuple(int(size) for size in reversed(tensor.shape))
        yield StoredTensor(tensor.name, dtype, shape, int(tensor.n_bytes))
