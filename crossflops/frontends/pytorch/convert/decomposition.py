"""The decomposition of a program operator by operator: each signature is decomposed once, and the
result is reused.

PyTorch takes a program apart by tracing all of it twice more, though most of its operators stay as
they are. Here those that do not stay are traced once for each signature: the operator, how its
operands lie in memory, and its settings. PyTorch does that itself, on a module of these calls
alone, so that the pieces are those that it chooses in the whole program. Pieces are kept for other
programs.

A program that is not understood is left to PyTorch as a whole: one with functions as operands,
sizes or values that are open, operators that are not PyTorch's own, tensors of other kinds, or a
write into what is given.
"""

import copy
import logging
import operator
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from crossflops.frontends.pytorch.convert.composite_kernels import CompositeKernels
from crossflops.frontends.pytorch.convert.functionalization import FunctionalSequence
from crossflops.frontends.pytorch.convert.operator_pieces import (
    CallDecomposition,
    CallSequence,
    NotUnderstoodError,
    PieceOperand,
    PieceResult,
    PieceStep,
    Signature,
    TensorLayout,
    call_sequence_signature,
    fake_tensor_layout,
    is_in_place_operator_call,
    is_plain_operator,
    layouts_of_nested_tensors,
    map_leaves,
    out_of_place_operator,
    storage_ids,
    tensor_from_layout,
)
from crossflops.frontends.pytorch.convert.reference import is_reference_export
from crossflops.frontends.pytorch.record.dropped_operators import (
    DroppedOperators,
    observing_graphs_before_dead_nodes_go,
    original_node_name,
)
from crossflops.frontends.pytorch.record.operators import (
    write_and_return_node,
    write_argument_nodes,
)
from crossflops.patches import inventory
from crossflops.patches.patching import original_attribute, patch_owner, patching_attribute

if TYPE_CHECKING:
    from torch import fx
    from torch.export import ExportedProgram

_LOG = logging.getLogger(__name__)
_KEPT_PIECES = 5_000  # a piece is some kilobytes
_STAMPED = "crossflops stamped"  # stands at a module that was put together of pieces
_LIFTED = "aten.lift_fresh_copy.default"
_NEUTRAL = "arguments"  # module stack of calls that are traced for themselves

# Operators that are taken apart alike for operands of all sizes that lie one row after the other,
# have the same numbers of axes, and the same axes of extent 1: the first piece holds for all. What
# in it depends on sizes is the shape of the result.
# Source: aten/src/ATen/native/Normalization.cpp (batch_norm), Dropout.cpp, TensorShape.cpp
# (flatten, reshape), AdaptiveAveragePooling.cpp.
_OF_ALL_SIZES = (
    "aten.batch_norm.default", "aten.dropout.default", "aten.flatten.using_ints",
    "aten.reshape.default", "aten.adaptive_avg_pool2d.default", "aten.contiguous.default",
)  # fmt: skip


class _Like(msgspec.Struct, frozen=True):
    """A reference to the layout of an operand; with None to that of the result."""

    operand: int | None


_RESULT = _Like(None)  # among arguments, the shape of the result


