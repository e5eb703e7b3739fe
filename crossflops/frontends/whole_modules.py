"""Replace each call of a module or function for which the user has a formula by one node.

A formula with `module="package.module:Class"` is about a call of that class. The nodes that its
forward pass became give way to one, which takes what they took and gives what others use of it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from crossflops.frontends.converted import all_nested_nodes
from crossflops.ir.graph import Function, Graph, Node, Op, TensorSpec
from crossflops.ir.trace import Call, Trace
from crossflops.operators.formula import (
    Formula,
    find_loaded_class,
    forward_argument_defaults,
    forward_argument_names,
    module_call_attributes,
    plain_class_name,
)
from crossflops.operators.formula_sources import formulas_in_force


def with_modules_as_formula_nodes(
    program: Any, graph: Graph, trace: Trace
) -> tuple[Any, Graph, Trace]:
    """Return (program, graph, trace) with one node for each call that a user's formula counts."""
    whole_graph = replace_modules_by_formula_nodes(graph, trace)
    if whole_graph is graph:
        return program, graph, trace
    there = {node.key for node in whole_graph.nodes}
    calls = tuple(
        replace(call, nodes=tuple(key for key in call.nodes if key in there))
        if call.nodes
        else call
        for call in trace.calls
    )
    return program, whole_graph, replace(trace, calls=calls)


def replace_modules_by_formula_nodes(graph: Graph, trace: Trace) -> Graph:
    """Return the graph with one node for each call of a class that has a user's formula."""
    formulas = {formula.module: formula for formula in formulas_in_force() if formula.module}
    if not formulas:
        return graph
    for call, formula in _outermost_calls(trace, formulas):
        graph = _replace_call_by_formula_node(graph, trace, call, formula)
    for formula in formulas.values() if graph.functions else ():
        graph = _replace_functions_by_formula_nodes(graph, trace, formula)
    return graph


def _outermost_calls(
    trace: Trace, formulas: Mapping[str, Formula]
) -> Iterator[tuple[Call, Formula]]:
    """Yield calls of modules with a formula, and the formula; none is within another such call."""
    by_class = {name: formula for formula in formulas.values() for name in formula.class_names}
    for call in trace.calls:
        formula = by_class.get(plain_class_name(call.target)) if call.level == "module" else None
        enclosing = trace.ancestors(call) if formula else ()
        if formula and not any(
            plain_class_name(ancestor.target) in by_class for ancestor in enclosing
        ):
            yield call, formula


def _replace_call_by_formula_node(
    graph: Graph, trace: Trace, call: Call, formula: Formula
) -> Graph:
    """Return the graph with one node, counted by the formula, for the nodes of this call."""
    inside = {
        inner.key
        for inner in trace.calls
        if any(parent.key == call.key for parent in trace.ancestors(inner))
    }
    keys = {node.key for node in graph.nodes if node.call in inside}
    if not keys:
        return graph
    module = trace.modules[call.module]
    names = forward_argument_names(formula, skip_count=1)
    operand_specs = [
        (names.get(spec.name, spec.name), replace(spec, name=f"{call.key}:{spec.name}"))
        for spec in call.inputs
    ]
    own = {**_to_attribute_values(module.settings), **_to_attribute_values(call.settings)}
    settings = module_call_attributes(formula, own, _to_attribute_values(call.arguments))
    return _replace_nodes_by_formula_node(
        graph, keys, formula, operand_specs, settings, module.names or ("",)
    )


def _replace_functions_by_formula_nodes(graph: Graph, trace: Trace, formula: Formula) -> Graph:
    """Return the graph with one node for each use of the formula's autograd.Function."""
    names = formula.class_names
    calls = {call.key: call for call in trace.calls}
    for index, function in enumerate(graph.functions):
        nodes = {node.key: node for node in graph.nodes}
        is_one = plain_class_name(f"{function.module}.{function.name}") in names
        # a module around it may be one node already
        if not is_one or not function.nodes or not nodes.keys() >= set(function.nodes):
            continue
        call = calls.get(function.call)
        arguments = forward_argument_names(formula, skip_count=_context_argument_count(formula))
        operand_specs = tuple(_function_operands(function, call, arguments))
        settings = {**forward_argument_defaults(formula), **_settings_by_name(call, arguments)}
        key = function.nodes[0]
        path = nodes[key].path
        graph = _replace_nodes_by_formula_node(
            graph, {*function.nodes}, formula, operand_specs, settings, (path,)
        )
        own = replace(function, nodes=(key,), home=key)
        functions = (*graph.functions[:index], own, *graph.functions[index + 1 :])
        graph = replace(graph, functions=functions)
    return graph


def _function_operands(
    function: Function, call: Call | None, names: Mapping[str, str]
) -> Iterator[tuple[str, TensorSpec]]:
    """Yield the name and the spec of each tensor that a call of an autograd.Function takes.

    The first argument of `apply` is the class.
    """
    if call is None:
        for position, specs in sorted(function.operands.items()):
            yield from ((names.get(str(position), str(position)), spec) for spec in specs)
        return
    for spec in call.inputs:
        outer, dot, rest = spec.name.partition(".")
        position = int(outer) - 1 if outer.isdecimal() else -1
        known = function.operands.get(position, ())
        own = replace(spec, name=f"{call.key}:{spec.name}")
        name = names.get(str(position), str(position) if position >= 0 else outer)
        yield (
            f"{name}{dot}{rest}" if dot else name,
            next((value for value in known if _has_same_form(value, spec)), own),
        )


