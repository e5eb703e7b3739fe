"""The share of the weights of experts that a pass reads: those of the experts that its tokens
choose.

A token chooses k of E experts. Where the router spreads tokens evenly and each independently of
the others, T tokens together choose E (1 - (1 - k/E)^T) different experts on average: k of them
for one token, nearly all for many. A pass reads the weights of these alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from math import prod

from crossflops.hardware.dataflow import graphs_with_key_prefix
from crossflops.ir.graph import Graph, Node, TensorSpec
from crossflops.operators import find_operator_rule

_BALANCED = (
    "a pass reads only the weights of the chosen experts: the average number of different "
    "experts if tokens are routed evenly"
)
_OBSERVED = (
    "a pass reads only the weights of experts to which the router sent tokens of these inputs; "
    "other inputs or batches read other experts"
)
_GATHERED = (
    "a pass reads the weights of as many experts as its tokens choose in total, at most all "
    "experts; the number does not consider that tokens may choose the same expert"
)
_SURELY_ALL = 64  # tokens for each expert: e^-64 of its weights are not read


def expert_read_shares(graph: Graph, scale: Fraction = Fraction(1)) -> Mapping[str, Fraction]:
    """Return the share of its experts' weights that a pass reads for each node that does not read
    all, by node key.

    Args:
        graph: The pass, over as many tokens as its shapes say.
        scale: How many times as many tokens there are.
    """
    nodes = [node for _, scope in graphs_with_key_prefix(graph) for node in scope.nodes]
    choices = list(_topk_choices(nodes))
    return {
        node.key: share
        for node in nodes
        if (share := _expert_read_share(node, choices, scale)) is not None and share < 1
    }


def describe_experts(graph: Graph, scale: Fraction = Fraction(1)) -> str:
    """Return the sentence that says which experts' weights a pass reads, or "" if it reads all or
    there are no experts.

    Experts that are modules of a list have nodes of their own, those that have tokens.
    """
    if expert_read_shares(graph, scale):
        return _BALANCED
    nodes = [node for _, scope in graphs_with_key_prefix(graph) for node in scope.nodes]
    if not graph.idle_params or graph.unchosen or any(map(_has_experts, nodes)):
        return ""
    return _GATHERED if _gathers_matrices(nodes) else _OBSERVED


def _gathers_matrices(nodes: Iterable[Node]) -> bool:
    """Return True if a node gathers matrices from weights stacked in 3 dimensions, as experts
    do.
    """
    made: set[str] = set()  # of weights alone, such as a transposed stack
    for node in nodes:
        if node.constant:
            made.update(spec.name for spec in node.outputs if spec is not None)
        stack = node.inputs[0] if node.inputs else None
        if stack is None or node.op.type not in ("Gather", "GatherND"):
            continue
        if len(stack.shape or ()) == 3 and (stack.role == "parameter" or stack.name in made):
            return True
    return False


def _has_experts(node: Node) -> bool:
    """Return True if the node has weights that are stacked by expert."""
    return next(expert_weights(node), None) is not None


def expert_weights(node: Node) -> Iterator[TensorSpec]:
    """Yield the inputs of a node that are weights stacked by expert."""
    known = find_operator_rule(node.op)
    indices = known.experts if known is not None else ()
    stored = [spec for index, spec in enumerate(node.inputs) if spec and index in indices]
    count = next((spec.shape[0] for spec in stored if spec.shape and len(spec.shape) == 3), 0)
    yield from (spec for spec in stored if spec.shape and spec.shape[0] == count)


def _topk_choices(nodes: list[Node]) -> Iterator[tuple[int, int]]:
    """Yield (number of candidates, number of chosen ones) for each TopK node."""
    for node in nodes:
        if node.op.type != "TopK" or not node.inputs or not node.outputs:
            continue
        of, chosen = node.inputs[0], node.outputs[0]
        if of and of.shape and chosen and chosen.shape and 0 < chosen.shape[-1] < of.shape[-1]:
            yield of.shape[-1], chosen.shape[-1]


def _expert_read_share(
    node: Node, choices: list[tuple[int, int]], scale: Fraction
) -> Fraction | None:
    """Return the share of its experts' weights that a node reads on average; None if it has no
    experts or reads them all.
    """
    weights = next(expert_weights(node), None)
    data = node.inputs[0] if node.inputs else None
    if weights is None or weights.shape is None or data is None or data.shape is None:
        return None
    experts, rows = weights.shape[0], prod(data.shape[:-1])
    chosen = node.attrs.get("k", 1)
    if (known := find_operator_rule(node.op)) is not None and known.parameters is not None:
        used, tokens = chosen if isinstance(chosen, int) else 1, Fraction(rows)
    else:
        # one row for each token and expert; without a choice that fits, each row is a token
        fitting = [k for count, k in choices if count == experts and not rows % k]
        used = max(fitting, default=1)
        tokens = Fraction(rows, used)
    if not experts or used >= experts:
        return None
    passing = max(round(tokens * scale), 1)
    if passing * used > _SURELY_ALL * experts:  # no power of so many digits for less than a byte
        return Fraction(1)
    return 1 - Fraction(experts - used, experts) ** passing
