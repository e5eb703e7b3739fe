"""What the conformance kit holds against each other: what is predicted, and what is printed."""

import tempfile
from pathlib import Path
from typing import Any

import msgspec

from crossflops.adapters.contract import Adapter
from crossflops.adapters.observe import run_here
from crossflops.core.convention import Convention
from crossflops.core.graph import Graph
from crossflops.core.ledger import Ledger
from crossflops.core.profile import Amount, Failure, Profile
from crossflops.core.trace import Setting, Trace
from crossflops.export import save_program
from crossflops.reconcile import (
    PredictionError,
    WatchError,
    predict,
    predict_nodes,
    reconcile_parameters,
)


class Evidence(msgspec.Struct, frozen=True):
    """What a prediction is made from; the ledger where a clause weighs the native count.

    For a tool that sees nodes the graph, and the ONNX model (of onnx_ir) that it was read from.
    """

    trace: Trace
    ledger: Ledger | None = None
    graph: Graph | None = None
    program: Any = None


def predicted(convention: Convention, evidence: Evidence, setting: Setting) -> Amount | None:
    """What the convention says the tool prints; None where it says that the tool fails.

    Raises WatchError where it is unknown what the tool sees.
    """
    try:
        if evidence.graph is not None and evidence.ledger is not None:
            return predict_nodes(convention, evidence.graph, evidence.ledger).total
        return predict(convention, evidence.trace, setting, evidence.ledger).total
    except WatchError:
        raise
    except PredictionError:
        return None


def weighs(convention: Convention, trace: Trace, setting: Setting) -> bool:
    """Whether a booking is a weight over the native count."""
    try:
        return any(one.clause.weights for one in predict(convention, trace, setting).bookings)
    except PredictionError:
        return False


def printed(
    adapter: Adapter, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
) -> Amount | None:
    """What the tool prints; None where it raises."""
    answer: Profile | Failure = run_here(adapter, model, args, kwargs, setting)
    return answer.total if isinstance(answer, Profile) else None


def printed_of_file(adapter: Adapter, program: Any, setting: Setting) -> Amount | None:
    """What a tool that sees nodes prints of the file of an ONNX model; None where it raises."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        save_program(program, path, {})
        return printed(adapter, path, (), {}, setting)


def parameters(convention: Convention, trace: Trace, answer: Profile | Failure) -> Amount:
    """What no cause covers of the tool's number of parameters."""
    if convention.parameters is None or isinstance(answer, Failure) or answer.params is None:
        return 0
    return reconcile_parameters(convention.parameters, trace, answer.params).residual
