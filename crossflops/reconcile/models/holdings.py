"""Which node of a graph holds how many of the model's parameters."""

from collections import Counter
from collections.abc import Iterator

from crossflops.core.graph import Graph
from crossflops.core.trace import Trace
from crossflops.normalize.onnx_file.parameters import held


def holdings(graph: Graph, trace: Trace) -> dict[str, int]:
    """Elements of parameters by the key of the node that is the first to use them.

    Of a file every stored weight is a parameter. A model whose modules say what theirs are has
    other stored tensors too, such as the statistics of a batch normalization: there a tensor
    counts that is as large as a parameter of the node's module, or else of any other.
    """
    found = held(graph.nodes)
    stored = {
        one.storage: (module.path, one.numel)
        for module in reversed(trace.modules)
        for one in module.params
    }
    if not stored:
        return {key: sum(sizes.values()) for key, sizes in found.items()}
    return dict(_budgeted(graph, found, Counter(stored.values())))


def _budgeted(
    graph: Graph, found: dict[str, dict[str, int]], budget: Counter[tuple[str, int]]
) -> Iterator[tuple[str, int]]:
    """The tensors of every node that are parameters, by their sizes."""
    paths = {node.key: node.path for node in graph.nodes}
    counts: Counter[str] = Counter()
    strays: list[tuple[str, int]] = []
    for key, sizes in found.items():
        for size in sizes.values():
            if budget[paths[key], size] > 0:
                budget[paths[key], size] -= 1
                counts[key] += size
            else:
                strays.append((key, size))
    anywhere: Counter[int] = Counter()
    for (_, size), times in budget.items():
        anywhere[size] += times
    for key, size in strays:
        if anywhere[size] > 0:
            anywhere[size] -= 1
            counts[key] += size
    yield from counts.items()
