"""An export with real values: what depends on values is decided by the given inputs.

torch.export works with fake tensors, which have shapes and no values: where a size or a path of
the model is a value of a tensor, it has an unknown size or gives up. PyTorch can carry a real
tensor beside each fake one (`fake_tensor_propagate_real_tensors`, what draft_export does). An
operator whose result is a Python number, or has a size that depends on values, is answered here
from the real tensors: with the number itself, and with a fake tensor of the real shape. So is one
whose fake kernel refuses what the real one takes (`aten._grouped_mm` of float32). So no
size is left open, the model takes the path that a run on these inputs takes, and modules, entry
points and nodes are those of every other export.
Source: torch/_subclasses/fake_tensor.py (FakeTensorMode._dispatch_impl), torch/_C Tag.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np

from crossflops.frontends.pytorch.load.tensors import torch_tensor_spec, torch_tensor_specs
from crossflops.frontends.pytorch.record.box_suppression import suppress_boxes
from crossflops.frontends.pytorch.record.dropped_operators import origin_operator_names
from crossflops.frontends.pytorch.record.operators import generator_state_of_node
from crossflops.frontends.pytorch.record.python_steps import (
    READ,
    running_numpy_and_while_loops_on_real_values,
)
from crossflops.frontends.seeds import (
    RandomDraws,
    seeding_random_generators,
    setting_torch_random_state,
)
from crossflops.ir.trace import Call
from crossflops.patches import inventory
from crossflops.patches.patching import original_attribute, patching_attribute

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch import fx
    from torch.export import ExportedProgram
    from torch.onnx import ONNXProgram


def has_values(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return True if no tensor of a model and its inputs is on the meta device, so that the model
    can run.
    """
    import torch
    from torch.utils._pytree import tree_leaves

    stored = [*model.parameters(), *model.buffers(), *tree_leaves((args, dict(kwargs)))]
    return not any(isinstance(value, torch.Tensor) and value.is_meta for value in stored)


@contextmanager
def exporting_with_real_tensors() -> Iterator[RandomDraws]:
    """Make torch.export compute real tensors next to the fake ones, inside the block; yield an
    object that says if random numbers were drawn.

    Random numbers begin at seed 0: the same ones when a program is traced again. Whether any were
    drawn is known after the context.
    """
    import torch._functorch.config as config
    from torch._subclasses import meta_utils
    from torch._subclasses.fake_tensor import FakeTensorMode

    usual = original_attribute(FakeTensorMode, "_dispatch_impl", inventory.FAKE_DISPATCH)
    check = "_maybe_infer_fake_kernel_from_pytree_out"

    def dispatch_with_real_tensors(
        mode: Any, func: Any, types: Any, args: Any, kwargs: Any
    ) -> Any:
        """Run an operator on fake tensors and return the result; on the real ones where it depends
        on values.
        """
        if not mode.propagate_real_tensors:
            return usual(mode, func, types, args, kwargs)
        if needs_tensor_values(func):
            answer = _real_operator_result(mode, func, args, kwargs)
            if answer is not _UNKNOWN:
                return answer
        try:
            with _applying_side_effects_once(func, args, kwargs):
                return _run_with_real_sizes(mode, lambda: usual(mode, func, types, args, kwargs))
        except Exception:
            answer = (
                _UNKNOWN
                if _is_mutating_operator(func)
                else _real_operator_result(mode, func, args, kwargs)
            )
            if answer is _UNKNOWN:
                raise
            return answer

    def fake_result_without_check(
        mode: Any, func: Any, fake: Any, real: Any, out: Any, real_out: Any
    ) -> Any:
        """Return the fake result unchanged, without a check against the real one."""
        return out  # fake and real kernels may differ in what is a view, which is no work

    with (
        patching_attribute(
            FakeTensorMode, "_dispatch_impl", dispatch_with_real_tensors, inventory.FAKE_DISPATCH
        ),
        patching_attribute(
            FakeTensorMode, check, fake_result_without_check, inventory.FAKE_DISPATCH
        ),
        patching_attribute(
            meta_utils, "_safe_copy", _copy_values_of_tensor_or_parameter, inventory.FAKE_COPIES
        ),
        seeding_random_generators() as drawn,
        config.patch(fake_tensor_propagate_real_tensors=True),
        running_numpy_and_while_loops_on_real_values() as arrays,
    ):
        yield drawn
        drawn.left = arrays.taken


