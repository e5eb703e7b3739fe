"""The parts of a run that happen in Python, for an export with real values: NumPy arrays, loops,
packed sequences.

A run hands tensors to NumPy, PyTorch's `while_loop` asks its condition after every iteration, and
`pad_packed_sequence` reads the lengths of sequences in C++. Where real tensors are carried, this
is done here as in a run: the array has the real values, the loop is written out, iteration by
iteration, with modules and entry points in it, and packed rows go to places that are numbers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from crossflops.frontends.pytorch.record.function_references import (
    replacing_functions_everywhere,
)
from crossflops.patches import inventory
from crossflops.patches.patching import original_attribute, patching_attribute

READ = "crossflops read"  # stands at nodes behind a place where values left PyTorch
_LOOP = "torch._higher_order_ops.while_loop"


class NumpyArrayUses:
    """A record of whether a model read a tensor as a NumPy array; no graph has the operations on
    that.
    """

    taken = False


@contextmanager
def running_numpy_and_while_loops_on_real_values() -> Iterator[NumpyArrayUses]:
    """Give NumPy arrays the real values inside the block, and run `while_loop` as a Python loop;
    yield a record that says if an array was read.
    """
    import importlib

    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    loop = importlib.import_module(_LOOP).while_loop
    usual, arrays = original_attribute(torch.Tensor, "numpy", inventory.NUMPY), NumpyArrayUses()

    def numpy_of_real_tensor(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the NumPy array of a tensor, for a fake tensor that of its real values."""
        stored = _real_tensor_behind(self)
        if stored is None:
            return usual(self, *args, **kwargs)
        arrays.taken = True
        with _disable_current_modes(), torch._C.DisableTorchFunction():
            return usual(stored.detach(), *args, **kwargs)

    primitives, packed = torch._VF, "_pad_packed_sequence"
    unpacked = original_attribute(primitives, packed, inventory.PACKED)
    with (
        replacing_functions_everywhere({id(loop): _run_while_loop}),
        patching_attribute(torch.Tensor, "numpy", numpy_of_real_tensor, inventory.NUMPY),
        patching_attribute(
            primitives,
            packed,
            lambda *provided: _pad_packed_sequence_by_pieces(unpacked, *provided),
            inventory.PACKED,
        ),
    ):
        yield arrays


@contextmanager
def detaching_tensor_data(is_model_running: Callable[[], bool]) -> Iterator[None]:
    """Make `tensor.data` return `tensor.detach()` inside the block, while `is_model_running()`
    returns True.

    torch.export loses track of tensors that come from `data`.
    """
    import torch

    usual: Any = torch.Tensor.data

    def data_or_detached(self: Any) -> Any:
        """Return a tensor's `data`, or the detached tensor while the model runs."""
        return self.detach() if is_model_running() else usual.__get__(self)

    with patching_attribute(
        torch.Tensor, "data", property(data_or_detached, usual.__set__), inventory.DATA
    ):
        yield


def _run_while_loop(cond_fn: Any, body_fn: Any, carried_inputs: Any) -> Any:
    """Run PyTorch's `while_loop` as a Python loop; return the final carried values.

    Source: torch/_higher_order_ops/while_loop.py, while_loop_dense.
    """
    carried = tuple(carried_inputs)
    while bool(cond_fn(*carried)):
        carried = tuple(body_fn(*carried))
    return carried


def _pad_packed_sequence_by_pieces(
    original: Callable[..., tuple[Any, Any]],
    data: Any,
    batch_sizes: Any,
    batch_first: bool,
    padding_value: float,
    total_length: int,
) -> tuple[Any, Any]:
    """Return what `_pad_packed_sequence` returns, the padded batch and the lengths, computed from
    real lengths.

    Source: native/PackedSequence.cpp.

    data [N, ...] holds the rows of all steps, batch_sizes [T] the number of rows of each step.
    """
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    stored = _real_tensor_behind(batch_sizes)
    if stored is None:
        return original(data, batch_sizes, batch_first, padding_value, total_length)
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        sizes = stored.tolist()
    steps = max(len(sizes), total_length)
    out = data.new_full((steps, sizes[0], *data.shape[1:]), padding_value)
    lengths: list[int] = []
    first = row = 0
    for step, (rows, left) in enumerate(zip(sizes, [*sizes[1:], 0], strict=True), start=1):
        if rows != left:
            piece = data[row : row + rows * (step - first)]
            out[first:step, :rows] = piece.view(step - first, rows, *data.shape[1:])
            first, row = step, row + rows * (step - first)
            lengths = [step] * (rows - left) + lengths
    return out.transpose(0, 1) if batch_first else out, torch.tensor(lengths)


def _real_tensor_behind(tensor: Any) -> Any:
    """Return the real tensor of a traced one, or None; nodes traced later get a mark, since a
    value was read before them.

    Nodes traced from here on have a mark, as the graph has no operator for the values that were
    read.
    """
    from torch._functorch._aot_autograd.functional_utils import from_fun
    from torch.fx import traceback

    stored = getattr(from_fun(tensor), "real_tensor", None)
    marks = traceback.current_meta.get("custom")
    if stored is not None and marks is not None:
        # A dict of its own: nodes that were traced before hold the other one.
        traceback.current_meta["custom"] = {**marks, READ: True}
    return stored