def _settings_by_name(call: Call | None, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the plain arguments of a call of an autograd.Function by the names of the function's
    own.
    """
    settings = _to_attribute_values(call.settings) if call is not None else {}
    return {
        names.get(str(int(position) - 1), str(int(position) - 1))
        if position.isdecimal()
        else position: value
        for position, value in settings.items()
    }


def _context_argument_count(formula: Formula) -> int:
    """Return 1 if `forward` of a formula's autograd.Function takes the context, 0 if the function
    has `setup_context`.
    """
    bases = getattr(find_loaded_class(formula.module), "__mro__", ())
    own = (base for base in bases if not base.__module__.startswith("torch.autograd"))
    return 0 if any("setup_context" in vars(base) for base in own) else 1


def _to_attribute_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in the form of node attributes: without None, with tuples for lists."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in settings.items()
        if value is not None
    }


def _replace_nodes_by_formula_node(
    graph: Graph,
    keys: set[str],
    formula: Formula,
    operand_specs: Iterable[tuple[str, TensorSpec]],
    settings: dict[str, Any],
    names: tuple[str, ...],
) -> Graph:
    """Return the graph with one node, counted by the formula, for the nodes of these keys.

    The node reads the operands of the call (`operand_specs`: name and spec), each the value of
    the graph with that shape and type, and then the weights that the module used, by their names
    within the module; `names` are those of the module, the first of which is its path.
    """
    inner = [node for node in graph.nodes if node.key in keys]
    others = [node for node in graph.nodes if node.key not in keys]
    products = {spec.name: spec for node in inner for spec in node.outputs if spec is not None}
    taken = _values_read_from_outside(inner, products)
    weights = [spec for spec in taken if spec.role == "parameter"]
    values = [spec for spec in taken if spec.role not in ("parameter", "constant")]
    operands: list[tuple[str, TensorSpec]] = []
    operand_specs = tuple(operand_specs)
    named = {spec.name for _, spec in operand_specs}
    for name, spec in operand_specs:
        same = (value for value in values if value.name == spec.name)
        similar = (v for v in values if v.name not in named and _has_same_form(v, spec))
        known = next(same, None) or next(similar, None)
        stored = next((weight for weight in weights if weight.name == spec.name), None)
        if known is not None:
            values.remove(known)
        if stored is not None:
            weights.remove(stored)
        operands.append((name, stored or known or spec))
    operands += [("", value) for value in values]
    operands += [(_weight_name_in_module(weight.name, names), weight) for weight in weights]
    used = _all_input_names(others) | {spec.name for spec in graph.outputs}
    results = tuple(spec for name, spec in products.items() if name in used) or inner[-1].outputs
    domain, _, kind = formula.name.partition("::")
    whole_node = Node(
        key=inner[0].key,
        op=Op(domain, kind, 1),
        inputs=tuple(spec for _, spec in operands),
        outputs=results,
        attrs=settings,
        call=inner[0].call,
        path=names[0],
        constant=all(node.constant for node in inner),
        depends_on_inputs=any(node.depends_on_inputs for node in inner),
        training=replace(inner[0].training, severed=(), past={}, own_backward=""),
        operand_names=tuple(name for name, _ in operands),
    )
    calls = {node.call for node in inner} - {""}
    return replace(
        graph,
        nodes=_order_nodes(others, whole_node),
        whole_calls=graph.whole_calls | calls,
        replaced=(*graph.replaced, *inner),
    )


def _weight_name_in_module(name: str, modules: Iterable[str]) -> str:
    """Return the name of a weight relative to its module, which may have several names.

    >>> _weight_name_in_module("1.0.inner.weight", ("0", "1.0"))
    'inner.weight'
    """
    enclosing = [path for path in modules if path and name.startswith(f"{path}.")]
    return name.removeprefix(f"{max(enclosing, key=len)}.") if enclosing else name


def _has_same_form(value: TensorSpec, spec: TensorSpec) -> bool:
    """Return whether two tensors have the same shape and dtype."""
    return value.shape == spec.shape and value.dtype == spec.dtype


def _values_read_from_outside(
    nodes: Iterable[Node], products: Mapping[str, TensorSpec]
) -> list[TensorSpec]:
    """Return the tensors, without repetitions, that the nodes read and did not make."""
    taken: dict[str, TensorSpec] = {}
    for node in all_nested_nodes(nodes):
        for spec in node.inputs:
            if spec is not None and spec.name and spec.name not in products:
                taken.setdefault(spec.name, spec)
    return list(taken.values())


def _all_input_names(nodes: Iterable[Node]) -> set[str]:
    """Return the names of all inputs of the nodes, also of the nodes in their bodies."""
    return {spec.name for node in all_nested_nodes(nodes) for spec in node.inputs if spec}


def _order_nodes(others: Iterable[Node], whole_node: Node) -> tuple[Node, ...]:
    """Return all nodes in order: `whole_node` before each node that needs its results."""
    behind = {spec.name for spec in whole_node.outputs if spec is not None}
    before: list[Node] = []
    after: list[Node] = []
    for node in others:
        if behind & _all_input_names([node]):
            behind |= {spec.name for spec in node.outputs if spec is not None}
            after.append(node)
        else:
            before.append(node)
    return (*before, whole_node, *after)