class Decomposer:
    """A decomposer of programs by one table of decompositions, with a cache by signature.

    `registered` are the operators that stay whole where PyTorch can keep them so.
    """

    def __init__(self, registered: frozenset[Any]) -> None:
        """Build the decomposition table for these ONNX operators, with empty caches."""
        from torch.export.exported_program import _split_decomp_table_to_cia_and_python_decomp
        from torch.onnx._internal.exporter import _decomp

        self._table = _decomp.create_onnx_friendly_decomposition_table(set(registered))
        composite, plain = _split_decomp_table_to_cia_and_python_decomp(dict(self._table))
        self._composite, self._plain = composite, plain
        self._kernels = CompositeKernels(self._table, composite, plain)
        self._stays: dict[Any, bool] = {}
        self._pieces: OrderedDict[Signature, CallDecomposition | None] = OrderedDict()
        self._general: dict[Any, CallDecomposition] = {}

    def decompose(
        self,
        program: "ExportedProgram",
        conversion_context: Callable[[], AbstractContextManager[None]],
    ) -> "ExportedProgram":
        """Return the program with its operators replaced by cached decompositions. Raises
        NotUnderstoodError if that is not possible.

        PyTorch's own decompositions run in the context `conversion_context`.
        """
        runs = list(self._iterate_call_sequences(program))
        with conversion_context():
            self._cache_decompositions(runs)
        return self._replace_by_decompositions(program, runs)

    def _is_operator_kept(self, target: Any) -> bool:
        """Return True if the decomposition keeps calls of the operator `target` as they are;
        cached.
        """
        known = self._stays.get(target)
        if known is None:
            known = self._stays[target] = self._has_no_decomposition(target)
        return known

    def _has_no_decomposition(self, target: Any) -> bool:
        """Return True if no decomposition rule would replace calls of the operator `target`."""
        from torch._export.utils import _is_cia_op, _special_op_to_preserve_cia

        if target._schema.is_mutable or target in self._plain:
            return False
        if str(target) == _LIFTED:  # a constant, which functionalization clones
            return False
        if _is_cia_op(target):
            return self._composite.get(target) is _special_op_to_preserve_cia
        return True

    def _iterate_call_sequences(self, program: "ExportedProgram") -> Iterator[CallSequence]:
        """Yield the calls of a program in order, each as a run; calls that a write in place
        affects are one run.
        """
        _check_decomposable_program(program)
        nodes = tuple(program.graph.nodes)
        writes = _Writes(nodes)
        begins = dict(writes.ranges)
        index = 0
        while index < len(nodes):
            node, end = nodes[index], begins.get(index, index)
            if end > index:
                yield _build_call_sequence(nodes[index : end + 1])
            elif node.op == "call_function" and node.target is not operator.getitem:
                yield self._single_call_sequence(node, writes)
            index = end + 1

    def _single_call_sequence(self, node: "fx.Node", writes: "_Writes") -> CallSequence:
        """Return the call of an operator as a run of one node. Raises NotUnderstoodError for a
        node that calls no ATen operator.
        """
        target, written = node.target, None
        if not is_plain_operator(target) and not _is_functional_extension(target):
            raise NotUnderstoodError(target)
        if target._schema.is_mutable:
            written = writes.target_tensor_node(node)
            target = out_of_place_operator(target)
        full = self._is_operator_kept(target)
        if written is not None and full:
            full = _keeps_layout_out_of_place(node, written)
        operands = tuple(node.all_input_nodes)
        if str(target) in _POSITIONS:
            known = (
                layouts_of_nested_tensors(node.meta["val"]),
                *call_sequence_signature((node,), (target,), ()),
            )
            return CallSequence((node,), target, known, operands, (node,))
        if full:
            layouts_of_nested_tensors(node.meta.get("val"))
            return CallSequence((node,), target, None, operands, (node,), written)
        return CallSequence(
            (node,),
            target,
            call_sequence_signature((node,), (target,), ()),
            operands,
            (node,),
            written,
        )

    def _cache_decompositions(self, runs: Sequence[CallSequence]) -> None:
        """Store in the cache the decompositions of these runs that are not in it yet."""
        asked: dict[Signature, CallSequence] = {}
        similar: dict[Any, list[CallSequence]] = {}  # behind the first of a kind, which is asked
        for run in runs:
            if run.signature is None or run.signature in asked:
                continue
            if run.signature in self._pieces:
                self._pieces.move_to_end(run.signature)
                continue
            if str(run.target) in _POSITIONS:
                self._pieces[run.signature] = _decompose_to_axis_positions(run)
                continue
            kind = _call_sequence_kind(run)
            if kind in similar:
                similar[kind].append(run)
            elif kind is not None and kind in self._general:
                self._pieces[run.signature] = _specialize_decomposition(self._general[kind], run)
            else:
                asked[run.signature] = run
                if kind is not None:
                    similar[kind] = []
        several = {key: run for key, run in asked.items() if len(run.nodes) > 1}
        self._decompose_by_pytorch({key: run for key, run in asked.items() if key not in several})
        rest = self._cache_decompositions_of_long_sequences(several)
        for kind, others in similar.items():
            for run in others:
                assert run.signature is not None
                if kind in self._general:
                    self._pieces[run.signature] = _specialize_decomposition(
                        self._general[kind], run
                    )
                else:
                    rest[run.signature] = run
        self._decompose_by_pytorch(rest)
        while len(self._pieces) > _KEPT_PIECES + len(runs):
            self._pieces.popitem(last=False)

    def _cache_decompositions_of_long_sequences(
        self, runs: Mapping[Signature, CallSequence]
    ) -> dict[Signature, CallSequence]:
        """Store in the cache the decompositions of runs of several calls, made of those of their
        single calls; return the runs for which that is not possible.
        """
        rest: dict[Signature, CallSequence] = {}
        plans: dict[Signature, FunctionalSequence] = {}
        single: dict[Signature, CallSequence] = {}
        for signature, run in runs.items():
            try:
                plan = plans[signature] = FunctionalSequence(run, self._is_operator_kept)
            except NotUnderstoodError as error:
                _LOG.debug("PyTorch decomposes calls together: %s", error)
                rest[signature] = run
            else:
                single |= plan.single_call_sequences()
        self._decompose_by_pytorch(
            {key: run for key, run in single.items() if key not in self._pieces}
        )
        for signature, plan in plans.items():
            try:
                self._pieces[signature] = plan.build_decomposition(self._pieces)
            except NotUnderstoodError as error:
                _LOG.debug("PyTorch decomposes calls together: %s", error)
                rest[signature] = runs[signature]
        return rest

    def _decompose_by_pytorch(self, runs: Mapping[Signature, CallSequence]) -> None:
        """Let PyTorch decompose these runs, given by signature, and store the results in the
        cache.
        """
        if not runs:
            return
        with self._kernels.decomposing_with_cached_kernels():
            pieces = _decompose_sequences_by_table([*runs.values()], self._table)
        for (signature, run), piece in zip(runs.items(), pieces, strict=True):
            self._pieces[signature] = piece
            kind = _call_sequence_kind(run)
            if kind is not None and piece is not None:
                with suppress(NotUnderstoodError):
                    self._general[kind] = _generalize_decomposition(piece, run)

    def _replace_by_decompositions(
        self, program: "ExportedProgram", runs: Sequence[CallSequence]
    ) -> "ExportedProgram":
        """Return the program with each run of calls replaced by the operators of its
        decomposition.
        """
        by_node = {run.nodes[-1]: run for run in runs}
        inside = {node for run in runs for node in run.nodes[:-1]}
        builder = _DecomposedGraphBuilder(program)
        for node in program.graph.nodes:
            if node.op == "placeholder":
                builder.add_placeholder(node)
            elif node.op == "output":
                builder.add_output(node)
            elif node in by_node:
                run = by_node[node]
                if run.signature is None:
                    builder.add_kept_call(run)
                else:
                    piece = self._pieces[run.signature]
                    if piece is None:
                        raise NotUnderstoodError(node.target)
                    builder.add_decomposition(run, piece)
            elif node not in inside:
                builder.add_getitem(node)
        return builder.to_exported_program()


# What is understood.


def _is_functional_extension(target: Any) -> bool:
    """Return True if `target` is an operator of another library that PyTorch never takes apart,
    and whose results are new tensors.
    """
    from torch._export.utils import _is_cia_op
    from torch._ops import OpOverload

    if not isinstance(target, OpOverload) or target.namespace in ("aten", "prim", "prims"):
        return False
    arguments, results = target._schema.arguments, target._schema.returns
    aliases = any(value.alias_info is not None for value in (*arguments, *results))
    return not aliases and not _is_cia_op(target)


