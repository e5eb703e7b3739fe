"""Find functions with their own gradients, and operations without one, in a frozen graph.

tensorflow/python/ops/custom_gradient.py: `_graph_mode_decorator` hands the results and then the
arguments of such a function through one IdentityN, which names the gradient. What leads to its
results gets no gradient but through that.
"""

from collections.abc import Container, Iterable, Iterator
from inspect import getclosurevars
from typing import Any

import msgspec

from crossflops.frontends.tensorflow.convert.operators import (
    branch_operation_names,
    loop_operation_names,
)

CUSTOM = "_gradient_op_type"
KIND = "a tf.custom_gradient"
_DERIVED = (
    f"in {KIND}, which has a custom backward pass; counted as if TensorFlow differentiated it"
)
_SEVERAL = f"{_DERIVED} (it has several results)"
_REPEATED = f"{_DERIVED} (it is in a loop or a branch)"
_AGAIN = f"{_DERIVED} (it is in a checkpoint)"
_NONE = "TensorFlow has no gradient of {}, so the model cannot be differentiated"
_ZEROS = "TensorFlow returns zeros as the gradient of {}; counted as if the zeros were computed"
# They have gradients by the loop or the function around them, not by themselves.
_CONTROL = (
    *("Enter", "RefEnter", "Exit", "RefExit", "Switch", "RefSwitch", "Merge", "RefMerge"),
    *("NextIteration", "RefNextIteration", "While", "StatelessWhile", "If", "StatelessIf"),
    *("Case", "StatelessCase", "PartitionedCall", "StatefulPartitionedCall", "IdentityN"),
)


class OwnGradient(msgspec.Struct, frozen=True):
    """A use of a custom gradient function in a frozen graph.

    `name` is that of the operation that passes its `results` on, followed by its operands;
    `gradient` names the gradient. `inside` are the operations that lead from the operands to the
    results, `behind` those that read these. `unfollowed` says why its gradient is not followed.
    """

    name: str
    gradient: str
    results: int
    operands: int
    inside: frozenset[str]
    behind: frozenset[str]
    unfollowed: str


def custom_gradient_uses(graph: Any) -> tuple[OwnGradient, ...]:
    """Return the uses of custom gradient functions in a frozen graph.

    Those of TensorFlow itself, as of tf.nn.silu, are derived from their operations, and those on
    which no result of the graph depends are left out.
    """
    repeated = loop_operation_names(graph) | branch_operation_names(graph)
    again = {name for part in recompute_regions(graph) for name in part}
    alive = _ancestor_operations((), [tensor.op for tensor in graph.outputs])
    return tuple(
        _describe_custom_gradient(op, gradient, repeated, again)
        for op, gradient in _custom_gradient_ends(graph)
        if op.name in alive and not _is_gradient_of_tensorflow(gradient)
    )


def result_count_by_gradient(owns: Iterable[OwnGradient]) -> dict[str, int]:
    """Return the number of results by operation name, for custom gradients that are followed."""
    return {own.name: own.results for own in owns if not own.unfollowed}


def _describe_custom_gradient(
    op: Any, gradient: str, repeated: Container[str], recompute_keys: Container[str]
) -> OwnGradient:
    """Return the use of a custom gradient: its operation, operands, results and region."""
    results, handed = (
        _result_count_of_custom_gradient(gradient),
        [tensor.op for tensor in op.inputs],
    )
    read = [index for index, tensor in enumerate(op.outputs) if tensor.consumers()]
    unfollowed = ""
    if op.name in recompute_keys:
        unfollowed = _AGAIN
    elif op.name in repeated:
        unfollowed = _REPEATED
    elif len(read) != 1 or read[0] >= results:
        unfollowed = _SEVERAL
    return OwnGradient(
        name=op.name,
        gradient=gradient,
        results=results,
        operands=len(handed) - results,
        inside=_operations_between(handed[results:], handed[:results]),
        behind=frozenset(
            reader.name for tensor in op.outputs for reader in _readers_past_aliases(tensor)
        ),
        unfollowed=unfollowed,
    )


def _readers_past_aliases(tensor: Any) -> Iterator[Any]:
    """Yield the operations that read a tensor, directly or through Identity operations."""
    for reader in tensor.consumers():
        if reader.type == "Identity":
            yield from _readers_past_aliases(reader.outputs[0])
        else:
            yield reader


def recompute_regions(graph: Any) -> Iterator[frozenset[str]]:
    """Yield, for each region that tf.recompute_grad runs again, its operations' names.

    Operations before the results of a nested function are included.
    """
    for op, gradient in _custom_gradient_ends(graph):
        if _is_gradient_of_recompute(gradient):
            results, handed = (
                _result_count_of_custom_gradient(gradient),
                [tensor.op for tensor in op.inputs],
            )
            yield _ancestor_operations(handed[results:], handed[:results])


