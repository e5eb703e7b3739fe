"""Which calls collapse into a fused kernel when the model really runs under a setting.

The export never takes PyTorch's fast paths, and tools that look at dispatched operators see
nothing else: one `aten._native_multi_head_attention` instead of its projections and products.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from crossflops.frontends.pytorch.entry_points import recorded
from crossflops.frontends.pytorch.modules import ModuleIndex
from crossflops.frontends.pytorch.recorder import ROOT, Frame, Recorder
from crossflops.frontends.pytorch.watched import chains, hooks
from crossflops.ir.trace import NESTED, Call, Kernel, Setting

if TYPE_CHECKING:
    from torch import nn

# Kernels that do the work of several operators, or that a tool which knows matrix products and
# convolutions has no formula for.
_FUSED = (
    "aten._transformer_encoder_layer_fwd",
    "aten._native_multi_head_attention",
    "aten._scaled_dot_product_",
    "aten.mkldnn_rnn_layer",
    "aten._thnn_fused_",
    "aten._cudnn_rnn",
    "aten._triton_multi_head_attention",
    "aten.mv.",
    "aten.dot.",
)
# Kernels that a module calls in place of its Python code: no function in there is called.
_INSTEAD = ("aten._transformer_encoder_layer_fwd", "aten._native_multi_head_attention")

# Makes a tensor of rows of different lengths of a padding mask: an encoder does on its fast path.
_NESTING = "aten._nested_tensor_from_mask.default"


Ran: TypeAlias = tuple[tuple[str, ...], str]  # the frames around a kernel, and its name


def is_fused(operator: str) -> bool:
    """Whether a dispatched operator, `aten.name.overload`, is such a kernel."""
    return operator.startswith(_FUSED)


def fused_kernels(
    model: "nn.Module", args: tuple[Any, ...], kwargs: Mapping[str, Any], setting: Setting
) -> list[Ran]:
    """Run the model for real: each fused kernel, with the frames around it, innermost first.

    So are modules and functions that dealt with nested tensors, with their own frame alone: as
    `NESTED`, with the number of positions that the mask left.
    The model may be changed by the run (buffers in training mode): pass a copy.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[Ran] = []
    left: dict[str, int] = {}  # by the key of an encoder's frame
    recorder = Recorder(ModuleIndex(model))

    class Kernels(TorchDispatchMode):
        """Sees what is dispatched, as the dispatch tools do."""

        supports_higher_order_operators = True

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = str(func)
            if name == _NESTING and recorder.stack:
                left[recorder.stack[-1].key] = int(args[1].sum())
            if is_fused(name):
                found.append((tuple(frame.key for frame in reversed(recorder.stack)), name))
            return func(*args, **(kwargs or {}))

    record = recorded(recorder, captured=False)
    with hooks(model, setting), torch.set_grad_enabled(setting.grad), record, Kernels():
        model(*args, **kwargs)
    return [*found, *_nested(recorder, left)]


def _nested(recorder: Recorder, left: dict[str, int]) -> Iterator[Ran]:
    for chain, frame in zip(chains(recorder), recorder.frames, strict=True):
        if _is_nested(frame):
            rows = next((left[key] for key in chain if key in left), "")
            yield (frame.key,), f"{NESTED}{rows}"


def _is_nested(frame: Frame) -> bool:
    """In a real run only a nested tensor has no shape."""
    tensors = (*frame.inputs, *frame.outputs)
    return frame.level != "operator" and any(one.shape is None for one in tensors)


def summary(kernels: list[Ran]) -> tuple[Kernel, ...]:
    """The kernels by name, each with the modules in which it ran."""
    homes: dict[str, list[str]] = {}
    for frames, name in kernels:
        if not name.startswith(NESTED):
            homes.setdefault(name, []).append(_module(frames[0]) if frames else "")
    return tuple(
        Kernel(name, len(found), tuple(dict.fromkeys(found))) for name, found in homes.items()
    )


def _module(key: str) -> str:
    """The path of the module that a key begins with: "a.b" of "a.b@2/F.linear"."""
    path = key.partition("/")[0].partition("@")[0]
    return "" if path == ROOT else path


def swallowed(kernels: list[Ran], calls: tuple[Call, ...]) -> dict[str, str]:
    """Key of an operator or a function call -> the kernel that swallowed it.

    Of the call of a module or a function that dealt with nested tensors: `NESTED`, and how many
    rows are left.

    A kernel swallows the operators that the innermost call around it contains, and those of its
    functions that are not called on the way to the kernel. Where the export has no such call (it
    took another path there), the next one out is meant.
    """
    parents = {call.key: call.parent for call in calls}
    inside: dict[str, list[Call]] = {}
    for call in calls:
        if call.level != "module":
            around = call.parent
            while around is not None:
                inside.setdefault(around, []).append(call)
                around = parents[around]
    found: dict[str, str] = {}
    for frames, kernel in kernels:
        if kernel.startswith(NESTED):
            found[frames[0]] = kernel
            continue
        home = next((key for key in frames if key in inside), None)
        for call in inside.get(home or "", ()):
            if call.level == "operator" or kernel.startswith(_INSTEAD):
                found.setdefault(call.key, kernel)
    return found
