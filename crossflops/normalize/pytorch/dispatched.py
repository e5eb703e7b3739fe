"""The operators of a real run that reach a dispatch mode, as ptflops' and PyTorch's own do.

Composites are gone there (`aten.linear` is `aten.addmm`, or `aten.mm` and `aten.add`), and what a
kernel calls inside is not seen.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from crossflops.core.trace import Setting
from crossflops.normalize.pytorch.entry_points import recorded
from crossflops.normalize.pytorch.modules import ModuleIndex
from crossflops.normalize.pytorch.recorder import Recorder
from crossflops.normalize.pytorch.seen import Seen
from crossflops.normalize.pytorch.specs import settings, specs

if TYPE_CHECKING:
    from torch import nn

# What multiplies and adds up, or stands for it: products, convolutions and fused kernels.
_WORK = (
    "aten.mm.", "aten.addmm", "aten._addmm", "aten.bmm.", "aten.baddbmm", "aten.addbmm",
    "aten.mv.", "aten.addmv", "aten.dot.", "aten.vdot.", "aten._trilinear", "aten._int_mm",
    "aten._scaled_mm", "aten._grouped_mm", "aten.convolution.", "aten._convolution",
    "aten._scaled_dot_product_", "aten._native_multi_head_attention",
    "aten._transformer_encoder_layer_fwd", "aten.mkldnn_rnn_layer", "aten._thnn_fused_",
)  # fmt: skip


def dispatched(
    model: "nn.Module", args: tuple[Any, ...], kwargs: Mapping[str, Any], setting: Setting
) -> list[Seen]:
    """The operators that multiply, in order, each with its tensors and settings by place.

    The first stands for the run itself. The model may be changed by the run (buffers in training
    mode): pass a copy.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    found = [Seen("(run)")]
    recorder = Recorder(ModuleIndex(model), bare=True)

    class Dispatched(TorchDispatchMode):
        """Keeps what is dispatched."""

        supports_higher_order_operators = True

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            if str(func).startswith(_WORK):
                found.append(
                    Seen(
                        target=str(func),
                        frames=tuple(frame.key for frame in reversed(recorder.stack)),
                        settings=settings(args, kwargs or {}),
                        inputs=tuple(specs(tuple(args))),
                        outputs=tuple(specs(result)),
                    )
                )
            return result

    record = recorded(recorder, captured=False)
    with _hooked(model, setting), torch.set_grad_enabled(setting.grad), record, Dispatched():
        model(*args, **kwargs)
    return found


@contextmanager
def _hooked(model: "nn.Module", setting: Setting) -> Iterator[None]:
    modules = {False: (), True: model.modules(), "children": model.children()}[setting.hooked]
    handles = [one.register_forward_hook(lambda *_: None) for one in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
