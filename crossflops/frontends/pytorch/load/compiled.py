"""A way to run a model without PyTorch's compiler: compiled parts run as their Python is written.

While the compiler traces a function it calls it on fake tensors, once or several times, and what
watches calls sees these beside the run, or instead of it: how often depends on what was compiled
before. A compiled model is the model that was compiled, in whole and in part.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import MethodType
from typing import TYPE_CHECKING, Any

from crossflops.frontends.pytorch.load.flexible_attention import unfusing_flex_attention
from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute

if TYPE_CHECKING:
    from torch import nn


@contextmanager
def running_uncompiled() -> Iterator[None]:
    """Run the parts of a model that torch.compile compiles as plain Python, inside the block.

    PyTorch itself compiles the functions that an operator holds (torch.cond), as such operators
    accept no others: it does so here, too, except for FlexAttention.
    """
    if "torch" not in sys.modules:
        yield
        return
    import torch._dynamo.eval_frame as frames
    from torch._higher_order_ops import utils

    stated: Any = frames._callback_from_stance

    def compiler_callback_if_allowed(requested: Any) -> Any:
        """Return the compiler's callback if an operator requests it or if it is off, else None,
        which compiles nothing.
        """
        by_operator = getattr(utils._hop_compile_tls, "in_hop_compile", False)
        return stated(requested) if by_operator or requested in (False, None) else None

    def no_compiled_frames(_: int) -> int:
        """Return 0, so that PyTorch accepts that nothing was compiled."""
        return 0  # fullgraph=True raises where nothing was compiled, unless frames are counted

    instead = {
        "_callback_from_stance": compiler_callback_if_allowed,
        "set_fullgraph_compiled_frame_count": no_compiled_frames,
    }
    with ExitStack() as undo:
        for name, function in instead.items():
            if name in vars(frames):
                undo.enter_context(patching_attribute(frames, name, function, inventory.COMPILED))
        undo.enter_context(unfusing_flex_attention())
        yield


def bind_uncompiled_methods(model: "nn.Module", copy: "nn.Module") -> None:
    """Replace the compiled methods in `copy`, a copy of the model, by uncompiled ones that run the
    copy.

    Python does not copy functions, and that of a compiled method runs the original module.
    """
    twins = dict(zip(map(id, model.modules()), copy.modules(), strict=False))
    for module in model.modules():
        for name, value in vars(module).items():
            method = getattr(value, "_torchdynamo_orig_callable", None)
            if isinstance(method, MethodType) and id(method.__self__) in twins:
                copied = vars(twins[id(module)])
                if name in copied:  # unlike what `compile()` of a module puts on it
                    copied[name] = MethodType(method.__func__, twins[id(method.__self__)])
