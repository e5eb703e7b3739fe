"""What PyTorch really executes in a training step: its MACs, seen by a dispatch mode.

Composites are gone there, so that products, convolutions and their gradients are what is left. The
attention of PyTorch runs as products (its math kernel), recurrent layers as their steps.
"""

from contextlib import ExitStack
from math import prod

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

aten = torch.ops.aten
# Parts of names of operators that multiply; one that is seen, and is not known here, is refused.
_SUSPECTS = ("mm", "conv", "attention", "lstm", "gru", "rnn", "linear", "dot", "mkldnn", "flash")
_INNOCENT = ("upsample", "conj", "comm")


def _product(a, b):
    """MACs of a product of matrices, or of one for each member of a batch."""
    return a.numel() * b.shape[-1]


def _window(weight, larger):
    """MACs of a convolution: every element of the larger side meets its window."""
    return larger.numel() * prod(weight.shape[1:])


def _convolution(args, out):
    x, weight, transposed = args[0], args[1], args[6]
    return _window(weight, x if transposed else out)


def _convolution_backward(args, _out):
    """Gradients that the mask asks for: of the input, and of the weight."""
    grad, x, weight, transposed, mask = args[0], args[1], args[2], args[7], args[10]
    return _window(weight, x if transposed else grad) * sum(mask[:2])


def _trilinear(args, _out):
    """The pairs that the kernel of `_trilinear` multiplies, slice by slice of `unroll_dim`.

    Its loop with sumproduct_pair, whose products are not dispatched: aten/src/ATen/native/
    Linear.cpp.
    """
    operands, summed_axes = [], set(args[6])
    for operand, expand in zip(args[:3], args[3:6], strict=True):
        for place in sorted(expand):
            operand = operand.unsqueeze(place)
        operands.append(operand)
    unrolled, macs = args[7] if len(args) > 7 else 1, 0
    inner = [axis for axis in summed_axes & set(args[5]) if axis != unrolled]
    for at in range(max(operand.shape[unrolled] for operand in operands)):
        first, second, third = (
            o.select(unrolled, at if o.shape[unrolled] > 1 else 0).unsqueeze(unrolled)
            for o in operands
        )
        pair = first * second
        made = pair.sum(inner, keepdim=True) if inner else pair
        macs += pair.numel() + (made * third).numel()
    return macs


_FORMULAS = {
    aten.mm: lambda args, _: _product(*args[:2]),
    aten.bmm: lambda args, _: _product(*args[:2]),
    aten.mv: lambda args, _: args[0].numel(),
    aten.dot: lambda args, _: args[0].numel(),
    aten.vdot: lambda args, _: args[0].numel(),
    aten.addmv: lambda args, _: args[1].numel(),
    aten.addmm: lambda args, _: _product(*args[1:3]),
    aten.addmm_: lambda args, _: _product(*args[1:3]),
    aten.baddbmm: lambda args, _: _product(*args[1:3]),
    aten.baddbmm_: lambda args, _: _product(*args[1:3]),
    aten._grouped_mm: lambda args, out: (
        out.numel() * args[0].shape[-1]
        if out.dim() == 2 or args[0].dim() == 3
        else args[0].shape[0] * args[0].shape[1] * args[1].shape[1]
    ),
    aten.convolution: _convolution,
    aten.convolution_backward: _convolution_backward,
    aten._trilinear: _trilinear,
}


class Executed(TorchDispatchMode):
    """Sums the MACs of what is dispatched while it is on."""

    def __init__(self):
        super().__init__()
        self.macs = 0
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        packet = func._overloadpacket
        formula = _FORMULAS.get(packet)
        if formula is not None:
            macs = formula(args, out)
            self.macs += macs
            self.calls.append(
                (str(packet), macs, [tuple(a.shape) for a in args if torch.is_tensor(a)])
            )
        else:
            name = str(packet)
            known = any(part in name for part in _INNOCENT)
            assert known or not any(part in name for part in _SUSPECTS), name
        return out


def summed(outputs):
    """The loss of a count: the sum of all float outputs that have gradients; None without any."""
    leaves = [leaf for leaf in tree_leaves(outputs) if torch.is_tensor(leaf)]
    leaves = [leaf for leaf in leaves if leaf.requires_grad]
    return sum(leaf.float().sum() for leaf in leaves) if leaves else None


def flat(outputs):
    """The tensors of what a model returns, in order, caches and all."""
    from collections.abc import Mapping

    if torch.is_tensor(outputs):
        return [outputs]
    if isinstance(outputs, Mapping):
        outputs = list(outputs.values())
    if isinstance(outputs, list | tuple):
        return [leaf for output in outputs for leaf in flat(output)]
    return []


def step(model, args=(), kwargs=None, loss=summed):
    """MACs of the forward and of the backward pass of a real run, in the mode of the model."""
    for parameter in model.parameters():
        parameter.grad = None
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with ExitStack() as stack:
            stack.enter_context(torch.backends.mkldnn.flags(enabled=False))
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            executed = stack.enter_context(Executed())
            outputs = model(*args, **(kwargs or {}))
            forward = executed.macs
            total = loss(flat(outputs) if loss is summed else outputs)
            if total is not None:
                total.backward()
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
    return forward, executed.macs - forward
