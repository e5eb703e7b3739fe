"""The conformance kit: does a convention predict its tool?

A plugin's tests hold one class::

    class TestConformance(Conformance):
        adapter = Thop()

New checks reach every plugin with a new crossflops.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from crossflops.adapters.contract import Adapter
from crossflops.adapters.observe import run_here
from crossflops.conventions import for_version
from crossflops.core.convention import Clause, Convention
from crossflops.core.ledger import Ledger
from crossflops.core.profile import Amount, Failure, Profile
from crossflops.core.trace import Setting, Trace
from crossflops.count import count
from crossflops.normalize.pytorch import normalize, record
from crossflops.reconcile import PredictionError, predict, reconcile_parameters
from crossflops.testing.architectures import Architecture, architectures
from crossflops.testing.probes import probes

EXAMPLES = 12
GRAD, NO_GRAD, TRAINING = Setting(), Setting(grad=False), Setting(training=True)
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


class Evidence(msgspec.Struct, frozen=True):
    """What a prediction is made from; the ledger where a clause weighs the native count."""

    trace: Trace
    ledger: Ledger | None = None


def predicted(convention: Convention, evidence: Evidence, setting: Setting) -> Amount | None:
    """What the convention says the tool prints; None where it says that the tool fails."""
    try:
        return predict(convention, evidence.trace, setting, evidence.ledger).total
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


def parameters(convention: Convention, trace: Trace, answer: Profile | Failure) -> Amount:
    """What no cause covers of the tool's number of parameters."""
    if convention.parameters is None or isinstance(answer, Failure) or answer.params is None:
        return 0
    return reconcile_parameters(convention.parameters, trace, answer.params).residual


class Conformance:
    """Holds a convention against its tool, on every probe and on random architectures."""

    adapter: ClassVar[Adapter]

    @property
    def convention(self) -> Convention:
        """The edition for the version that is installed."""
        return for_version(self.adapter.convention, self.adapter.version())

    def observe(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *asked: Setting
    ) -> Evidence:
        """One trace that serves all these settings, which are of one mode."""
        views = {view for one in asked if (view := self.convention.view(one))}
        observed = sorted(views, key=lambda one: one.id)
        setting = self.convention.setting(asked[0])
        trace = record(model, args, kwargs, setting, observed).trace
        if not any(weighs(self.convention, trace, one) for one in asked):
            return Evidence(trace)
        graph, trace = normalize(model, args, kwargs, setting, observed)
        return Evidence(trace, count(graph))

    def test_installed_version_is_verified(self) -> None:
        """The edition says which versions it was held against, and this is one of them.

        Of any other version it says on which probes the edition is off, and how far.
        """
        version, convention = self.adapter.version(), self.convention
        if version not in convention.verified:
            off = [text for name in probes() if (text := self._off(name))]
            pytest.fail(
                f"{convention.tool} {version} is not verified; the edition {convention.edition}"
                f" is exact on {len(probes()) - len(off)} of {len(probes())} probes"
                + "".join(f"\n  {text}" for text in off)
            )

    def _off(self, name: str) -> str:
        """How far the convention is off on a probe; "" when it is exact."""
        told = predicted(self.convention, self._seen(name, GRAD, NO_GRAD), GRAD)
        found = printed(self.adapter, *probes()[name].build(), GRAD)
        return "" if found == told else f"{name}: printed {found}, predicted {told}"

    @pytest.mark.parametrize("name", probes())
    def test_probe_is_predicted(self, name: str) -> None:
        """The convention gives the tool's number, with and without gradients, or its failure."""
        model, args, kwargs = probes()[name].build()
        seen = self._seen(name, GRAD, NO_GRAD)
        for setting in (GRAD, NO_GRAD):
            told = predicted(self.convention, seen, setting)  # fixed before the tool runs
            found = printed(self.adapter, model, args, kwargs, setting)
            assert found == told, f"{setting.id}: printed {found}, predicted {told}"

    @pytest.mark.parametrize("name", PARAMETERS)
    def test_parameters_are_predicted(self, name: str) -> None:
        """The convention gives the tool's number of parameters, where it says anything of it."""
        model, args, kwargs = probes()[name].build()
        answer = run_here(self.adapter, model, args, kwargs, GRAD)
        left = parameters(self.convention, self._seen(name, GRAD).trace, answer)
        assert left == 0, f"{left} of {answer} are not explained"

    @pytest.mark.parametrize("name", TRAINED)
    def test_training_mode_is_predicted(self, name: str) -> None:
        """The convention gives the tool's number in training, or in the mode that it forces."""
        model, args, kwargs = probes()[name].build()
        told = predicted(self.convention, self._seen(name, TRAINING), TRAINING)
        found = printed(self.adapter, model.train(), args, kwargs, TRAINING)
        assert found == told, f"printed {found}, predicted {told}"

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.differing_executors],
    )
    @given(architecture=architectures())
    def test_random_architecture_is_predicted(self, architecture: Architecture) -> None:
        """The convention gives the tool's number on a model that nobody wrote down."""
        model, args = architecture.build()
        seen = self.observe(model, args, {}, GRAD, NO_GRAD)
        for setting in (GRAD, NO_GRAD):
            told = predicted(self.convention, seen, setting)
            found = printed(self.adapter, model, args, {}, setting)
            assert found == told, f"{setting.id}: printed {found}, predicted {told}"

    def test_wrong_weight_is_caught(self) -> None:
        """A clause that is off by a factor changes the prediction of some probe.

        So does a clause that is left out, where it books nothing but says when the tool fails.
        """
        countable = [one.id for one in self.convention.clauses if one.formula or one.weights]
        missed = [one for one in countable if not self._is_noticed(one)]
        assert not missed, f"no probe would notice a wrong {', '.join(missed)}"

    def _is_noticed(self, clause_id: str) -> bool:
        clauses = self.convention.clauses
        doubled = (
            msgspec.structs.replace(one, factor=one.factor + 1) if one.id == clause_id else one
            for one in clauses
        )
        fewer = (one for one in clauses if one.id != clause_id or one.kind != "part")
        return self._differs(tuple(doubled)) or self._differs(tuple(fewer))

    def _differs(self, clauses: tuple[Clause, ...]) -> bool:
        wrong = msgspec.structs.replace(self.convention, clauses=clauses)
        return any(
            predicted(wrong, seen, setting) != predicted(self.convention, seen, setting)
            for seen, setting in self._evidence()
        )

    def _evidence(self) -> Iterator[tuple[Evidence, Setting]]:
        for name in probes():
            yield self._seen(name, GRAD, NO_GRAD), GRAD
        for name in TRAINED:
            yield self._seen(name, TRAINING), TRAINING

    def _seen(self, name: str, *asked: Setting) -> Evidence:
        """The evidence of a probe, recorded once: the tests of a class share it."""
        key = (type(self), name, asked)
        if key not in _SEEN:
            _SEEN[key] = self.observe(*probes()[name].build(), *asked)
        return _SEEN[key]


_SEEN: dict[tuple[type, str, tuple[Setting, ...]], Evidence] = {}