def _check_decomposable_program(program: "ExportedProgram") -> None:
    """Raise NotUnderstoodError if the program has a part that cached decompositions do not
    support.
    """
    import torch
    from torch.export.graph_signature import InputKind, OutputKind
    from torch.utils._python_dispatch import _len_torch_dispatch_stack

    if _len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
        raise NotUnderstoodError("a mode")
    if any(torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")):
        raise NotUnderstoodError("autocast")
    kinds = {InputKind.USER_INPUT, InputKind.PARAMETER, InputKind.BUFFER}
    kinds.add(InputKind.CONSTANT_TENSOR)
    signature = program.graph_signature
    if any(spec.kind not in kinds for spec in signature.input_specs):
        raise NotUnderstoodError("inputs")
    if any(spec.kind is not OutputKind.USER_OUTPUT for spec in signature.output_specs):
        raise NotUnderstoodError("outputs")
    modules = program.graph_module.modules()
    if sum(isinstance(module, torch.fx.GraphModule) for module in modules) > 1:
        raise NotUnderstoodError("functions as operands")
    for node in program.graph.nodes:
        if node.op not in ("placeholder", "call_function", "output"):
            raise NotUnderstoodError(node.op)


def _build_call_sequence(nodes: Sequence["fx.Node"]) -> CallSequence:
    """Return the run of nodes that are decomposed together. Raises NotUnderstoodError if a node is
    not the call of an ATen operator.
    """
    inside = set(nodes)
    for node in nodes:
        if node.op != "call_function":
            raise NotUnderstoodError(node.op)
        if node.target is not operator.getitem and not is_plain_operator(node.target):
            raise NotUnderstoodError(node.target)
    operands = dict.fromkeys(
        at for node in nodes for at in node.all_input_nodes if at not in inside
    )
    outlets = tuple(node for node in nodes if any(user not in inside for user in node.users))
    if any(isinstance(node.meta.get("val"), list | tuple) for node in outlets):
        raise NotUnderstoodError("several results of a run")
    signature = call_sequence_signature(nodes, [node.target for node in nodes], outlets)
    return CallSequence(tuple(nodes), None, signature, tuple(operands), outlets)


# Pieces that hold for operands of all sizes.


def _call_sequence_kind(run: CallSequence) -> Any:
    """Return a key that calls have in common whose decompositions differ in sizes alone; None if
    there may be no other such call.
    """
    name = str(run.target)
    if name not in _OF_ALL_SIZES or run.written is not None or len(run.result_values) != 1:
        return None
    assert run.signature is not None
    (target, args, named), _, layouts = run.signature
    result = fake_tensor_layout(run.result_values[0])
    if not all(map(_is_contiguous_layout, (*layouts, result))):
        return None
    if name == "aten.adaptive_avg_pool2d.default" and set(run.nodes[0].args[1]) != {1}:
        return None
    if name in ("aten.flatten.using_ints", "aten.reshape.default"):
        args = args[:2]  # what follows, or stands in a list, is there in the result alone
    shapes = [layout.shape for layout in (*layouts, result)]
    same = tuple(shapes.index(shape) for shape in shapes)
    return target, args, named, tuple(map(_layout_without_sizes, (*layouts, result))), same


def _is_contiguous_layout(layout: TensorLayout) -> bool:
    """Return True if a tensor with this layout is not empty and is contiguous, the last axis the
    fastest.
    """
    expected, strides = 1, []
    for extent in reversed(layout.shape):
        strides.append(expected)
        expected *= extent
    return expected > 0 and layout.stride == tuple(reversed(strides))


def _layout_without_sizes(layout: TensorLayout) -> Any:
    """Return the parts of a layout that do not depend on sizes: dtype, device, `requires_grad`,
    and True for each axis of size 1.
    """
    axes = tuple(extent == 1 for extent in layout.shape)
    return layout.dtype, layout.device, layout.requires_grad, axes


def _generalize_decomposition(piece: CallDecomposition, run: CallSequence) -> CallDecomposition:
    """Return a decomposition in which layouts and shapes are references to those of the operands
    or the result.
    """
    assert run.signature is not None
    operands = [layout._replace(requires_grad=False) for layout in run.signature[-1]]
    result = fake_tensor_layout(run.result_values[0])

    def reference_to_layout_owner(layout: Any) -> Any:
        """Return a reference to the operand or result that has this layout; for a tuple a tuple of
        them.
        """
        if layout is None:
            return None
        if not isinstance(layout, TensorLayout):
            return tuple(map(reference_to_layout_owner, layout))
        if layout in operands:
            return _Like(operands.index(layout))
        if layout == result:
            return _RESULT
        if layout.shape != (0,):
            raise NotUnderstoodError("a layout")
        return layout

    def with_result_shape_as_reference(argument: Any) -> Any:
        """Return an argument in which the shape of the result is replaced by the reference
        `_RESULT`.
        """
        if isinstance(argument, list | tuple):
            if tuple(argument) == result.shape:
                return _RESULT
            if any(type(item) is int and item > 0 for item in argument):
                raise NotUnderstoodError("sizes")
            return type(argument)(map(with_result_shape_as_reference, argument))
        return argument

    steps = tuple(
        step._replace(
            args=tuple(map(with_result_shape_as_reference, step.args)),
            kwargs={
                name: with_result_shape_as_reference(value) for name, value in step.kwargs.items()
            },
            layout=reference_to_layout_owner(step.layout),
        )
        for step in piece.steps
    )
    return piece._replace(
        steps=steps, layouts=tuple(map(reference_to_layout_owner, piece.layouts))
    )


def _specialize_decomposition(piece: CallDecomposition, run: CallSequence) -> CallDecomposition:
    """Return a generalized decomposition with its references replaced by the layouts and shapes of
    this run.
    """
    assert run.signature is not None
    operands = [layout._replace(requires_grad=False) for layout in run.signature[-1]]
    result = fake_tensor_layout(run.result_values[0])

    def layout_of_reference(layout: Any) -> Any:
        """Return the layout that a reference means in this run; for a tuple a tuple of them."""
        if isinstance(layout, _Like):
            return result if layout.operand is None else operands[layout.operand]
        return (
            layout
            if layout is None or isinstance(layout, TensorLayout)
            else tuple(map(layout_of_reference, layout))
        )

    def with_result_shape_of_this_run(argument: Any) -> Any:
        """Return the shape of this run's result for the reference `_RESULT`; another argument as
        it is.
        """
        return list(result.shape) if argument == _RESULT else argument

    steps = tuple(
        step._replace(
            args=map_leaves(step.args, with_result_shape_of_this_run),
            kwargs=map_leaves(step.kwargs, with_result_shape_of_this_run),
            layout=layout_of_reference(step.layout),
        )
        for step in piece.steps
    )
    return piece._replace(steps=steps, layouts=tuple(map(layout_of_reference, piece.layouts)))


# Operators that give the positions of elements that are not 0. A trace without values does not
# know how many there are; the recorded results say it.
_POSITIONS = {"aten.where.default", "aten.nonzero_numpy.default"}


def _decompose_to_axis_positions(run: CallSequence) -> CallDecomposition:
    """Return the decomposition of an operator that gives one tensor of positions for each axis:
    `nonzero`, split along its second axis. Raises NotUnderstoodError for a scalar.

    Source: aten/src/ATen/native/TensorAdvancedIndexing.cpp (where, nonzero_numpy).
    """
    import torch

    aten = torch.ops.aten
    layouts = tuple(map(fake_tensor_layout, run.result_values))
    axes = len(run.operands[0].meta["val"].shape)
    if axes == 0 or axes != len(layouts):
        raise NotUnderstoodError(run.target)
    (first, *_) = layouts
    (count,), (step,) = first.shape, first.stride
    # the one axis of a vector is stored as that of a table by columns is
    stride = (axes, 1) if axes > 1 and step == axes else (1, max(count, 1))
    table = first._replace(shape=(count, axes), stride=stride)
    steps = (
        PieceStep(0, aten.nonzero.default, (PieceOperand(0),), {}, table),
        PieceStep(0, aten.unbind.int, (PieceResult(0), 1), {}, layouts),
        *(
            PieceStep(0, operator.getitem, (PieceResult(1), axis), {}, layout)
            for axis, layout in enumerate(layouts)
        ),
    )
    results = tuple(PieceResult(2 + axis) for axis in range(axes))
    return CallDecomposition(steps, results, layouts, False)


# Operators that give what lies in memory as their operands do, if these are all alike.
_ALIKE = {
    "add_.Tensor", "sub_.Tensor", "mul_.Tensor", "relu_.default", "silu_.default", "zero_.default",
    "hardtanh_.default", "leaky_relu_.default", "sigmoid_.default", "fill_.Scalar",
    "hardswish_.default", "hardsigmoid_.default", "tanh_.default", "mish_.default",
    "gelu_.default",
}  # fmt: skip


def _keeps_layout_out_of_place(node: "fx.Node", written_node: "fx.Node") -> bool:
    """Return True if an out-of-place form of `node` returns a tensor with the memory layout of
    `written_node`, the tensor that it writes in place.
    """
    if str(node.target).removeprefix("aten.") not in _ALIKE:
        return False
    own = fake_tensor_layout(written_node.meta.get("val"))
    others = (
        fake_tensor_layout(at.meta.get("val"))
        for at in node.all_input_nodes
        if at is not written_node
    )
    return _is_dense_layout(own) and all(other == own for other in others)


def _is_dense_layout(layout: TensorLayout) -> bool:
    """Return True if a tensor with this layout has neither gaps nor overlapping elements in
    memory.
    """
    expected = 1
    for stride, extent in sorted(zip(layout.stride, layout.shape, strict=True)):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


class _Writes:
    """The writes in place of a program: which tensors they change, and which nodes are affected.

    Where no view of a tensor is used after a write into it, later readers of the tensor, or of the
    write's result, get the last written value. PyTorch makes a view again where it is used after a
    write: such calls are decomposed together with all calls on the same memory, up to those that
    compute with the written values. `ranges` has the indices of the first and the last node of
    each.
    """

    def __init__(self, nodes: Sequence["fx.Node"]) -> None:
        """Find the tensors that nodes write in place, and the node ranges that this affects."""
        self.ranges: list[tuple[int, int]] = []
        self._position = {node: index for index, node in enumerate(nodes)}
        self._sharing: dict[Any, list[fx.Node]] = {}
        self._same: dict[Any, set[fx.Node]] = {}  # of each memory, the nodes that are all of it
        self._ranges: dict[tuple[Any, ...], tuple[int, int]] = {}
        self._targets: dict[fx.Node, fx.Node] = {}
        writing = [node for node in nodes if is_in_place_operator_call(node)]
        if not writing:
            return
        for node in nodes:
            if _is_constant_read_only_by_copies(node):
                continue
            for memory in storage_ids(node.meta.get("val")):
                self._sharing.setdefault(memory, []).append(node)
        ranges: list[tuple[int, int]] = []
        for node in writing:
            target = self._find_target_tensor_node(node)
            if target is None:
                ranges.append(self._write_index_range(node))
            else:
                self._targets[node] = target
        for begin, end in sorted(ranges):
            if self.ranges and begin <= self.ranges[-1][1]:
                self.ranges[-1] = self.ranges[-1][0], max(end, self.ranges[-1][1])
            else:
                self.ranges.append((begin, end))

    def target_tensor_node(self, node: "fx.Node") -> "fx.Node":
        """Return the node of the tensor that the operator of `node` writes in place."""
        return self._targets[node]

    def _write_index_range(self, node: "fx.Node") -> tuple[int, int]:
        """Return the indices of the first and the last node that the in-place write of `node`
        affects.
        """
        memories = tuple(
            memory
            for at in write_argument_nodes(node)
            for memory in storage_ids(at.meta.get("val"))
        )
        if memories not in self._ranges:
            self._ranges[memories] = self._memories_write_index_range(node, memories)
        begin, end = self._ranges[memories]
        return begin, max(end, self._position[node])

    def _memories_write_index_range(
        self, node: "fx.Node", memories: tuple[Any, ...]
    ) -> tuple[int, int]:
        """Return the indices of the first and the last node that writes into these memories
        affect. Raises NotUnderstoodError if a result of the program has such a memory.
        """
        index = self._position
        shared = [other for memory in memories for other in self._sharing[memory]]
        writing = [index[other] for other in shared if is_in_place_operator_call(other)]
        if not writing or any(user.op == "output" for other in shared for user in other.users):
            raise NotUnderstoodError(node.target)  # PyTorch derives it where all is given
        last = max(writing)
        ends = [last]
        views = set(shared)
        for other in shared:
            users = [index[user] for user in other.users if user not in views]
            ends.append(
                min((user for user in users if last < user < len(index) - 1), default=last)
            )
        return min(index[other] for other in shared), max(ends)

    def _find_target_tensor_node(self, node: "fx.Node") -> "fx.Node | None":
        """Return the node of the tensor that `node` writes in place; None if a view of it may be
        read later.
        """
        written = write_argument_nodes(node)
        if len(written) != 1 or write_and_return_node(node) not in written:
            return None
        memory = next(iter(storage_ids(written[0].meta.get("val"))), None)
        sharing = self._sharing.get(memory, [])
        if not sharing or sharing[0].op != "call_function" or node not in sharing:
            raise NotUnderstoodError("a write into what is given")
        if memory not in self._same:
            self._same[memory] = _memory_sharing_nodes(sharing)
        same = self._same[memory]
        if written[0] not in same or node not in same:
            return None
        index = self._position
        for view in sharing:
            if view not in same and any(index[user] >= index[node] for user in view.users):
                return None
        return written[0]


def _is_constant_read_only_by_copies(node: "fx.Node") -> bool:
    """Return True for a constant of the program of which only copies are used.

    With values beside the fake tensors, a copy has the same storage as the constant.
    """
    return node.op == "placeholder" and all(str(user.target) == _LIFTED for user in node.users)


# Operators that give what they are given, or something new, and no view.
_HANDING_ON = {"aten.dropout.default", "aten.contiguous.default"}


def _memory_sharing_nodes(nodes: Sequence["fx.Node"]) -> set["fx.Node"]:
    """Return the nodes whose tensor is the whole memory of the first node in `nodes`, not a view
    of a part.
    """
    first = nodes[0]
    if isinstance(first.meta.get("val"), list | tuple):
        raise NotUnderstoodError("a write into one of several results")
    same = {first}
    for node in nodes[1:]:
        handed_on = str(node.target) in _HANDING_ON and node.args[0] in same
        if handed_on or write_and_return_node(node) in same:
            same.add(node)
    return same


# A module of calls, which PyTorch takes apart.


def _decompose_sequences_by_table(
    runs: Sequence[CallSequence], table: Mapping[Any, Any]
) -> list[CallDecomposition | None]:
    """Let PyTorch decompose the runs by `table`; return for each run its decomposition, None if it
    cannot be stored as operators.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv(), export=True)
    graph = torch.fx.Graph()
    provided: list[list[fx.Node]] = []
    for number, run in enumerate(runs):
        assert run.signature is not None
        with mode, torch.no_grad():
            values = [tensor_from_layout(layout) for layout in run.signature[-1]]
        indices = [graph.placeholder(f"operand{number}_{index}") for index in range(len(values))]
        for index, value in zip(indices, values, strict=True):
            index.meta["val"] = value
        provided.append(indices)
    fakes = _FakeTensorCache(mode)
    made = [
        _copy_calls_to_graph(graph, run, operands, fakes)
        for run, operands in zip(runs, provided, strict=True)
    ]
    flat = [result for copied in made for result in copied.results]
    graph.output(tuple(flat))
    program = _program_from_graph(
        graph, [index for indices in provided for index in indices], flat
    )
    traced = _TraceRecord()
    with torch.no_grad(), traced.recording_first_graph():
        separate = program.run_decompositions(dict(table))
    return traced.decompositions_of_sequences(separate, runs, provided, made)


class _CopiedCalls(NamedTuple):
    """The copies of a run's calls in another graph: their names, and the nodes of the results."""

    names: list[str]
    results: list["fx.Node"]


class _FakeTensorCache:
    """A cache of tensors without values, one for each layout."""

    def __init__(self, mode: Any) -> None:
        """Start an empty cache of fake tensors, by layout, that belong to this fake mode."""
        self._mode = mode
        self._known: dict[TensorLayout, Any] = {}

    def tensor_with_layout(self, layout: Any) -> Any:
        """Return a fake tensor with this layout, cached; for a tuple a tuple of them, and None for
        None.
        """
        if layout is None:
            return None
        if not isinstance(layout, TensorLayout):
            return tuple(map(self.tensor_with_layout, layout))
        if layout not in self._known:
            with self._mode:
                self._known[layout] = tensor_from_layout(layout)
        return self._known[layout]


def _copy_calls_to_graph(
    graph: "fx.Graph", run: CallSequence, operands: Sequence["fx.Node"], fakes: _FakeTensorCache
) -> _CopiedCalls:
    """Copy the calls of a run into an FX graph, with these nodes as operands; return names and
    results of the copies.
    """
    from torch.fx.node import map_arg

    own: dict[fx.Node, Any] = dict(zip(run.operands, operands, strict=True))
    meta = {"nn_module_stack": {_NEUTRAL: ("", "torch.nn.Module")}, "stack_trace": ""}
    names, results = [], []
    for node in run.nodes:
        args, kwargs = map_arg(node.args, own.__getitem__), map_arg(node.kwargs, own.__getitem__)
        copied = graph.call_function(run.target or node.target, args, kwargs)
        value = node.meta.get("val")
        copied.meta = {**meta, "val": fakes.tensor_with_layout(layouts_of_nested_tensors(value))}
        names.append(copied.name)
        own[node] = copied
    for node in run.outlets:
        copied, value = own[node], node.meta.get("val")
        if not isinstance(value, list | tuple):
            results += [copied] if value is not None else []
            continue
        for index in range(len(value)):
            result = graph.call_function(operator.getitem, (copied, index))
            result.meta = {**meta, "val": copied.meta["val"][index]}
            results.append(result)
    return _CopiedCalls(names, results)


def _program_from_graph(
    graph: "fx.Graph", inputs: Sequence["fx.Node"], outputs: Sequence["fx.Node"]
) -> "ExportedProgram":
    """Return an exported program with this FX graph, these inputs and these outputs."""
    import torch
    from torch._export.verifier import TrainingIRVerifier
    from torch.export.exported_program import (
        ExportedProgram,
        ModuleCallEntry,
        ModuleCallSignature,
    )
    from torch.export.graph_signature import (
        ExportGraphSignature,
        InputKind,
        InputSpec,
        OutputKind,
        OutputSpec,
        TensorArgument,
    )
    from torch.utils._pytree import tree_structure

    names = [index.name for index in inputs]
    values = tuple(index.meta["val"] for index in inputs)
    provided = [InputSpec(InputKind.USER_INPUT, TensorArgument(name), None) for name in names]
    made = [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(at.name), None) for at in outputs]
    call = ModuleCallSignature(
        inputs=[],
        outputs=[],
        in_spec=tree_structure((values, {})),
        out_spec=tree_structure((0,) * len(outputs)),
        forward_arg_names=names,
    )
    return ExportedProgram(
        root=torch.fx.GraphModule({}, graph),
        graph=graph,
        graph_signature=ExportGraphSignature(provided, made),
        state_dict={},
        range_constraints={},
        module_call_graph=[ModuleCallEntry(fqn="", signature=call)],
        example_inputs=(values, {}),
        constants={},
        verifiers=[TrainingIRVerifier],  # which lets operators write
    )


