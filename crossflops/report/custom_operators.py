"""Build the report rows of custom operators: what counts each, or the code of a formula to write
for it.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import UNSET

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, CountedNode, Ledger
from crossflops.operators import is_counted_by_package
from crossflops.operators.formula_sources import CODE_CALLS
from crossflops.operators.rule import TORCH
from crossflops.report.report import CustomOperatorRow

if TYPE_CHECKING:
    from crossflops.operators.formula import Formula

_GRADES = ("exact", "bound", "estimate")  # from the strongest to the weakest
_NO_FORMULA = ("", "ai.onnx", "ai.onnx.ml")  # domains whose operators have rules, or reasons


def custom_operator_rows(ledger: Ledger) -> tuple[CustomOperatorRow, ...]:
    """Return a row for each custom operator that was counted by a user's formula or by its own
    Python body.
    """
    by_formula: dict[str, list[tuple[CountedNode, Formula]]] = defaultdict(list)
    by_body: dict[str, list[CountedNode]] = defaultdict(list)
    inside: dict[str, list[CountedNode]] = defaultdict(list)
    for count in ledger.counted:
        node = count.node
        if node.opened:
            by_body[str(node.op)].append(count)
        elif (
            node.op.domain not in _NO_FORMULA
            and not node.bodies
            and (known := find_used_formula(node))
        ):
            by_formula[str(node.op)].append((count, known))
        holder, slash, _ = node.key.rpartition("/")
        while slash:
            inside[holder].append(count)
            holder, slash, _ = holder.rpartition("/")
    rows = [_formula_row(op, counts) for op, counts in by_formula.items()]
    rows += [
        _body_row(
            op, counts, [part for count in counts for part in inside[count.node.bodies[0].name]]
        )
        for op, counts in by_body.items()
    ]
    return tuple(rows)


def _body_name(node: Node) -> str:
    """Return the name of the body of an operator, with which the keys of the nodes in it begin."""
    (body,) = node.bodies
    return body.name


def find_used_formula(node: Node) -> "Formula | None":
    """Return the user's formula that counts a node, or None if a rule of this package counts it or
    no formula exists.
    """
    if is_counted_by_package(node.op):
        return None
    from crossflops.operators.formula_sources import find_formula

    return find_formula(node.op.domain, node.op.type)


def _formula_row(op: str, counts: "list[tuple[CountedNode, Formula]]") -> CustomOperatorRow:
    """Return the row of a custom operator that a user's formula counts: calls, MACs, FLOPs, and
    where the formula is defined.
    """
    formula = counts[0][1]
    cost = sum((count.cost for count, _ in counts), ZERO)
    return CustomOperatorRow(
        op=op,
        by="formula",
        calls=sum(count.times for count, _ in counts),
        macs=cost.macs,
        flops=cost.flops,
        exactness=_weakest_exactness(count for count, _ in counts),
        formula=formula.function.__name__,
        source=formula.source,
        origin=formula.origin,
        pattern=formula.name if formula.pattern is not None else "",
    )


def _body_row(op: str, counts: list[CountedNode], parts: list[CountedNode]) -> CustomOperatorRow:
    """Return the row of a custom operator whose Python body was counted: calls, MACs and FLOPs of
    the nodes in it (`parts`).
    """
    cost = sum((part.cost for part in parts), ZERO)
    return CustomOperatorRow(
        op=op,
        by="body",
        calls=sum(count.times for count in counts),
        macs=cost.macs,
        flops=cost.flops,
        exactness=_weakest_exactness(parts),
        origin=UNSET,
        run=counts[0].node.opened,
    )


def _weakest_exactness(counts: Iterable[CountedNode]) -> str:
    """Return the least exact grade of these nodes: "estimate", "bound" or "exact"; "exact" for no
    node.
    """
    return max((count.exactness for count in counts), key=_GRADES.index, default="exact")


# The lines to write for an operator that nothing counts.

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def formula_stub(node: Node) -> str:
    """Return Python code of a formula for the node's operator, for the user to complete; "" if it
    is counted or is standard ONNX.

    Sizes that occur in several operands have one letter; what they are is in comments.
    """
    if node.op.domain in _NO_FORMULA or node.bodies or is_counted_by_package(node.op):
        return ""
    if find_used_formula(node) is not None:
        return ""
    name = operator_name(node)
    lines = [
        "import crossflops",
        "",
        "",
        f'@crossflops.operator("{name}")',
        f"def {_function_name(name)}(call):",
    ]
    named = node.operand_names
    letters: dict[int, str] = {}
    for index, spec in enumerate(node.inputs):
        if spec is None:
            continue
        unique = index < len(named) and named.count(named[index]) == 1
        access = f'call.input("{named[index]}")' if unique else f"call.inputs[{index}]"
        shape = "?" if spec.shape is None else "x".join(map(str, spec.shape)) or "scalar"
        axes = [
            letters.setdefault(size, f"{_dimension_letter(len(letters))}")
            for size in spec.shape or ()
        ]
        repeated = len(set(axes)) < len(axes)
        names = [f"{axis}{position}" for position, axis in enumerate(axes)] if repeated else axes
        left = f"{', '.join(names)}{',' if len(names) == 1 else ''} = " if names else ""
        label = f"{named[index]}: " if index < len(named) else ""
        lines.append(f"    {left}{access}.shape  # {label}{shape} {spec.dtype}")
    lines += [
        f'    {_to_variable_name(key)} = call.attributes["{key.removesuffix("_")}"]  # {value!r}'
        for key, value in node.with_source_arguments.attrs.items()
    ]
    results = (
        "?" if spec.shape is None else "x".join(map(str, spec.shape)) or "scalar"
        for spec in node.outputs
        if spec is not None
    )
    lines += [
        f"    # it returns {', '.join(results)}",
        "    return crossflops.Cost(macs=...)  # a whole number, of these sizes",
    ]
    return "\n".join(lines)


def operator_name(node: Node) -> str:
    """Return the name "namespace::name" under which a user's formula is declared for the node's
    operator.
    """
    domain, kind = node.op.domain, node.op.type
    if domain == TORCH:
        namespace, _, rest = kind.partition(".")
        return f"{namespace}::{rest.partition('.')[0]}"
    return f"{domain}::{kind.partition('.')[2] if kind.startswith(CODE_CALLS) else kind}"


def _function_name(name: str) -> str:
    """Return a valid Python function name for an operator "namespace::name": its last part in
    lower case, or "count_call".
    """
    last = name.rpartition("::")[2]
    written = "".join(letter if letter.isalnum() else "_" for letter in last).strip("_").lower()
    return written if written and not written[0].isdigit() else "count_call"


def _dimension_letter(position: int) -> str:
    """Return the letter for the dimension number `position`: a to z, then a1, b1 and so on."""
    return _LETTERS[position % len(_LETTERS)] + (str(position // 26) if position >= 26 else "")


def _to_variable_name(name: str) -> str:
    """Return the name as a Python variable: other characters become "_"."""
    return "".join(letter if letter.isalnum() else "_" for letter in name).rstrip("_")
