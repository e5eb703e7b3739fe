"""Sizes within the form that an exporter gives an operator, where they depend on values.

The result of such an operator has a known shape by then; of the nodes that compute it (NonZero,
Compress, GatherND ...) none has. The exported program is run once for what these take, and they
are evaluated one by one by ONNX's reference, for the shapes of their results.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from crossflops.normalize.pytorch.graph import undecomposed
from crossflops.normalize.pytorch.operators import generator_of
from crossflops.normalize.pytorch.untouched import standing_in

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.onnx import ONNXProgram

_RANDOM = ("Bernoulli", "Multinomial", "RandomNormalLike", "RandomUniformLike")
_LARGEST = 1 << 24  # elements of a tensor that is still computed for its shape


def fill_shapes(program: "ONNXProgram", known: Mapping[str, Any]) -> None:
    """Give every value of an unknown shape that of its real value. The program is changed.

    `known` are numbers that were drawn, by the operator that drew them. A value stays unknown
    where the program cannot be run, or ONNX's reference cannot evaluate a node.
    """
    unknown = [
        node
        for node in program.model.graph
        if any(value.name and not _is_known(value) for value in node.outputs)
    ]
    if not unknown:
        return
    names = {node.name for node in program.exported_program.graph.nodes}
    wanted = {name for node in unknown for name in _sources(node, names)}
    real = _run(program.exported_program, lambda name, _: name in wanted, known=known)
    values = _Values(real)
    for node in unknown:
        for value in node.outputs:
            _fill(value, values)


def _sources(node: "ir.Node", names: set[str]) -> Iterator[str]:
    """The values of the exported program that a node is computed from."""
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


def drawn(exported: Any, states: Sequence[Any]) -> dict[str, Any]:
    """What the nodes of a program that draw random numbers give in a run of it, by name.

    `states` are those of generators other than PyTorch's.
    """
    return _run(exported, lambda _, has_drawn: has_drawn, states)


def _run(
    exported: Any,
    wanted: Callable[[str, bool], bool],
    states: Sequence[Any] = (),
    known: Mapping[str, Any] = {},
) -> dict[str, Any]:
    """The real values of nodes of a program, run on the inputs that it was exported with.

    Which are wanted is asked by their name, and whether they drew random numbers. What is `known`
    of the operator that a node came from, by its name, is not drawn again.
    """
    import torch
    from torch.utils._pytree import tree_map_only

    found: dict[str, Any] = {}
    origins = undecomposed(exported) if known else {}

    class Keeping(torch.fx.Interpreter):
        """Keeps what is wanted, as it is before another node works on it in place."""

        def run_node(self, n: Any) -> Any:
            with standing_in(None if known else generator_of(n, states)):
                before = torch.get_rng_state()
                result = super().run_node(n)
                has_drawn = not torch.equal(before, torch.get_rng_state())
            given = known.get(origins.get(n.name, ""))
            result = given if _is_like(result, given) else result
            if wanted(n.name, has_drawn):
                found[n.name] = tree_map_only(torch.Tensor, torch.clone, result)
            return result

    try:
        with torch.no_grad():
            Keeping(exported.graph_module).run(*_arguments(exported))
    except Exception:  # what is not found stays unknown, and is named
        pass
    return found


def _is_like(result: Any, given: Any) -> bool:
    """Whether both are tensors of one shape and type."""
    import torch

    if not isinstance(result, torch.Tensor) or not isinstance(given, torch.Tensor):
        return False
    return bool(result.shape == given.shape and result.dtype == given.dtype)


def _arguments(exported: Any) -> Iterator[Any]:
    """What the graph of a program is called with: its weights, and copies of its inputs."""
    import torch
    from torch.utils._pytree import tree_leaves

    given = iter(tree_leaves(exported.example_inputs))
    for one in exported.graph_signature.input_specs:
        if one.kind.name == "USER_INPUT":
            value = next(given)
        else:
            held = exported.state_dict.get(one.target)
            value = exported.constants.get(one.target) if held is None else held
        yield value.clone() if isinstance(value, torch.Tensor) else value


def _is_known(value: "ir.Value") -> bool:
    return value.shape is not None and all(isinstance(extent, int) for extent in value.shape)


def _fill(value: "ir.Value", values: "_Values") -> None:
    import onnx_ir as ir

    array = values.of(value)
    if array is not None and not _is_known(value):
        value.shape = ir.Shape(array.shape)


class _Values:
    """The values of an ONNX graph, computed when they are asked for."""

    def __init__(self, real: dict[str, Any]) -> None:
        self._real = real
        self._known: dict[int, Any] = {}

    def of(self, value: "ir.Value | None") -> Any:
        """The array; None where it cannot be had."""
        if value is None:
            return None
        if id(value) not in self._known:
            self._known[id(value)] = self._read(value)
            node = value.producer()
            if self._known[id(value)] is None and node is not None:
                self._evaluate(node)
        return self._known[id(value)]

    def _read(self, value: "ir.Value") -> Any:
        """What is known of a value without any computation."""
        import torch

        if value.const_value is not None:
            return value.const_value.numpy()
        tensor = self._real.get(value.name or "")
        if not isinstance(tensor, torch.Tensor) or tensor.numel() > _LARGEST:
            return None
        plain = tensor.detach().resolve_conj().resolve_neg()
        return (plain.float() if plain.is_floating_point() else plain).cpu().numpy()

    def _evaluate(self, node: "ir.Node") -> None:
        inputs = [self.of(value) for value in node.inputs]
        missing = (
            array is None and value is not None
            for array, value in zip(inputs, node.inputs, strict=True)
        )
        if any(missing) or node.op_type in _RANDOM:
            return
        try:
            results = _results(node, inputs)
        except Exception:  # the reference lacks the operator, or its form for these types
            return
        for value, result in zip(node.outputs, results, strict=False):
            if self._known.get(id(value)) is None and result is not None:
                self._known[id(value)] = result


def _results(node: "ir.Node", inputs: list[Any]) -> list[Any]:
    """What ONNX's reference gives for one node."""
    import onnx_ir as ir
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    proto = ir.to_proto(node)
    names = [f"input{place}" for place, array in enumerate(inputs)]
    if node.op_type == "NonMaxSuppression":  # the reference takes limits of one axis alone
        inputs = [array if array is None else np.atleast_1d(array) for array in inputs]
    given = {name: array for name, array in zip(names, inputs, strict=True) if array is not None}
    del proto.input[:]
    proto.input.extend(name if name in given else "" for name in names)
    wanted = [name for name in proto.output if name]
    graph = helper.make_graph(
        [proto],
        "node",
        [helper.make_tensor_value_info(name, 0, None) for name in given],
        [helper.make_tensor_value_info(name, 0, None) for name in wanted],
    )
    opsets = [helper.make_opsetid(node.domain, node.version or 23)]
    results = ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets)).run(None, given)
    placed = dict(zip(wanted, results, strict=True))
    return [placed.get(name) for name in proto.output]