class _TracedNode(NamedTuple):
    """A node with copies of the attributes that it loses when it is erased."""

    node: "fx.Node"
    target: Any
    args: Any
    kwargs: Any
    origin: str
    value: Any


class _TraceRecord:
    """The graph of a trace as it was before dead nodes were removed."""

    def __init__(self) -> None:
        """Start with no inputs, nodes or outputs of a traced graph."""
        self.inputs: list[fx.Node] = []
        self.nodes: list[_TracedNode] = []
        self.outputs: tuple[Any, ...] = ()

    def recording_first_graph(self) -> Any:
        """Return a context that records the first decomposed graph before its dead nodes are
        removed.
        """
        return observing_graphs_before_dead_nodes_go(self._record_first_graph)

    def _record_first_graph(self, graph: "fx.Graph") -> None:
        """Record inputs, operator calls and outputs of a graph, if it is the first that PyTorch
        decomposed.
        """
        nodes = [node for node in graph.nodes if node.op == "call_function"]
        if self.inputs or (nodes and not any(node.meta.get("from_node") for node in nodes)):
            return
        self.inputs = [node for node in graph.nodes if node.op == "placeholder"]
        self.outputs = tuple(graph.output_node().args[0])
        self.nodes = [
            _TracedNode(
                node, node.target, node.args, node.kwargs,
                original_node_name(node.meta["from_node"]) if node.meta.get("from_node") else "",
                node.meta.get("val"),
            )
            for node in nodes
        ]  # fmt: skip

    def decompositions_of_sequences(
        self,
        separate: "ExportedProgram",
        runs: Sequence[CallSequence],
        provided: Sequence[Sequence["fx.Node"]],
        made: Sequence[_CopiedCalls],
    ) -> list[CallDecomposition | None]:
        """Return for each run its decomposition as the recorded graph has it; None if it cannot be
        stored.
        """
        from torch.utils._pytree import tree_leaves

        if (
            len(self.inputs) != sum(map(len, provided))
            or separate.constants
            or separate.state_dict
        ):
            return [None] * len(runs)
        written = set(separate.graph_signature.user_inputs_to_mutate.values())
        broken: set[int] = set()
        owner = {
            name: (number, index)
            for number, copied in enumerate(made)
            for index, name in enumerate(copied.names)
        }
        by_run: list[list[tuple[int, _TracedNode]]] = [[] for _ in runs]
        placed: dict[fx.Node, int] = {}
        for node in self.nodes:
            if node.origin in owner:
                number, index = owner[node.origin]
                by_run[number].append((index, node))
                placed[node.node] = number
            else:  # derived anew where all that is given is made ready
                broken.update(placed[at] for at in tree_leaves(node.args) if at in placed)
        results = iter(
            self.outputs[len(self.outputs) - sum(len(copied.results) for copied in made) :]
        )
        inputs = iter(self.inputs)
        pieces: list[CallDecomposition | None] = []
        for number, (run, indices, copied, nodes) in enumerate(
            zip(runs, provided, made, by_run, strict=True)
        ):
            operands = {next(inputs): PieceOperand(number) for number in range(len(indices))}
            outputs = [next(results) for _ in copied.results]
            try:
                if number in broken or any(index.name in written for index in indices):
                    raise NotUnderstoodError("a write into an operand")
                pieces.append(_decomposition_from_traced_nodes(run, nodes, operands, outputs))
            except NotUnderstoodError:
                pieces.append(None)
        return pieces


