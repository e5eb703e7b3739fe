"""Warn about a file that is counted: operators of newer versions, values without elements."""

from collections.abc import Iterator, Mapping

from crossflops.errors import OperandError
from crossflops.frontends.onnx.binding import shape_text, warn_about_file
from crossflops.ir.graph import Graph, Node, TensorSpec
from crossflops.load.protobuf import newest_operator_version
from crossflops.operators import find_operator_rule

_MOST = 5  # results that are named


def warn_of_newer_opsets(path: str, opset: Mapping[str, int]) -> None:
    """Warn if an operator set of the file is newer than the installed onnx knows."""
    for domain, version in opset.items():
        last = newest_operator_version(domain)
        if last and version > last:
            subject = f"version {version} of the operators of {domain or 'ai.onnx'}"
            warn_about_file(
                path,
                f"{subject} is newer than the installed onnx; its operators are counted by "
                f"version {last}",
            )


def warn_of_empty_tensors(path: str, graph: Graph) -> None:
    """Warn of inputs without elements, and of results without elements from other inputs."""
    for spec in graph.inputs:
        if _has_no_elements(spec):
            warn_about_file(
                path,
                f"input {spec.name!r} has a zero-size dimension "
                f"({shape_text(spec.shape)}); everything computed from it is empty",
            )
    for number, (key, spec) in enumerate(_empty_results(graph)):
        if number == _MOST:
            warn_about_file(path, f"more than these {_MOST} nodes have empty results")
            return
        warn_about_file(
            path, f"result {spec.name!r} of node {key!r} is empty: {shape_text(spec.shape)}"
        )


def _empty_results(graph: Graph) -> Iterator[tuple[str, TensorSpec]]:
    """Yield (node key, result) for float results without elements, if all inputs have some."""
    for node in graph.nodes:
        for spec in node.outputs:
            if (
                _has_no_elements(spec)
                and spec is not None
                and "float" in spec.dtype
                and not node.constant
                and not any(map(_has_no_elements, node.inputs))
                and _can_run(node)
            ):
                yield node.key, spec


def _can_run(node: Node) -> bool:
    """Return whether the operator of a node accepts its operands."""
    known = find_operator_rule(node.op)
    try:
        if known is not None:
            known.check_operands(node)
    except OperandError:
        return False
    return True


def _has_no_elements(spec: TensorSpec | None) -> bool:
    """Return whether a tensor has a known shape in which one size is 0."""
    return spec is not None and spec.shape is not None and 0 in spec.shape