def _custom_gradient_ends(graph: Any) -> Iterator[tuple[Any, str]]:
    """Yield (operation, name of its gradient) where a custom gradient function ends."""
    for op in graph.get_operations():
        if op.type == "IdentityN" and CUSTOM in op.node_def.attr:
            yield op, op.get_attr(CUSTOM).decode()


def _result_count_of_custom_gradient(gradient: str) -> int:
    """Return the number of results of the function with this custom gradient."""
    return int(gradient_closure_variables(gradient)["flat_result_len"])


def gradient_closure_variables(gradient: str) -> dict[str, Any]:
    """Return the variables by name that the function of a custom gradient closes over."""
    from tensorflow.python.framework.ops import gradient_registry

    inner = getclosurevars(gradient_registry.lookup(gradient)).nonlocals["tape_grad_fn"]
    return dict(getclosurevars(inner).nonlocals)


def _is_gradient_of_recompute(gradient: str) -> bool:
    """Return whether a custom gradient is that of tf.recompute_grad."""
    function = gradient_closure_variables(gradient)["grad_fn"]
    return "recompute_grad" in getattr(function, "__qualname__", "")


def _is_gradient_of_tensorflow(gradient: str) -> bool:
    """Return whether a custom gradient is code of TensorFlow, not of the user."""
    function = gradient_closure_variables(gradient)["grad_fn"]
    return str(getattr(function, "__module__", "")).partition(".")[0] == "tensorflow"


def _ancestor_operations(begin: Iterable[Any], results: Iterable[Any]) -> frozenset[str]:
    """Return the names of operations that `results` depend on, back to those in `begin`."""
    edges = {op.name for op in begin}
    inside: set[str] = set()
    todo = list(results)
    while todo:
        op = todo.pop()
        if op.name not in edges and op.name not in inside:
            inside.add(op.name)
            todo += [tensor.op for tensor in op.inputs]
    return frozenset(inside)


def _operations_between(begin: Iterable[Any], results: Iterable[Any]) -> frozenset[str]:
    """Return the names of operations that depend on `begin`, and on which `results` depend."""
    begin = list(begin)
    behind: set[str] = set()
    todo = list(begin)
    while todo:
        op = todo.pop()
        for reader in (reader for tensor in op.outputs for reader in tensor.consumers()):
            if reader.name not in behind:
                behind.add(reader.name)
                todo.append(reader)
    return frozenset(_ancestor_operations(begin, results) & behind)


# Operations without a gradient, by TensorFlow's registry.


class RegisteredGradients(msgspec.Struct, frozen=True):
    """The operations of a frozen graph that pass no gradient, or whose gradient is unknown.

    For others `reasons` says why their gradients are not followed.
    """

    stopped: frozenset[str]
    reasons: dict[str, str]


def operations_without_gradient(graph: Any) -> RegisteredGradients:
    """Return which operations of a frozen graph have no gradient, by TensorFlow's registry."""
    verdicts: dict[str, bool | str] = {}
    stopped, reasons = set(), {}
    for op in graph.get_operations():
        if (
            op.type in _CONTROL
            or not _has_float_tensors(op.inputs)
            or not _has_float_tensors(op.outputs)
        ):
            continue
        if op.type not in verdicts:
            verdicts[op.type] = _passes_gradient_or_reason(op)
        verdict = verdicts[op.type]
        if isinstance(verdict, str):
            reasons[op.name] = verdict
        elif not verdict:
            stopped.add(op.name)
    return RegisteredGradients(frozenset(stopped), reasons)


def _has_float_tensors(tensors: Iterable[Any]) -> bool:
    """Return whether one of the tensors has floats or complex numbers."""
    return any(tensor.dtype.is_floating or tensor.dtype.is_complex for tensor in tensors)


def _passes_gradient_or_reason(op: Any) -> bool | str:
    """Return whether an operation passes a gradient on, or a text on why that is unknown.

    A gradient that cannot be made of this operation alone is assumed to reach one.
    """
    import tensorflow as tf
    from tensorflow.python.framework import ops
    from tensorflow.python.framework.func_graph import FuncGraph

    try:
        gradient = ops.get_gradient_function(op)
    except LookupError:
        return _NONE.format(op.type)
    if gradient is None:
        return False
    with op.graph.as_default(), FuncGraph("gradient").as_default():
        provided = [tf.compat.v1.placeholder(result.dtype, result.shape) for result in op.outputs]
        try:
            operands = gradient(op, *provided)
        except Exception:
            return True
    operands = operands if isinstance(operands, list | tuple) else [operands]
    ends = [operand.op for operand in operands if isinstance(operand, tf.Tensor)]
    read = _ancestor_operations((), ends)
    if ends and not any(tensor.op.name in read for tensor in provided):
        return _ZEROS.format(op.type)
    return any(operand is not None for operand in operands)