def _decomposition_from_traced_nodes(
    run: CallSequence,
    nodes: Sequence[tuple[int, _TracedNode]],
    operands: dict["fx.Node", Any],
    outputs: list[Any],
) -> CallDecomposition:
    """Return the decomposition of a run of calls: the operators that were recorded in it, as steps
    that refer to operands and earlier steps, and which of them give `outputs`.
    """
    import torch

    known: dict[fx.Node, Any] = dict(operands)

    def reference_of_traced_tensor(argument: Any) -> Any:
        """Return an argument of a recorded node with a tensor replaced by a reference to an
        operand or an earlier step.
        """
        if not isinstance(argument, torch.fx.Node):
            return argument
        if argument not in known:
            raise NotUnderstoodError("a tensor from elsewhere")
        return known[argument]

    steps: list[PieceStep] = []
    for number, (origin, node) in enumerate(nodes):
        picked = node.target is operator.getitem
        if not picked and not is_plain_operator(node.target, ("aten", "prims")):
            raise NotUnderstoodError(node.target)
        known[node.node] = PieceResult(number)
        args, kwargs = (
            map_leaves(node.args, reference_of_traced_tensor),
            map_leaves(node.kwargs, reference_of_traced_tensor),
        )
        steps.append(
            PieceStep(origin, node.target, args, kwargs, layouts_of_nested_tensors(node.value))
        )
    assert run.signature is not None
    operand_layouts = run.signature[-1]
    indices = tuple(map(reference_of_traced_tensor, outputs))
    layouts = tuple(
        operand_layouts[at.place] if isinstance(at, PieceOperand) else steps[at.step].layout
        for at in indices
        if isinstance(at, PieceOperand | PieceResult)
    )
    if len(layouts) != len(indices):
        raise NotUnderstoodError("a result that is no tensor")
    asks = any("strided" in str(step.target) for step in steps)  # where a tensor begins
    return CallDecomposition(tuple(steps), indices, layouts, asks)


