"""Show parts of a report: one of its tables, or one module with all submodules.

Derived from the rows of a report and from nothing else: one that was read back gives the same. The
shapes of its modules (what the first call took and gave, and the parameters) are put into the
report before, from the graph and the trace.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from crossflops.errors import InputError, UnknownNameError
from crossflops.ir.graph import Graph, TensorSpec
from crossflops.ir.profile import Amount, ConventionCount, Failure, Profile
from crossflops.ir.reconciliation import Explanation, PathRow, Reconciliation
from crossflops.ir.trace import Call, Trace
from crossflops.report.report import ModuleRow, ModuleShapes, NodeRow, Report, Shape
from crossflops.report.tables import path_with_ancestors

By: TypeAlias = Literal["op", "module", "node", "type"]
Cell: TypeAlias = str | int
Cells: TypeAlias = tuple[Cell, ...]

_NATIVE = ("macs", "flops", "bytes_read", "bytes_written")
_SHAPES = ("input", "output", "weight")  # of modules, where the report has them
_KEYS: dict[By, tuple[str, ...]] = {
    "op": ("operator", "nodes"),
    "type": ("type", "modules", "nodes"),
    "module": ("module", "class", "params"),
    "node": ("node", "operator", "kind", "target", "module", "class"),
}


class TableView(msgspec.Struct, frozen=True, kw_only=True):
    """A table: rows under `columns`, first the columns that name a row, then its counts as
    integers.

    The counts are the native ones, and one for each convention in `folds`, under its name. `order`
    is the column that orders the rows where they are ordered. `total` is a row for the whole
    model, `hidden` the number of rows that `top` leaves out. In the tree of modules, `levels`
    says how deep each row lies; there a row has all beneath it in it.
    """

    by: By
    columns: tuple[str, ...]
    rows: tuple[Cells, ...]
    total: Cells
    order: str
    folds: tuple[str, ...] = ()
    levels: tuple[int, ...] = ()
    hidden: int = 0

    def cells(self, column: str) -> Cells:
        """Return the cells of the column with this name, one for each row."""
        location = self.columns.index(column)
        return tuple(row[location] for row in self.rows)

    def to_dicts(self) -> list[dict[str, Cell]]:
        """Return each row as {column: cell}."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def view(
    report: Report, by: By = "op", top: int | None = None, depth: int | None = None,
    unit: str = "macs",
) -> TableView:  # fmt: skip
    """Return a table of the report with one row for each operator, module, node or module class.

    By "op" (ONNX operator), "module" (the tree of modules, each with all beneath it; `depth`
    levels of it), "node" (graph nodes, in their order) or "type" (class of the innermost
    module around a node). `top` keeps the largest rows, by the first convention if one was
    asked for, else by `unit`. Raises InputError for what does not go together.
    """
    _check_view_options(report, by, top, depth)
    names = _convention_column_names(report.folds)
    folds = tuple(zip(names, report.folds, strict=True))
    order = names[0] if names else unit
    keys = _view_key_columns(report, by)
    columns = (*keys, *_NATIVE, *names)
    totals = report.totals
    counts = (*(getattr(totals, kind) for kind in _NATIVE), *(fold.total for _, fold in folds))
    rows, heads = _TABLES[by](report)
    total = ("total", *heads, *("" for _ in keys[1 + len(heads) :]), *counts)
    levels: tuple[int, ...] = ()
    location = columns.index(order)
    if by in ("op", "type") or top is not None:
        rows = sorted(rows, key=lambda row: (-int(row[location]), -int(row[len(keys) + 1])))
    if by == "module":
        rows = [row for row in rows if depth is None or _module_depth(row) <= depth]
        if top is not None and len(rows) > 1:  # the model itself would always be the largest
            rows = [row for row in rows if row[0]]
        else:
            levels = tuple(map(_module_depth, rows))
    return TableView(
        by=by,
        columns=columns,
        rows=tuple(rows[:top]),
        total=total,
        order=order,
        folds=names,
        levels=levels,
        hidden=max(len(rows) - (top or len(rows)), 0),
    )


def _check_view_options(report: Report, by: By, top: int | None, depth: int | None) -> None:
    """Raise InputError if --by, --top or --depth has an invalid value, or if a requested
    convention has no such table.
    """
    if by not in get_args(By):
        raise InputError(f"unknown --by {by!r}", f"choose one of {', '.join(get_args(By))}")
    if top is not None and top < 1:
        raise InputError(
            f"--top must be at least 1, got {top}",
            "give --top 1 or more, or leave out --top to show all rows",
        )
    if depth is not None and (depth < 0 or by != "module"):
        raise InputError(
            f"--depth works only with --by module, got --by {by}"
            if by != "module"
            else f"--depth must be at least 0, got {depth}",
            "give --by module --depth 0 or more",
        )
    for fold in report.folds if by in ("op", "node") else ():
        if fold.sees != "node":
            raise InputError(
                f"{fold.tool} counts calls of {fold.sees}s, so it has no table --by {by}",
                "give --by module or --by type",
            )


