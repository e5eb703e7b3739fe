"""Which operators stand in a checkpoint, and what each of them keeps for its backward pass.

A checkpoint keeps its inputs alone and runs its part of the model again in the backward pass. The
kind that is not reentrant stops once all that is kept was made again (torch/utils/checkpoint.py).
What is kept says PyTorch's tools/autograd/derivatives.yaml: operands are kept before an operator
runs, results after it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from crossflops.ir.graph import Checkpoint, Kept

if TYPE_CHECKING:
    from torch import fx

    from crossflops.frontends.pytorch.recorder import Recorder

# Gradients of these need no tensor of the forward pass: they move, copy, add up and scale.
_NOTHING = frozenset({
    "add", "add_", "sub", "sub_", "rsub", "neg", "view", "reshape", "_unsafe_view", "flatten",
    "unflatten", "transpose", "permute", "t", "numpy_T", "movedim", "moveaxis", "swapaxes",
    "swapdims", "adjoint", "mT", "expand", "expand_as", "view_as", "squeeze", "squeeze_",
    "unsqueeze", "unsqueeze_", "cat", "concat", "concatenate", "stack", "hstack", "vstack",
    "split", "split_with_sizes", "chunk", "tensor_split", "unbind", "slice", "select", "narrow",
    "diagonal", "unfold", "clone", "contiguous", "to", "_to_copy", "type_as", "float", "detach",
    "alias", "lift_fresh", "lift_fresh_copy", "sum", "mean", "cumsum", "flip", "roll", "rot90",
    "repeat", "tile", "repeat_interleave", "broadcast_to", "tril", "triu", "constant_pad_nd",
    "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "im2col", "col2im",
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d",
    "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d", "copy_", "fill_",
    "zero_", "view_as_real", "view_as_complex", "trace", "floor", "ceil", "round", "sign",
})  # fmt: skip
# These keep operands, or where they came from, and nothing of what they give.
_OPERANDS = frozenset({
    "linear", "mm", "bmm", "matmul", "addmm", "addbmm", "baddbmm", "mv", "addmv", "dot", "inner",
    "bilinear", "_trilinear", "einsum", "_grouped_mm", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution", "conv_tbc",
    "mul", "mul_", "div", "div_", "addcmul", "addcdiv", "pow", "abs", "log", "log1p", "log2",
    "sin", "cos", "erf", "gelu", "silu", "mish", "glu", "elu", "leaky_relu", "softplus",
    "hardtanh", "hardswish", "hardsigmoid", "clamp", "clamp_min", "clamp_max", "maximum",
    "minimum", "where", "masked_fill", "masked_fill_", "index", "index_select", "index_add",
    "index_put", "gather", "scatter", "scatter_add", "embedding", "avg_pool1d", "avg_pool2d",
    "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
    "grid_sampler", "var", "dropout",
})  # fmt: skip


def kept(node: "fx.Node") -> Kept:
    """What this operator keeps for the gradients of its operands."""
    packet = getattr(node.target, "overloadpacket", None)
    name = getattr(packet, "__name__", "")
    if name == "dropout":  # a mask where it drops, which is kept before it is multiplied with
        return "operands" if node.args[-1] is True else "nothing"
    if name == "pow" and not isinstance(node.args[1], int | float):
        return "results"  # the gradient of the exponent is made of the result
    if name in ("mul", "mul_", "div", "div_") and isinstance(node.args[1], int | float):
        return "nothing"
    if name == "einsum" and len(node.args) > 1 and len(_tensors(node.args[1])) > 2:
        return "parts"
    return "nothing" if name in _NOTHING else "operands" if name in _OPERANDS else "results"


def _tensors(given: Any) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, list | tuple) else (given,)


def notice_checkpoints(
    replace: Callable[[Any, str, Any], None],
    recorder: "Recorder",
) -> None:
    """Note which part of the model each checkpoint runs: both kinds go through one of these."""
    from torch.utils import checkpoint

    names: Any = vars(checkpoint)
    plain = names["_checkpoint_without_reentrant_generator"]
    own = checkpoint.CheckpointFunction.forward

    def generator(*args: Any, **kwargs: Any) -> Any:
        # function, random state, contexts, check, debug, whether it stops
        asked = names["_enable_checkpoint_early_stop"]
        stops = asked if asked is not None else args[5]
        kind = "stopping" if stops else "whole"
        plainly = args[2] is checkpoint.noop_context_fn
        with _inside(recorder, kind if plainly else "unknown"):
            yield from plain(*args, **kwargs)

    def forward(ctx: Any, function: Callable[..., Any], *args: Any) -> Any:
        def graded(*given: Any) -> Any:
            with checkpoint.torch.enable_grad():  # as the backward pass runs it
                return function(*given)

        with _inside(recorder, "reentrant"):
            return own(ctx, graded, *args)

    replace(checkpoint, "_checkpoint_without_reentrant_generator", generator)
    replace(checkpoint.CheckpointFunction, "forward", staticmethod(forward))


@contextmanager
def _inside(recorder: "Recorder", kind: Any) -> Iterator[None]:
    """What is recorded meanwhile stands in a checkpoint, which may stand in another one."""
    around = recorder.checkpoint
    recorder.checkpoints += 1
    recorder.checkpoint = Checkpoint(recorder.checkpoints, kind, around=around)
    try:
        yield
    finally:
        recorder.checkpoint = around
