"""The backward pass of a custom autograd function, observed in a run without values.

The model runs forward and back on tensors that have shapes alone. Each operator that a function's
`backward` (or `vjp`) dispatches then is counted as a module of that one operator is. It is work of
its forward pass done again where it is the same operator on the same values, or, where gradients
are on, on such of the same sizes.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import msgspec

from crossflops.errors import CrossflopsError
from crossflops.frontends.frontend import Source
from crossflops.frontends.pytorch.load.fakes import fake_tensor_factory, with_fake_tensors
from crossflops.frontends.pytorch.load.model import (
    copy_inputs,
    copy_torch_model,
    restoring_module_variables,
    set_training_mode,
    suppressing_output,
)
from crossflops.frontends.pytorch.load.refusals import brief_error_text
from crossflops.frontends.pytorch.observe.training_step import run_torch_training_step
from crossflops.frontends.pytorch.program import record_and_convert_torch
from crossflops.frontends.pytorch.record.custom_functions import (
    CustomFunctionObserver,
    is_reentrant_checkpoint,
    observing_custom_functions,
    reason_without_backward,
)
from crossflops.frontends.seeds import seeding_random_generators
from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.ir.trace import Setting
from crossflops.ir.training import DIRECTLY, OwnBackward, OwnBackwards, OwnWork
from crossflops.operators import find_operator_rule, missing_rule_reason


def custom_function_backward_costs(source: Source, setting: Setting) -> OwnBackwards:
    """Return the cost of the backward pass of each custom autograd function, in order of their
    calls, or the text of why there is none.

    Where the model does not run without values, or raises, the reason is returned.
    """
    import torch
    from torch._subclasses.fake_tensor import (
        DataDependentOutputException,
        DynamicOutputShapeException,
    )

    args, kwargs = copy_inputs(source.args, source.kwargs)
    model = set_training_mode(copy_torch_model(source.model, exported=True), setting.training)
    model, args, kwargs = with_fake_tensors(model, args, kwargs)
    watch = _OwnBackwardObserver()
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_hook(watch.record_direct_gradient)
    try:
        with (
            seeding_random_generators(),
            suppressing_output(),
            restoring_module_variables(model),
            torch.enable_grad(),
            observing_custom_functions(watch),
            watch.operator_recording_mode(),
        ):
            run_torch_training_step(model, args, kwargs, setting, watch.marking_backward_pass)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        return f"it reads values with {error.func}, but is run without values"
    except (Exception, SystemExit) as error:  # whatever it is, there are no numbers then
        return f"run without values it raised {type(error).__name__}: {brief_error_text(error)}"
    costs = _operator_call_costs(
        {kernel: call for seen in watch.seen for kernel, call in seen.kernels.items()}
    )
    passes: dict[int, list[_ApplicationRecord]] = defaultdict(list)
    for seen in watch.seen:  # a reentrant checkpoint applies a function once more
        passes[seen.number].append(seen)
    return tuple(
        _summarize_applications(applications, costs) for _, applications in sorted(passes.items())
    )


# A function's forward pass; its backward pass, and there where gradients are on.
Phase: TypeAlias = Literal["forward", "back", "graded"]
# An operator with its settings, and the shapes of what it is given.
Kernel: TypeAlias = tuple[Hashable, ...]


class _Call(msgspec.Struct, frozen=True):
    """An operator call with fake tensors of its operands' sizes."""

    run: Any
    args: Any
    kwargs: Any


class _RanOperator(msgspec.Struct, frozen=True):
    """An operator that a custom function ran, with the memories that it read and wrote."""

    kernel: Kernel
    read: frozenset[Hashable]
    written: frozenset[Hashable]
    phase: Phase
    again: bool


