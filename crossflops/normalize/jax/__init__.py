"""A JAX function or a Flax module -> an ONNX graph, and what the model is made of."""

from collections.abc import Mapping, Sequence
from typing import Any

from crossflops.core.graph import Graph
from crossflops.core.trace import Setting, Trace
from crossflops.normalize.decided import Arrays, Run


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
    """See `whole.program`, which is imported when it is needed."""
    from crossflops.normalize.jax import whole

    return whole.program(model, args, kwargs, setting, observed, trips, branches, arrays, run)


def require(model: Any) -> None:
    """See `model.require`."""
    from crossflops.normalize.jax.model import require

    require()
