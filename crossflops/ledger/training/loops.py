"""Facts about the bodies of loops: states passed between runs, tensors read from outside, and
unrolled loops.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from crossflops.ir.graph import Graph, Node

_RUN = re.compile(r"\[\d+\]")  # of a loop that was unrolled: Gemm_1@Loop_1[0]


def nodes_with_bodies(graph: Graph) -> Iterator[Node]:
    """Yield all nodes of a graph and of the bodies in it, at every depth."""
    for node in graph.nodes:
        yield node
        for body in node.bodies:
            yield from nodes_with_bodies(body)


def loop_state_count(node: Node, body: Graph) -> int:
    """Return the number of states that a Loop or Scan passes from one run of its body to the next;
    0 for other nodes.
    """
    if node.op.type == "Loop":
        return len(body.inputs) - body_input_and_output_counts_before_states(node)[0]
    if node.op.type == "Scan":
        scanned = node.attrs.get("num_scan_inputs", 0)
        return len(body.inputs) - (scanned if isinstance(scanned, int) else 0)
    return 0


def body_input_and_output_counts_before_states(node: Node) -> tuple[int, int]:
    """Return (inputs, outputs): how many of the body's inputs and outputs come before the states
    of the loop.
    """
    return (2, 1) if node.op.type == "Loop" and not node.op.domain else (0, 0)


def names_read_by_bodies(node: Node) -> set[str]:
    """Return the names of the tensors that the node and the nodes in its bodies read."""
    names: set[str] = set()
    for body in node.bodies:
        for inner in body.nodes:
            names |= {spec.name for spec in inner.inputs if spec is not None}
            names |= names_read_by_bodies(inner)
    if node.bodies:
        names |= {spec.name for spec in node.inputs if spec is not None}
    return names


def copies_of_unrolled_nodes(graph: Graph) -> list[list[Node]]:
    """Return, for each node in the body of an unrolled loop, its copies, one for each run."""
    copies: dict[str, list[Node]] = defaultdict(list)
    for node in graph.nodes:
        body, at, runs = node.key.partition("@")
        if at:
            copies[body + _RUN.sub("", runs)].append(node)
    return [nodes for nodes in copies.values() if len(nodes) > 1]


def add_copied_results_that_reach_loss(
    copies: Iterable[Sequence[Node]], reaching_loss: set[str]
) -> bool:
    """Add to `reaching_loss` the results of unrolled loops that reach the loss in another run;
    return whether any name is new.
    """
    before = len(reaching_loss)
    for runs in copies:
        for results in zip(*(node.outputs for node in runs), strict=False):
            names = {spec.name for spec in results if spec is not None}
            reaching_loss |= names if names & reaching_loss else set()
    return len(reaching_loss) > before