# The program, with the pieces put in.


class _DecomposedGraphBuilder:
    """A writer of the decomposed program: node after node, with the names that PyTorch's own trace
    gives.

    The value of a node of the old program is a node of the new one, or several; nodes that are the
    same tensor share a cell, in which a write stores its result.
    """

    def __init__(self, program: "ExportedProgram") -> None:
        """Start an empty FX graph for the decomposed form of an exported program."""
        import torch

        self._program = program
        self._graph = torch.fx.Graph()
        self._cells: dict[fx.Node, list[Any]] = {}
        self._inputs: dict[fx.Node, str] = {}
        self._fakes = _FakeTensorCache(_program_fake_mode(program))

    def add_placeholder(self, node: "fx.Node") -> None:
        """Add a copy of an input node of the program to the new graph."""
        own = self._graph.placeholder(f"arg{len(self._cells)}_1")  # as in a trace
        own.meta = dict(node.meta)
        self._cells[node] = [own]
        self._inputs[own] = node.name

    def add_getitem(self, node: "fx.Node") -> None:
        """Set the value of a `getitem` node in the new graph: one of several results of a call."""
        several = self._new_graph_node(node.args[0])
        if not isinstance(several, tuple):
            raise NotUnderstoodError("getitem")
        self._cells[node] = [several[node.args[1]]]

    def add_kept_call(self, run: CallSequence) -> None:
        """Add the call of a run that the decomposition keeps as it is to the new graph."""
        (node,) = run.nodes
        value, meta = node.meta.get("val"), _copy_node_metadata(node)
        args, kwargs = (
            self._with_new_graph_nodes(node.args),
            self._with_new_graph_nodes(node.kwargs),
        )
        own = self._append_call(run.target, args, kwargs, meta, value)
        if not isinstance(value, list | tuple):
            self._set_call_value(run, own)
            return
        picked = [
            self._append_call(operator.getitem, (own, index), {}, meta, item)
            for index, item in enumerate(value)
        ]
        self._set_call_value(run, tuple(picked))

    def add_decomposition(self, run: CallSequence, piece: CallDecomposition) -> None:
        """Add the operators of a run's decomposition to the new graph."""
        values = run.result_values
        layouts = [at._replace(requires_grad=False) for at in piece.layouts]
        if list(map(fake_tensor_layout, values)) != layouts:
            raise NotUnderstoodError("a result that lies in another way")
        if piece.is_placed and any(at.meta["val"].storage_offset() for at in run.operands):
            raise NotUnderstoodError("a tensor that begins elsewhere")
        operands = [self._new_graph_node(at) for at in run.operands]
        made_of = zip(piece.results, values, strict=True)
        own = {at.step: value for at, value in made_of if isinstance(at, PieceResult)}
        metas = [_copy_node_metadata(node) for node in run.nodes]
        made: list[fx.Node] = []

        def new_graph_node_of_reference(argument: Any) -> Any:
            """Return the node of the new graph that a reference to an operand or a step means;
            another argument as it is.
            """
            if isinstance(argument, PieceOperand):
                return operands[argument.place]
            return made[argument.step] if isinstance(argument, PieceResult) else argument

        for number, step in enumerate(piece.steps):
            args, kwargs = (
                map_leaves(step.args, new_graph_node_of_reference),
                map_leaves(step.kwargs, new_graph_node_of_reference),
            )
            value = own[number] if number in own else self._fakes.tensor_with_layout(step.layout)
            made.append(self._append_call(step.target, args, kwargs, metas[step.origin], value))
        results = list(map(new_graph_node_of_reference, piece.results))
        if len(run.nodes) > 1:
            outlets = zip(run.outlets, results, strict=True)
            self._cells.update((at, [result]) for at, result in outlets)
            return
        several = isinstance(run.nodes[0].meta.get("val"), list | tuple)
        (first, *others) = piece.results or (None,)
        if isinstance(first, PieceOperand) and not others and run.written is None and not several:
            self._cells[run.nodes[0]] = self._cells[run.operands[first.place]]  # it is the same
            return
        self._set_call_value(run, tuple(results) if several else results[0] if results else None)

    def add_output(self, node: "fx.Node") -> None:
        """Add a copy of the program's output node to the new graph."""
        own = self._graph.output(self._with_new_graph_nodes(node.args[0]))
        own.meta = dict(node.meta)

    def to_exported_program(self) -> "ExportedProgram":
        """Return the exported program with the new graph, its dead nodes removed. Raises
        NotUnderstoodError if an output is of an unknown kind.
        """
        from torch.export.graph_signature import ConstantArgument, TensorArgument
        from torch.fx._lazy_graph_module import _make_graph_module, _use_lazy_graph_module
        from torch.utils._pytree import tree_leaves

        graph = self._graph
        graph.eliminate_dead_code()
        self._restore_input_names()
        program = copy.copy(self._program)
        with _use_lazy_graph_module(True):
            program._graph_module = _make_graph_module({}, graph)
        program._graph_module.meta.update({**self._program.graph_module.meta, _STAMPED: True})
        outputs = tree_leaves(graph.output_node().args[0], is_leaf=lambda item: item is None)
        specs = []
        for spec, output in zip(program.graph_signature.output_specs, outputs, strict=True):
            spec = copy.copy(spec)
            if isinstance(spec.arg, TensorArgument):
                spec.arg = TensorArgument(name=output.name)
            elif not isinstance(spec.arg, ConstantArgument):
                raise NotUnderstoodError(type(spec.arg))
            specs.append(spec)
        signature = copy.copy(program.graph_signature)
        signature.output_specs = specs
        program._graph_signature = signature
        return program

    def _restore_input_names(self) -> None:
        """Give the inputs of the new graph their names in the program, and rename other nodes that
        have such names.

        Source: torch/_export/utils.py, placeholder_naming_pass.
        """
        from torch._export.utils import _rename_without_collisions

        provided = set(self._program.graph_signature.user_inputs)
        names = sorted(self._inputs.values(), key=lambda name: name not in provided)
        others = [node for node in self._graph.nodes if node not in self._inputs]
        if not {node.name for node in others}.isdisjoint(names):
            renamed: dict[str, str] = {}
            used: tuple[Any, Any, Any] = renamed, defaultdict(int), set()
            for name in names:
                _rename_without_collisions(*used, f"input {name}", name, is_placeholder=True)
            for node in others:
                node.name = _rename_without_collisions(*used, node.name, node.name)
        for node, name in self._inputs.items():
            node.name = node.target = name

    def _append_call(
        self, target: Any, args: Any, kwargs: Any, meta: Any, value: Any
    ) -> "fx.Node":
        """Append the call of an operator to the new graph, with this metadata and fake tensor;
        return its node.
        """
        named = getattr(target, "overloadpacket", target).__name__
        name = self._graph._target_to_str(named)
        node = self._graph.create_node("call_function", target, args, kwargs, name)
        node.meta = {**meta, "val": value}
        return node

    def _set_call_value(self, run: CallSequence, value: Any) -> None:
        """Set the value of a run's call in the new graph, also for the tensor that it wrote in
        place.
        """
        if run.written is None:
            self._cells[run.nodes[0]] = [value]
        else:
            cell = self._cells[run.nodes[0]] = self._cells[run.written]
            cell[0] = value

    def _new_graph_node(self, node: Any) -> Any:
        """Return the node of the new graph, or a tuple of nodes, that has the current value of a
        node of the old graph.
        """
        return self._cells[node][0]

    def _with_new_graph_nodes(self, arguments: Any) -> Any:
        """Return arguments in which each node of the old graph is replaced by its node in the new
        one.
        """
        from torch.fx.node import map_arg

        return map_arg(arguments, self._new_graph_node)


