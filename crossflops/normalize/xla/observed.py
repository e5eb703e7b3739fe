"""The programs that XLA is given and makes of a JAX model, as observed calls."""

from collections.abc import Iterable, Iterator
from typing import Any

from crossflops.core.graph import Graph
from crossflops.core.trace import Call, Setting, Trace, View
from crossflops.errors import NormalizeError
from crossflops.normalize.jax.model import Pure, apart
from crossflops.normalize.xla.calls import calls
from crossflops.normalize.xla.changes import compared
from crossflops.normalize.xla.links import contracting, linked
from crossflops.normalize.xla.owners import owner
from crossflops.normalize.xla.program import Program, read

STOREYS = ("lowered", "compiled")


def lower(pure: Pure) -> Any:
    """What `jax.jit(f).lower` gives, the weights among the arguments. Raises NormalizeError."""
    import jax

    try:
        with apart():
            return jax.jit(pure.weighted).lower(pure.weights, *pure.specs)
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())
        raise NormalizeError(
            f"JAX cannot lower the model: {type(error).__name__}: {text[:300]}",
            "call jax.jit(f).lower(...) by itself to see the whole traceback",
        ) from error


def programs(
    pure: Pure, trace: Trace, graph: Graph | None, observed: Iterable[Setting]
) -> Iterator[Call]:
    """The instructions of the programs that these settings ask for.

    Each product and convolution names the operator calls in `trace` whose work it does; without
    the graph nothing tells which that are. Raises NormalizeError where the model cannot be
    lowered or compiled.
    """
    asked = [one for one in observed if isinstance(one, View) and one.storey in STOREYS]
    if not asked:
        return
    lowering, place = lower(pure), owner(trace.modules, trace.calls)
    operators = contracting(trace.calls, graph) if graph else []
    before = read(lowering.compiler_ir("hlo").as_serialized_hlo_module_proto())
    after: Program | None = None
    for view in asked:
        lowered = linked(calls(before, "lowered", view.id, place), operators)
        if view.storey == "lowered":
            yield from lowered
            continue
        after = after or compiled(lowering)
        yield from compared(lowered, calls(after, "compiled", view.id, place))


def compiled(lowered: Any) -> Program:
    """The program that XLA compiles. Raises NormalizeError."""
    try:
        modules = lowered.compile().runtime_executable().hlo_modules()
        return read(modules[0].as_serialized_hlo_module_proto())
    except Exception as error:
        text = " ".join(str(error).split())
        raise NormalizeError(
            f"XLA cannot compile the model: {type(error).__name__}: {text[:300]}",
            "call jax.jit(f).lower(...).compile() by itself to see the whole traceback",
        ) from error
