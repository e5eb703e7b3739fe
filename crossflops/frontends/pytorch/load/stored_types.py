"""The types in which a file stores the weights of a model, where these are not its own types.

A model that is read from a file of quantized weights computes in floats. Its graph has the same
nodes as any other, and its weights take the bytes of the file.
"""

from collections.abc import Mapping
from typing import Any

from crossflops.ir.graph import TensorSpec

_STORED = "_crossflops_stored_types"


def set_storage_types(model: Any, types: Mapping[str, str]) -> None:
    """Note in a model by the names of its parameters the types in which a file stores them."""
    vars(model)[_STORED] = dict(types)


def storage_types(model: Any) -> dict[str, str]:
    """Return by name the types in which a file stores parameters of a model, or of its modules.

    A parameter with two names has both.
    """
    types: dict[str, str] = {}
    for path, module in model.named_modules():
        for name, kind in vars(module).get(_STORED, {}).items():
            types[f"{path}.{name}".removeprefix(".")] = kind
    if not types:
        return {}
    by_tensor = {
        id(tensor): types[name] for name, tensor in model.named_parameters() if name in types
    }
    every = model.named_parameters(remove_duplicate=False)
    return {name: by_tensor[id(tensor)] for name, tensor in every if id(tensor) in by_tensor}


def parameter_bytes_in_file(model: Any, types: Mapping[str, str]) -> dict[str, Any]:
    """Return the bytes of a model's parameters as a file stores them, in all and by type."""
    by_type: dict[str, int] = {}
    for name, tensor in model.named_parameters():
        own = str(tensor.dtype).removeprefix("torch.")
        spec = TensorSpec(name, types.get(name, own), tuple(tensor.shape))
        by_type[spec.dtype] = by_type.get(spec.dtype, 0) + spec.nbytes
    return {"param_bytes": sum(by_type.values()), "param_bytes_by_type": by_type}