class _ApplicationRecord:
    """The observations of one application of a custom function."""

    def __init__(self, number: int, name: str) -> None:
        """Start an empty record of a custom autograd function's application."""
        self.number, self.name = number, name
        self.refused = ""  # why PyTorch raises an error instead of running its backward pass
        self.arguments: tuple[Any, ...] = ()
        self.ran = False
        self.saved: tuple[Any, ...] = ()
        self.graded: frozenset[int] = frozenset()
        self.kernels: dict[Kernel, _Call] = {}
        self.reached: dict[Hashable, set[int]] = defaultdict(set)  # places, by memory
        self._operators: list[_RanOperator] = []
        self._values: dict[Hashable, int] = {}  # by tensor and by memory: which value it has
        self._known: dict[Hashable, int] = {}  # by what computes it
        self._forward_values: set[Hashable] = set()
        self._forward: Counter[Hashable] = Counter()
        self._kept: list[Any] = []  # so that no other object gets the identity of one

    def record_operator(
        self, func: Any, args: Any, kwargs: Any, result: Any, phase: Phase
    ) -> None:
        """Record an operator that ran in this application of a custom function, with its operands
        and results.
        """
        import torch
        from torch.utils._pytree import tree_flatten

        tensors = _tensors_in_nest((args, kwargs))
        results = _tensors_in_nest(result)
        if func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            self.record_equal_values(results[0], tensors[0])
            return
        leaves, form = tree_flatten((args, kwargs))
        sizes = [
            _shape_and_dtype(leaf) if torch.is_tensor(leaf) else repr(leaf) for leaf in leaves
        ]
        kernel = func, str(form), *sizes
        values = func, str(form), *map(self._value_number, leaves)
        repeats = values in self._forward_values
        if phase == "forward":
            self._forward[kernel] += 1
            self._forward_values.add(values)
        elif not repeats and phase == "graded" and self._forward[kernel]:
            self._forward[kernel] -= 1
            repeats = True
        first = self._known.setdefault(values, len(self._kept))
        read = frozenset(map(_storage_identity, tensors))
        for index, made in enumerate(results):
            self._set_value_number(made, first + index)
        for part, made in _kernel_call_parts(_Call(func, args, kwargs), result):
            key = kernel if part.args is args else (*kernel, repr(part.args[-1]))
            if tensors and not func.is_view:
                self.kernels.setdefault(key, part)
            targets = (*made, *_output_arguments(func, args, kwargs))
            written = frozenset(_storage_identity(leaf) for leaf in targets)
            self._operators.append(_RanOperator(key, read, written, phase, repeats))

    def drop_operators_of_results(self, results: Any) -> None:
        """Remove recorded forward operators on which the results depend, since the graph has
        them.
        """
        needed = set(map(_storage_identity, _tensors_in_nest(results)))
        additional: list[_RanOperator] = []
        for operator in reversed(self._operators):
            if needed & operator.written:
                needed |= operator.read
            else:
                additional.insert(0, operator)
        self._operators = additional
        left = {operator.kernel for operator in additional}
        self.kernels = {key: call for key, call in self.kernels.items() if key in left}

    def note_gradients(self, result: Any, needed: Sequence[bool]) -> None:
        """Record for which operands the backward pass returned a gradient, and which of these are
        needed.
        """
        import torch

        self.ran = True
        gradients = result if isinstance(result, tuple | list) else (result,)
        provided = {index for index, grad in enumerate(gradients) if torch.is_tensor(grad)}
        for index in provided:
            self.reached[_storage_identity(gradients[index])].add(index)
        self.graded = frozenset(index for index in provided if needed[index])

    def record_equal_values(self, tensor: Any, other: Any) -> None:
        """Record that two tensors have equal values."""
        self._set_value_number(tensor, self._value_number(other))

    def _value_number(self, leaf: Any) -> Any:
        """Return a number for the value of a tensor, the same for equal values; for another value
        its text.
        """
        import torch

        if not torch.is_tensor(leaf):
            return repr(leaf)
        for key in (id(leaf), _tensor_view_key(leaf)):
            if key in self._values:
                return self._values[key]
        return self._set_value_number(leaf, len(self._kept))

    def _set_value_number(self, tensor: Any, value: int) -> int:
        """Record this value number for a tensor and its memory, and return it."""
        self._kept.append(tensor)
        self._values[id(tensor)] = self._values[_tensor_view_key(tensor)] = value
        return value

    def note_unpacked_tensor(self, tensor: Any, saved: Any) -> None:
        """Record that the backward pass reads a saved tensor, or a recomputed copy of it."""
        self.record_equal_values(tensor, saved)
        indices = frozenset([_storage_identity(saved)]), frozenset([_storage_identity(tensor)])
        self._operators.append(_RanOperator((), *indices, "back", again=False))

    @property
    def forward_only_kernels(self) -> Counter[Kernel]:
        """The recorded forward operators on which no result of the function depends, with their
        counts.
        """
        return Counter(ran.kernel for ran in self._operators if ran.phase == "forward")

    def to_backward_cost(
        self, costs: "dict[Kernel, Cost | str]", first_application_kernels: Counter[Kernel]
    ) -> OwnBackward:
        """Return the cost of the recorded backward work, by the operands whose gradients it
        serves.

        `first_application_kernels` are the `early` operators of the first application.
        """
        early = ZERO
        reached = {memory: set(indices) for memory, indices in self.reached.items()}
        work: dict[tuple[frozenset[int], bool], Cost] = defaultdict(lambda: ZERO)
        missing: dict[str, None] = {}
        if self.refused and self.ran:
            missing[self.refused] = None
        for operator in reversed(self._operators):
            indices = frozenset().union(*(reached.get(at, ()) for at in operator.written))
            for memory in operator.read:
                reached.setdefault(memory, set()).update(indices)
            cost = costs.get(operator.kernel, ZERO)
            if operator.phase == "forward" and not indices:
                continue  # no gradient depends on it, either
            if isinstance(cost, str):
                missing[cost] = None
            else:
                work[indices, operator.again] += cost
                if operator.phase == "forward" and first_application_kernels[operator.kernel]:
                    first_application_kernels[operator.kernel] -= 1
                    early += cost
        done = {kind: cost for kind, cost in work.items() if cost != ZERO}
        return OwnBackward(
            self.name,
            self.ran,
            self.graded,
            any(tensor is not None for tensor in self.saved),
            tuple(OwnWork(indices, cost, again) for (indices, again), cost in done.items()),
            "; ".join(missing),
            early,
        )


