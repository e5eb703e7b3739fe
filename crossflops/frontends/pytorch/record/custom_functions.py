"""The custom autograd functions of a model that is exported: which operators they contain, and
their operands.

A subclass of torch.autograd.Function brings a backward pass of its own, which no operator tells:
`own_backward` sees what that runs.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from inspect import getattr_static
from typing import Any, TypeAlias

import msgspec

from crossflops.frontends.pytorch.load.tensors import torch_tensor_spec
from crossflops.frontends.pytorch.record.operators import is_detaching_call, set_tensor_node_mark
from crossflops.frontends.pytorch.record.recorder import CUSTOM, AppliedFunction, Frame, Recorder
from crossflops.ir.graph import Function, Graph, TensorSpec
from crossflops.ir.trace import Call
from crossflops.patches import inventory
from crossflops.patches.patching import original_attribute, patching_attribute

# The number of a custom function that the model applied, and the index of one of its arguments.
_FunctionAndArgument: TypeAlias = tuple[int, int]

GIVEN = "crossflops given"  # stands at nodes whose result a custom function is given


def function_of_class_method(method: Any) -> Callable[..., Any]:
    """Return a class method as a plain function, whose first argument is the class.

    From torch 2.14 on `Function.apply` is a method of C, which has no such function.
    """
    if isinstance(method, classmethod):
        return method.__func__
    return lambda owner, *args, **kwargs: method.__get__(None, owner)(*args, **kwargs)


def custom_function_base_class() -> Any:
    """Return the class whose `apply` that of every custom function calls; None if the release of
    PyTorch has none.

    A model may hold `Fn.apply` from before `Function.apply` was replaced. Where that is a method
    of Python, it looks up the method of its base class by name in each call.
    """
    from torch.autograd import function

    is_python = isinstance(vars(function.Function).get("apply"), classmethod)
    return getattr(function, "_SingleLevelFunction", None) if is_python else None


def apply_under_name(recorder: Recorder, apply: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function like `apply`, the original `Function.apply`, that tells the recorder which
    custom function it applies.
    """

    def apply_and_note_as_named(function: Any, *args: Any, **kwargs: Any) -> Any:
        """Apply a custom autograd function and return its result."""
        before, recorder.applied_by_name = recorder.applied_by_name, function
        try:
            return apply(function, *args, **kwargs)
        finally:
            recorder.applied_by_name = before

    return apply_and_note_as_named


