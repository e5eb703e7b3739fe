"""The bodies of custom operators without a formula: the recorded work of their kernels, where
these are Python.

An export keeps a call of `torch.library.custom_op` as one node. Its kernel calls PyTorch, so it is
recorded and converted like a model, on the sizes of this very call, and what it did becomes the
body of the node. A kernel in C++, CUDA or Triton is closed, and the node says so.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from msgspec.structs import replace

from crossflops.errors import CrossflopsError
from crossflops.frontends.converted import all_nested_nodes
from crossflops.frontends.pytorch.convert.exporter import DOMAIN
from crossflops.frontends.pytorch.convert.graph import find_program_node, program_nodes_by_graph
from crossflops.frontends.pytorch.convert.writing_operators import MutatingCall, find_mutating_call
from crossflops.frontends.pytorch.load.fakes import fake_tensor_factory
from crossflops.frontends.pytorch.load.refusals import brief_error_text
from crossflops.frontends.pytorch.record.operators import OWN
from crossflops.ir.graph import Function, Graph, Node
from crossflops.operators import find_operator_rule, is_counted_by_package

# The graph of a module with these arguments: it is recorded and converted like any model.
Convert: TypeAlias = Callable[[Any, tuple[Any, ...]], Graph]
# Real arguments of each call of these operators in a run of the model, in order; None without.
RunCalls: TypeAlias = Callable[[frozenset[Any]], Mapping[Any, Sequence[tuple[Any, Any]]]]
GraphOrReason: TypeAlias = Graph | str  # the text says why there is no graph
# The Python function of a kernel and "", or None and the text of why there is none.
KernelOrReason: TypeAlias = tuple[Callable[..., Any] | None, str]

_KERNEL = re.compile(r"^(?P<key>\w+)(?:\[alias\])?: registered at (?P<place>.*?):(?P<line>\d+) ::")
_FOREIGN = "its result is not computed by PyTorch from its operands, but by NumPy or other code"
_OWN_BACKWARD = (
    "in {}, whose custom backward pass is not followed in the body of an operator; counted as if "
    "it were derived automatically"
)
_CHECKPOINT = (
    "in a checkpoint, which is not followed in the body of an operator; counted as if it did not "
    "run again"
)
_KEYS = ("CPU", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "CUDA")


def add_custom_operator_bodies(
    graph: Graph, source_program: Any, convert: Convert, run_and_copy_arguments: RunCalls
) -> Graph:
    """Return the graph in which uncounted custom operators have bodies: the recorded work of their
    Python kernels.

    Args:
        graph: the graph of the program.
        source_program: the exporter's model, whose nodes have the names of the graph's.
        convert: makes the graph of a module.
        run_and_copy_arguments: runs the model, where a kernel needs values.
    """
    closed = {node.key for node in all_nested_nodes(graph.nodes) if _is_uncounted_operator(node)}
    if not closed:
        return graph
    programs = program_nodes_by_graph(source_program)
    calls, nested = {}, set()
    for node in source_program.model.graph.all_nodes():
        if node.name not in closed:
            continue
        call = find_program_node(programs, node, node.graph.name)
        if call is not None:
            calls[node.name] = call
        if call is not None and node.graph is not source_program.model.graph:
            nested.add(_original_operator(call)[0])
    recorder = _KernelBodyRecorder(convert, run_and_copy_arguments, calls, nested)
    return recorder.with_recorded_bodies(graph)


def _is_uncounted_operator(node: Node) -> bool:
    """Return True if a node is a custom operator that has neither a body nor a cost rule."""
    foreign = node.op.domain == DOMAIN and not node.op.type.startswith(OWN)
    if not foreign or node.bodies or is_counted_by_package(node.op):
        return False
    return find_operator_rule(node.op) is None


class _KernelBodyRecorder:
    """A converter of custom operators' kernels to bodies, with a cache by kind of call."""

    def __init__(
        self, convert: Convert, run: RunCalls, calls: Mapping[str, Any], nested: Container[Any]
    ) -> None:
        """Prepare conversion of custom operators' kernels to graphs, with empty caches.

        `calls` are the calls in the program by the key of their node; `nested` are the operators
        that a loop or a branch calls, so that a run calls them in another order.
        """
        self._convert, self._run, self._calls, self._nested = convert, run, calls, nested
        self._graphs: dict[int, Graph] = {}  # by identity of a body: several nodes share one
        self._known: dict[Any, GraphOrReason] = {}
        self._ran: Mapping[Any, Sequence[tuple[Any, Any]]] | None = None
        self._number: dict[Any, int] = defaultdict(int)  # by operator: calls so far

    def with_recorded_bodies(self, graph: Graph) -> Graph:
        """Return the graph in which uncounted custom operators have bodies, also those in loops
        and branches.
        """
        if id(graph) not in self._graphs:
            nodes = tuple(
                self.with_recorded_body(node)
                if _is_uncounted_operator(node)
                else replace(node, bodies=tuple(map(self.with_recorded_bodies, node.bodies)))
                if node.bodies
                else node
                for node in graph.nodes
            )
            self._graphs[id(graph)] = replace(graph, nodes=nodes)
        return self._graphs[id(graph)]

    def with_recorded_body(self, node: Node) -> Node:
        """Return the node of a custom operator with the recorded body of its kernel, or with the
        reason why it has none.
        """
        call = self._calls.get(node.key)
        if call is None:
            return node
        target, writing = _original_operator(call)
        number = self._number[target]
        self._number[target] += 1
        kernel, reason = find_python_kernel(target)
        if kernel is None:
            return replace(node, closed=reason)
        if writing is not None:
            kernel = writing.kernel_on_copies(kernel)
        key = target, node.op, repr(node.attrs), tuple(
            (spec.dtype, spec.shape) if spec else None for spec in node.inputs
        )  # fmt: skip
        if key not in self._known:
            self._known[key] = self._record_body_on_fake_tensors(node, call, kernel)
        body = self._known[key]
        if not isinstance(body, str):
            return _with_body(node, body, "fake")
        real = self._record_body_on_run_arguments(node, call, kernel, number)
        if isinstance(real, str):
            return replace(node, closed=f"its body cannot be recorded: {body or real}")
        if not _are_outputs_computed_from_inputs(real):
            return replace(node, closed=_FOREIGN)
        return replace(_with_body(node, real, "real"), depends_on_inputs=True)

    def _record_body_on_fake_tensors(
        self, node: Node, call: Any, kernel: Callable[..., Any]
    ) -> GraphOrReason:
        """Return the graph of a kernel, recorded on tensors without values, or the text of why
        there is none.
        """
        import torch

        if any(spec is None or spec.shape is None for spec in node.inputs):
            return "its sizes are unknown"
        shapes = iter([spec.shape for spec in node.inputs if spec is not None])
        plain = fake_tensor_factory()

        def to_fake_tensor(item: Any) -> Any:
            """Return a tensor without values that has the shape and dtype of an FX node's
            result.
            """
            entry = item.meta.get("val")
            if not isinstance(entry, torch.Tensor):
                return entry
            shape = next(shapes, tuple(entry.shape))
            return plain(torch.empty(shape, dtype=entry.dtype, device="meta"))

        args = torch.fx.map_arg(call.args, to_fake_tensor)
        kwargs = torch.fx.map_arg(call.kwargs, to_fake_tensor)
        writing = find_mutating_call(call.target)
        if writing is not None:
            args, kwargs = writing.arguments_with_values(args)
        return self._record_kernel_graph(kernel, args, kwargs)

    def _record_body_on_run_arguments(
        self, node: Node, call: Any, kernel: Callable[..., Any], call_index: int
    ) -> GraphOrReason:
        """Return the graph of a kernel, recorded on the arguments of call `call_index` in a real
        run, or the text of why there is none.

        Of an operator in a loop or a branch, it is the first call with the same sizes.
        """
        if self._ran is None:
            targets = (_original_operator(entry)[0] for entry in self._calls.values())
            self._ran = self._run(frozenset(targets))
        target = _original_operator(call)[0]
        seen = self._ran.get(target, ())
        if target in self._nested:
            sizes = [spec.shape for spec in node.inputs if spec is not None]
            seen = [arguments for arguments in seen if _tensor_shapes(arguments) == sizes][:1]
            call_index = 0
        if len(seen) <= call_index:
            return "it needs tensor values"
        return self._record_kernel_graph(kernel, *seen[call_index])

    def _record_kernel_graph(
        self, kernel: Callable[..., Any], args: Any, kwargs: Any
    ) -> GraphOrReason:
        """Return the graph of a kernel called with these arguments, or the text of the error."""
        module, tensors = _module_of_kernel_call(kernel, args, kwargs)
        try:
            return self._convert(module, tensors)
        except CrossflopsError as error:
            return error.message
        except Exception as error:  # whatever a kernel raises, there is no body then
            return f"{type(error).__name__}: {brief_error_text(error)}"


