"""A JAX function or a Flax module -> an ONNX graph, and what the model is made of."""

from collections.abc import Mapping, Sequence
from typing import Any

from crossflops.frontends.decided import Arrays, Run
from crossflops.ir.graph import Graph
from crossflops.ir.trace import Setting, Trace


def program(
    model: Any,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    setting: Setting,
    observed: Sequence[Setting] = (),
    trips: Mapping[str, int] = {},
    branches: Mapping[str, str] = {},
    arrays: Arrays = None,
    run: Run | None = None,
) -> tuple[bytes, Graph, Trace]:
    """See `graph.program`, which is imported when it is needed."""
    from crossflops.frontends.jax import graph

    return graph.program(model, args, kwargs, setting, observed, trips, branches, arrays, run)


def require(model: Any) -> None:
    """See `model.require`."""
    from crossflops.frontends.jax.model import require

    require()
