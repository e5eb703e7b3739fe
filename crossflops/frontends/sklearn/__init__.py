"""A fitted estimator of scikit-learn -> an ONNX graph, and its steps as modules."""

from collections.abc import Mapping, Sequence
from typing import Any

from crossflops.ir.graph import Graph
from crossflops.ir.trace import Setting, Trace


def require(model: Any) -> None:
    """See `fitted.require`."""
    from crossflops.frontends.sklearn import converter

    converter.require(model)


def program(
    model: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    setting: Setting,
    observed: Sequence[Setting] = (),
) -> tuple[bytes, Graph, Trace]:
    """See `whole.program`, which is imported when it is needed. Nothing is to be observed."""
    from crossflops.frontends.sklearn import graph

    return graph.program(model, args, kwargs, setting)
