"""Find formulas that a request names and that match no call of its model."""

from collections.abc import Iterable, Iterator, Set
from difflib import SequenceMatcher

from crossflops.frontends.converted import all_nested_nodes
from crossflops.ir.graph import Graph
from crossflops.ir.trace import Trace
from crossflops.operators.formula import Formula, plain_class_name
from crossflops.operators.formula_sources import find_formula, formulas_of_request
from crossflops.report.custom_operators import operator_name

_STANDARD = ("", "ai.onnx", "ai.onnx.ml")
_LIKE = 0.8  # of two names, the share of letters from which they are similar
_MOST_NAMES = 3


def formula_mismatch_messages(graph: Graph, trace: Trace, names: Set[str]) -> Iterator[str]:
    """Yield a message about formulas that the request names and that match no call of the model.

    A file of formulas may be for several models: where one of its formulas matches, the others
    are named only if the model calls something with a similar name that no formula counts.

    Args:
        graph: The graph of the model.
        trace: Its calls and modules.
        names: The names of formulas that have counted a call.
    """
    unused = [formula for formula in formulas_of_request() if formula.name not in names]
    if not unused:
        return
    calls = [
        name for name in _operator_and_class_names_called(graph, trace, names) if name not in names
    ]
    far: list[Formula] = []
    matching = {str(formula.origin) for formula in formulas_of_request() if formula.name in names}
    for formula in unused:
        if _matches_a_call(formula, graph, trace):
            matching.add(str(formula.origin))
            if formula.module:
                yield (
                    f"{formula.text_for_messages} counts nothing: the model calls "
                    f"{formula.module}, but no node of the graph is made of these calls"
                )
            continue
        similar = _similar_names(formula, calls)
        if similar:
            yield (
                f"{formula.text_for_messages} matches no call of the model {graph.name}, "
                f"which calls {', '.join(similar)}"
            )
        else:
            far.append(formula)
    far = [formula for formula in far if str(formula.origin) not in matching]
    if far:
        texts = ", ".join(formula.text_for_messages for formula in far[:_MOST_NAMES])
        more = f" and {len(far) - _MOST_NAMES} more" if len(far) > _MOST_NAMES else ""
        verb = "matches" if len(far) == 1 else "match"
        yield (
            f"{texts}{more} {verb} no call of the model {graph.name}, "
            "and it calls nothing with a similar name"
        )


def _matches_a_call(formula: Formula, graph: Graph, trace: Trace) -> bool:
    """Return whether the model calls the operator or the class of a formula, also where another
    formula counts the call, or no result depends on it.
    """
    if formula.module:
        return not formula.class_names.isdisjoint(_class_names_called(graph, trace))
    with_dead = graph.whole.nodes if graph.whole is not None else ()
    return any(
        find_formula(node.op.domain, node.op.type) is formula
        for node in all_nested_nodes((*graph.nodes, *graph.replaced, *with_dead))
        if node.op.domain not in _STANDARD
    )


def _class_names_called(graph: Graph, trace: Trace) -> set[str]:
    """Return the names of the classes of all modules and autograd functions that a model calls."""
    modules = {plain_class_name(call.target) for call in trace.calls if call.level == "module"}
    functions = {plain_class_name(f"{f.module}.{f.name}") for f in graph.functions if f.module}
    return modules | functions


def _operator_and_class_names_called(graph: Graph, trace: Trace, used: Set[str]) -> list[str]:
    """Return the names, as formulas write them, of all operators and classes that a model calls
    and ONNX does not have, without operators that a formula with one of the `used` names counts.
    """
    operators = (
        operator_name(node)
        for node in all_nested_nodes(graph.nodes)
        if node.op.domain not in _STANDARD
        and (
            (known := find_formula(node.op.domain, node.op.type)) is None or known.name not in used
        )
    )
    classes = (":".join(name.rsplit(".", 1)) for name in _class_names_called(graph, trace))
    return sorted({*operators, *classes})


def _similar_names(formula: Formula, calls: Iterable[str]) -> list[str]:
    """Return the called names that are like the one of a formula, the most similar first."""
    own = formula.module or formula.name
    ranked = sorted(((_name_similarity(own, name), name) for name in calls), reverse=True)
    return [name for likeness, name in ranked if likeness >= _LIKE][:_MOST_NAMES]


def _name_similarity(first: str, second: str) -> float:
    """Return how similar the last parts of two names are, from 0 to 1.

    >>> _name_similarity("mylib::flash_attn", "other::FlashAttn")
    1.0
    """
    own, other = (name.rpartition(":")[2].replace("_", "").lower() for name in (first, second))
    return SequenceMatcher(None, own, other).ratio()