def _convention_column_names(folds: Iterable[ConventionCount]) -> tuple[str, ...]:
    """Return the column name of each convention: its tool, with "@edition" if several editions of
    it are shown.
    """
    tools = [fold.tool for fold in folds]
    return tuple(
        fold.tool if tools.count(fold.tool) == 1 else f"{fold.tool}@{fold.edition}"
        for fold in folds
    )


def _view_key_columns(report: Report, by: By) -> tuple[str, ...]:
    """Return the names of the columns that describe a row; those of modules include shapes if the
    report has them.
    """
    shaped = by == "module" and any(row.shapes for row in report.modules)
    name, what, *others = _KEYS[by]
    return (name, what, *_SHAPES, *others) if shaped else _KEYS[by]


def _module_depth(row: Cells) -> int:
    """Return how deep the module of a row is: 0 for the model, 1 for its children, and so on."""
    path = str(row[0])
    return path.count(".") + 1 if path else 0


def _macs_flops_bytes_of_node(node: NodeRow) -> tuple[int, ...]:
    """Return (MACs, FLOPs, bytes read, bytes written) of a node."""
    return tuple(getattr(node, kind) for kind in _NATIVE)


def _sums_by_key(
    report: Report, keys: Callable[[NodeRow], Iterable[str]], fold_keys: "FoldKeys"
) -> dict[str, list[int]]:
    """Return {key: sums of MACs, FLOPs, bytes read, bytes written, and one sum for each
    convention}; `keys` and `fold_keys` give the keys of a row.
    """
    width = len(_NATIVE) + len(report.folds)
    sums: dict[str, list[int]] = {}

    def add_amounts_to_key(key: str, first_index: int, amounts: Iterable[int]) -> None:
        """Add the amounts to the sums of this key, beginning at position `first_index`."""
        row = sums.setdefault(key, [0] * width)
        for offset, amount in enumerate(amounts):
            row[first_index + offset] += amount

    for node in report.nodes:
        for key in keys(node):
            add_amounts_to_key(key, 0, _macs_flops_bytes_of_node(node))
    for number, fold in enumerate(report.folds):
        for booked in fold.rows:
            for key in fold_keys(booked.at, booked.path):
                add_amounts_to_key(key, len(_NATIVE) + number, (booked.amount,))
    return sums


FoldKeys: TypeAlias = Callable[[str, str], Iterable[str]]
Table: TypeAlias = tuple[list[Cells], tuple[Cell, ...]]


def _view_by_operator(report: Report) -> Table:
    """Return (rows by operator, cells of the total row after its name): the latter is the number
    of nodes.
    """
    ops = {node.node: node.op for node in report.nodes}
    sums = _sums_by_key(report, lambda node: (node.op,), lambda at, _: (ops.get(at, ""),))
    width = len(_NATIVE) + len(report.folds)
    rows: list[Cells] = [
        (row.op, row.count, *sums.get(row.op, [0] * width)) for row in report.by_op
    ]
    return rows, (sum(row.count for row in report.by_op),)


def _view_by_type(report: Report) -> Table:
    """Return (rows by module class, cells of the total row after its name): the latter are the
    numbers of modules and nodes.
    """
    classes = {row.path: row.class_ for row in report.modules}
    named = {node.path: node.class_ or classes.get(node.path, "") for node in report.nodes}
    classes |= named
    paths: dict[str, set[str]] = {}
    counts: dict[str, int] = {}
    for node in report.nodes:
        paths.setdefault(named[node.path], set()).add(node.path)
        counts[named[node.path]] = counts.get(named[node.path], 0) + 1
    sums = _sums_by_key(
        report, lambda node: (named[node.path],), lambda _, path: (classes.get(path, ""),)
    )
    rows: list[Cells] = [
        (kind, len(paths.get(kind, ())), counts.get(kind, 0), *row) for kind, row in sums.items()
    ]
    return rows, (sum(map(len, paths.values())), len(report.nodes))