def _copy_values_of_tensor_or_parameter(copy: Any, source: Any) -> None:
    """Copy the values of a real tensor or parameter to `copy`; PyTorch leaves out parameters."""
    import torch

    if type(source) in (torch.Tensor, torch.nn.Parameter):
        copy.copy_(source)


_UNKNOWN = object()


def needs_tensor_values(func: Any) -> bool:
    """Return True if an operator's result, or the shape of it, depends on values of tensors."""
    import torch

    asking = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    return isinstance(func, torch._ops.OpOverload) and not asking.isdisjoint(func.tags)


# Composites of such operators, which PyTorch does not tag.
_OPEN_COMPOSITES = frozenset({
    "aten.where.default", "aten.nonzero_numpy.default", "aten.repeat_interleave.self_Tensor",
    "aten.tensor_split.tensor_indices_or_sections",
})  # fmt: skip


def _is_mutating_operator(func: Any) -> bool:
    """Return True if an operator writes in place, or has no schema that says so."""
    return getattr(getattr(func, "_schema", None), "is_mutable", True)


def _real_operator_result(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """Return an operator's result, computed on the real tensors, as fake tensors with real ones;
    _UNKNOWN if a real one is missing.
    """
    import torch
    from torch.utils._pytree import tree_map_only

    provided = _real_arguments(args, kwargs)
    if provided is None:
        return _UNKNOWN
    own, named = provided
    return tree_map_only(
        torch.Tensor, lambda value: _fake_with_real_tensor(mode, value), func(*own, **named)
    )


def _real_arguments(args: Any, kwargs: Any) -> Any:
    """Return (positional, keyword arguments) in which real tensors replace fake ones; None if one
    has no real tensor.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils import _pytree

    flat, form = _pytree.tree_flatten((args, kwargs or {}))
    fakes = [value for value in flat if isinstance(value, FakeTensor)]
    plain = [value for value in flat if isinstance(value, torch.Tensor)]
    if len(fakes) < len(plain) or any(fake.real_tensor is None for fake in fakes):
        return None
    values = [leaf.real_tensor if isinstance(leaf, FakeTensor) else leaf for leaf in flat]
    return _pytree.tree_unflatten(values, form)


@contextmanager
def _applying_side_effects_once(func: Any, args: Any, kwargs: Any) -> Iterator[None]:
    """Make the random draws and in-place writes of an operator happen once, although the block may
    run it several times.

    The operator is computed for the real tensors, and possibly again in the decomposition of the
    fake ones: `index_add_` would add twice.
    """
    import torch
    from torch.utils._pytree import tree_map_only

    writes = hasattr(func, "_schema") and func._schema.is_mutable
    provided = _real_arguments(args, kwargs) if writes or may_draw_random_numbers(func) else None
    if provided is None:
        yield
        return
    before = torch.get_rng_state()
    own, named = tree_map_only(torch.Tensor, torch.ops.aten.clone.default, provided)
    func(*own, **named)
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    try:
        yield
    except BaseException:
        torch.set_rng_state(before)  # it did not run: what runs in its place draws in its place
        raise
    torch.set_rng_state(after)
    written = zip(
        _operator_write_targets(func, own, named),
        _operator_write_targets(func, *provided),
        strict=True,
    )
    for value, stored in written:
        torch.ops.aten.copy_.default(stored, value)


def _operator_write_targets(func: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    """Yield the tensors among the arguments that an operator writes in place."""
    import torch
    from torch.utils._pytree import tree_leaves

    for index, argument in enumerate(func._schema.arguments):
        value = args[index] if index < len(args) else kwargs.get(argument.name)
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield from (x for x in tree_leaves(value) if isinstance(x, torch.Tensor))


def may_draw_random_numbers(func: Any) -> bool:
    """Return True if an operator may draw random numbers."""
    import torch

    return torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())


@contextmanager
def replaying_random_values(values_by_node: Mapping[str, Any]) -> Iterator[None]:
    """Make nodes of a traced program give the random values in `values_by_node`, by node name,
    and results that no node reads be freed, inside the block.

    An exporter traces more than once, and with operators that draw other numbers (a `bernoulli`
    becomes a comparison with `rand`). Its interpreter frees a result after its last reader; one
    without a reader (that of `copy_`) would keep all values of its storage to the end.
    """
    from torch.fx import Interpreter
    from torch.fx.experimental.symbolic_shapes import PropagateUnbackedSymInts

    usual = original_attribute(Interpreter, "run_node", inventory.RUN_NODE)

    def run_node(self: Any, n: Any) -> Any:
        """Run an FX node and return its result, with the values of the first run if it drew
        them.
        """
        result = usual(self, n)
        if n.name in values_by_node:
            _overwrite_real_tensors(result, values_by_node[n.name])
        # other interpreters store the result in the node
        is_traced = type(self) is PropagateUnbackedSymInts
        return None if is_traced and _is_unread_tensor(n, result) else result

    with patching_attribute(Interpreter, "run_node", run_node, inventory.RUN_NODE):
        yield


def _is_unread_tensor(node: "fx.Node", result: Any) -> bool:
    """Return True if the result of a node that calls an operator is one tensor without open sizes,
    and no node reads it.
    """
    import torch

    return (
        node.op == "call_function"
        and not node.users
        and isinstance(result, torch.Tensor)
        and not node.meta.get("unbacked_bindings")
    )


def _overwrite_real_tensors(result: Any, value: Any) -> None:
    """Copy values into the real tensors of a result, where the shapes are equal."""
    import torch
    from torch._functorch._aot_autograd.functional_utils import from_fun
    from torch.utils._python_dispatch import _disable_current_modes
    from torch.utils._pytree import tree_leaves

    for fake, real in zip(tree_leaves(result), tree_leaves(value), strict=False):
        stored = getattr(from_fun(fake), "real_tensor", None)
        if stored is not None and isinstance(real, torch.Tensor) and stored.shape == real.shape:
            with _disable_current_modes():
                torch.ops.aten.copy_.default(stored, real)


def _run_with_real_sizes(mode: Any, run: Callable[[], Any]) -> Any:
    """Run an operator by `run`; return its result with fake tensors of the real sizes where these
    are symbolic.

    A custom operator invents open sizes (torchvision's nms) without announcing them, and a fake
    kernel may be wrong (that of _pack_padded_sequence knows no lengths).
    """
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._pytree import tree_map_only

    shapes = mode.shape_env
    pending = list(shapes.pending_fresh_unbacked_symbols) if shapes is not None else []
    result = run()
    if shapes is not None and len(shapes.pending_fresh_unbacked_symbols) > len(pending):
        # else the exporter asks where in the result the new symbols are
        shapes.pending_fresh_unbacked_symbols[:] = pending

    def with_real_size(value: Any) -> Any:
        """Return a fake tensor with the size of its real tensor if its own is symbolic, else the
        same.
        """
        real = value.real_tensor
        if real is None or torch_tensor_spec("", value).shape == tuple(real.shape):
            return value
        return _fake_with_real_tensor(mode, real)

    return tree_map_only(FakeTensor, with_real_size, result)


def _fake_with_real_tensor(mode: Any, real: Any) -> Any:
    """Return a fake tensor with this real tensor in it."""
    import torch

    if str(real.layout).startswith("torch.sparse"):
        return mode.from_tensor(real)  # it has no strides
    with mode:
        like = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device=real.device)
    like.real_tensor = real
    return like


# Which operators of an exported program would be others, or of other sizes, for other values.

# Of every operator that gives tensors, in order: its name, and whether a size of it is open.
OperatorSizeFlags: TypeAlias = list[tuple[str, bool]]


def has_while_loop(program: "ExportedProgram") -> bool:
    """Return True if a program has a `while_loop`, whose number of iterations depends on
    values.
    """
    return any(
        getattr(node.target, "__name__", "") == "while_loop" for node in program.graph.nodes
    )


def tensor_operators_with_size_flags(program: "ExportedProgram") -> OperatorSizeFlags:
    """Return (operator, True if it or an operand has an unknown size) for each operator of a
    program that returns tensors.
    """
    is_open = functools.cache(_has_unknown_size)  # each is asked for again by those that read it
    return [
        (str(node.target), _is_true_for_node_or_operands(node, is_open))
        for node in _tensor_operator_nodes(program)
    ]


def with_dependence_marks(
    program: "ExportedProgram", calls: dict[str, Call], size_flags: OperatorSizeFlags | None
) -> dict[str, Call]:
    """Return the calls by node name, with `depends_on_inputs` set where work or size depends on
    values of tensors.

    `size_flags` are the open sizes of the same program, exported without values: then only sizes
    depend on values. Without it a path was chosen by a value that was read, and everything after
    this point depends on it.
    """
    operators = list(_tensor_operator_nodes(program))
    same = size_flags is not None and [name for name, _ in size_flags] == [
        str(o.target) for o in operators
    ]
    if size_flags is not None and same:
        pairs = zip(operators, size_flags, strict=True)
        depending = {node.name for node, (_, is_open) in pairs if is_open}
    else:
        depending = _value_dependent_nodes(program)
    return {
        name: msgspec.structs.replace(call, depends_on_inputs=True) if name in depending else call
        for name, call in calls.items()
    }


def _tensor_operator_nodes(program: "ExportedProgram") -> Iterator["fx.Node"]:
    """Yield the nodes of a program whose operators return tensors."""
    for node in program.graph.nodes:
        if node.op == "call_function" and any(torch_tensor_specs((node.meta.get("val"),))):
            yield node


def _has_unknown_size(node: "fx.Node") -> bool:
    """Return True if a node's result has a size that is not known."""
    return any(tensor.shape is None for tensor in torch_tensor_specs((node.meta.get("val"),)))


def _is_true_for_node_or_operands(node: "fx.Node", test: Callable[["fx.Node"], bool]) -> bool:
    """Return True if `test` is true of a node or of one of its operands."""
    return test(node) or any(map(test, node.all_input_nodes))


def _value_dependent_nodes(program: "ExportedProgram") -> set[str]:
    """Return the names of the nodes whose size depends on values of tensors, or that run only for
    some values.
    """
    sized: set[fx.Node] = set()
    by_order: set[str] = set()
    read = False
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        if _may_have_value_dependent_size(node, sized):
            sized.add(node)
        read = read or READ in (node.meta.get("custom") or {})
        if read or _is_true_for_node_or_operands(node, sized.__contains__):
            by_order.add(node.name)
        read = read or _passes_value_to_python(node.target) or _calls_item(node)
    return by_order


def reads_values_in_python(program: "ExportedProgram") -> bool:
    """Return True if the program reads values of tensors for Python code."""
    return any(
        _passes_value_to_python(node.target) or _calls_item(node)
        for node in program.graph.nodes
        if node.op == "call_function"
    )


def _passes_value_to_python(operator: Any) -> bool:
    """Return True if an operator gives a tensor's value to Python."""
    import torch

    return torch.Tag.data_dependent_output in getattr(operator, "tags", ())


def _calls_item(node: "fx.Node") -> bool:
    """Return True if a node calls `aten.item`, which reads a tensor's number."""
    return str(node.target).startswith("aten.item.")


def _may_have_value_dependent_size(node: "fx.Node", earlier_nodes: set["fx.Node"]) -> bool:
    """Return True if the output size of a node may depend on values; `earlier_nodes` are the nodes
    before it for which this is so.

    An operator with an in-place variant keeps the fixed size of its operand.
    """
    if str(node.target) in _OPEN_COMPOSITES:
        return True
    if needs_tensor_values(node.target) and not _is_integer_indexing(node):
        return not _passes_value_to_python(node.target)
    if not any(source in earlier_nodes for source in node.all_input_nodes):
        return False
    shape = getattr(node.meta.get("val"), "shape", None)
    if shape is not None and not len(shape):
        return False
    first = node.args[0] if node.args else None
    if first is None or not _can_work_in_place(node.target) or not hasattr(first, "meta"):
        return True
    return first in earlier_nodes or shape != getattr(first.meta["val"], "shape", ())


def _is_integer_indexing(node: "fx.Node") -> bool:
    """Return True if a node indexes a tensor by integers alone, not by a boolean mask."""
    import torch

    if node.target is not torch.ops.aten.index.Tensor:
        return False
    provided: Any = node.args[1]
    indices = [index for index in provided if hasattr(index, "meta")]
    return all(index.meta["val"].dtype not in {torch.bool, torch.uint8} for index in indices)


def _can_work_in_place(operator: Any) -> bool:
    """Return True if an operator writes in place, or has a variant that does."""
    import torch

    schema = getattr(operator, "_schema", None)
    if schema is None:
        return False
    namespace, _, name = schema.name.partition("::")
    return bool(schema.is_mutable) or hasattr(getattr(torch.ops, namespace), f"{name}_")


# Sizes within the form that an exporter gives an operator, where they depend on values.
#
# The result of such an operator has a known shape by then; of the nodes that compute it (NonZero,
# Compress, GatherND ...) none has. The exported program is run once for what these take, and they
# are evaluated one by one by ONNX's reference, for the shapes of their results.

_RANDOM = ("Bernoulli", "Multinomial", "RandomNormalLike", "RandomUniformLike")
_LARGEST = 1 << 24  # elements of a tensor that is still computed for its shape


def set_unknown_onnx_shapes(program: "ONNXProgram", known: Mapping[str, Any]) -> None:
    """Set the unknown shapes in an ONNX program to those that a run on its inputs gives.

    `known` are random numbers, by the operator that drew them. A value stays unknown where the
    program cannot be run, or ONNX's reference cannot evaluate a node.
    """
    unknown = [
        node
        for node in program.model.graph
        if any(value.name and not _has_known_shape(value) for value in node.outputs)
    ]
    if not unknown:
        return
    names = {node.name for node in program.exported_program.graph.nodes}
    requested = {name for node in unknown for name in _source_value_names(node, names)}
    real = _run_program_nodes(
        program.exported_program, lambda name, _: name in requested, known=known
    )
    values = _OnnxValueArrays(real)
    for node in unknown:
        for value in node.outputs:
            _fill_value_shape(value, values)


def _source_value_names(node: "ir.Node", names: set[str]) -> Iterator[str]:
    """Yield the names of the values of the exported program from which an ONNX node is computed;
    `names` are all names in it.
    """
    seen, todo = set(), [value for value in node.inputs if value is not None]
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        producer = value.producer()
        if value.name in names:
            yield value.name
        elif producer is not None:
            todo.extend(source for source in producer.inputs if source is not None)


def random_node_values(exported: Any, states: Sequence[Any]) -> dict[str, Any]:
    """Return the values of the nodes that draw random numbers, by node name, from one run of the
    program.

    `states` are those of generators other than PyTorch's.
    """
    return _run_program_nodes(exported, lambda _, has_drawn: has_drawn, states)


def _run_program_nodes(
    exported: Any,
    is_requested: Callable[[str, bool], bool],
    states: Sequence[Any] = (),
    known: Mapping[str, Any] = {},
) -> dict[str, Any]:
    """Run an exported program on its own inputs; return the values of the nodes for which
    `is_requested` is true, by node name.

    `is_requested` selects nodes by their name, and by whether they drew random numbers. A value in
    `known`, by the name of the operator that a node came from, is not drawn again.
    """
    import torch
    from torch.utils._pytree import tree_map_only

    state: dict[str, Any] = {}
    origins = origin_operator_names(exported) if known else {}

    class Keeping(torch.fx.Interpreter):
        """An interpreter that keeps requested values before another node changes them in place."""

        def run_node(self, n: Any) -> Any:
            """Run an FX node with its random state and return its result; store it if
            requested.
            """
            with setting_torch_random_state(None if known else generator_state_of_node(n, states)):
                before = torch.get_rng_state()
                result = super().run_node(n)
                has_drawn = not torch.equal(before, torch.get_rng_state())
            provided = known.get(origins.get(n.name, ""))
            result = provided if _has_same_shape_and_dtype(result, provided) else result
            if is_requested(n.name, has_drawn):
                state[n.name] = tree_map_only(torch.Tensor, torch.clone, result)
            return result

    try:
        with torch.no_grad():
            Keeping(exported.graph_module).run(*program_arguments(exported))
    except Exception:  # what is not found stays unknown, and is named
        pass
    return state


def _has_same_shape_and_dtype(result: Any, other: Any) -> bool:
    """Return True if both values are tensors of the same shape and dtype."""
    import torch

    if not isinstance(result, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    return bool(result.shape == other.shape and result.dtype == other.dtype)


def program_arguments(exported: Any) -> Iterator[Any]:
    """Yield the arguments of a program's graph in order: its weights, and its example inputs,
    tensors as copies.
    """
    import torch
    from torch.utils._pytree import tree_leaves

    provided = iter(tree_leaves(exported.example_inputs))
    for entry in exported.graph_signature.input_specs:
        if entry.kind.name == "USER_INPUT":
            value = next(provided)
        else:
            stored = exported.state_dict.get(entry.target)
            value = exported.constants.get(entry.target) if stored is None else stored
        yield value.clone() if isinstance(value, torch.Tensor) else value


def _has_known_shape(value: "ir.Value") -> bool:
    """Return True if all sizes of an ONNX value are known integers."""
    return value.shape is not None and all(isinstance(extent, int) for extent in value.shape)


def _fill_value_shape(value: "ir.Value", values: "_OnnxValueArrays") -> None:
    """Set the shape of an ONNX value to that of its computed array, if it is not known."""
    import onnx_ir as ir

    array = values.value_array(value)
    if array is not None and not _has_known_shape(value):
        value.shape = ir.Shape(array.shape)


class _OnnxValueArrays:
    """The values of an ONNX graph, computed on request."""

    def __init__(self, real: dict[str, Any]) -> None:
        """Start with the arrays of these values by name, and an empty cache."""
        self._real = real
        self._known: dict[int, Any] = {}

    def value_array(self, value: "ir.Value | None") -> Any:
        """Return the array of an ONNX value, computed if needed; None if that is not possible."""
        if value is None:
            return None
        if id(value) not in self._known:
            self._known[id(value)] = self._constant_or_recorded_array(value)
            node = value.producer()
            if self._known[id(value)] is None and node is not None:
                self._compute_node_outputs(node)
        return self._known[id(value)]

    def _constant_or_recorded_array(self, value: "ir.Value") -> Any:
        """Return the array of an ONNX value that is a constant or was recorded in the run, else
        None.
        """
        import torch

        if value.const_value is not None:
            return value.const_value.numpy()
        tensor = self._real.get(value.name or "")
        if not isinstance(tensor, torch.Tensor) or tensor.numel() > _LARGEST:
            return None
        plain = tensor.detach().resolve_conj().resolve_neg()
        return (plain.float() if plain.is_floating_point() else plain).cpu().numpy()

    def _compute_node_outputs(self, node: "ir.Node") -> None:
        """Compute and store the outputs of an ONNX node by ONNX's reference, if its inputs are
        known.
        """
        inputs = [self.value_array(value) for value in node.inputs]
        missing = (
            array is None and value is not None
            for array, value in zip(inputs, node.inputs, strict=True)
        )
        if any(missing) or node.op_type in _RANDOM:
            return
        try:
            results = _reference_node_results(node, inputs)
        except Exception:  # the reference lacks the operator, or its form for these types
            return
        for value, result in zip(node.outputs, results, strict=False):
            if self._known.get(id(value)) is None and result is not None:
                self._known[id(value)] = result


def _reshape_inputs_for_reference(kind: str, inputs: list[Any]) -> list[Any]:
    """Return the inputs of an ONNX operator `kind` in the shapes that ONNX's reference accepts."""
    if kind == "CumSum":  # an axis without one
        return [inputs[0], np.reshape(inputs[1], ())]
    return inputs


def _reference_node_results(node: "ir.Node", inputs: list[Any]) -> list[Any]:
    """Return the outputs of one ONNX node for these inputs, by ONNX's reference; None for an
    output that is left out.
    """
    import onnx_ir as ir
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    if node.op_type == "NonMaxSuppression":
        center = node.attributes.get_int("center_point_box", 0)
        return [suppress_boxes(*inputs, center_point_box=center)]
    proto = ir.to_proto(node)
    names = [f"input{index}" for index, array in enumerate(inputs)]
    inputs = _reshape_inputs_for_reference(node.op_type, inputs)
    provided = {
        name: array for name, array in zip(names, inputs, strict=True) if array is not None
    }
    del proto.input[:]
    proto.input.extend(name if name in provided else "" for name in names)
    requested = [name for name in proto.output if name]
    graph = helper.make_graph(
        [proto],
        "node",
        [helper.make_tensor_value_info(name, 0, None) for name in provided],
        [helper.make_tensor_value_info(name, 0, None) for name in requested],
    )
    opsets = [helper.make_opsetid(node.domain, node.version or 23)]
    results = ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets)).run(
        None, provided
    )
    placed = dict(zip(requested, results, strict=True))
    return [placed.get(name) for name in proto.output]
