"""The exchange of a step between the processes of a distributed training.

They use the store of the process group, not a collective: a process that profiles nothing, or has
died, holds nobody up.
Source: torch/distributed/distributed_c10d.py, torch/csrc/distributed/c10d/Store.hpp; proc(5).
"""

import os
import socket
import sys
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

# Seconds: for the count of a process that has profiled the step; until a process that has let its
# connections fall is gone; between two looks for what others say; for which the process that may
# keep the store stays, so that they can.
_COUNTING, _ENDING, _LISTENING, _LEAVING = 60.0, 1.0, 0.2, 2.0
_STORE_IS_GONE = "the store of the process group is closed: rank 0 or the launcher has ended"
_NUMBERS = count()


def count_processes_sharing_batch(model: "nn.Module") -> int:
    """Return how many processes share one batch (by tensor parallelism); 1 without sharding.

    A parameter is cut along the axes of its mesh; along those of FSDP every process has a batch.
    """
    tensors = sys.modules.get("torch.distributed.tensor")
    if tensors is None:
        return 1
    batches = _fsdp_shard_counts(model)
    return max(
        (
            weight.device_mesh.size() // batches.get(id(weight), 1)
            for weight in model.parameters()
            if isinstance(weight, tensors.DTensor)
        ),
        default=1,
    )


def _fsdp_shard_counts(model: "nn.Module") -> dict[int, int]:
    """Return for each parameter that FSDP shards, by its id, the number of processes that share
    it.
    """
    fsdp = sys.modules.get("torch.distributed.fsdp")
    batches = {}
    for module in model.modules():
        if fsdp is not None and isinstance(module, fsdp.FSDPModule):
            for group in _parameter_groups_of_fsdp(module._get_fsdp_state()):
                for cut in group.fsdp_params:
                    batches[id(cut.sharded_param)] = group.mesh_info.mesh.size()
    return batches


def _parameter_groups_of_fsdp(state: Any) -> list[Any]:
    """Return the parameter groups of an FSDP state."""
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    return [] if state._fsdp_param_group is None else [state._fsdp_param_group]  # of PyTorch 2.6


def _default_process_group() -> tuple[Any, int, int]:
    """Return the store, the rank and the size of the default process group; (None, 0, 1) without a
    group.
    """
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None, 0, 1
    store = distributed.distributed_c10d._get_default_store()
    return store, distributed.get_rank(), distributed.get_world_size()