def _view_by_module(report: Report) -> Table:
    """Return (rows by module, cells of the total row after its name): the latter are "" and the
    number of parameters.
    """
    sums = _sums_by_key(
        report,
        lambda node: path_with_ancestors(node.path),
        lambda _, path: path_with_ancestors(path),
    )
    width = len(_NATIVE) + len(report.folds)

    def module_cells(module: ModuleRow) -> Cells:
        """Return the cells of a module: path, class, shapes if shown, parameters and sums."""
        head: Cells = (module.path, module.class_, *shape_cells(module), module.params)
        return (*head, *sums.get(module.path, [0] * width))

    def shape_cells(module: ModuleRow) -> tuple[str, ...]:
        """Return three cells with the shapes of a module's inputs, outputs and largest weight; ()
        if no module has shapes.
        """
        if not shaped:
            return ()
        known = module.shapes or ModuleShapes()
        return (
            _shapes_cell(*known.inputs),
            _shapes_cell(*known.outputs),
            _shapes_cell(known.kernel or None),
        )

    shaped = any(module.shapes for module in report.modules)
    heads: Cells = ("", *("" for _ in _SHAPES if shaped), report.params)
    return [module_cells(module) for module in report.modules], heads


def _shapes_cell(*shapes: Shape) -> str:
    """Return shapes as text: "1x3x224x224, scalar".

    >>> _shapes_cell((1, 3), (), (4,)), _shapes_cell(None)
    ('1x3, scalar, 4', '')
    """
    known = (shape for shape in shapes if shape is not None)
    return ", ".join("x".join(map(str, shape)) or "scalar" for shape in known)


def _view_by_node(report: Report) -> Table:
    """Return (rows by node, ()): each row has name, operator, place in a graph of torch.fx,
    module, class and counts.
    """
    sums = _sums_by_key(report, lambda _: (), lambda at, _: (at,))
    none = [0] * (len(_NATIVE) + len(report.folds))
    rows: list[Cells] = [
        (
            *(
                node.node,
                node.op,
                node.kind or "",
                node.target or "",
                node.path,
                node.class_ or "",
            ),
            *_macs_flops_bytes_of_node(node),
            *sums.get(node.node, none)[len(_NATIVE) :],
        )
        for node in report.nodes
    ]
    return rows, ()


_TABLES: dict[By, Callable[[Report], Table]] = {
    "op": _view_by_operator,
    "module": _view_by_module,
    "node": _view_by_node,
    "type": _view_by_type,
}


# A report restricted to one module and what is beneath it.

_SHOWN = 6  # paths that an error names


AnyReport = TypeVar("AnyReport", bound=Report)


def restrict_to_module(report: AnyReport, path: str) -> AnyReport:
    """Return a copy of the report that has only one module and its submodules: their rows, and
    each tool's number there.

    The totals stay those of the model. A tool that reports no number for the module is taken to
    count what was predicted, and its row has no `theirs`. Raises UnknownNameError where there is
    no such module, InputError for a report that does not hold causes by path.
    """
    module = _find_module_row(report, path)
    accounts = tuple(_restrict_account(account, path) for account in report.reconciliations or ())
    other = {account.tool: account.theirs for account in accounts}

    def restrict_profile(profile: Profile | Failure) -> Profile | Failure:
        """Return the numbers of a tool with only the entries of this module; a failure
        unchanged.
        """
        if isinstance(profile, Failure):
            return profile
        entries = tuple(entry for entry in profile.entries if is_in_module(entry.path, path))
        total = other.get(profile.tool, profile.total)
        return replace(profile, total=total, params=None, entries=entries)

    nodes = tuple(node for node in report.nodes if is_in_module(node.path, path))
    present = Counter(node.op for node in nodes)
    sums = {
        op: [
            sum(getattr(node, kind) for node in nodes if node.op == op)
            for kind in ("macs", "flops")
        ]
        for op in present
    }
    return replace(
        report,
        against=UNSET,  # the other model has no such module
        against_modules=UNSET,
        against_nodes=UNSET,
        module=module,
        modules=tuple(module for module in report.modules if is_in_module(module.path, path)),
        nodes=nodes,
        by_op=tuple(
            replace(row, count=present[row.op], macs=sums[row.op][0], flops=sums[row.op][1])
            for row in report.by_op
            if row.op in present
        ),
        profiles=tuple(map(restrict_profile, report.profiles))
        if report.profiles
        else report.profiles,
        reconciliations=accounts if report.reconciliations else report.reconciliations,
    )


def is_in_module(path: str, module: str) -> bool:
    """Return whether the path is the module or one of its submodules; True for the module ""."""
    return not module or path == module or path.startswith(f"{module}.")


def _find_module_row(report: Report, path: str) -> ModuleRow:
    """Return the row of the module at this path; raise UnknownNameError, with similar names, if
    there is none.
    """
    rows = {row.path: row for row in report.modules}
    if path in rows:
        return rows[path]
    if not any(rows):
        raise UnknownNameError(
            f"--module {path!r} cannot be used: this report has no modules", "leave out --module"
        )
    from difflib import get_close_matches  # most runs name nothing wrong

    known = [row for row in rows if row]
    near = get_close_matches(path, known, n=_SHOWN, cutoff=0.5)
    hint = (
        f"modules with similar names: {', '.join(near)}"
        if near
        else f"name one of its modules, such as {', '.join(known[:_SHOWN])}"
    )
    raise UnknownNameError(f"the model has no module {path!r}", hint)


