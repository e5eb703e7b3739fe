"""FlexAttention as it runs on a CPU: as the operators of PyTorch's own implementation, not fused.

PyTorch hands FlexAttention to its compiler, which is not part of the model, and refuses tensors
that require a gradient on a CPU. The operators that it then runs there (`math_attention`) are
called directly here: these have gradients, and an export sees each of them. They compute all
scores; the blocks that a mask skips are left out by a fused kernel alone.
Source: torch/nn/attention/flex_attention.py, torch/_higher_order_ops/flex_attention.py.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec

from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute

_API = "torch.nn.attention.flex_attention"
_OPERATOR = "torch._higher_order_ops.flex_attention"
_INDEXING = "torch._dynamo._trace_wrapped_higher_order_op"


class MaskedAttention(msgspec.Struct, frozen=True):
    """One call of FlexAttention: MACs and blocks, in total and those that its mask keeps.

    `kept_macs` is None where the mask has no values.
    """

    macs: int
    kept_macs: int | None
    blocks: int
    kept: int | None


AS_OPERATORS = (
    "FlexAttention was run as separate operators, because PyTorch has no backward "
    "pass for it on a CPU"
)


class FlexAttentionRunner:
    """A runner of models whose FlexAttention may need gradients.

    On a CPU PyTorch refuses these, so they run as the operators that are counted. Elsewhere, and
    where no gradient is needed, the model runs unchanged.
    """

    def __init__(self, model: Any, graded: bool = True) -> None:
        """Note whether flexible attention would fail: gradients of weights on a CPU."""
        self._is_refused = graded and any(
            weight.requires_grad and weight.device.type == "cpu" for weight in model.parameters()
        )
        self._calls: list[str] = []

    @property
    def operator_run_note(self) -> str:
        """The note for the report that FlexAttention ran as operators; "" if it did not."""
        return AS_OPERATORS if self._calls else ""

    @contextmanager
    def running_as_operators(self) -> Iterator[None]:
        """Run FlexAttention as operators inside the block, if PyTorch would refuse it."""
        if not self._is_refused or _API not in sys.modules:
            yield
            return
        with unfusing_flex_attention(attended_kinds=self._calls):
            yield


@contextmanager
def unfusing_flex_attention(
    calls: list[MaskedAttention] | None = None, attended_kinds: list[str] | None = None
) -> Iterator[None]:
    """Run FlexAttention as operators inside the block, and add a description of each call with a
    mask to `calls`.

    `attended_kinds` is appended to at every call.
    """
    from importlib import import_module

    api, operator, indexing = map(import_module, (_API, _OPERATOR, _INDEXING))

    def attend_by_operators(*args: Any, **kwargs: Any) -> Any:
        """Run FlexAttention as plain operators and return its result; record the call if it has a
        mask.
        """
        if attended_kinds is not None:
            attended_kinds[:] = [_API]
        if calls is not None:
            calls.extend(_describe_masked_call(*args[:5]))
        return operator.math_attention(*args, **kwargs)

    instead = (
        (api, "flex_attention_hop", attend_by_operators, inventory.ATTENTION),
        (api, "setup_compilation_env", _using_eager_backend, inventory.ATTENTION),
        (api, "_validate_device", _accept_any_tensors, inventory.ATTENTION),
        (api, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True, inventory.ATTENTION),
        (
            indexing,
            "TransformGetItemToIndex",
            _indexing_without_value_reads,
            inventory.ATTENTION_INDICES,
        ),
    )
    with ExitStack() as undo:
        for module, name, value, declared in instead:
            if name in vars(module):
                undo.enter_context(patching_attribute(module, name, value, declared))
        yield


@contextmanager
def _using_eager_backend() -> Iterator[str]:
    """Yield "eager", the name of the compiler backend that compiles nothing."""
    yield "eager"


def _accept_any_tensors(*_tensors: Any) -> None:
    """Do nothing, so that tensors which require gradients are accepted."""


def _indexing_without_value_reads() -> Any:
    """Return a context in which indexing a tensor by tensors does not read their values.

    It is a mode and not an assignment to `Tensor.__getitem__`: that would make PyTorch treat
    tensors as sequences from then on, in the whole process (see entry_points.py).
    """
    import torch
    from torch.overrides import TorchFunctionMode

    class Selection(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            """Run a torch function; indexing with numbers in a mask is run by `aten.index`."""
            if func is torch.Tensor.__getitem__ and _is_index_of_tensors(args[1]):
                indices = args[1] if isinstance(args[1], tuple | list) else (args[1],)
                return torch.ops.aten.index(args[0], [torch.as_tensor(item) for item in indices])
            return func(*args, **kwargs or {})

    return Selection()


def _is_index_of_tensors(index: Any) -> bool:
    """Return True if an index consists of tensors and integers alone, with a tensor among them."""
    import torch

    indices = index if isinstance(index, tuple | list) else (index,)
    return any(isinstance(position, torch.Tensor) for position in indices) and all(
        isinstance(position, torch.Tensor | int) for position in indices
    )


def run_and_describe_masked_attention(run: Callable[[], Any]) -> list[MaskedAttention]:
    """Call `run`; return a description of each FlexAttention call with a mask in it."""
    calls: list[MaskedAttention] = []
    with unfusing_flex_attention(calls):
        run()
    return calls


def sentence_on_masked_attention(calls: Sequence[MaskedAttention]) -> str:
    """Return a sentence on how many MACs a kernel does that skips masked blocks; "" if unknown or
    without masks.
    """
    if not calls or any(call.kept is None for call in calls):
        return ""
    macs, blocks = sum(call.macs for call in calls), sum(call.blocks for call in calls)
    kept_macs, kept = sum(call.kept_macs or 0 for call in calls), sum(c.kept or 0 for c in calls)
    return (
        f"FlexAttention is counted without block sparsity, {macs} MACs; a kernel that skips "
        f"masked blocks runs {kept} of {blocks} blocks, {kept_macs} MACs"
    )


def _describe_masked_call(
    query: Any, key: Any, value: Any, _score_mod: Any, mask: Any
) -> Iterator[MaskedAttention]:
    """Yield the description of a FlexAttention call, its MACs and blocks, if its mask has
    blocks.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensor

    batch, heads, queries, depth = query.shape
    keys, width = key.shape[2], depth + value.shape[3]
    *_, block_queries, block_keys, _ = mask
    if block_queries >= queries and block_keys >= keys:
        return
    partial, positions, full, full_places = mask[2:6]
    grid = batch * heads
    rows, columns = -(-queries // block_queries), -(-keys // block_keys)
    total = grid * queries * keys * width
    blocks = grid * rows * columns
    if isinstance(partial, FakeTensor) or not _has_real_values(partial):
        yield MaskedAttention(total, None, blocks, None)
        return
    heights = _block_lengths(queries, block_queries, rows).view(-1, 1)
    widths = _block_lengths(keys, block_keys, columns)
    kept = area = 0
    for counts, indices in ((partial, positions), (full, full_places)):
        if counts is None:
            continue
        valid = torch.arange(indices.shape[-1]) < counts.unsqueeze(-1)
        share = grid // (valid.shape[0] * valid.shape[1])
        kept += int(valid.sum()) * share
        area += int((valid * widths[indices.long()] * heights).sum()) * share
    yield MaskedAttention(total, area * width, blocks, kept)


def _has_real_values(tensor: Any) -> bool:
    """Return True if a tensor has values: it is neither of a subclass nor on the meta device."""
    import torch

    return type(tensor) is torch.Tensor and not tensor.is_meta


def _block_lengths(length: int, block: int, blocks: int) -> Any:
    """Return the sizes of the blocks of an axis with `length` elements, as a tensor; the last may
    be smaller.
    """
    import torch

    return (length - block * torch.arange(blocks)).clamp(max=block)
