"""What the processes of a distributed training tell the first of them of a step.

They use the store of the process group, not a collective: a process that profiles nothing, or has
died, holds nobody up.
Source: torch/distributed/distributed_c10d.py, torch/csrc/distributed/c10d/Store.hpp.
"""

import sys
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

_PATIENCE = timedelta(seconds=60)  # for the count of a process that has profiled the step
_NUMBERS = count()


def sharing(model: "nn.Module") -> int:
    """How many processes compute one batch together: those of tensor parallelism, else 1.

    A parameter is cut along the axes of its mesh; along those of FSDP every process has a batch.
    """
    tensors = sys.modules.get("torch.distributed.tensor")
    if tensors is None:
        return 1
    batches = _batches(model)
    return max(
        (
            weight.device_mesh.size() // batches.get(id(weight), 1)
            for weight in model.parameters()
            if isinstance(weight, tensors.DTensor)
        ),
        default=1,
    )


def _batches(model: "nn.Module") -> dict[int, int]:
    """Of each parameter that FSDP cuts, how many processes it is cut for, or copied to."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    batches = {}
    for module in model.modules():
        if fsdp is not None and isinstance(module, fsdp.FSDPModule):
            for group in _param_groups(module._get_fsdp_state()):
                for cut in group.fsdp_params:
                    batches[id(cut.sharded_param)] = group.mesh_info.mesh.size()
    return batches


def _param_groups(state: Any) -> list[Any]:
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    return [] if state._fsdp_param_group is None else [state._fsdp_param_group]  # of PyTorch 2.6


def _group() -> tuple[Any, int, int]:
    """The store of the default process group, the rank in it and its size; none without one."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None, 0, 1
    store = distributed.distributed_c10d._get_default_store()
    return store, distributed.get_rank(), distributed.get_world_size()


class Round:
    """One step that this process profiles, as the others may, too: they are told so at once."""

    def __init__(self) -> None:
        self._number = next(_NUMBERS)
        self._store, self.rank, self.size = _group()
        self._say("here", b"1")

    def tell(self, step: bytes) -> None:
        """Hand the step to the first process."""
        self._say("step", step)

    def heard(self) -> tuple[dict[int, bytes], tuple[int, ...]]:
        """The steps of the other processes by rank, and the ranks that gave none."""
        steps: dict[int, bytes] = {}
        missing: list[int] = []
        for rank in range(self.size):
            if rank != self.rank:
                step = self._ask(rank)
                steps |= {rank: step} if step else {}
                missing += [] if step else [rank]
        return steps, tuple(missing)

    def _ask(self, rank: int) -> bytes:
        try:
            if not self._store.check([self._key("here", rank)]):
                return b""  # it profiles nothing
            self._store.wait([self._key("step", rank)], _PATIENCE)
            return bytes(self._store.get(self._key("step", rank)))
        except RuntimeError:  # the time is over, or the store is gone
            return b""

    def _say(self, what: str, value: bytes) -> None:
        if self._store is not None:
            try:
                self._store.set(self._key(what, self.rank), value)
            except RuntimeError:
                return  # the process that keeps the store is gone: nobody listens

    def _key(self, what: str, rank: int) -> str:
        return f"crossflops/{self._number}/{what}/{rank}"
