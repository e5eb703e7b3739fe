"""The conformance kit for tools that count TensorFlow graphs: does a convention predict its tool?

A plugin's tests hold one class::

    class TestConformance(TensorFlowConformance):
        adapter = TensorFlowProfiler()
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from crossflops.ir.trace import Setting, Trace
from crossflops.plugins.adapter import Adapter
from crossflops.rules.rule import Convention
from crossflops.testing.conformance import Evidence, predicted, printed
from crossflops.testing.tensorflow import probes
from crossflops.testing.tensorflow.architectures import architectures
from crossflops.testing.tensorflow.probes import TfProbe
from crossflops.tools.registry import predicting

PROBES: dict[str, TfProbe] = {probe.name: probe for probe in (*probes.PROBES, *probes.PROBES)}
EXAMPLES = 12
SETTING = Setting()


@functools.cache
def _seen(name: str) -> Evidence:
    return Evidence(_trace(*PROBES[name].build()))


def _trace(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Trace:
    from crossflops.frontends.tensorflow.graph import record

    return record(model, args, kwargs, SETTING).trace


class TensorFlowConformance:
    """Holds a convention against its tool, on every probe and on random architectures."""

    adapter: ClassVar[Adapter]

    @property
    def convention(self) -> Convention:
        """The edition for the version that is installed."""
        return predicting(self.adapter.convention, self.adapter.version())

    def test_installed_version_is_verified(self) -> None:
        """The edition says which versions it was held against, and this is one of them."""
        assert self.adapter.version() in self.convention.verified

    @pytest.mark.parametrize("name", PROBES)
    def test_probe_is_predicted(self, name: str) -> None:
        """The convention gives the tool's number, which is told before the tool runs."""
        expected = predicted(self.convention, _seen(name), SETTING)
        answer = printed(self.adapter, *PROBES[name].build(), SETTING)
        assert answer == expected, f"printed {answer}, predicted {expected}"
        assert answer is not None

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
    )
    @given(architecture=architectures())
    def test_random_architecture_is_predicted(
        self, architecture: Callable[[], tuple[Any, Any]]
    ) -> None:
        """The convention gives the tool's number on a model that no author wrote down."""
        model, spec = architecture()
        expected = predicted(self.convention, Evidence(_trace(model, (spec,), {})), SETTING)
        answer = printed(self.adapter, model, (spec,), {}, SETTING)
        assert answer == expected, f"printed {answer}, predicted {expected}"

    def test_wrong_weight_is_caught(self) -> None:
        """A rule that is off by a factor changes the prediction of some probe."""
        countable = [rule.id for rule in self.convention.rules if rule.amount]
        missed = [rule for rule in countable if not self._is_noticed(rule)]
        assert not missed, f"no probe would notice a wrong {', '.join(missed)}"

    def _is_noticed(self, rule_id: str) -> bool:
        rules = tuple(
            msgspec.structs.replace(rule, factor=rule.factor + 1) if rule.id == rule_id else rule
            for rule in self.convention.rules
        )
        wrong = msgspec.structs.replace(self.convention, rules=rules)
        return any(
            predicted(wrong, seen, SETTING) != predicted(self.convention, seen, SETTING)
            for seen in self._evidence()
        )

    def _evidence(self) -> Iterator[Evidence]:
        return (_seen(name) for name in PROBES)
