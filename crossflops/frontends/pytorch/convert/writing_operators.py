"""Replacements of custom operators that write into their arguments, which the ONNX exporter cannot
read.

Where such an operator stands, PyTorch puts one that holds it and its arguments in a form that the
exporter cannot read. So the program is exported with another operator in its place, which writes
nothing, and gives what was written beside its results, and with copies of that to where it
belongs: into a buffer, an input, a tensor on the way, or a view of one. The copies are no work.
Source: torch/_higher_order_ops/auto_functionalize.py.
"""

import copy
import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import getitem
from typing import TYPE_CHECKING, Any, NamedTuple

from crossflops.frontends.pytorch.convert.exporter import opaque_node_translation
from crossflops.frontends.pytorch.record.operators import (
    is_third_party_operator,
    write_and_return_node,
    write_argument_nodes,
)

if TYPE_CHECKING:
    from torch import fx
    from torch.export import ExportedProgram

_NAMESPACE = "crossflops_written"
_CALL = "crossflops_writing_call"  # on an operator that replaces a call: this call


class MutatingCall(NamedTuple):
    """The call of an operator that writes into its arguments: the facts of its node, kept after
    that is removed.
    """

    target: Any
    args: Any
    kwargs: Any
    given: list["fx.Node"]
    written: list["fx.Node"]
    returns: int  # results beside what it writes

    @property
    def result_count(self) -> int:
        """The number of tensors that the call returns or writes in place."""
        return self.returns + len(self.written)

    def arguments_with_values(self, values: Iterable[Any]) -> tuple[Any, Any]:
        """Return the positional and keyword arguments of the call, with these tensors instead of
        its FX nodes.
        """
        from torch.fx.node import map_arg

        tensors = dict(zip(self.given, values, strict=True))
        return map_arg(self.args, tensors.__getitem__), map_arg(self.kwargs, tensors.__getitem__)

    def kernel_on_copies(self, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """Return the operator's kernel as a function that writes into copies.

        It takes what the operator takes, and returns the results of the operator, then the
        copies, in the order of the results of the replacement.
        """
        names = [argument.name for argument in self.target._schema.arguments]
        own = {argument.name for argument in self.target._schema.arguments
               if argument.alias_info is not None and argument.alias_info.is_write}  # fmt: skip

        def run_kernel_on_copies(*args: Any, **kwargs: Any) -> Any:
            """Return what the kernel returns and writes."""
            copies: dict[int, Any] = {}

            def tensor_copy_once(value: Any) -> Any:
                """Return the copy of a tensor, the same one at each call."""
                if isinstance(value, list | tuple):
                    return [tensor_copy_once(item) for item in value]
                if value is None:
                    return None
                return copies.setdefault(id(value), value.clone())

            by_name = dict(zip(names, args, strict=False)) | kwargs
            arguments = {
                name: tensor_copy_once(value) if name in own else value
                for name, value in by_name.items()
            }
            positional = [arguments.pop(name) for name in names[: len(args)]]
            result = kernel(*positional, **arguments)
            return (*self.results_without_written_tensors(result), *copies.values())

        return run_kernel_on_copies

    def results_without_written_tensors(self, result: Any) -> tuple[Any, ...]:
        """Return the results of the operator that are not what it writes into."""
        return result if isinstance(result, tuple) else (result,) * self.returns


@contextmanager
def functionalizing_in_place_writes(
    program: "ExportedProgram",
) -> Iterator[tuple[Any, dict[Any, Any]]]:
    """Yield a copy of the program whose custom operators that write in place are replaced by
    others that do not, and the ONNX translations of these.

    The replacements exist in this context alone. The program itself is not changed.
    """
    import torch

    if not any(_custom_mutating_calls(program)):
        yield program, {}
        return
    own = copy.copy(program)
    own._graph_module = copy.deepcopy(program.graph_module)
    forms: dict[Any, Any] = {}
    with torch.library._scoped_library(_NAMESPACE, "DEF") as library:
        for number, (graph, node) in enumerate(list(_custom_mutating_calls(own))):
            call = _to_mutating_call(node)
            if not call.result_count:  # it is given nothing to write into
                graph.erase_node(node)
                continue
            operator = _define_functional_operator(
                library, f"{call.target._opname}_{number}", call
            )
            forms[operator] = functools.partial(_write_opaque_mutating_call, call)
            _replace_mutating_node(graph, node, call, operator)
        own.graph_module.recompile()
        yield own, forms


def _custom_mutating_calls(program: "ExportedProgram") -> Iterator[tuple["fx.Graph", "fx.Node"]]:
    """Yield (FX graph, node) for each call of a custom operator that writes in place."""
    import torch

    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                if is_third_party_operator(node) and node.target._schema.is_mutable:
                    yield module.graph, node


def _to_mutating_call(node: "fx.Node") -> MutatingCall:
    """Return the facts of a node that writes in place: operator, arguments, written tensors and
    number of results.
    """
    target: Any = node.target
    written = write_argument_nodes(node)
    returns = 0 if write_and_return_node(node) else len(target._schema.returns)
    return MutatingCall(
        target,
        node.args,
        node.kwargs,
        [item for _, item in _argument_nodes(node)],
        written,
        returns,
    )


def find_mutating_call(operator: Any) -> MutatingCall | None:
    """Return the call that an operator replaces, None of an operator of the model."""
    return getattr(operator, _CALL, None)


def _define_functional_operator(library: Any, name: str, call: MutatingCall) -> Any:
    """Return a new operator that returns the results of the call and the tensors that it writes.

    Its arguments are the tensors alone, by the names that the operator has for them.
    """
    import torch

    returns = ", ".join(["Tensor"] * call.result_count)
    full = f"({returns})" if call.result_count > 1 else returns
    names = ", ".join(f"Tensor {own}" for own, _ in _argument_nodes(call))
    library.define(f"{name}({names}) -> {full}")
    run = functools.partial(_run_on_copies_of_tensors, call)
    library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{_NAMESPACE}::{name}", run, lib=library)
    operator = getattr(getattr(torch.ops, _NAMESPACE), name).default
    setattr(operator, _CALL, call)
    return operator


def _argument_nodes(call: Any) -> Iterator[tuple[str, "fx.Node"]]:
    """Yield (schema name, FX node) for each tensor among the arguments of a call.

    The tensors of a list bear numbers beside the name.
    """
    from torch.fx import Node

    schema = call.target._schema.arguments
    named = dict(zip((argument.name for argument in schema), call.args, strict=False))
    for name, value in (named | dict(call.kwargs)).items():
        items = value if isinstance(value, list | tuple) else [value]
        for index, item in enumerate(items):
            if isinstance(item, Node):
                yield (f"{name}_{index}" if len(items) > 1 else name), item


def _run_on_copies_of_tensors(call: MutatingCall, *provided: Any) -> Any:
    """Call an operator that writes in place on copies of these tensors; return its results and the
    written copies.
    """
    copies = [value.clone() for value in provided]
    args, kwargs = call.arguments_with_values(copies)
    result = call.target(*args, **kwargs)
    by_node = dict(zip(call.given, copies, strict=True))
    values = (
        *call.results_without_written_tensors(result),
        *(by_node[node] for node in call.written),
    )
    return values if call.result_count > 1 else values[0]


def _write_opaque_mutating_call(call: MutatingCall, *provided: Any) -> Any:
    """Write a call that writes in place as one opaque ONNX node; return its results and the
    written tensors.
    """
    args, kwargs = call.arguments_with_values(provided)
    return opaque_node_translation(call.target, result_count=call.result_count)(*args, **kwargs)


def _replace_mutating_node(
    graph: "fx.Graph", node: "fx.Node", call: MutatingCall, operator: Any
) -> None:
    """Replace a node that writes in place by a call of `operator`, and copies of what that returns
    to the written tensors.
    """
    import torch
    from torch.fx.traceback import NodeSource

    origin = [NodeSource(node, "functional")]  # the call of all that is made of it
    returned, name, several = node.meta.get("val"), node.name, call.result_count > 1
    own = [] if not call.returns else list(returned) if call.returns > 1 else [returned]
    values = (*own, *(source.meta.get("val") for source in call.written))

    def add_fx_call(target: Any, args: tuple[Any, ...], value: Any) -> "fx.Node":
        """Add a call with this fake tensor as its value to the FX graph, with the metadata of the
        replaced node; return it.
        """
        added = graph.call_function(target, args)
        added.meta = {**node.meta, "val": value, "from_node": origin}
        return added

    with graph.inserting_before(node):
        full = add_fx_call(operator, tuple(call.given), values if several else values[0])
        parts = [
            add_fx_call(getitem, (full, index), value) if several else full
            for index, value in enumerate(values)
        ]
        for source, part in zip(call.written, parts[call.returns :], strict=True):
            add_fx_call(torch.ops.aten.copy_.default, (source, part), source.meta.get("val"))
    node.replace_all_uses_with(
        write_and_return_node(node) or (parts[0] if call.returns == 1 else full)
    )
    graph.erase_node(node)
    full.name = name  # the table of calls knows it by this
