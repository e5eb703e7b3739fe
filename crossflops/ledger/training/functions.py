"""The functions of a model that have a backward pass of their own, by the nodes they became."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from crossflops.ir.graph import Function, Graph, Node, TensorSpec
from crossflops.ir.ledger import ZERO, Cost
from crossflops.ir.training import OwnBackward, OwnBackwards

_DERIVED = "in {}, which has a custom backward; counted as if derived automatically"
_OTHERS = "other functions can be run without values"


class GraphFunction(NamedTuple):
    """A custom function of the graph, and what its backward pass runs; None where unknown."""

    function: Function
    own: OwnBackward | None

    @property
    def operands(self) -> list[TensorSpec]:
        """The values that it is given."""
        return [spec for specs in self.function.operands.values() for spec in specs]

    @property
    def runs_anyway(self) -> bool:
        """Whether its backward pass was seen to run, whatever is known of the loss."""
        return self.own is not None and self.own.ran and not self.own.as_needed


class GraphFunctions:
    """The custom functions of a graph. `reason` says why their backward passes are not known."""

    def __init__(self, functions: Iterable[GraphFunction], reason: str) -> None:
        self._unfollowed = f" ({reason})" if reason else ""
        self._inside: dict[str, GraphFunction] = {}  # by the keys of its nodes
        self._beside: dict[str, list[GraphFunction]] = defaultdict(list)
        for stored in functions:
            self._inside |= dict.fromkeys(stored.function.nodes, stored)
            if not stored.function.nodes:
                self._beside[stored.function.home].append(stored)

    def enclosing_function(self, node: Node) -> GraphFunction | None:
        """Return the function in which a node stands, whatever is known of it."""
        return self._inside.get(node.key)

    def function_with_own_backward(self, node: Node) -> GraphFunction | None:
        """Return the function in which a node stands whose own backward pass is known."""
        stored = self.enclosing_function(node)
        return stored if stored and stored.own else None

    def without_nodes(self, node: Node) -> Iterable[GraphFunction]:
        """Return the functions whose forward pass became no node, and whose home is this one."""
        return self._beside.get(node.key, ())

    def reason_for_derivation(self, stored: GraphFunction) -> str:
        """Return why the backward pass of a function is counted as that of its forward pass."""
        return _DERIVED.format(stored.function.kind) + self._unfollowed

    def unit(self, node: Node) -> str:
        """Return the name of what keeps tensors together: a call, or a custom function."""
        known = self.function_with_own_backward(node)
        return f"{known.function.home} (function)" if known else node.call

    def forward_gradient_cost(self, node: Node) -> Cost:
        """Return what a custom function makes forward for its gradients, at its last node."""
        known = self.function_with_own_backward(node)
        if known is None or known.own is None or node.key != known.function.home:
            return ZERO
        return known.own.early


def match_functions(graph: Graph, own: OwnBackwards) -> tuple[GraphFunctions, bool]:
    """Return the functions of a graph with their backward passes, and whether those are known.

    Args:
        graph: has the functions, in the order of their calls.
        own: their backward passes in the same order, or why they are not known. Those of other
            functions are left out, and the reason says so.
    """
    passes, reason = ((), own) if isinstance(own, str) else (own, "")
    if [function.name for function in graph.functions] != [backward.name for backward in passes]:
        passes, reason = (), reason or (_OTHERS if passes else "")
    pairs = zip(graph.functions, passes or (None,) * len(graph.functions), strict=True)
    return GraphFunctions([GraphFunction(*pair) for pair in pairs], reason), bool(passes)