def _summarize_applications(
    applications: Sequence[_ApplicationRecord], costs: "dict[Kernel, Cost | str]"
) -> OwnBackward:
    """Return the cost of the backward pass of one custom function, from all records of its
    application.

    Under reentrant checkpoints only the last application runs backward.
    """
    last = [seen for seen in applications if seen.ran][-1:] or applications
    return last[0].to_backward_cost(costs, applications[0].forward_only_kernels)


def _kernel_call_parts(call: _Call, result: Any) -> Iterator[tuple[_Call, list[Any]]]:
    """Yield (operator call, its result tensors); the backward pass of a convolution as one call
    for each gradient.
    """
    import torch

    if call.run is not torch.ops.aten.convolution_backward.default:
        yield call, _tensors_in_nest(result)
        return
    *before, mask = call.args
    for index, asked in enumerate(mask):
        if asked:
            alone = [at == index for at in range(len(mask))]
            yield msgspec.structs.replace(call, args=(*before, alone)), [result[index]]


def _output_arguments(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the tensors among the arguments that an operator writes in place."""
    schema = func._schema
    if not schema.is_mutable:
        return []
    named = dict(zip((argument.name for argument in schema.arguments), args, strict=False))
    return [
        tensor
        for argument in schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
        for tensor in _tensors_in_nest((named | dict(kwargs)).get(argument.name))
    ]


def _tensors_in_nest(nested: Any) -> list[Any]:
    """Return all tensors in nested lists, tuples and dicts."""
    import torch
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(nested) if torch.is_tensor(leaf)]


def _shape_and_dtype(tensor: Any) -> Hashable:
    """Return (shape, dtype) of a tensor."""
    return tuple(tensor.shape), tensor.dtype


def _storage_identity(tensor: Any) -> Hashable:
    """Return the id of a tensor's memory; the id of the object if it has none."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):
        return id(tensor)


def _tensor_view_key(tensor: Any) -> Hashable:
    """Return a key that views of the same memory with equal offset, shape and strides have in
    common.
    """
    import torch

    plain = tensor.layout == torch.strided
    layout = (tensor.storage_offset(), tensor.stride()) if plain else ()
    return _storage_identity(tensor), layout, _shape_and_dtype(tensor)


def _gradients_of_zeros(arguments: Sequence[Any], needed: Sequence[bool]) -> tuple[Any, ...]:
    """Return the gradients of a custom function without a backward pass: zeros for the arguments
    that need one, else None. So the backward pass of what is before it still runs.
    """
    import torch

    return tuple(
        torch.zeros_like(argument) if torch.is_tensor(argument) and is_needed else None
        for argument, is_needed in zip(arguments, needed, strict=True)
    )


class _CheckpointScope:
    """A reentrant checkpoint, or the whole model, with the numbers of its functions and its nested
    scopes.

    They come in the same order when it runs again.
    """

    def __init__(self) -> None:
        """Start with no stored items, and read from the first."""
        self.held: list[Any] = []
        self.next = 0

    def next_or_new_item(self, make: Callable[[], Any]) -> Any:
        """Return the next stored item; store one that `make` returns if there is none."""
        if self.next == len(self.held):
            self.held.append(make())
        self.next += 1
        return self.held[self.next - 1]


class _OwnBackwardObserver(CustomFunctionObserver):
    """An observer that keeps the operators of each custom function, forward and backward."""

    def __init__(self) -> None:
        """Start with no applications of custom autograd functions observed."""
        super().__init__()
        self.seen: list[_ApplicationRecord] = []
        self._numbers = itertools.count()
        # with the node that runs it
        self._scopes: list[tuple[_CheckpointScope, Any]] = [(_CheckpointScope(), None)]
        self._known: dict[
            int, _ApplicationRecord | _CheckpointScope
        ] = {}  # by the number of the node of autograd
        self._current: _ApplicationRecord | None = None
        self._arguments: tuple[Any, ...] = ()
        self._goes_back = False

    @contextmanager
    def marking_backward_pass(self) -> Iterator[None]:
        """Mark that from this block on the backward pass of the training step runs."""
        self._goes_back = True
        yield

    def run_forward(self, function: Any, run: Callable[[], Any]) -> Any:
        """Run the forward pass of a custom function and return its result, with a new record for
        its operators.
        """
        import torch

        library: Any = torch
        scope, node = self._scopes[-1]
        if self._current or library._C._current_autograd_node() is not node:
            return run()  # in another function, or in a checkpoint that needs what it kept
        number = library.autograd._get_sequence_nr()
        if is_reentrant_checkpoint(function):
            self._known[number] = inner = scope.next_or_new_item(_CheckpointScope)
            return self._run_in_scope(inner, node, run)
        index = scope.next_or_new_item(lambda: next(self._numbers))
        self._known[number] = self._current = _ApplicationRecord(index, function.__qualname__)
        self.seen.append(self._current)
        self._current.refused = reason_without_backward(function)
        if self._current.refused:
            self._current.arguments = self._arguments
        try:
            results = run()
            self._current.drop_operators_of_results(results)
            return results
        finally:
            self._current = None

    def on_function_arguments(self, arguments: tuple[Any, ...]) -> None:
        """Hold the arguments of the custom function that is about to be applied."""
        self._arguments = arguments

    def _run_in_scope(self, scope: _CheckpointScope, node: Any, run: Callable[[], Any]) -> Any:
        """Run a function inside the scope of a reentrant checkpoint, which autograd node `node`
        runs; return its result.
        """
        scope.next = 0
        self._scopes.append((scope, node))
        try:
            return run()
        finally:
            self._scopes.pop()

    def run_backward(self, node: Any, run: Callable[[], Any]) -> Any:
        """Run the backward pass of a custom function and return its result; record its operators
        and gradients.
        """
        known = self._known.get(node._sequence_nr())
        if isinstance(known, _CheckpointScope):
            return self._run_in_scope(known, node, run)
        if known is None or self._current or not self._goes_back:
            return run()
        if known.refused:
            result = _gradients_of_zeros(known.arguments, node.needs_input_grad)
            known.note_gradients(result, node.needs_input_grad)
            return result
        self._current = known
        try:
            result = super().run_backward(node, run)
        finally:
            self._current = None
        known.note_gradients(result, node.needs_input_grad)
        return result

    def read_saved_tensors(self, node: Any, run: Callable[[], Any]) -> Any:
        """Call `run`, which reads the saved tensors of a node, and return its result.

        Operators that a checkpoint recomputes during the call are not recorded.
        """
        current, self._current = self._current, None
        try:
            tensors = run()
        finally:
            self._current = current
        if current is not None and node is self.node:
            for tensor, saved in zip(tensors, current.saved, strict=True):
                if tensor is not None:
                    current.note_unpacked_tensor(tensor, saved)
        return tensors

    def on_tensors_saved(self, tensors: tuple[Any, ...]) -> None:
        """Record the tensors that a custom function saves in its forward pass."""
        if self._current is not None and self.node is None:
            self._current.saved = tensors

    def record_direct_gradient(self, gradient: Any) -> None:
        """Record that a custom function itself computes this gradient of a parameter."""
        if self._current is not None and self.node is not None:
            self._current.reached[_storage_identity(gradient)].add(DIRECTLY)

    def operator_recording_mode(self) -> Any:
        """Return a dispatch mode that records the operators which custom functions run."""
        from torch.utils._python_dispatch import TorchDispatchMode

        watch = self

        class Operators(TorchDispatchMode):
            supports_higher_order_operators = True

            def __torch_dispatch__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                """Return an operator's result, and note it in the running custom function."""
                result = func(*args, **(kwargs or {}))
                if watch._current is not None:
                    watch._current.record_operator(
                        func, args, kwargs or {}, result, watch._current_phase()
                    )
                return result

        return Operators()

    def _current_phase(self) -> Phase:
        """Return where the custom function runs: "forward", "back" (its backward pass) or "graded"
        (that with gradients on).
        """
        import torch

        library: Any = torch
        if self.node is None:
            return "forward"
        plain = library._C._current_autograd_node() is self.node
        return "graded" if plain and torch.is_grad_enabled() else "back"


# Of each operator what it costs: as a module of its own, in one model with all others.


def _operator_call_costs(kernels: Mapping[Kernel, _Call]) -> dict[Kernel, Cost | str]:
    """Return the cost of each operator call, or the text of why it has none."""
    costs: dict[Kernel, Cost | str] = dict.fromkeys(kernels, ZERO)
    if not kernels:
        return costs
    try:
        graph = record_and_convert_torch(
            *_kernel_calls_module(kernels.values()), {}, Setting(grad=False)
        )[1]
    except CrossflopsError as error:
        if len(kernels) == 1:
            return dict.fromkeys(kernels, f"its backward pass: {error.message}")
        items, half = list(kernels.items()), len(kernels) // 2
        return _operator_call_costs(dict(items[:half])) | _operator_call_costs(dict(items[half:]))
    by_path = {str(index): kernel for index, kernel in enumerate(kernels)}
    for node in graph.nodes:
        kernel = by_path.get(node.path)
        if kernel is None:  # the export copies what is changed in place
            continue
        before, cost = costs[kernel], _kernel_node_cost(node)
        if isinstance(cost, str):
            costs[kernel] = f"its backward pass: {cost}"
        elif isinstance(before, Cost):
            costs[kernel] = before + cost
    return costs


def _kernel_node_cost(node: Node) -> Cost | str:
    """Return the cost of a node by the rule of its operator, or the text of why it has none."""
    known = find_operator_rule(node.op)
    if known is None:
        return missing_rule_reason(node.op)
    try:
        return known.formula(node)
    except (ValueError, ArithmeticError, LookupError, TypeError, AttributeError) as error:
        return str(error)


def _kernel_calls_module(calls: Iterable[_Call]) -> tuple[Any, tuple[Any, ...]]:
    """Return a model in which each of these operator calls is one layer, and its inputs."""
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten

    class Kernel(torch.nn.Module):
        """A module that makes one of the calls."""

        def __init__(self, call: _Call) -> None:
            """Make a module that repeats a kernel's call, with its tensors as inputs."""
            super().__init__()
            self.run = call.run
            leaves, self.form = tree_flatten((call.args, call.kwargs))
            self.given = [leaf for leaf in leaves if torch.is_tensor(leaf)]
            self.plain = [None if torch.is_tensor(leaf) else (leaf,) for leaf in leaves]

        def forward(self, provided: list[Any]) -> Any:
            """Return the result of the operator call, or the tensors that it writes if it returns
            none.
            """
            left = iter(provided)
            leaves = [next(left) if leaf is None else leaf[0] for leaf in self.plain]
            args, kwargs = tree_unflatten(leaves, self.form)
            result = self.run(*args, **kwargs)
            return result if result is not None else _output_arguments(self.run, args, kwargs)

    class Kernels(torch.nn.ModuleList):
        """A module that makes all calls."""

        def forward(self, *provided: list[Any]) -> list[Any]:
            """Return the tensors in the results of all operator calls, in order."""
            results = [kernel(own) for kernel, own in zip(self, provided, strict=True)]
            return _tensors_in_nest(results)

    plain = fake_tensor_factory()
    model = Kernels(map(Kernel, calls))
    provided: list[list[Any]] = []
    for kernel in model.children():
        provided.append([plain(tensor) for tensor in kernel.given])
        kernel.given = []
    return model, tuple(provided)