def _copy_node_metadata(node: "fx.Node") -> dict[str, Any]:
    """Return a copy of a node's metadata for a node that its decomposition makes."""
    from torch.fx.traceback import NodeSource

    return {**node.meta, "from_node": [NodeSource(node, "decomposition")]}


def _program_fake_mode(program: "ExportedProgram") -> Any:
    """Return the fake tensor mode of a program's tensors. Raises NotUnderstoodError without
    one.
    """
    from torch._guards import detect_fake_mode

    values = [node.meta.get("val") for node in program.graph.nodes]
    mode = detect_fake_mode(values)
    if mode is None:
        raise NotUnderstoodError("a program without tensors")
    return mode


# In the place of PyTorch's own.

_KEPT_TABLES = 8
_DECOMPOSERS: OrderedDict[Any, Decomposer] = OrderedDict()


@contextmanager
def decomposing_by_signature(
    dropped: DroppedOperators, surrounding: Callable[[], AbstractContextManager[object]]
) -> Iterator[None]:
    """Make PyTorch's exporter use cached decompositions inside the block, for programs where that
    is possible.

    Nodes dropped from the calls that are traced separately are not noted. If PyTorch decomposes
    the program as a whole, it does so and goes on inside the context that `surrounding` returns:
    it traces the program again, and sizes may depend on values.
    """
    if is_reference_export():
        with surrounding():
            yield
        return
    passes = patch_owner(inventory.EXPORT_DECOMPOSITION)
    decompose = original_attribute(
        passes, "decompose_with_registry", inventory.EXPORT_DECOMPOSITION
    )

    def decompose_from_cache_or_by_pytorch(program: Any, registry: Any) -> Any:
        """Return the program decomposed by cached decompositions, or by PyTorch's own pass if that
        is not possible.
        """
        try:
            return _decomposer_for_registry(registry).decompose(program, dropped.pausing_notes)
        except NotUnderstoodError as error:
            _LOG.debug("PyTorch decomposes the program as a whole: %s", error)
        except Exception:  # of PyTorch, about a module that it was not asked for
            _LOG.debug("PyTorch decomposes the program as a whole", exc_info=True)
        contexts.enter_context(surrounding())
        return decompose(program, registry)

    interpreter = patch_owner(inventory.EXPORT_PROMOTION)
    run_node = original_attribute(interpreter, "run_node", inventory.EXPORT_PROMOTION)
    with (
        ExitStack() as contexts,
        patching_attribute(
            passes,
            "decompose_with_registry",
            decompose_from_cache_or_by_pytorch,
            inventory.EXPORT_DECOMPOSITION,
        ),
        patching_attribute(
            interpreter,
            "run_node",
            _run_node_with_cached_promotion(run_node),
            inventory.EXPORT_PROMOTION,
        ),
    ):
        yield