def _original_operator(call: Any) -> tuple[Any, MutatingCall | None]:
    """Return the operator that the model calls, and its call if the program has a replacement."""
    writing = find_mutating_call(call.target)
    return (call.target if writing is None else writing.target), writing


def _tensor_shapes(arguments: tuple[Any, Any]) -> list[tuple[int, ...]]:
    """Return the shapes of the tensors among positional and keyword arguments, in order."""
    import torch
    from torch.utils._pytree import tree_leaves

    return [tuple(leaf.shape) for leaf in tree_leaves(arguments) if torch.is_tensor(leaf)]


def _are_outputs_computed_from_inputs(body: Graph) -> bool:
    """Return True if every output of a body is computed from an input of it by its nodes."""
    derived = {spec.name for spec in body.inputs}
    for node in body.nodes:
        if any(spec is not None and spec.name in derived for spec in node.inputs):
            derived |= {spec.name for spec in node.outputs if spec is not None}
    return not body.inputs or all(spec.name in derived for spec in body.outputs)


def _with_body(node: Node, body: Graph, origin_of_body: Any) -> Node:
    """Return the node with a body, whose nodes get the call and the module path of the node."""
    own = _place_body_in_call(node, body, node.key)
    return replace(node, bodies=(own,), choice="function", opened=origin_of_body)


