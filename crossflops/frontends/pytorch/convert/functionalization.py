"""The decomposition of calls that write into views of one tensor, without a trace of them.

PyTorch functionalizes such calls in a trace: a write into a view makes a new value of the view,
the base gets it by a scatter, and a view that is used afterwards is derived from the base again.
For a base that is cut by `slice` and `select` these rules are few, and they are applied here; a
window mask of Swin has a hundred such calls, which take PyTorch a second. What else is called in
between is decomposed by its own signature.

Source: aten/src/ATen/FunctionalTensorWrapper.cpp and FunctionalStorageImpl.cpp (a view has the
generation 0 when it is made, and is derived again when that is not the generation of its storage;
an update is applied to the base by the views between).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from crossflops.frontends.pytorch.convert.operator_pieces import (
    CallDecomposition,
    CallSequence,
    NotUnderstoodError,
    PieceOperand,
    PieceResult,
    PieceStep,
    Signature,
    call_sequence_signature,
    is_in_place_operator_call,
    layouts_of_nested_tensors,
    map_leaves,
    out_of_place_operator,
    storage_ids,
    tensor_from_layout,
)
from crossflops.frontends.pytorch.record.operators import (
    write_and_return_node,
    write_argument_nodes,
)

if TYPE_CHECKING:
    from torch import fx

# By the views through which a write is followed: the operators that put a view back into its base,
# with the arguments of the view.
_SCATTERS = {"aten.slice.Tensor": "slice_scatter", "aten.select.int": "select_scatter"}
# Views through which only reads are followed.
_READ_VIEWS = ("aten.view.default", "aten.permute.default", "aten.unsqueeze.default")


class _View(NamedTuple):
    """One step from a base to a view of it: an operator with its arguments behind the tensor."""

    target: Any
    arguments: tuple[Any, ...]


class _Storage:
    """The memory of a base: its current value, and how often it was written."""

    def __init__(self, value: PieceResult) -> None:
        """Start with the value that the base is made with."""
        self.value = value
        self.generation = 0


class _Alias:
    """A base, or a view of it: the steps from the base, its value, and the generation of the
    storage to which the value belongs.
    """

    def __init__(self, storage: _Storage, views: tuple[_View, ...], value: PieceResult) -> None:
        """Start in generation 0, as PyTorch does for any generation of the storage."""
        self.storage, self.views, self.value = storage, views, value
        self.generation = 0


class FunctionalSequence:
    """The decomposition of a run of calls that write into views of tensors that it makes.

    Raises NotUnderstoodError for a run in which another operator gives a view, or in which a write
    goes through another view than `slice` and `select`.
    """

    def __init__(self, run: CallSequence, is_kept: Callable[[Any], bool]) -> None:
        """Check the run. `is_kept` returns True for operators that are kept as they are."""
        self._run = run
        self._is_kept = is_kept
        self._single: dict[fx.Node, CallSequence | None] = {}
        for node in run.nodes:
            self._record_call(node)

    def single_call_sequences(self) -> dict[Signature, CallSequence]:
        """Return the calls of the run that are decomposed by themselves, by signature."""
        return {
            run.signature: run
            for run in self._single.values()
            if run is not None and run.signature
        }

    def build_decomposition(
        self, pieces: Mapping[Signature, CallDecomposition | None]
    ) -> CallDecomposition:
        """Return the decomposition of the run, with those of its single calls from `pieces`."""
        return _Functionalization(self._run, self._single, pieces).build_decomposition()

    def _record_call(self, node: "fx.Node") -> None:
        """Record how the call of a node is decomposed. Raises NotUnderstoodError if it is not
        known.
        """
        name = str(node.target)
        if name in _SCATTERS or name in _READ_VIEWS:
            if node.kwargs or not self._is_kept(node.target):
                raise NotUnderstoodError(name)
            return
        if is_in_place_operator_call(node):
            written = write_argument_nodes(node)
            if len(written) != 1 or write_and_return_node(node) is not written[0]:
                raise NotUnderstoodError(name)
            self._single[node] = self._single_call_sequence(
                node, out_of_place_operator(node.target)
            )
            return
        value = node.meta.get("val")
        memories = storage_ids(value)
        if isinstance(value, list | tuple) or len(memories) != 1:
            raise NotUnderstoodError(name)
        operands = node.all_input_nodes
        taken = {memory for at in operands for memory in storage_ids(at.meta["val"])}
        if memories[0] in taken:  # a view of a kind that is not followed, or what it is given
            raise NotUnderstoodError(name)
        self._single[node] = self._single_call_sequence(node, node.target)

    def _single_call_sequence(self, node: "fx.Node", target: Any) -> CallSequence | None:
        """Return the call of an operator as a run by itself; None if it is kept as it is."""
        if self._is_kept(target):
            return None
        signature = call_sequence_signature((node,), (target,), ())
        return CallSequence((node,), target, signature, tuple(node.all_input_nodes), (node,))


class _Functionalization:
    """A walk over the calls of a run that collects the steps of its decomposition."""

    def __init__(
        self,
        run: CallSequence,
        single: Mapping["fx.Node", CallSequence | None],
        pieces: Mapping[Signature, CallDecomposition | None],
    ) -> None:
        """Start with the operands of the run in their memory layout."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        assert run.signature is not None
        self._run, self._single, self._pieces = run, single, pieces
        self._mode = FakeTensorMode()
        with self._mode:
            self._operands = [tensor_from_layout(layout) for layout in run.signature[-1]]
        self._places = {node: PieceOperand(index) for index, node in enumerate(run.operands)}
        self._aliases: dict[fx.Node, _Alias] = {}
        self._steps: list[PieceStep] = []
        self._values: list[Any] = []  # the fake tensors of the steps
        self._index = 0  # of the call that is decomposed

    def build_decomposition(self) -> CallDecomposition:
        """Return the decomposition of the run."""
        for index, node in enumerate(self._run.nodes):
            self._index = index
            if is_in_place_operator_call(node):
                self._add_write_steps(node)
            elif node in self._single:
                storage = _Storage(
                    self._add_call_steps(node, node.target, self._arguments_as_references(node))
                )
                self._aliases[node] = _Alias(storage, (), storage.value)
            else:
                self._add_view_steps(node)
        results, layouts = [], []
        for node in self._run.outlets:
            alias = self._aliases[node]
            if alias.generation != alias.storage.generation and alias.views:
                raise NotUnderstoodError("a view that is derived again behind the run")
            results.append(alias.value if alias.views else alias.storage.value)
            layouts.append(layouts_of_nested_tensors(self._values[results[-1].step]))
        return CallDecomposition(tuple(self._steps), tuple(results), tuple(layouts), False)

    def _add_view_steps(self, node: "fx.Node") -> None:
        """Add the step that makes a view, and remember of which tensor it is a view."""
        base, *rest = node.args
        if base not in self._aliases or any(hasattr(item, "meta") for item in rest):
            raise NotUnderstoodError(node.target)  # a view of an operand, whose base is elsewhere
        alias = self._aliases[base]
        view = _View(node.target, tuple(rest))
        value = self._add_step(node.target, (self._add_current_value(alias), *rest))
        self._aliases[node] = _Alias(alias.storage, (*alias.views, view), value)

    def _add_write_steps(self, node: "fx.Node") -> None:
        """Add the steps of a call that writes: the new value of the view, then that of the base,
        then the view of that.
        """
        import torch

        (written,) = write_argument_nodes(node)
        if written not in self._aliases:
            raise NotUnderstoodError("a write into an operand")
        alias = self._aliases[written]
        target = out_of_place_operator(node.target)
        value = self._add_call_steps(node, target, self._arguments_as_references(node))
        storage = alias.storage
        storage.generation += 1
        bases = [storage.value]
        if alias.views:
            for view in alias.views[:-1]:
                bases.append(self._add_derived_view(bases[-1], view))
            for view, base in zip(reversed(alias.views), reversed(bases), strict=True):
                name = _SCATTERS.get(str(view.target))
                if name is None:
                    raise NotUnderstoodError(view.target)
                scatter = getattr(torch.ops.aten, name)
                overload = getattr(scatter, scatter.overloads()[0])
                value = self._add_step(overload, (base, value, *view.arguments))
        elif layouts_of_nested_tensors(self._values[value.step]) != layouts_of_nested_tensors(
            self._values[storage.value.step]
        ):
            raise NotUnderstoodError("a base that lies in another way after a write")
        storage.value = value
        self._add_current_value(alias)
        self._aliases[node] = alias

    def _arguments_as_references(self, node: "fx.Node") -> tuple[Any, Any]:
        """Return the arguments of a call with references to the current values of tensors; add the
        steps that derive views again, in the order of the arguments.
        """
        import torch

        def reference_of_traced_tensor(argument: Any) -> Any:
            """Return the reference to a tensor's value; another argument as it is."""
            if not isinstance(argument, torch.fx.Node):
                return argument
            if argument in self._aliases:
                return self._add_current_value(self._aliases[argument])
            return self._places[argument]

        return map_leaves(node.args, reference_of_traced_tensor), map_leaves(
            dict(node.kwargs), reference_of_traced_tensor
        )

    def _add_current_value(self, alias: _Alias) -> PieceResult:
        """Return the current value of a base or a view; add the steps that derive a view again."""
        if alias.generation != alias.storage.generation:
            alias.value = alias.storage.value
            for view in alias.views:
                alias.value = self._add_derived_view(alias.value, view)
            alias.generation = alias.storage.generation
        return alias.value

    def _add_derived_view(self, base: PieceResult, view: _View) -> PieceResult:
        """Add a step that makes a view of a value; return its result."""
        return self._add_step(view.target, (base, *view.arguments))

    def _add_call_steps(
        self, node: "fx.Node", target: Any, arguments: tuple[Any, Any]
    ) -> PieceResult:
        """Add the steps of a call that is kept as it is, or those of its own decomposition; return
        its result.
        """
        run = self._single[node]
        if run is None:
            args, kwargs = arguments
            return self._add_step(target, args, kwargs)
        assert run.signature is not None
        piece = self._pieces.get(run.signature)
        if piece is None or piece.is_placed or len(piece.results) != 1:
            raise NotUnderstoodError(target)
        operands = [
            self._aliases[at].value if at in self._aliases else self._places[at]
            for at in run.operands
        ]
        first = len(self._steps)

        def reference_in_enclosing_piece(argument: Any) -> Any:
            """Return a reference of the call's piece as one of this piece."""
            if isinstance(argument, PieceOperand):
                return operands[argument.place]
            if isinstance(argument, PieceResult):
                return PieceResult(first + argument.step)
            return argument

        for step in piece.steps:
            self._add_step(
                step.target,
                map_leaves(step.args, reference_in_enclosing_piece),
                map_leaves(step.kwargs, reference_in_enclosing_piece),
            )
        result = reference_in_enclosing_piece(piece.results[0])
        if not isinstance(result, PieceResult):
            raise NotUnderstoodError("a call that gives what it is given")
        return result

    def _add_step(
        self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
    ) -> PieceResult:
        """Add a step with the layout of its result; return a reference to the result."""

        def fake_tensor_of_reference(argument: Any) -> Any:
            """Return the fake tensor of a reference; another argument as it is."""
            if isinstance(argument, PieceOperand):
                return self._operands[argument.place]
            return self._values[argument.step] if isinstance(argument, PieceResult) else argument

        with self._mode:
            value = target(
                *map_leaves(list(args), fake_tensor_of_reference),
                **map_leaves(kwargs or {}, fake_tensor_of_reference),
            )
        self._values.append(value)
        self._steps.append(
            PieceStep(
                self._index,
                target,
                tuple(args),
                dict(kwargs or {}),
                layouts_of_nested_tensors(value),
            )
        )
        return PieceResult(len(self._steps) - 1)
