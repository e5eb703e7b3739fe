"""Kernels that ran, under the roofline: a fused kernel moves only what crosses its edge.

    Q = bytes of tensors that its nodes read and none of them makes
      + bytes of tensors that they make and a node outside, or the caller, reads

which for a kernel of one node is what the unfused model says. W and t = max(W / P, Q / B) are as
for a node (see `roofline`).
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from crossflops.hardware.roofline.bounds import Scenario
from crossflops.hardware.roofline.dataflow import flow
from crossflops.hardware.roofline.step_traffic import Formats, loads, nbytes
from crossflops.ir.graph import Graph, Node
from crossflops.ir.ledger import Ledger
from crossflops.ir.roofline import KernelBound, NodeBound
from crossflops.ir.tensor import TensorSpec
from crossflops.report.bench import KernelRow


def kernel_bounds(
    graph: Graph,
    ledger: Ledger,
    nodes: Sequence[NodeBound],
    kernels: Iterable[KernelRow],
    run: Scenario,
    formats: Formats,
) -> tuple[KernelBound, ...]:
    """Every kernel that stands for nodes, in the order of the profile.

    `nodes` are their bounds in the run. A kernel none of whose nodes is in the graph, or that
    took no time, is left out.
    """
    edge = _Edge(graph, ledger, run, formats)
    bounds = {node.node: node for node in nodes}
    rows = []
    for row in kernels:
        keys = tuple(key for key in row.nodes if key in edge.nodes)
        if not keys or row.seconds <= 0:
            continue
        work = sum(bounds[key].work for key in keys if key in bounds)
        computing = sum(bounds[k].work / (bounds[k].peak or 1) for k in keys if k in bounds)
        moved = edge.bytes(keys)
        seconds = max(computing, moved / run.ceiling.bandwidth)
        rows.append(
            KernelBound(
                kernel=row.kernel,
                nodes=keys,
                work=work,
                bytes=moved,
                intensity=work / moved if moved else None,
                seconds=seconds,
                measured=row.seconds,
                rate=work / row.seconds,
                efficiency=seconds / row.seconds,
            )
        )
    return tuple(rows)


class _Edge:
    """What crosses the edge of a set of nodes."""

    def __init__(self, graph: Graph, ledger: Ledger, run: Scenario, formats: Formats) -> None:
        self.nodes: Mapping[str, Node] = {node.key: node for node in graph.nodes}
        self.alone = {load.node: load for load in loads(graph, ledger, "unfused", formats)}
        self.flow, self.run, self.formats = flow(graph, ledger), run, formats
        self.readers: dict[str, set[str]] = {spec.name: {""} for spec in graph.outputs}
        for node in graph.nodes:
            for spec in node.inputs:
                if spec is not None:
                    self.readers.setdefault(spec.name, set()).add(node.key)

    def bytes(self, keys: Sequence[str]) -> int:
        """Bytes in and out. One node moves what it moves alone: it may read a tensor in part."""
        times = self.run.passes * self.run.scale
        if len(keys) == 1:
            load = self.alone.get(keys[0])
            if load is None:
                return 0
            return round(load.weights * self.run.passes + (load.cache + load.activations) * times)
        inside = set(keys)
        made = {spec.name: spec for key in keys for spec in self.nodes[key].outputs if spec}
        read = {spec.name: spec for key in keys for spec in self.nodes[key].inputs if spec}
        ends = [spec for name, spec in read.items() if name not in made]
        ends += [spec for name, spec in made.items() if self.readers.get(name, set()) - inside]
        return round(sum(map(self._size, ends), Fraction(0)))

    def _size(self, spec: TensorSpec) -> Fraction:
        if spec.shape is None:
            return Fraction(0)
        if self.flow.is_weight(spec):
            return nbytes(spec, self.formats.of_weights()) * self.run.passes
        kept = self.formats.of_cache() if self.flow.is_cache(spec) else self.formats.activations
        return nbytes(spec, kept) * self.run.passes * self.run.scale