def _run_node_with_cached_promotion(run_node: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of PyTorch's `run_node`: for a program made of cached decompositions it
    only promotes dtypes.

    PyTorch runs every operator without values once more to get the types of all results, which the
    nodes already have.
    """
    from torch.onnx._internal.fx.passes.type_promotion import get_type_promotion_rule

    def promote_node_types(self: Any, node: Any) -> Any:
        """Insert the casts that promote the operand dtypes of a node; return the fake tensor of
        its result.
        """
        if _STAMPED not in self.module.meta or node.op != "call_function":
            return run_node(self, node)
        rule = get_type_promotion_rule(node, self.type_promotion_table)
        if rule is not None:
            with self._set_current_node(node):
                self._maybe_promote_node(node, rule)
        return node.meta["val"]

    return promote_node_types


def _decomposer_for_registry(registry: Any) -> Decomposer:
    """Return the decomposer for a registry of ONNX translations, cached by its operators and by
    torch settings.
    """
    import torch
    from torch._decomp import decomposition_table
    from torch.onnx._internal.exporter._decomp import get_onnx_implemented_overloads

    registered = frozenset(get_onnx_implemented_overloads(registry))
    exact = torch.are_deterministic_algorithms_enabled()
    key = registered, len(decomposition_table), torch.get_default_dtype(), exact
    if key not in _DECOMPOSERS:
        _DECOMPOSERS[key] = Decomposer(registered)
    _DECOMPOSERS.move_to_end(key)
    while len(_DECOMPOSERS) > _KEPT_TABLES:
        _DECOMPOSERS.popitem(last=False)
    return _DECOMPOSERS[key]
