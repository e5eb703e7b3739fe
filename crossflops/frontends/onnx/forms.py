"""Compare a node's inputs and attributes with its operator in the version that the file declares.

Where it has those of another version, that version is named.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from crossflops.errors import OperandError
from crossflops.load.order import node_subgraphs, onnx_node_label
from crossflops.load.protobuf import Schema, newest_operator_version, operator_schema

_WITH_ROI = 11  # the version of Resize from which its second input is a region, not the scales


class Objection(NamedTuple):
    """A problem with a node's inputs or attributes, and how to repair it; "" without a problem."""

    problem: str = ""
    remedy: str = ""


def operands_objection(
    domain: str,
    name: str,
    version: int,
    input_names: Sequence[str],
    attribute_names: Collection[str],
) -> Objection:
    """Return the problem with a node's inputs and attributes in this operator set version, if any.

    Inputs that are left out at the end, and names that begin with __, are ignored.
    """
    return _operands_objection_in_cache(
        domain, name, version, tuple(map(bool, input_names)), tuple(attribute_names)
    )


@lru_cache(maxsize=4096)
def _operands_objection_in_cache(
    domain: str,
    name: str,
    version: int,
    is_input_given: tuple[bool, ...],
    attribute_names: tuple[str, ...],
) -> Objection:
    """Return the problem with a node's inputs and attributes; `is_input_given` has one item per
    input.
    """
    known = operator_schema(domain, name, version)
    if known is None or not (
        wrong := _schema_problem(name, known, is_input_given, attribute_names)
    ):
        return Objection()
    fitting = [
        at
        for at, other in _operator_versions(domain, name)
        if not _schema_problem(name, other, is_input_given, attribute_names)
    ]
    return Objection(
        wrong,
        _opset_remedy(domain, name, version, fitting)
        if fitting
        else f"{_opset_declaration_text(domain, version)}, and no opset allows these inputs and "
        f"attributes of {name}: correct the node in the exporter",
    )


def unknown_operator_objection(domain: str, name: str, version: int) -> Objection:
    """Return the problem that an operator exists only in other versions, or an empty one."""
    if operator_schema(domain, name, version) is not None:
        return Objection()
    others = [at for at, _ in _operator_versions(domain, name)]
    if not others:
        return Objection()
    return Objection(
        f"opset {version} has no {name}",
        _opset_remedy(domain, name, version, others, "exists"),
    )


def first_operand_error(graph: Any, imports: Mapping[str, int]) -> OperandError | None:
    """Return the error of the first node with wrong inputs or attributes, or None."""
    for number, node in enumerate(graph.node):
        version = imports.get(node.domain, 1)
        names = [attribute.name for attribute in node.attribute]
        wrong = operands_objection(node.domain, node.op_type, version, node.input[:], names)
        if wrong.problem and version <= newest_operator_version(node.domain):
            who = f"node {onnx_node_label(node, number)!r} ({node.op_type})"
            return OperandError(f"{who} cannot run: {wrong.problem}", wrong.remedy)
        for body in node_subgraphs(node):
            if inner := first_operand_error(body, imports):
                return inner
    return None


def _schema_problem(
    name: str, known: Schema, is_input_given: Sequence[bool], attribute_names: Collection[str]
) -> str:
    """Return a text on what is wrong with a node's inputs or attributes by the schema, or ""."""
    provided = len(is_input_given)
    while provided and not is_input_given[provided - 1]:
        provided -= 1
    if len(is_input_given) < known.fewest or provided > known.most:
        takes = f"{known.fewest}" + f" to {known.most}" * (known.fewest != known.most)
        return f"it has {len(is_input_given)} inputs, and {name} takes {takes}"
    if name == "Resize" and known.since >= _WITH_ROI and not any(is_input_given[2:]):
        return "it has neither scales (third input) nor sizes (fourth input)"
    if known.attributes.issuperset(attribute_names):
        return ""
    for written in attribute_names:
        if written not in known.attributes and not written.startswith("__"):
            return f"{name} has no attribute {written!r} since version {known.since}"
    return ""


def _operator_versions(domain: str, name: str) -> Iterator[tuple[int, Schema]]:
    """Yield each known operator set version that has the operator, and its schema there."""
    for version in range(1, newest_operator_version(domain) + 1):
        if known := operator_schema(domain, name, version):
            yield version, known


def _opset_declaration_text(domain: str, version: int) -> str:
    """Return "the file declares opset 13", with the domain if it is not the standard one."""
    return f"the file declares opset {version}" + (f" of {domain}" if domain else "")


def _opset_remedy(
    domain: str,
    name: str,
    version: int,
    others: Sequence[int],
    verb: str = "allows these inputs and attributes",
) -> str:
    """Return a text on which of the versions `others`, which allow the node, to declare."""
    first = last = min((at for at in others if at > version), default=others[-1])
    while last + 1 in others:
        last += 1
    while first - 1 in others:
        first -= 1
    span = f"in opset {first}" if first == last else f"in opsets {first} to {last}"
    span = f"from opset {first} on" if last == newest_operator_version(domain) else span
    return (
        f"{_opset_declaration_text(domain, version)}, and {name} {verb} {span}: declare such an "
        "opset in opset_import, or export the model again"
    )
