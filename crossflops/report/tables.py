"""Build the tables of a report from a ledger: by operator, by module, by node."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from crossflops.ir.graph import Graph, Node
from crossflops.ir.ledger import Exactness, Ledger, Memory
from crossflops.ir.profile import ConventionCount
from crossflops.ir.trace import Call, Module, Trace
from crossflops.ir.training import NO_STEP, Steps, Training, TrainingStep
from crossflops.operators import find_operator_rule
from crossflops.report.report import (
    BranchRow,
    CustomOperatorRow,
    InputInfo,
    ModelInfo,
    ModuleRow,
    NodeRow,
    OpRow,
    Report,
    ThumbRow,
    Totals,
    TrainingReport,
    UncountedRow,
)

# How a call reads in a graph that torch.fx traces symbolically: kind and target.
#
# torch/fx/_symbolic_trace.py: `Tracer.is_leaf_module` keeps modules of torch.nn whole, but for
# nn.Sequential; the model itself is never a leaf.

_TENSOR = "torch.Tensor."
_LEAVES = ("torch.nn.", "torch.ao.nn.")
_SEQUENTIAL = "torch.nn.modules.container.Sequential"


class FxSite(NamedTuple):
    """The place of a call in a graph of torch.fx: `kind` is call_module, call_method or
    call_function, `target` is what is called.
    """

    kind: str
    target: str


def fx_site_of_call(call: Call, trace: Trace) -> FxSite:
    """Return the place where torch.fx records an operator call: the leaf module or the outermost
    function around it, else the operator.
    """
    for enclosing in (*reversed(trace.ancestors(call)), call):
        leaf = _fx_site_or_none(enclosing, trace.modules[enclosing.module])
        if leaf is not None:
            return leaf
    return FxSite("call_function", call.target)


def _fx_site_or_none(call: Call, module: Module) -> FxSite | None:
    """Return the place where torch.fx records this call, or None if fx looks into it, as into a
    module that is not a leaf.
    """
    if call.level == "module":
        name = module.bases[0]
        is_leaf = name.startswith(_LEAVES) and name != _SEQUENTIAL and module.id != 0
        return FxSite("call_module", module.path) if is_leaf and call.via == "call" else None
    if call.level == "function" and call.target.startswith(_TENSOR):
        name = call.target.removeprefix(_TENSOR)
        if name.startswith("__"):  # x + y: fx records the function of the module `operator`
            return FxSite("call_function", f"operator.{name.strip('_')}")
        return FxSite("call_method", name)
    return FxSite("call_function", call.target)


_NOWHERE = FxSite("", "")


def report_from_ledger(
    graph: Graph,
    trace: Trace,
    ledger: Ledger,
    folded: tuple[ConventionCount, ...] = (),
    memory: Memory | UnsetType = UNSET,
) -> Report:
    """Return the report of a counted graph: totals, tables, totals by convention, memory."""
    return Report(
        model=ModelInfo(
            name=graph.name,
            digest=graph.digest,
            inputs=tuple(InputInfo(i.name, i.dtype, i.shape or ()) for i in graph.inputs),
            opset=graph.opset,
        ),
        totals=_ledger_totals(graph, ledger),
        macs_by_precision=ledger.macs_by_precision,
        as_=folded[0] if folded else None,
        as_also=folded[1:] or UNSET,
        uncounted=tuple(
            UncountedRow(
                row.node.key,
                str(row.node.op),
                row.reason,
                row.node.path,
                _input_shape_texts(row.node),
                _formula_lines(row.node),
            )
            for row in ledger.uncounted
        ),
        custom_operators=_custom_operators(ledger),
        by_op=_operator_rows(ledger),
        modules=_module_rows(trace.modules, ledger),
        nodes=_report_node_rows(trace, ledger),
        branches=_branch_rows(ledger),
        memory=memory,
        setting=trace.setting,
    )


def _custom_operators(ledger: Ledger) -> tuple[CustomOperatorRow, ...] | UnsetType:
    """Return the report rows of custom operators; UNSET if there are none."""
    if all(count.node.op.domain in ("", "ai.onnx") for count in ledger.counts):
        return UNSET
    from crossflops.report.custom_operators import custom_operator_rows

    return custom_operator_rows(ledger) or UNSET


def _formula_lines(node: Node) -> str:
    """Return Python code of a formula for an uncounted node, for the user to complete; "" if it
    needs none.
    """
    from crossflops.report.custom_operators import formula_stub

    return formula_stub(node)


def _input_shape_texts(node: Node) -> tuple[str, ...]:
    """Return the shapes of a node's inputs as texts, such as "1x3x224x224", "scalar" or "?" if
    unknown.
    """
    specs = [spec for spec in node.inputs if spec is not None]
    return tuple(
        "?" if spec.shape is None else "x".join(map(str, spec.shape)) or "scalar" for spec in specs
    )


def with_training(
    report: Report, ledger: Ledger, exact: Steps, thumb: Iterable[ThumbRow]
) -> Report:
    """Return a copy of the report with the work of a training step for the model, each operator,
    module and node.
    """
    by_key = {
        count.node.key: replace(exact.by_key.get(count.node.key, NO_STEP), forward=count.cost)
        for count in ledger.counted
    }
    by_op: dict[str, TrainingStep] = {}
    by_path: dict[str, TrainingStep] = {}
    for count in ledger.counted:
        step, op = by_key[count.node.key], _operator_of_node(count.node)
        by_op[op] = by_op.get(op, NO_STEP) + step
        for path in path_with_ancestors(count.node.path):
            by_path[path] = by_path.get(path, NO_STEP) + step
    total = by_path.get("", NO_STEP)
    training = TrainingReport(
        **msgspec.structs.asdict(Training.from_step(total)),
        three_forward_macs=3 * total.forward.macs,
        differences=tuple(thumb),
        uncounted=tuple(
            UncountedRow(row.key, str(row.node.op), row.reason) for row in exact.unknown
        ),
    )
    return replace(
        report,
        training=training,
        by_op=tuple(
            replace(row, training=Training.from_step(by_op.get(row.op, NO_STEP)))
            for row in report.by_op
        ),
        modules=tuple(
            replace(row, training=Training.from_step(by_path.get(row.path, NO_STEP)))
            for row in report.modules
        ),
        nodes=tuple(
            replace(row, training=Training.from_step(by_key[row.node])) for row in report.nodes
        ),
    )


def path_with_ancestors(path: str) -> Iterator[str]:
    """Yield the module path and the paths of its ancestors, "" (the model) last."""
    while path:
        yield path
        path = path.rpartition(".")[0]
    yield ""


def _operator_of_node(node: Node) -> str:
    """Return the operator of a node: the one of the framework from which it was converted, else
    its ONNX operator.
    """
    return str(node.conversion.stands_for[0].op if node.conversion.stands_for else node.op)


def _ledger_totals(graph: Graph, ledger: Ledger) -> Totals:
    """Return the totals of a counted graph: work by kind, bytes, parameters, and how exact they
    are.
    """
    cost = ledger.total
    constant = sum(count.constant_cost.macs for count in ledger.counted)
    return Totals(
        **msgspec.structs.asdict(cost),
        flops=cost.flops,
        params=graph.params,
        constant_macs=constant,
        converter_macs=sum(count.converter_macs for count in ledger.counted),
        active_params=_active_parameters(graph, ledger),
        unchosen_macs=_macs_of_unchosen_experts(graph, ledger) or UNSET,
        exactness={
            "macs": _least_exact(
                c.exactness for c in ledger.counted if c.cost.macs or _has_function_calls(c.node)
            ),
            "flops": _least_exact(
                c.exactness for c in ledger.counted if c.cost.flops or _has_function_calls(c.node)
            ),
        },
    )


def _has_function_calls(node: Node) -> bool:
    """Return whether a node is called in a function inside the branches or the loop body of this
    node.
    """
    inside = (inner for body in node.bodies for inner in body.nodes)
    return any(inner.choice == "function" or _has_function_calls(inner) for inner in inside)


def _least_exact(exactnesses: Iterable[Exactness]) -> Exactness:
    """Return the least exact of the grades: "estimate" if there is one, else "bound", else
    "exact".
    """
    grades = set(exactnesses)
    for word in ("estimate", "bound"):
        if word in grades:
            return word
    return "exact"


def _active_parameters(graph: Graph, ledger: Ledger) -> int | UnsetType:
    """Return the number of parameters that one token uses, without the experts that it does not
    choose; UNSET if it uses all.
    """
    idle = graph.idle_params
    for counted in ledger.counted:
        known = find_operator_rule(counted.node.op)
        if known is not None and known.parameters is not None:
            total, active = known.parameters(counted.node)
            idle += total - active
    return graph.params - idle if idle else UNSET


def _macs_of_unchosen_experts(graph: Graph, ledger: Ledger) -> int:
    """Return the MACs of experts that no router chose, in a graph that runs all experts."""
    unchosen = 0
    for counted in ledger.counted:
        if counted.node.call in graph.unchosen:
            chosen, of = graph.unchosen[counted.node.call]
            unchosen += counted.cost.macs * (of - chosen) // of
    return unchosen


def _branch_rows(ledger: Ledger) -> tuple[BranchRow, ...]:
    """Return a row for each If node with the text that says which branch was counted."""
    return tuple(
        BranchRow(count.node.key, count.formula)
        for count in ledger.counted
        if count.node.op.type == "If" and count.node.bodies
    )


def _operator_rows(ledger: Ledger) -> tuple[OpRow, ...]:
    """Return a row for each operator with its number of nodes, MACs and FLOPs, the most FLOPs
    first.
    """
    macs, flops = Counter[str](), Counter[str]()
    for count in ledger.counted:
        op = _operator_of_node(count.node)
        macs[op] += count.cost.macs
        flops[op] += count.cost.flops
    numbers = Counter(_operator_of_node(count.node) for count in ledger.counts)
    rows = (OpRow(op, count, macs[op], flops[op]) for op, count in numbers.items())
    return tuple(sorted(rows, key=lambda row: (-row.flops, row.op)))


def _module_rows(modules: tuple[Module, ...], ledger: Ledger) -> tuple[ModuleRow, ...]:
    """Return a row for each module with the MACs, FLOPs and parameters of it and its
    submodules.
    """
    macs, flops = defaultdict[str, int](int), defaultdict[str, int](int)
    for count in ledger.counted:
        path, cost = count.node.path, count.cost
        macs[path] += cost.macs
        flops[path] += cost.flops
    for path in list(macs):
        while path and (path := path.rpartition(".")[0]) not in macs:
            macs[path] = 0
    for path in sorted(macs, key=len, reverse=True):  # a module is done before the one around it
        if path:
            outer = path.rpartition(".")[0]
            macs[outer] += macs[path]
            flops[outer] += flops[path]
    params = _params_including_submodules(modules)
    return tuple(
        ModuleRow(
            path=row.path,
            class_=_module_class_name(row),
            macs=macs[row.path],
            flops=flops[row.path],
            params=params[row.id],
        )
        for row in modules
        if row.names
    )


def _params_including_submodules(modules: tuple[Module, ...]) -> list[int]:
    """Return a list with the number of parameters of each module and its submodules; a shared
    parameter counts once in it.
    """
    sizes: dict[int, dict[int, int]] = {}  # by storage, of the modules that are done
    begun: set[int] = set()
    todo = [row.id for row in modules]
    while todo:
        row = modules[todo[-1]]
        below = [child for _, child in row.children]
        if row.id not in begun:
            begun.add(row.id)
            todo += (child for child in below if child not in begun)
            continue
        todo.pop()
        if row.id not in sizes:
            own = {parameter.storage: parameter.numel for parameter in row.params}
            for child in below:
                own |= sizes.get(child, {})
            sizes[row.id] = own
    return [sum(sizes[row.id].values()) for row in modules]


def _report_node_rows(trace: Trace, ledger: Ledger) -> tuple[NodeRow, ...]:
    """Return a row for each counted node: work, bytes, precision, module class, and its place in a
    graph of torch.fx.
    """
    classes = {
        name: _module_class_name(row) for row in reversed(trace.modules) for name in row.names
    }
    sites = {call.key: fx_site_of_call(call, trace) for call in trace.calls if call.nodes}
    return tuple(
        NodeRow(
            node=count.node.key,
            op=_operator_of_node(count.node),
            path=count.node.path,
            macs=count.cost.macs,
            flops=count.cost.flops,
            bytes_read=count.cost.bytes_read,
            bytes_written=count.cost.bytes_written,
            precision=count.precision,
            exactness=count.exactness,
            class_=classes.get(count.node.path) or UNSET,
            kind=(where := sites.get(count.node.call, _NOWHERE)).kind or UNSET,
            target=where.target or UNSET,
            depends_on_inputs=count.node.depends_on_inputs or UNSET,
        )
        for count in ledger.counted
    )


def _module_class_name(module: Module) -> str:
    """Return the class name of the module without its package."""
    return module.bases[0].rpartition(".")[2]
