"""The parts of a graph that checkpoints run again, and how far each of them runs.

Source: torch/utils/checkpoint.py. A reentrant checkpoint is a function of its own: all of it runs
again once one of its results has a gradient. The other kind hooks what operators keep: it runs
again when the first of that is asked for, and stops when the last of it is there.

JAX (jax/_src/ad_checkpoint.py) runs again what some gradient needs, and what leads there.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from crossflops.ir.graph import Checkpoint, Graph, KeptForBackward, Node


class CheckpointPart(NamedTuple):
    """The nodes of a checkpoint in their order, its inputs and its outputs.

    Those of checkpoints in it are among the nodes.
    """

    checkpoint: Checkpoint
    nodes: tuple[Node, ...]
    given: frozenset[str]
    results: frozenset[str]

    @property
    def checkpoint_kind(self) -> str:
        """The kind of checkpoint, which says how it runs again, such as "reentrant"."""
        return self.checkpoint.kind

    def inner_checkpoint(self, node: Node) -> Checkpoint | None:
        """Return the outermost checkpoint inside this one that contains the node, or None if there
        is none.
        """
        inner = None
        for checkpoint in enclosing_checkpoints(node):
            if checkpoint.number == self.checkpoint.number:
                return inner
            inner = checkpoint
        return None

    def nodes_by_piece(self, piece: Callable[[Node], str]) -> dict[str | int, tuple[Node, ...]]:
        """Return the nodes in groups: those of each nested checkpoint by its number, all others by
        `piece(node)`.
        """
        pieces: dict[str | int, tuple[Node, ...]] = {}
        for node in self.nodes:
            checkpoint = self.inner_checkpoint(node)
            name = checkpoint.number if checkpoint else piece(node)
            pieces[name] = (*pieces.get(name, ()), node)
        return pieces


def enclosing_checkpoints(node: Node) -> Iterator[Checkpoint]:
    """Yield the checkpoints that contain a node, the innermost first."""
    checkpoint = node.training.checkpoint
    while checkpoint is not None:
        yield checkpoint
        checkpoint = checkpoint.around


def parts_of_checkpoints(graph: Graph) -> tuple[CheckpointPart, ...]:
    """Return the checkpoints of a graph with their nodes, inputs and results, each before those
    nested in it.
    """
    inside: dict[int, list[Node]] = {}
    checkpoints: dict[int, Checkpoint] = {}
    users: dict[str, list[frozenset[int]]] = {spec.name: [frozenset()] for spec in graph.outputs}
    for node in graph.nodes:
        ancestors = list(enclosing_checkpoints(node))
        for checkpoint in reversed(ancestors):
            inside.setdefault(checkpoint.number, []).append(node)
            known = checkpoints.setdefault(checkpoint.number, checkpoint)
            if known.kind != checkpoint.kind:  # one within it, as JAX marks it
                checkpoints[checkpoint.number] = replace(known, kind="unknown")
        numbers = frozenset(checkpoint.number for checkpoint in ancestors)
        for name in _checkpoint_tensor_names(node.inputs):
            users.setdefault(name, []).append(numbers)
    made_of = []
    for number, nodes in inside.items():
        made = {name for node in nodes for name in _checkpoint_tensor_names(node.outputs)}
        provided = {
            name for node in nodes for name in _checkpoint_tensor_names(node.inputs)
        } - made
        results = {name for name in made if any(number not in at for at in users.get(name, ()))}
        part = CheckpointPart(
            checkpoints[number], tuple(nodes), frozenset(provided), frozenset(results)
        )
        made_of.append(part)
    return tuple(made_of)


def _checkpoint_tensor_names(specs: Iterable[object]) -> set[str]:
    """Return the names of these tensors, without empty names and None."""
    return {name for spec in specs if (name := getattr(spec, "name", ""))}


class RecomputedNodes(NamedTuple):
    """The nodes of a checkpoint that run again, and those for which this is unknown."""

    nodes: tuple[Node, ...] = ()
    unsure: tuple[Node, ...] = ()


def nodes_rerun_by_pytorch_checkpoint(
    part: CheckpointPart,
    keeps: Callable[[tuple[Node, ...]], bool],
    kept: Callable[[Node, Checkpoint | None], KeptForBackward],
    piece: Callable[[Node], str],
) -> RecomputedNodes:
    """Return the nodes of a PyTorch checkpoint that run again in the backward pass, if some of
    their results are needed.

    `keeps` says of a piece (a call, or what else `piece` names) whether PyTorch keeps anything for
    it, `kept` what that is, of a node or of a checkpoint in this one in which it stands.

    The kind that stops need not run a call that keeps operands, and must one that keeps results.
    """
    if part.checkpoint_kind == "unknown":
        return RecomputedNodes(unsure=part.nodes)
    if part.checkpoint_kind in ("reentrant", "whole"):
        return _recomputation_unless_saved(part.nodes)
    for nodes in reversed(part.nodes_by_piece(piece).values()):
        checkpoint = part.inner_checkpoint(nodes[0])
        what = kept(nodes[0], checkpoint)
        if what == "nothing" or not (checkpoint or keeps(nodes)):
            continue
        before = part.nodes[: part.nodes.index(nodes[0])]
        if what == "results":
            before = part.nodes[: part.nodes.index(nodes[-1]) + 1]
        again = _recomputation_unless_saved(before)
        return RecomputedNodes(again.nodes, (*again.unsure, *(nodes if what == "parts" else ())))
    return RecomputedNodes()


def _recomputation_unless_saved(nodes: tuple[Node, ...]) -> RecomputedNodes:
    """Return the nodes that run again: all except those whose results a selective checkpoint
    saves.

    See create_selective_checkpoint_contexts.
    """
    indices = [node.training.checkpoint for node in nodes]
    saved = [checkpoint.saved if checkpoint else False for checkpoint in indices]
    pairs = list(zip(nodes, saved, strict=True))
    return RecomputedNodes(
        tuple(node for node, stays in pairs if stays is False),
        tuple(node for node, stays in pairs if stays is None),
    )


def retention_for_backward(node: Node) -> KeptForBackward:
    """Return what a node in a checkpoint keeps for the backward pass: "operands", "results", ...
    or "nothing".
    """
    checkpoint = node.training.checkpoint
    return checkpoint.keeps if checkpoint else "nothing"


# What is linear in its floats: their gradients need none of them. And what is in each operand.
_LINEAR = frozenset({
    "Add", "Sub", "Neg", "Sum", "Mean", "Identity", "Cast", "Transpose", "Reshape", "Squeeze",
    "Unsqueeze", "Flatten", "Slice", "Concat", "Split", "Pad", "Expand", "Tile", "ReduceSum",
    "ReduceMean", "AveragePool", "GlobalAveragePool", "CumSum", "Gather", "GatherND",
    "GatherElements", "ScatterND", "ScatterElements", "Where", "DepthToSpace", "SpaceToDepth",
})  # fmt: skip
_PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "Mul")
_BIASED = ("Gemm", "Conv", "ConvTranspose")


def nodes_rerun_by_jax_checkpoint(
    part: CheckpointPart, requested: Mapping[str, frozenset[int]]
) -> RecomputedNodes:
    """Return the nodes of a JAX checkpoint that run again; `requested` has the positions of the
    operands with a gradient, by node key.

    What is saved stays; what of the body of a loop is needed is not followed.
    """
    asked: set[str] = set()
    again, unsure = [], []
    for node in reversed(part.nodes):
        indices = requested.get(node.key, frozenset())
        runs = (
            bool(_checkpoint_tensor_names(node.outputs) & asked)
            and retention_for_backward(node) != "saved"
        )
        if node.bodies and (runs or indices):
            unsure.append(node)
        if runs:
            again.append(node)
        asked |= (
            _checkpoint_tensor_names(node.inputs)
            if runs
            else _operand_names_needed_by_gradients(node, indices)
        )
    return RecomputedNodes(tuple(again), tuple(unsure))


def _operand_names_needed_by_gradients(node: Node, indices: frozenset[int]) -> set[str]:
    """Return the names of the inputs that the gradients of the inputs at these positions need."""
    kind = node.op.type
    if not indices:
        return set()
    if kind in _LINEAR:
        return _checkpoint_tensor_names(
            s for s in node.inputs if s is not None and "float" not in s.dtype
        )
    if kind in _PRODUCTS:
        factors = node.inputs[:2] if kind in _BIASED else node.inputs
        asking = {index for index in indices if index < len(factors)}
        return _checkpoint_tensor_names(
            spec for index, spec in enumerate(factors) if asking - {index} and spec is not None
        )
    return _checkpoint_tensor_names(
        node.inputs[1:] if kind == "Div" and indices == {0} else node.inputs
    )