def _restrict_account(account: Reconciliation, path: str) -> Reconciliation:
    """Return a copy of a tool's explanation that has only the amounts of one module and its
    submodules.
    """
    rows = tuple(row for row in account.by_path if is_in_module(row.path, path))
    row = next(
        (row for row in rows if row.path == path),
        PathRow(path=path, ours=0, predicted=0, causes={}),
    )
    if not isinstance(row.causes, dict):
        raise InputError(
            "this report was made by an older release and has no causes for single modules",
            "run `crossflops compare` again with this release",
        )
    return replace(
        account,
        ours=row.ours,
        theirs=row.predicted if row.theirs is None else row.theirs,
        predicted=row.predicted,
        explanations=tuple(
            _restrict_explanation(cause, amount, account.explanations, path)
            for cause, amount in row.causes.items()
        ),
        by_path=rows,
        params=UNSET,
    )


def _restrict_explanation(
    cause: str, amount: Amount, explanations: Iterable[Explanation], path: str
) -> Explanation:
    """Return the explanation of one cause in one module: this amount, and the calls that are
    inside.
    """
    same = [reason for reason in explanations if reason.cause == cause]
    return Explanation(
        cause=cause,
        amount=amount,
        calls=tuple(_calls_in_module(same, path)),
        reference=same[0].reference if same else "",
    )


def _calls_in_module(explanations: Iterable[Explanation], path: str) -> Iterator[str]:
    """Yield the keys of the explanations' calls that are in this module or its submodules."""
    for reason in explanations:
        for call in reason.calls:
            if is_in_module(call.partition("/")[0].partition("@")[0], path):
                yield call


# The shapes of modules.


def with_shapes(report: Report, graph: Graph, trace: Trace) -> Report:
    """Return a copy of the report where each module has the shapes of its inputs, outputs and
    weights.

    They are those of the first call, where calls were recorded; else of the tensors that cross
    the border of the module in the graph.
    """
    known = _shapes_from_calls(trace) or _shapes_from_graph(graph)
    weights = {row.path: {p.name: p.shape for p in row.params} for row in trace.modules}
    none = ModuleShapes()
    rows = (
        msgspec.structs.replace(
            row,
            shapes=msgspec.structs.replace(
                known.get(row.path, none),
                **({"weights": weights[row.path]} if weights.get(row.path) else {}),
            ),
        )
        for row in report.modules
    )
    return msgspec.structs.replace(report, modules=tuple(rows))


def _shapes_from_calls(trace: Trace) -> dict[str, ModuleShapes]:
    """Return {module path: input and output shapes of its first recorded call}."""
    paths = {row.id: row.path for row in trace.modules}
    first: dict[str, Call] = {}
    for call in trace.calls:
        if call.level == "module":
            first.setdefault(paths[call.module], call)
    return {
        path: ModuleShapes(inputs=_spec_shapes(call.inputs), outputs=_spec_shapes(call.outputs))
        for path, call in first.items()
    }


def _shapes_from_graph(graph: Graph) -> dict[str, ModuleShapes]:
    """Return {module path: shapes of the tensors that enter and leave it in the graph}."""
    inside: dict[str, dict[str, TensorSpec]] = {}
    reads: dict[str, dict[str, TensorSpec]] = {}
    readers: dict[str, list[str]] = {}
    params: dict[str, dict[str, tuple[int, ...]]] = {}
    for node in graph.nodes:
        named = {spec.name: spec for spec in node.inputs if spec is not None}
        for name in named:
            readers.setdefault(name, []).append(node.path)
        params.setdefault(node.path, {}).update(
            (name, spec.shape or ()) for name, spec in named.items() if spec.role == "parameter"
        )
        for path in path_with_ancestors(node.path):
            reads.setdefault(path, {}).update(named)
            made = {spec.name: spec for spec in node.outputs if spec is not None}
            inside.setdefault(path, {}).update(made)
    last = {spec.name for spec in graph.outputs}
    return {
        path: ModuleShapes(
            inputs=_spec_shapes(
                spec
                for name, spec in specs.items()
                if name not in inside[path] and spec.role not in ("parameter", "constant")
            ),
            outputs=_spec_shapes(
                spec
                for name, spec in inside[path].items()
                if name in last or any(not is_in_module(at, path) for at in readers.get(name, ()))
            ),
            weights=params.get(path, {}),
        )
        for path, specs in reads.items()
    }


def _spec_shapes(specs: Iterable[TensorSpec]) -> tuple[Shape, ...]:
    """Return the shape of each tensor, None if it is unknown."""
    return tuple(spec.shape for spec in specs)
