"""The parameters of a model of transformers -> the tensors of a .gguf file that hold them.

A mapping of metadata that is wrong gives other shapes, or tensors that are left over: it is an
error, and never a wrong count.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from crossflops.errors import TargetError
from crossflops.frontends.gguf.reading import GgufFile, StoredTensor

_OTHERS = ("rope_freqs.", "rope_factors_long.", "rope_factors_short.")  # constants, no parameters
_SUFFIXES = (".weight", ".bias")
_GATE_AND_UP = ".experts.gate_up_proj"  # one parameter, which files store as two tensors
_REPORT = (
    "count the config that the file was made from: hf:config.json or hf:org/name; if the file is "
    "whole, please report its architecture"
)


def find_storage_types(
    file: GgufFile, parameters: Iterable[tuple[str, Any]], layers: int
) -> dict[str, str]:
    """Return the type in which the file stores each parameter, by its name.

    Args:
        file: The file.
        parameters: The names of the model's parameters, each once, with tensors of their shapes.
        layers: The number of blocks of the model.

    Raises:
        TargetError: A parameter has no tensor of its shape, or a tensor belongs to none.
    """
    names = _gguf_tensor_name_table(file, layers)
    left = {name for name in file.tensors if not name.startswith(_OTHERS)}
    types: dict[str, str] = {}
    for name, parameter in parameters:
        stored = [
            _require_tensor(file, name, tensor)
            for tensor in _tensor_names_of_parameter(names, name)
        ]
        left -= {tensor.name for tensor in stored}
        _check_shape(file, name, tuple(parameter.shape), stored)
        types[name] = stored[0].dtype
    if left:
        first_name = min(left)
        raise TargetError(
            f"{file.path} has {len(left)} tensors that are not in the model described by its "
            f"metadata, such as {first_name}",
            _REPORT,
        )
    return types


def _gguf_tensor_name_table(file: GgufFile, layers: int) -> Any:
    """Return gguf's table of the names of tensors by those of transformers."""
    import gguf

    kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    return gguf.get_tensor_name_map(kinds[file.architecture], layers)


def _tensor_names_of_parameter(names: Any, parameter: str) -> list[str]:
    """Return the names of the tensors that hold a parameter, [] if they are not known."""
    if parameter.endswith(_GATE_AND_UP):
        stem = parameter.removesuffix("gate_up_proj")
        return [
            tensor
            for part in ("gate_proj", "up_proj")
            for tensor in _tensor_names_of_parameter(names, stem + part)
        ]
    known = names.get_name(parameter, try_suffixes=_SUFFIXES)
    if known is None:
        return []
    return [known if known.endswith(_SUFFIXES) else f"{known}.weight"]


def _require_tensor(file: GgufFile, parameter: str, name: str) -> StoredTensor:
    """Return the tensor of this name. Raises TargetError if the file has none."""
    if name not in file.tensors:
        raise TargetError(
            f"{file.path} has no tensor {name}, which {parameter} of its architecture needs",
            _REPORT,
        )
    return file.tensors[name]


def _check_shape(
    file: GgufFile, parameter: str, shape: tuple[int, ...], parts: list[StoredTensor]
) -> None:
    """Raise TargetError if the tensors do not have the shape of the parameter.

    A layer of GPT-2 has the transposed matrix. Tensors of one parameter follow each
    other along the rows of each expert.
    """
    shapes = [tensor.shape for tensor in parts]
    stored_shape: tuple[int, ...]
    if len(shapes) > 1 and all(len(part_shape) == len(shape) == 3 for part_shape in shapes):
        rows = sum(part_shape[1] for part_shape in shapes)
        stored_shape = (shapes[0][0], rows, shapes[0][2])
        is_same = (
            stored_shape == shape
            and len({(part_shape[0], part_shape[2]) for part_shape in shapes}) == 1
        )
    else:
        stored_shape = shapes[0] if shapes else ()
        is_same = bool(shapes) and stored_shape in (shape, shape[::-1])
    if not is_same:
        sizes = ["x".join(map(str, part_shape)) for part_shape in (shape, stored_shape)]
        raise TargetError(
            f"{file.path} stores {parameter} as {sizes[1]}, but its metadata describe {sizes[0]}"
            if shapes
            else f"{file.path} has no tensor for {parameter}, which its metadata describe",
            _REPORT,
        )
    if len({tensor.dtype for tensor in parts}) > 1:
        types = " and ".join(tensor.dtype for tensor in parts)
        raise TargetError(
            f"{file.path} stores {parameter} in two types ({types}), whose bytes cannot be "
            "divided among the nodes that read it",
            "write the file with one type for the experts' gate and up matrices",
        )


def bytes_by_type(tensors: Mapping[str, StoredTensor]) -> dict[str, int]:
    """Return the bytes of tensors by the type in which they are stored."""
    sizes: dict[str, int] = {}
    for tensor in tensors.values():
        sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + tensor.nbytes
    return sizes