def _place_body_in_call(node: Node, body: Graph, name: str) -> Graph:
    """Return the body with this name, its nodes with the call and the module path of the enclosing
    `node`, and with reasons where their backward pass is not the one of their operators.
    """
    functions = {key: function for function in body.functions for key in function.nodes}
    nodes = tuple(
        replace(
            inner.with_training(
                checkpoint=None,
                own_backward=inner.training.own_backward
                or _reason_of_other_backward(inner, functions.get(inner.key)),
            ),
            call=node.call,
            path=node.path,
            constant=inner.constant or node.constant,
            bodies=tuple(
                _place_body_in_call(node, part, f"{name}/{inner.key}") for part in inner.bodies
            )
            if inner.opened
            else inner.bodies,
        )
        for inner in body.nodes
    )
    return replace(body, name=name, nodes=nodes, functions=())


def _reason_of_other_backward(node: Node, function: Function | None) -> str:
    """Return why the backward pass of a node in a body is not followed; "" if it is that of its
    operator.

    Args:
        node: the node of the body.
        function: the custom autograd function to which it belongs, None without.
    """
    if function is not None:
        return _OWN_BACKWARD.format(function.name)
    return _CHECKPOINT if node.training.checkpoint is not None else ""


def _module_of_kernel_call(kernel: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return a module that calls the kernel with these arguments, and its inputs: the tensors
    among them, in order.
    """
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten

    leaves, form = tree_flatten((tuple(args), dict(kwargs)))
    tensors = tuple(leaf for leaf in leaves if torch.is_tensor(leaf))
    plain = [None if torch.is_tensor(leaf) else (leaf,) for leaf in leaves]

    class KernelBody(torch.nn.Module):
        """Calls the kernel of an operator."""

        def forward(self, *operands: Any) -> Any:
            """Return the kernel's result on these tensors and the stored other arguments."""
            left = iter(operands)
            filled = [next(left) if leaf is None else leaf[0] for leaf in plain]
            positional, named = tree_unflatten(filled, form)
            return kernel(*positional, **named)

    return KernelBody(), tensors


# Whether the kernel of an operator is Python.


def find_python_kernel(operator: Any) -> KernelOrReason:
    """Return the Python function of an operator's kernel and "", or None and the text of why there
    is none.
    """
    name = operator._schema.name
    defined = _custom_operator_definition(name)
    if defined is not None:
        functions = defined._backend_fns
        for device in (None, "cpu", "cuda", *functions):
            if device in functions:
                return functions[device], ""
    return _find_registered_python_kernel(operator, name)


def _custom_operator_definition(name: str) -> Any:
    """Return the `torch.library.custom_op` definition of the operator `name`; None if it has
    none.
    """
    try:
        from torch._library.custom_ops import OPDEFS
    except ImportError:
        return None
    return OPDEFS.get(name)


def _find_registered_python_kernel(operator: Any, name: str) -> KernelOrReason:
    """Return a function that calls the Python kernel of an operator and "", or None and the text
    of why there is none.
    """
    import torch

    library: Any = torch._C
    kernels = dict(
        _parse_kernel_registrations(library._dispatch_dump(_operator_name_with_overload(operator)))
    )
    for key in _KEYS:
        if key not in kernels:
            continue
        origin = kernels[key]
        if not _is_python_location(origin):
            return None, f"its kernel for {key} is compiled ({origin})"
        keys = library.DispatchKeySet(getattr(library.DispatchKey, key))
        return partial(operator.redispatch, keys), ""
    return None, f"{name} has no Python kernel for the CPU"


def _operator_name_with_overload(operator: Any) -> str:
    """Return an operator's name with its overload, such as "aten::add.Tensor"."""
    overload, name = operator._schema.overload_name, str(operator._schema.name)
    return f"{name}.{overload}" if overload else name


def _parse_kernel_registrations(dump: str) -> Iterator[tuple[str, str]]:
    """Yield (dispatch key, "file:line" of the kernel) for each kernel in PyTorch's dump of an
    operator.
    """
    for line in dump.splitlines():
        if match := _KERNEL.match(line):
            yield match["key"], f"{match['place']}:{match['line']}"


def _is_python_location(origin: str) -> bool:
    """Return True if "file:line" names a Python file or an interactive prompt."""
    file = origin.rpartition(":")[0]
    return file.endswith(".py") or (file.startswith("<") and file.endswith(">"))