def apply_of_base_class(
    recorder: Recorder, apply: Callable[..., Any], notice: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a replacement for the `apply` method of torch.autograd.Function: it calls `notice`
    for a custom function whose call is not recorded yet, and the original `apply` otherwise.

    `apply` is the original one. A call that `apply_under_name` tells of is recorded already; any
    other is a call of a method that the model took before, and is made by `notice`.
    """

    def apply_and_notice_if_new(function: Any, *args: Any, **kwargs: Any) -> Any:
        """Apply a custom autograd function and return its result."""
        if recorder.applied_by_name is function or is_function_unrecorded(function):
            recorder.applied_by_name = None  # functions inside it are applied by themselves
            return apply(function, *args, **kwargs)
        return notice(function, *args, **kwargs)

    return apply_and_notice_if_new


def apply_with_recording(recorder: Recorder, apply: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of `Function.apply` that records each custom autograd function in the
    recorder.
    """
    import torch

    def apply_and_record_autograd_function(function: Any, *args: Any, **kwargs: Any) -> Any:
        """Apply a custom autograd function and return its result; record its name, its frame and
        its parameters.
        """
        is_outside = recorder.bare or not recorder.stack
        if is_outside or recorder.in_function or is_function_unrecorded(function):
            return apply(function, *args, **kwargs)
        stored = parameter_names_by_id(recorder) if args else {}
        provided = {
            index: tuple(
                msgspec.structs.replace(torch_tensor_spec(name, argument), role="parameter")
                for name in stored[id(argument)]
            )
            for index, argument in enumerate(args)
            if id(argument) in stored
        }
        number = len(recorder.applied)
        recorder.applied.append(
            AppliedFunction(
                function.__qualname__, recorder.stack[-1].key, provided, function.__module__
            )
        )
        for index, argument in enumerate(args):
            if isinstance(argument, torch.Tensor):
                use = number, index
                set_tensor_node_mark(argument, GIVEN, partial(_append_use, use))
        recorder.in_function = True
        try:
            return apply(function, *args, **kwargs)
        finally:
            recorder.in_function = False

    return apply_and_record_autograd_function


def _append_use(use: _FunctionAndArgument, uses: Any) -> Any:
    """Return the uses of a tensor with `use`, (number of the function, index of the argument),
    added.
    """
    return (*(uses or ()), use)


def is_function_unrecorded(function: Any) -> bool:
    """Return True if a custom function is not recorded: it is a checkpoint, or a transform of
    `torch.func` is active.

    A transform applies another function in its place, without the axis that `vmap` maps over.
    """
    return is_reentrant_checkpoint(function) or are_transforms_active()


def are_transforms_active() -> bool:
    """Return True if a transform of `torch.func`, such as vmap or grad, is active."""
    import torch

    library: Any = torch._C
    return bool(library._are_functorch_transforms_active())


def is_reentrant_checkpoint(function: Any) -> bool:
    """Return True if an autograd function is PyTorch's reentrant checkpoint."""
    from torch.utils.checkpoint import CheckpointFunction

    return function is CheckpointFunction


def parameter_names_by_id(recorder: Recorder) -> dict[int, list[str]]:
    """Return the names of the model's parameters by the id of the parameter."""
    names: dict[int, list[str]] = defaultdict(list)
    for row, module in zip(
        recorder.index.module_descriptions, recorder.index.module_objects, strict=False
    ):
        for path in row.names:
            for name, parameter in module._parameters.items():
                if parameter is not None:  # as a bias that is left out: functions take None, too
                    names[id(parameter)].append(f"{path}.{name}".removeprefix("."))
    return names


def function_index_by_call(
    calls: Iterable[Call], frames: Iterable[Frame], functions: tuple[AppliedFunction, ...]
) -> dict[str, int]:
    """Return for each operator call in a custom autograd function, by its key, the index of the
    function in `functions`.
    """
    if not functions:
        return {}
    calls = tuple(calls)
    parents = {frame.key: frame.parent for frame in frames}
    indices = {function.frame: index for index, function in enumerate(functions)}
    inside = {}
    for call in calls:
        enclosing = call.parent
        while enclosing is not None and enclosing not in indices:
            enclosing = parents[enclosing]
        if enclosing is not None:
            inside[call.key] = indices[enclosing]
    return inside | _index_of_generated_function(calls, parents, functions)


_GENERATED = "GeneratedBackwardFor_"  # torch/_library/autograd.py: make_autograd_impl


def _index_of_generated_function(
    calls: Iterable[Call], parents: Mapping[str, str | None], applied: tuple[AppliedFunction, ...]
) -> dict[str, int]:
    """Return which operator calls run an autograd function that `torch.library` generated: a dict
    from the key of the call to the index of that function in `applied`.

    `torch.library` wraps an operator into a function when it is called, beside the call and not
    around it: the first of a name within a call is that of the first such operator there.
    """
    waiting: dict[tuple[str | None, str], deque[int]] = defaultdict(deque)
    for index, function in enumerate(applied):
        if function.name.startswith(_GENERATED):
            operator = function.name.removeprefix(_GENERATED)
            waiting[parents.get(function.frame), operator].append(index)
    inside: dict[str, int] = {}
    for call in calls if waiting else ():
        queue = waiting.get((call.parent, call.target.replace(".", "_")))
        if call.level == "operator" and queue:
            inside[call.key] = queue.popleft()
    return inside


def _uses_by_generated_functions(
    program_nodes: Iterable[Any],
    operators: Mapping[str, Call],
    inside: Mapping[str, int],
    applied: tuple[AppliedFunction, ...],
) -> dict[Any, list[_FunctionAndArgument]]:
    """Return the uses of each node of the exported program by autograd functions that
    `torch.library` generated: pairs (index of the function in `applied`, index of the argument).

    Such a function runs below the trace, where its arguments have no node that could be marked. It
    takes the arguments of the operator, with the tensors of a list one by one.
    """
    uses: dict[Any, list[_FunctionAndArgument]] = defaultdict(list)
    for node in program_nodes:
        call = operators.get(node.name)
        function = inside.get(call.key) if call is not None else None
        if function is None or not applied[function].name.startswith(_GENERATED):
            continue
        arguments: list[Any] = []
        for argument in node.args:
            several = isinstance(argument, Sequence) and any(hasattr(a, "meta") for a in argument)
            arguments += argument if several else [argument]
        for index, argument in enumerate(arguments):
            if hasattr(argument, "meta"):
                uses[argument].append((function, index))
    return uses


def without_detach_calls_in_functions(
    operators: Mapping[str, Call], frames: Iterable[Frame], calls_in_functions: Container[str]
) -> dict[str, Call]:
    """Return the operator calls, by node name, without calls of `detach` inside custom autograd
    functions.

    PyTorch does the same with the results of a function whose inputs have no gradient. A reentrant
    checkpoint is such a function; its results have a gradient where the inputs of the model do.
    """
    functions = {frame.key for frame in frames if frame.target == CUSTOM}
    return {
        name: call
        for name, call in operators.items()
        if not is_detaching_call(call)
        or (call.key not in calls_in_functions and call.parent not in functions)
    }


def with_custom_functions(
    graph: Graph,
    sources: Mapping[Any, Iterable[str]],
    operators: Mapping[str, Call],
    function_index_by_key: Mapping[str, int],
    applied: tuple[AppliedFunction, ...],
) -> Graph:
    """Return the graph with the custom autograd functions `applied`: their nodes and operands.

    `sources` are, by node of the exported program, the keys of the calls that made its value, or
    "=" and the name of a parameter; `operators` are the calls by the name of their node in the
    program; `function_index_by_key` is the result of `function_index_by_call`.
    """
    nodes: dict[int | None, list[str]] = defaultdict(list)
    for node in graph.nodes:
        nodes[function_index_by_key.get(node.call)].append(node.key)
    makers = {node.call: node for node in graph.nodes}
    weights = {s.name: s for node in graph.nodes for s in node.inputs if s and s.role}
    provided: dict[int, dict[int, list[TensorSpec]]] = defaultdict(lambda: defaultdict(list))
    owners: dict[int, str] = {}  # of those without nodes
    uses = _uses_by_generated_functions(sources, operators, function_index_by_key, applied)
    for fx_node, origins in sources.items():
        marks = (fx_node.meta.get("custom") or {}).get(GIVEN, ())
        for function, index in dict.fromkeys((*marks, *uses.get(fx_node, ()))):
            for origin in origins:
                if origin in makers:
                    provided[function][index] += filter(None, makers[origin].outputs)
                    owners[function] = makers[origin].key
                elif origin[1:] in weights:
                    provided[function][index].append(weights[origin[1:]])
    functions = []
    for index, function in enumerate(applied):
        for at, named in function.parameters.items():
            provided[index][at] = [next((s for s in named if s.name in weights), named[0])]
        keys = tuple(nodes[index])
        owner = keys[-1] if keys else owners.get(index, graph.nodes[0].key if graph.nodes else "")
        operands = {at: tuple(specs) for at, specs in provided[index].items()}
        functions.append(
            Function(
                function.name, keys, operands, owner, module=function.module, call=function.frame
            )
        )
    return msgspec.structs.replace(graph, functions=tuple(functions))


# Which of them has no backward pass.

_NO_BACKWARD = (
    "{} has no backward pass, so PyTorch raises an error in a training step through it; "
    "add {}, or give backward= in a formula"
)


def reason_without_backward(function: Any) -> str:
    """Return the text of why PyTorch cannot run the backward pass of a custom autograd function,
    "" if it has one.

    `torch.library` generates a function with a method `backward` for each of its operators, which
    raises an error if the operator has none.
    """
    from torch.autograd import Function

    if function.backward is Function.backward and function.vjp is Function.vjp:
        return _NO_BACKWARD.format(f"{function.__qualname__}", "a method backward to the class")
    operator = _operators_without_backward().get(function.__qualname__)
    return _NO_BACKWARD.format(operator, "one with register_autograd") if operator else ""


def _operators_without_backward() -> dict[str, str]:
    """Return the operators of `torch.library.custom_op` without a backward pass, "namespace::name"
    by the name of the function that is generated for each.
    """
    try:
        from torch._library.custom_ops import OPDEFS
    except ImportError:
        return {}
    names = {}
    for name, defined in OPDEFS.items():
        if getattr(defined, "_backward_fn", None) is None:
            overload = getattr(defined._opoverload, "_overloadname", "default")
            names[f"{_GENERATED}{name.replace('::', '_')}_{overload}"] = name
    return names


# Which of them runs, forward or back.


class CustomFunctionObserver:
    """An observer of custom functions while they run; of nested ones only the outermost is
    observed.

    `node` is the autograd node whose own backward pass runs, `applied` the number of the function
    whose forward pass runs; None where none runs.
    """

    node: Any = None
    applied: int | None = None

    def run_forward(self, function: Any, run: Callable[[], Any]) -> Any:
        """Run a custom function's forward pass by `run` and return its result; meanwhile `applied`
        is the number of its autograd node.
        """
        from torch import autograd

        if self.applied is not None or is_reentrant_checkpoint(function):
            return run()
        library: Any = autograd
        self.applied = library._get_sequence_nr()  # which its node will have
        try:
            return run()
        finally:
            self.applied = None

    def on_function_arguments(self, arguments: tuple[Any, ...]) -> None:
        """Handle the arguments of the custom function that is about to be applied; does nothing in
        this class.
        """

    def run_backward(self, node: Any, run: Callable[[], Any]) -> Any:
        """Run a custom function's backward pass by `run` and return its result; meanwhile `node`
        is its autograd node.
        """
        if self.node is not None or is_reentrant_checkpoint(node._forward_cls):
            return run()
        self.node = node
        try:
            return run()
        finally:
            self.node = None

    def read_saved_tensors(self, node: Any, run: Callable[[], Any]) -> Any:
        """Read saved tensors by `run` and return them; meanwhile `node` is None, since a
        checkpoint may recompute them.
        """
        before, self.node = self.node, None
        try:
            return run()
        finally:
            self.node = before

    def on_tensors_saved(self, tensors: tuple[Any, ...]) -> None:
        """Handle that a custom function saves tensors for its backward pass; does nothing in this
        class.
        """


@contextmanager
def observing_custom_functions(watch: CustomFunctionObserver) -> Iterator[None]:
    """Call the methods of `watch` when a custom autograd function runs forward or backward inside
    the block.
    """
    from torch.autograd.function import BackwardCFunction, Function, FunctionCtx

    own: Any = {owner: dict(vars(owner)) for owner in (BackwardCFunction, FunctionCtx)}
    base = custom_function_base_class()
    applies, declared = (
        (Function, inventory.CUSTOM_FUNCTION)
        if base is None
        else (base, inventory.CUSTOM_FUNCTION_BASE)
    )
    called = function_of_class_method(getattr_static(applies, "apply"))
    kept: Any = original_attribute(BackwardCFunction, "saved_tensors", inventory.SAVED_TENSORS)

    def apply_with_observer(function: Any, *args: Any, **kwargs: Any) -> Any:
        """Apply an autograd function and return its result, by `watch` unless function transforms
        are active.
        """
        if are_transforms_active():
            return called(function, *args, **kwargs)
        watch.on_function_arguments(args)
        return watch.run_forward(function, lambda: called(function, *args, **kwargs))

    def backward_method_with_observer(name: str) -> Callable[..., Any]:
        """Return a method of backward nodes that runs PyTorch's method of this name by `watch`."""
        return lambda node, *grads: watch.run_backward(
            node, lambda: own[BackwardCFunction][name](node, *grads)
        )

    def save_with_observer(node: Any, *tensors: Any) -> Any:
        """Save tensors for the backward pass, and report them to `watch`."""
        watch.on_tensors_saved(tensors)
        return own[FunctionCtx]["save_for_backward"](node, *tensors)

    def read_saved_with_observer(node: Any) -> Any:
        """Return the saved tensors of a backward node, read by `watch`."""
        return watch.read_saved_tensors(node, lambda: kept.__get__(node))

    with (
        patching_attribute(
            BackwardCFunction,
            "saved_tensors",
            property(read_saved_with_observer),
            inventory.SAVED_TENSORS,
        ),
        patching_attribute(applies, "apply", classmethod(apply_with_observer), declared),
        patching_attribute(
            BackwardCFunction,
            "apply",
            backward_method_with_observer("apply"),
            inventory.CUSTOM_BACKWARD,
        ),
        patching_attribute(
            BackwardCFunction,
            "apply_boxed",
            backward_method_with_observer("apply_boxed"),
            inventory.CUSTOM_BACKWARD,
        ),
        patching_attribute(
            FunctionCtx, "save_for_backward", save_with_observer, inventory.SAVE_FOR_BACKWARD
        ),
    ):
        yield
