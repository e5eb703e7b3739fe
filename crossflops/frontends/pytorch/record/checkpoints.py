"""The operators in each activation checkpoint, and the values that they keep for the backward
pass.

A checkpoint keeps its inputs alone and runs its part of the model again in the backward pass. The
kind that is not reentrant stops once all that is kept was made again (torch/utils/checkpoint.py).
What is kept says PyTorch's tools/autograd/derivatives.yaml: operands are kept before an operator
runs, results after it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import TYPE_CHECKING, Any

from crossflops.ir.graph import Checkpoint, KeptForBackward
from crossflops.patches import inventory
from crossflops.patches.patching import Patch

if TYPE_CHECKING:
    from torch import fx

    from crossflops.frontends.pytorch.record.recorder import Recorder

# What runs a checkpoint that is not reentrant: before PyTorch 2.14, and from there on.
_GENERATOR = "_checkpoint_without_reentrant_generator"
_GENERATOR_2_14 = f"{_GENERATOR}_impl"
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


def operator_kept_values(node: "fx.Node") -> KeptForBackward:
    """Return which values autograd keeps of an operator for its backward pass: "operands",
    "results", "parts" or "nothing".
    """
    packet = getattr(node.target, "overloadpacket", None)
    name = getattr(packet, "__name__", "")
    if name == "dropout":  # a mask where it drops, which is kept before it is multiplied with
        return "operands" if node.args[-1] is True else "nothing"
    if name == "pow" and not isinstance(node.args[1], int | float):
        return "results"  # the gradient of the exponent is made of the result
    if name in ("mul", "mul_", "div", "div_") and isinstance(node.args[1], int | float):
        return "nothing"
    if name == "einsum" and len(node.args) > 1 and len(_to_tuple(node.args[1])) > 2:
        return "parts"
    return "nothing" if name in _NOTHING else "operands" if name in _OPERANDS else "results"


def _to_tuple(provided: Any) -> tuple[Any, ...]:
    """Return a list or tuple as a tuple, and another value as a tuple of one."""
    return tuple(provided) if isinstance(provided, list | tuple) else (provided,)


def patch_checkpoints_to_record(
    replace: Callable[[Any, str, Any, Patch], None], recorder: "Recorder"
) -> None:
    """Replace the functions that run activation checkpoints (by `replace`), so that the recorder
    notes which operators run in them.
    """
    from torch.utils import checkpoint

    names: Any = vars(checkpoint)
    name = _GENERATOR_2_14 if _GENERATOR_2_14 in names else _GENERATOR
    plain = names[name]
    parameters = signature(plain)
    own = checkpoint.CheckpointFunction.forward

    def record_generator_checkpoint(*args: Any, **kwargs: Any) -> Any:
        """Run the generator of a checkpoint that is not reentrant, and record its kind and
        policy.
        """
        provided = parameters.bind(*args, **kwargs)
        provided.apply_defaults()
        asked = names["_enable_checkpoint_early_stop"]
        stops = asked if asked is not None else provided.arguments["early_stop"]
        kind = "stopping" if stops else "whole"
        policy = None
        contexts = provided.arguments["context_fn"]
        if contexts is not checkpoint.noop_context_fn:
            policy = getattr(contexts()[0], "policy_fn", None)
            kind = kind if policy else "unknown"
        if recorder.chosen:  # what a policy saves in a checkpoint in its own is not followed
            kind = "unknown"
        with _assigning_operators_to_checkpoint(recorder, kind, policy):
            yield from plain(*args, **kwargs)

    def run_and_record_reentrant_forward(
        ctx: Any, function: Callable[..., Any], *args: Any
    ) -> Any:
        """Run the forward pass of a reentrant checkpoint with gradients on, record it, and return
        its result.
        """

        def run_checkpointed_with_gradients(*provided: Any) -> Any:
            """Call the checkpointed function with gradients on; return its result."""
            with checkpoint.torch.enable_grad():  # as the backward pass runs it
                return function(*provided)

        weights = any(isinstance(provided, checkpoint.torch.nn.Parameter) for provided in args)
        with _assigning_operators_to_checkpoint(recorder, "reentrant", weights=weights):
            return own(ctx, run_checkpointed_with_gradients, *args)

    replace(checkpoint, name, record_generator_checkpoint, inventory.CHECKPOINTS)
    function = checkpoint.CheckpointFunction
    replace(
        function,
        "forward",
        staticmethod(run_and_record_reentrant_forward),
        inventory.REENTRANT_CHECKPOINTS,
    )


@contextmanager
def _assigning_operators_to_checkpoint(
    recorder: "Recorder", kind: Any, policy: Any = None, *, weights: bool = False
) -> Iterator[None]:
    """Assign the operators that are recorded inside the block to a new checkpoint, which may be in
    another one.

    In the forward pass of a custom function no values are kept, and nothing is recomputed.
    """
    if recorder.in_function:
        yield
        return
    enclosing, chosen = recorder.checkpoint, recorder.chosen
    recorder.checkpoints += 1
    recorder.checkpoint = Checkpoint(recorder.checkpoints, kind, around=enclosing, weights=weights)
    recorder.checkpoint_by_number[recorder.checkpoints] = recorder.checkpoint
    recorder.chosen = chosen or policy is not None
    if policy is not None:
        recorder.policies[recorder.checkpoints] = policy
    try:
        yield
    finally:
        recorder.checkpoint, recorder.chosen = enclosing, chosen


def is_saved_by_policy(policy: Any, node: "fx.Node") -> bool | None:
    """Return True if the policy of a checkpoint saves this operator's result, False if not, None
    if that is unclear.

    The policy is called for each PyTorch operator that the node runs as, as the checkpoint calls
    it; products decide where there are any. None: it saves only some of them, or fails.
    """
    import torch
    from torch.utils import checkpoint
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    names: Any = vars(checkpoint)
    choices: list[tuple[bool, bool]] = []

    class Asking(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            """Return an operator's result, and record if the checkpoint's policy saves it."""
            result = func(*args, **(kwargs or {}))
            if func not in names["SAC_IGNORED_OPS"] and not func.is_view:
                context = names["SelectiveCheckpointContext"](is_recompute=False, op_output=result)
                choice = policy(context, func, *args, **(kwargs or {}))
                saves = choice is True or getattr(choice, "name", "").endswith("_SAVE")
                choices.append((saves, func._overloadpacket in flop_registry))
            return result

    provided = torch.fx.node.map_arg((node.args, node.kwargs), lambda at: at.meta.get("val"))
    target: Any = node.target
    try:
        with torch.enable_grad(), Asking():
            target(*provided[0], **provided[1])
    except Exception:  # what a policy of a model's own raises
        return None
    deciding = {saves for saves, multiplies in choices if multiplies} or {s for s, _ in choices}
    return deciding.pop() if len(deciding) == 1 else None if deciding else False
