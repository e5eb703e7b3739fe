"""Match the custom autograd functions of a model with the nodes that they became."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from crossflops.ir.graph import Function, Graph, Node, TensorSpec
from crossflops.ir.ledger import ZERO, Cost
from crossflops.ir.training import OwnBackward, OwnBackwards
from crossflops.operators import find_operator_rule

_DERIVED = "in {}, which has a custom backward pass; counted as if it were derived automatically"
_OTHERS = "other functions run without values"


class GraphFunction(NamedTuple):
    """A custom function of the graph, and the work of its backward pass; None if unknown."""

    function: Function
    own: OwnBackward | None

    @property
    def operands(self) -> list[TensorSpec]:
        """The tensors that the function takes."""
        return [spec for specs in self.function.operands.values() for spec in specs]

    @property
    def runs_without_reaching_loss(self) -> bool:
        """True if its backward pass was seen to run, whether or not its results reach the loss."""
        return self.own is not None and self.own.ran and not self.own.as_needed


class GraphFunctions:
    """The custom functions of a graph. `reason` says why their backward passes are unknown."""

    def __init__(self, functions: Iterable[GraphFunction], reason: str) -> None:
        self._unfollowed = f" ({reason})" if reason else ""
        self._inside: dict[str, GraphFunction] = {}  # by the keys of its nodes
        self._beside: dict[str, list[GraphFunction]] = defaultdict(list)
        for stored in functions:
            self._inside |= dict.fromkeys(stored.function.nodes, stored)
            if not stored.function.nodes:
                self._beside[stored.function.home].append(stored)

    def enclosing_function(self, node: Node) -> GraphFunction | None:
        """Return the custom autograd function to which a node belongs, or None."""
        return self._inside.get(node.key)

    def function_with_own_backward(self, node: Node) -> GraphFunction | None:
        """Return the custom autograd function to which a node belongs, if its own backward pass is
        known; else None.
        """
        stored = self.enclosing_function(node)
        return stored if stored and stored.own else None

    def functions_without_nodes(self, node: Node) -> Iterable[GraphFunction]:
        """Return the custom autograd functions that became no nodes and were called at
        this node.
        """
        return self._beside.get(node.key, ())

    def unknown_backward_message(self, stored: GraphFunction) -> str:
        """Return the message that the backward pass of this function is unknown and was counted as
        if derived automatically.
        """
        return _DERIVED.format(stored.function.kind) + self._unfollowed

    def name_of_function_that_saves_tensors(self, node: Node) -> str:
        """Return a name for the call, or for the custom autograd function, that keeps tensors for
        the node's backward pass.
        """
        known = self.function_with_own_backward(node)
        return f"{known.function.home} (function)" if known else node.call

    def forward_cost_for_gradients(self, node: Node) -> Cost:
        """Return the cost of the work that a custom function does in its forward pass only for
        gradients; zero for other nodes.
        """
        known = self.function_with_own_backward(node)
        if known is None or known.own is None or node.key != known.function.home:
            return ZERO
        return known.own.early


def functions_and_whether_backwards_are_known(
    graph: Graph, own: OwnBackwards
) -> tuple[GraphFunctions, bool]:
    """Return the custom functions of a graph with their own backward passes, and whether those
    passes are known.

    Args:
        graph: has the functions, in the order of their calls.
        own: their backward passes in the same order, or why they are not known. Those of other
            functions are left out, and the reason says so.
    """
    passes, reason = ((), own) if isinstance(own, str) else (own, "")
    if [function.name for function in graph.functions] != [backward.name for backward in passes]:
        passes, reason = (), reason or (_OTHERS if passes else "")
    pairs = zip(graph.functions, passes or (None,) * len(graph.functions), strict=True)
    graded = _nodes_with_backward_formula(graph)
    kept = [
        GraphFunction(*pair) for pair in pairs if not graded.issuperset(pair[0].nodes or ("",))
    ]
    return GraphFunctions(kept, reason), bool(passes)


def _nodes_with_backward_formula(graph: Graph) -> set[str]:
    """Return the keys of the nodes of custom functions whose backward pass a user's formula
    counts.
    """
    domains = {function.home for function in graph.functions}
    return {
        node.key
        for node in graph.nodes
        if node.key in domains
        and (known := find_operator_rule(node.op)) is not None
        and known.is_own
        and callable(known.backward)
    }
