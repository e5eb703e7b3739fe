"""What the conformance kit holds against each other: what is predicted, and what is printed."""

import functools
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from crossflops.export import save_program
from crossflops.frontends.pytorch.program import converted, record
from crossflops.ir.graph import Graph
from crossflops.ir.ledger import Ledger
from crossflops.ir.profile import Amount, Failure, Profile
from crossflops.ir.trace import Setting, Trace, View
from crossflops.ledger.count import count, count_whole
from crossflops.plugins.adapter import Adapter
from crossflops.reconcile import reconcile_parameters
from crossflops.rules.prediction import PredictionError, WatchError, predict, predict_nodes
from crossflops.rules.rule import Convention, OfCost
from crossflops.workers.observe import run_here


class Evidence(msgspec.Struct, frozen=True):
    """What a prediction is made from; the ledger where a rule weighs the native count.

    For a tool that sees nodes the graph, and the ONNX model (of onnx_ir) that it was read from.
    """

    trace: Trace
    ledger: Ledger | None = None
    graph: Graph | None = None
    program: Any = None


class Recorded:
    """A run of a model under export, from which the kits of all tools take what they look at.

    What is made of it is made when it is first asked for, and kept.
    """

    def __init__(
        self,
        model: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        setting: Setting,
        views: Iterable[View],
    ) -> None:
        self._model = model
        self._recording = record(model, args, kwargs, setting, sorted(views, key=repr))

    @property
    def trace(self) -> Trace:
        """What was called, and what was seen of each real run."""
        return self._recording.trace

    @functools.cached_property
    def converted(self) -> tuple[Any, Graph, Trace]:
        """The ONNX model (of onnx_ir), its graph, and the trace with the nodes of every call."""
        return converted(self._model, self._recording)

    @functools.cache  # noqa: B019 - what is kept lives as long as the recording does
    def ledger(self, whole: bool = False) -> Ledger:
        """The counts of the graph; with `whole`, those of functions are not opened."""
        graph = self.converted[1]
        return count_whole(graph) if whole else count(graph)


class Right(NamedTuple):
    """What a convention says of a probe: its total, and the rules that book something there."""

    evidence: Evidence
    setting: Setting
    total: Amount | None
    rules: frozenset[str]


def predicted(convention: Convention, evidence: Evidence, setting: Setting) -> Amount | None:
    """What the convention says the tool prints; None where it says that the tool fails.

    Raises WatchError where it is unknown what the tool sees.
    """
    return booked(convention, evidence, setting)[0]


def booked(
    convention: Convention, evidence: Evidence, setting: Setting
) -> tuple[Amount | None, frozenset[str]]:
    """What is predicted, as by `predicted`, and the ids of the rules that it is made of."""
    try:
        if evidence.graph is not None and evidence.ledger is not None:
            prediction = predict_nodes(convention, evidence.graph, evidence.ledger)
        else:
            prediction = predict(convention, evidence.trace, setting, evidence.ledger)
        return prediction.total, frozenset(booking.rule.id for booking in prediction.bookings)
    except WatchError:
        raise
    except PredictionError:
        return None, frozenset()


def weighs(convention: Convention, trace: Trace, setting: Setting) -> bool:
    """Whether a booking is a weight over the native count."""
    try:
        bookings = predict(convention, trace, setting).bookings
    except PredictionError:
        return False
    return any(isinstance(booking.rule.amount, OfCost) for booking in bookings)


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


# The probes that some checks of the kit take, by name.

# Probes that do other work in training, or might.
TRAINED = (
    "bn2d",
    "bn2d_noaffine",
    "conv_bn_relu",
    "nn.Dropout",
    "nn.PReLU",
    "LSTM_1l",
    "MHA_weights",
)
# Probes whose parameters are shared, frozen, in no layer, or in one that is not called.
PARAMETERS = (
    "frozen_weight",
    "bare_parameter",
    "lists_in_turns",
    "pruned_conv",
    "tied_weight_two_modules",
    "shared_two_names",
    "shared_two_parents",
    "unused_submodule",
    "direct_forward",
    "subclassed_conv",
    "conv_bn_relu",
    "MHA_weights",
    "LSTM_2l_bi",
)
