"""What a count of a file should be read with: sizes that it overrides, results that are empty.

These are no errors: the warnings bear the name of the file, where the sizes stand.
"""

import warnings
from collections.abc import Iterator, Mapping

from crossflops.errors import CrossflopsWarning, OperandError
from crossflops.ir.graph import Graph, Node
from crossflops.ir.tensor import TensorSpec
from crossflops.load.protobuf import library
from crossflops.operators import rule

_MOST = 5  # results that are named


def warn(path: str, sentence: str) -> None:
    """A CrossflopsWarning about a file."""
    warnings.warn_explicit(sentence, CrossflopsWarning, path, 0)


def overridden(
    path: str, name: str, stated: tuple[int | None, ...], shape: tuple[int, ...]
) -> None:
    """Warn of an input that is counted at another size than the file fixes. None: not fixed.

    Of an input whose rank the file leaves open nothing is fixed.
    """
    if not stated:
        return
    if any(fixed not in (None, size) for fixed, size in zip(stated, shape, strict=True)):
        fixed = "x".join("?" if size is None else str(size) for size in stated)
        warn(path, f"the file fixes input {name!r} as {fixed}: it is counted as {_shown(shape)}")


def newer(path: str, opset: Mapping[str, int]) -> None:
    """Warn of operators of a later version than the installed onnx knows."""
    for domain, (_, last) in library().defs.schema_version_map().items():
        if opset.get(domain, 0) > last:
            what = f"version {opset[domain]} of the operators of {domain or 'ai.onnx'}"
            warn(path, f"{what} is not known here: they are counted as of version {last}")


def empty(path: str, graph: Graph) -> None:
    """Warn of inputs without elements, and of results that are empty though no operand is."""
    for spec in graph.inputs:
        if _is_empty(spec):
            warn(path, f"input {spec.name!r} is empty, {_shown(spec.shape)}: so is what follows")
    for number, (key, spec) in enumerate(_results(graph)):
        if number == _MOST:
            warn(path, f"results of more nodes than these {_MOST} are empty")
            return
        warn(path, f"result {spec.name!r} of node {key!r} is empty, {_shown(spec.shape)}")


def _results(graph: Graph) -> Iterator[tuple[str, TensorSpec]]:
    """Of nodes that compute with numbers from an input; an empty list of sizes is none."""
    for node in graph.nodes:
        for spec in node.outputs:
            if (
                _is_empty(spec)
                and spec is not None
                and "float" in spec.dtype
                and not node.constant
                and not any(map(_is_empty, node.inputs))
                and _can_run(node)
            ):
                yield node.key, spec


def _can_run(node: Node) -> bool:
    """Whether the node takes its operands: what it does not take is refused, not warned of."""
    known = rule(node.op)
    try:
        if known is not None:
            known.check(node)
    except OperandError:
        return False
    return True


def _is_empty(spec: TensorSpec | None) -> bool:
    return spec is not None and spec.shape is not None and 0 in spec.shape


def _shown(shape: tuple[int, ...] | None) -> str:
    return "x".join(map(str, shape or ())) or "a scalar"