class Round:
    """One step that this process profiles, and perhaps the others too."""

    def __init__(self) -> None:
        self._number = next(_NUMBERS)
        self._store, self.rank, self.size = _default_process_group()
        self._others = [rank for rank in range(self.size) if rank != self.rank]
        self._fault = ""  # whose fault it is that the step ended, once that is known
        self._over = Event()
        if self._others:
            self._store_value("here", f"{os.getpid()} {socket.gethostname()}".encode())
            Thread(target=self._poll_for_faults, daemon=True).start()

    def stop_listening(self) -> None:
        """End the listening for faults of other ranks."""
        self._over.set()

    def send_step(self, step: bytes) -> None:
        """Store the serialized step of this rank, which the first rank reads; empty bytes for
        none.
        """
        self._store_value("step", step)

    def collect_steps(self) -> tuple[dict[int, bytes], tuple[int, ...]]:
        """Return the serialized steps of the other ranks by rank, and the ranks that sent none."""
        steps = {rank: self._await_step(rank) for rank in self._others}
        missing = tuple(rank for rank, step in steps.items() if not step)
        return {rank: step for rank, step in steps.items() if step}, missing

    def report_failure(self, error: BaseException) -> None:
        """Report an error of the step to the other ranks; add a note to it that says which rank
        failed first.

        That is who ended without a word, else who was the first to raise.
        """
        self.stop_listening()
        if not self._others:
            return
        self.send_step(b"")
        line = str(error).partition("\n")[0]
        own = f"rank {self.rank} raised {type(error).__name__}: {line}"
        try:
            self._fault = self._fault or self._first_fault(own)
            if self.rank == 0:
                _wait_until(lambda: all(map(self._is_rank_done, self._others)), _LEAVING)
        except RuntimeError:
            self._fault = _STORE_IS_GONE
        if self._fault != own:
            error.add_note(f"crossflops: in the profiled step {self._fault}")

    def _first_fault(self, own: str) -> str:
        """Return the stored text that says which rank failed first; if there is none, store and
        return that of the ended ranks, or `own`.
        """
        _wait_until(lambda: any(map(self._has_rank_process_ended, self._others)), _ENDING)
        ended = [
            self._rank_end_message(rank)
            for rank in self._others
            if self._has_rank_process_ended(rank)
        ]
        fault = self._store.compare_set(
            self._store_key("fault", 0), "", " and ".join(ended) or own
        )
        return bytes(fault).decode()

    def _poll_for_faults(self) -> None:
        """Poll the store for the fault text of another rank until this round ends.

        A process whose neighbours have ended is the next, and the store is one of them.
        """
        try:
            while not (self._fault or self._over.wait(_LISTENING)):
                self._fault = (
                    self._text_in_store("fault", 0) if self._has_stored("fault", 0) else ""
                )
        except RuntimeError:
            return  # the store is gone

    def _rank_end_message(self, rank: int) -> str:
        """Return the message that a rank ended without an answer, with its process and host."""
        pid, host = self._text_in_store("here", rank).split()
        return f"rank {rank} ended without a message (process {pid} on {host})"

    def _has_rank_process_ended(self, rank: int) -> bool:
        """Return True if a process of this machine took part and ended before it sent its step.

        Of processes on other machines nothing is known.
        """
        if self._has_stored("step", rank) or not self._has_stored("here", rank):
            return False
        pid, host = self._text_in_store("here", rank).split()
        return host == socket.gethostname() and _is_process_gone(pid)

    def _is_rank_done(self, rank: int) -> bool:
        """Return True if a rank sent its step, never took part, or ended."""
        return (
            self._has_stored("step", rank)
            or not self._has_stored("here", rank)
            or self._has_rank_process_ended(rank)
        )

    def _await_step(self, rank: int) -> bytes:
        """Wait for the step of a rank; return its bytes, or b"" if it sent none."""
        try:
            _wait_until(lambda: self._is_rank_done(rank), _COUNTING)
            has_step = self._has_stored("step", rank)
            return bytes(self._store.get(self._store_key("step", rank))) if has_step else b""
        except RuntimeError:  # the store is gone
            return b""

    def _store_value(self, name: str, value: bytes) -> None:
        """Store a value of this rank under this name for the other ranks; ignore a lost
        store.
        """
        if self._store is not None:
            try:
                self._store.set(self._store_key(name, self.rank), value)
            except RuntimeError:
                return  # the process that keeps the store is gone: nobody listens

    def _has_stored(self, name: str, rank: int) -> bool:
        """Return True if a rank stored a value under this name."""
        return bool(self._store.check([self._store_key(name, rank)]))

    def _text_in_store(self, name: str, rank: int) -> str:
        """Return the text that a rank stored under this name."""
        return bytes(self._store.get(self._store_key(name, rank))).decode()

    def _store_key(self, name: str, rank: int) -> str:
        """Return the key in the store for the value that a rank stores under this name."""
        return f"crossflops/{self._number}/{name}/{rank}"


def _wait_until(is_so: Callable[[], bool], seconds: float) -> None:
    """Wait until the function `is_so` returns True, at most for `seconds`."""
    end = time.monotonic() + seconds
    while not is_so() and time.monotonic() < end:
        time.sleep(0.02)


def _is_process_gone(pid: str) -> bool:
    """Return True if a process of this machine has ended or is a zombie; False where /proc does
    not exist.
    """
    processes = Path("/proc")
    if not (processes / "self" / "stat").is_file():
        return False
    try:
        state = (processes / pid / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in ("Z", "X")
