"""Models that several processes share; they are counted as the whole model, on the batch of this
process.

Data parallelism wraps a module; FSDP gives modules a class and hooks of its own, tensor
parallelism hooks; both cut parameters into pieces, DTensors, which say the shape of the whole.
Source: torch/nn/parallel/distributed.py, torch/distributed/fsdp/_fully_shard/_fully_shard.py,
torch/distributed/tensor/_api.py (`distribute_module`).
"""

import copy
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from crossflops.frontends.pytorch.load.fakes import fake_tensor_factory
from crossflops.frontends.pytorch.load.tensors import tensor_attributes

if TYPE_CHECKING:
    from torch import nn

_TENSORS = "torch.distributed.tensor"  # whoever cuts a tensor imports it
_STATE = "__composable_api_"  # where FSDP keeps its own: torch/distributed/_composable/contract.py


def unwrap_data_parallel(model: "nn.Module") -> "nn.Module":
    """Return the module inside DistributedDataParallel, or the model itself."""
    parallel = sys.modules.get("torch.nn.parallel.distributed")
    while parallel is not None and isinstance(model, parallel.DistributedDataParallel):
        model = model.module
    return model


def is_sharded(model: "nn.Module") -> bool:
    """Return True if any tensor of the model is a DTensor, which processes share."""
    return _TENSORS in sys.modules and any(True for _ in _dtensors_in_model(model))


def without_model_shards(
    model: "nn.Module", args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple["nn.Module", tuple[Any, ...], dict[str, Any]]:
    """Return a copy of the model in which DTensors are whole tensors without values, and its
    inputs without values.

    Communication between the processes is left out: it is not the model's work.
    """
    fake = fake_tensor_factory()
    memo: dict[int, Any] = {id(tensor): fake(tensor) for tensor in _dtensors_in_model(model)}
    modules = list(model.modules())
    for module in modules:
        kind = _class_before_fsdp(type(module))
        memo[id(module)] = object.__new__(kind)
    for module in modules:
        stored = {
            name: _hooks_without_distributed(value) if name.endswith("_hooks") else value
            for name, value in vars(module).items()
            if not name.startswith(_STATE)
        }
        vars(memo[id(module)]).update(copy.deepcopy(stored, memo))
    from torch.utils._pytree import tree_map

    provided = tree_map(fake, (args, dict(kwargs)))
    return memo[id(model)], *provided


def _dtensors_in_model(model: "nn.Module") -> Iterator[Any]:
    """Yield the DTensors of a model: parameters, buffers and attributes, also in containers."""
    from torch.utils._pytree import tree_leaves

    kind = sys.modules[_TENSORS].DTensor
    for module in model.modules():
        for value in tensor_attributes(module):
            yield from (tensor for tensor in tree_leaves(value) if isinstance(tensor, kind))


def _class_before_fsdp(kind: type) -> type:
    """Return the class that a module had before FSDP replaced it; the same class if it did not."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    provided = fsdp is not None and fsdp.FSDPModule in kind.__bases__
    return kind.__bases__[1] if provided else kind


def _hooks_without_distributed(hooks: Any) -> Any:
    """Return the hooks of a module without those of `torch.distributed`."""
    return type(hooks)(
        (key, hook) for key, hook in hooks.items() if not _is_distributed_hook(hook)
    )


def _is_distributed_hook(hook: Any) -> bool:
    """Return True if `torch.distributed` registered the hook."""
    while hasattr(hook, "func"):  # functools.partial
        hook = hook.func
    owners = getattr(hook, "__module__", ""), type(getattr(hook, "__self__", None)).__module__
    return any((owner or "").startswith("torch.distributed") for owner in owners)
