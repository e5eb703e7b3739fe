"""The same model at another batch size."""

from collections.abc import Sequence
from typing import Any

import msgspec

from crossflops.core.tensor import TensorSpec
from crossflops.errors import InputError
from crossflops.load import read
from crossflops.normalize.onnx_file.binding import model_inputs
from crossflops.normalize.request import Request


def at_batch(request: Request, batch: int, dim: str | None = None) -> Request:
    """The request with this batch size.

    Of an ONNX file that is the dimension `dim`; else the one name that stands first in inputs;
    else the first size of every input that has the first size of the first one. Of another target
    it is the first size of every input. Raises InputError where there is nothing to set.
    """
    if request.given is not None:
        raise InputError("the inputs of this model are given", "give shapes, as texts, instead")
    if not request.is_file:
        if dim is not None:
            raise InputError("--batch-dim is for ONNX files", "leave it out")
        return msgspec.structs.replace(request, specs=_scaled(request.specs, batch))
    assert request.target is not None
    inputs = model_inputs(read(request.target).graph)
    names = [dim] if dim else _named(inputs)
    if len(names) == 1:
        return msgspec.structs.replace(request, dims={**request.dims, names[0]: batch})
    if names:
        raise InputError(
            f"which dimension is the batch? inputs begin with {', '.join(names)}",
            f"say it: --batch-dim {names[0]}",
        )
    specs = {one.name: one for one in request.specs}
    given = [specs.get(one.name) or _spec(one) for one in inputs]
    return msgspec.structs.replace(request, specs=_scaled(given, batch))


def batch_of(inputs: Sequence[tuple[int, ...]]) -> int:
    """The batch size of inputs of these shapes: the first size of the first that has one."""
    return next((shape[0] for shape in inputs if shape), 1)


def _scaled(specs: Sequence[TensorSpec], batch: int) -> tuple[TensorSpec, ...]:
    """Every input that has the first size of the first one, with this size instead."""
    first = next((one.shape[0] for one in specs if one.shape), None)
    if first is None:
        raise InputError("no input has a batch to set", "give --input with a shape for each")
    return tuple(
        msgspec.structs.replace(one, shape=(batch, *one.shape[1:]))
        if one.shape and one.shape[0] == first
        else one
        for one in specs
    )


def _named(inputs: Sequence[Any]) -> list[str]:
    firsts = (value.type.tensor_type.shape.dim[:1] for value in inputs)
    return list(dict.fromkeys(dim.dim_param for dims in firsts for dim in dims if dim.dim_param))


def _spec(value: Any) -> TensorSpec:
    dims = value.type.tensor_type.shape.dim
    return TensorSpec(value.name, "", tuple(dim.dim_value for dim in dims))
