"""The operators of a real run that reach a dispatch mode, as ptflops' and PyTorch's own do.

Composites are gone there (`aten.linear` is `aten.addmm`, or `aten.mm` and `aten.add`), except in
inference mode, where PyTorch's own mode takes them apart by itself. What a kernel calls inside is
not seen.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from crossflops.core.trace import Scalar, Setting
from crossflops.normalize.pytorch.entry_points import recorded
from crossflops.normalize.pytorch.hooks import hooks
from crossflops.normalize.pytorch.modules import ModuleIndex
from crossflops.normalize.pytorch.recorder import Recorder
from crossflops.normalize.pytorch.seen import RUN, Seen
from crossflops.normalize.pytorch.specs import settings, specs

if TYPE_CHECKING:
    from torch import nn

# What multiplies and adds up, or stands for it: products, convolutions and fused kernels.
_WORK = (
    "aten.mm.", "aten.matmul.", "aten.addmm", "aten._addmm", "aten.bmm.", "aten.baddbmm",
    "aten.addbmm", "aten.mv.", "aten.addmv", "aten.dot.", "aten.vdot.", "aten._trilinear",
    "aten._int_mm",
    "aten._scaled_mm", "aten._grouped_mm", "aten.convolution.", "aten._convolution",
    "aten._scaled_dot_product_", "aten._native_multi_head_attention",
    "aten._transformer_encoder_layer_fwd", "aten.mkldnn_rnn_layer", "aten._thnn_fused_",
)  # fmt: skip


# The setting of an operator that a composite one, seen by itself, is composed of.
COMPOSED = "composed"


def dispatched(
    model: "nn.Module", args: tuple[Any, ...], kwargs: Mapping[str, Any], setting: Setting
) -> list[Seen]:
    """The operators that multiply, in order, each with its tensors and settings by place.

    The first stands for the run itself. The model may be changed by the run (buffers in training
    mode): pass a copy.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    found = [Seen(RUN)]
    recorder = Recorder(ModuleIndex(model), bare=True)

    class Dispatched(TorchDispatchMode):
        """Keeps what is dispatched, and what that is composed of."""

        supports_higher_order_operators = True
        depth = 0

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = self.inside(func, args, kwargs or {})
            if result is NotImplemented:
                result = func(*args, **(kwargs or {}))
            if str(func).startswith(_WORK):
                said = settings(args, kwargs or {}) | {COMPOSED: bool(self.depth)}
                found.append(_seen(func, args, result, recorder, said))
            return result

        def inside(self, func: Any, args: Any, kwargs: Any) -> Any:
            """The result of a composite, operator by operator; NotImplemented for another one."""
            if not isinstance(func, torch._ops.OpOverload) or not _is_composite(func):
                return NotImplemented
            self.depth += 1
            try:
                with self:
                    return func.decompose(*args, **kwargs)
            finally:
                self.depth -= 1

    record = recorded(recorder, captured=False)
    with hooks(model, setting), torch.set_grad_enabled(setting.grad), record, Dispatched():
        model(*args, **kwargs)
    return found


def _seen(func: Any, args: Any, result: Any, recorder: Recorder, said: dict[str, Scalar]) -> Seen:
    return Seen(
        target=str(func),
        frames=tuple(frame.key for frame in reversed(recorder.stack)),
        settings=said,
        inputs=tuple(specs(tuple(args))),
        outputs=tuple(specs(result)),
    )


def _is_composite(func: Any) -> bool:
    """Whether PyTorch has nothing but its composition. Not what only looks at a tensor."""
    return str(func).startswith("aten.") and func._can_decompose()
