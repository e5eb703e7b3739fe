"""Check that a convention predicts its tool (the conformance kit).

A plugin's tests hold one class::

    class TestConformance(Conformance):
        adapter = Thop()

Those of a tool that counts ONNX files hold a `FileConformance`, which has files beside models.
New checks reach every plugin with a new crossflops.
"""

import functools
import tempfile
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from crossflops.export.program import save_program
from crossflops.frontends.onnx import OnnxFile
from crossflops.frontends.onnx.reading import normalize_onnx_file as normalize_file
from crossflops.frontends.pytorch.load.fakes import READS, with_fake_tensors
from crossflops.frontends.pytorch.program import convert_torch_recording, record_torch_run
from crossflops.ir.graph import Graph
from crossflops.ir.ledger import Ledger
from crossflops.ir.profile import Amount, Failure, Profile
from crossflops.ir.trace import Setting, Trace, View
from crossflops.ledger.count import count, count_nodes_with_their_bodies
from crossflops.plugins.adapter import Adapter, on_fakes
from crossflops.plugins.discovery import plugin_entry_points
from crossflops.reconcile.parameters import reconcile_parameters
from crossflops.rules.prediction import PredictionError, WatchError, predict, predict_nodes
from crossflops.rules.rule import Convention, CostWeights, Rule
from crossflops.testing.architectures import Architecture, random_architectures
from crossflops.testing.file_probes import file_probes
from crossflops.testing.probes import Built, probes
from crossflops.tools.registry import all_conventions, convention_for_prediction
from crossflops.workers.observe import run_tool_in_process


class Evidence(msgspec.Struct, frozen=True):
    """The facts from which a prediction is made, with the ledger where a rule weighs the native
    count.

    For a tool that sees nodes it has the graph and the ONNX model (of onnx_ir) that the graph was
    read from.
    """

    trace: Trace
    ledger: Ledger | None = None
    graph: Graph | None = None
    program: Any = None


class RecordedRun:
    """One recorded run of a model, which the kits of all tools share.

    Derived values are computed at first use and kept.
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
        self._recording = record_torch_run(model, args, kwargs, setting, sorted(views, key=repr))

    @property
    def trace(self) -> Trace:
        """The trace of the run: all calls, and the observations of real runs."""
        return self._recording.trace

    @functools.cached_property
    def onnx_conversion(self) -> tuple[Any, Graph, Trace]:
        """The (ONNX model of onnx_ir, graph, trace with the nodes of each call), converted at the
        first access.
        """
        return convert_torch_recording(self._model, self._recording)

    @functools.cache  # noqa: B019 - what is kept lives as long as the recording does
    def ledger(self, functions_closed: bool = False) -> Ledger:
        """Return the counts of the graph; with `functions_closed`, a function is one node instead
        of its body.
        """
        graph = self.onnx_conversion[1]
        return count_nodes_with_their_bodies(graph) if functions_closed else count(graph)


class Right(NamedTuple):
    """The right prediction for a probe: its total, and the ids of the rules that add to it."""

    evidence: Evidence
    setting: Setting
    total: Amount | None
    rules: frozenset[str]


def predict_amount(convention: Convention, evidence: Evidence, setting: Setting) -> Amount | None:
    """Return the total that the convention predicts for the tool, or None if it predicts that the
    tool fails.

    Raises WatchError where it is unknown what the tool sees.
    """
    return predict_amount_and_rules(convention, evidence, setting)[0]


def predict_amount_and_rules(
    convention: Convention, evidence: Evidence, setting: Setting
) -> tuple[Amount | None, frozenset[str]]:
    """Return (predicted total, ids of the rules that add to it); (None, empty set) if the
    convention predicts that the tool fails.
    """
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


def has_weighted_costs(convention: Convention, trace: Trace, setting: Setting) -> bool:
    """Return whether a rule of the convention that applies to this trace gives each kind of work
    (multiply, add, compare ...) of a call a weight of its own.
    """
    try:
        bookings = predict(convention, trace, setting).bookings
    except PredictionError:
        return False
    return any(isinstance(booking.rule.amount, CostWeights) for booking in bookings)


def tool_amount(
    adapter: Adapter, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], setting: Setting
) -> Amount | None:
    """Run the tool on a model; return the total that it prints, or None if it raises an error."""
    answer: Profile | Failure = run_tool_in_process(adapter, model, args, kwargs, setting)
    return answer.total if isinstance(answer, Profile) else None


def tool_amount_of_file(adapter: Adapter, program: Any, setting: Setting) -> Amount | None:
    """Write the program as an ONNX file and run the tool on it; return the total that it prints,
    or None if it raises an error.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        save_program(program, path, {})
        return tool_amount(adapter, path, (), {}, setting)


def parameter_residual(convention: Convention, trace: Trace, answer: Profile | Failure) -> Amount:
    """Return the part of the tool's number of parameters that no cause explains; 0 if the
    convention or the tool has no such number.
    """
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


EXAMPLES = 12
GRAD, NO_GRAD, TRAINING = Setting(), Setting(grad=False), Setting(training=True)
FAKE_GRAD = Setting(fake=True)
_LEFT_OUT = ("part", "fails")  # kinds of rules without which something else holds


class ToolConformance:
    """The base of the kits of all frameworks, which compare a convention with the installed tool.

    `held_apart` are rules that another test of the plugin checks, since no probe can show them.
    """

    adapter: ClassVar[Adapter]
    held_apart: ClassVar[frozenset[str]] = frozenset()

    @property
    def convention(self) -> Convention:
        """The edition of the convention for the installed version of the tool."""
        return convention_for_prediction(self.adapter.convention, self.adapter.version())

    def rules_with_raised_factor(self, rule_id: str) -> tuple[Rule, ...]:
        """Return the convention's rules, with the factor of the rule `rule_id` raised by 1."""
        return tuple(
            msgspec.structs.replace(rule, factor=rule.factor + 1) if rule.id == rule_id else rule
            for rule in self.convention.rules
        )


class ProgramConformance(ToolConformance):
    """The kit for tools that count the program of a model, in one setting."""

    def evidence(self) -> Iterator[Evidence]:
        """Yield the evidence of each probe; subclasses implement it."""
        raise NotImplementedError

    def assert_total_is_predicted(self, evidence: Evidence, built: Built) -> None:
        """Assert that the total which the tool prints for the model equals the prediction from the
        evidence.
        """
        expected = predict_amount(self.convention, evidence, GRAD)
        answer = tool_amount(self.adapter, *built, GRAD)
        assert answer == expected, f"printed {answer}, predicted {expected}"
        assert answer is not None

    def test_installed_version_is_verified(self) -> None:
        """Assert that the convention was verified with the installed version of the tool."""
        assert self.adapter.version() in self.convention.verified

    def test_wrong_weight_is_caught(self) -> None:
        """Assert that a wrong factor in any rule would change the prediction for at least one
        probe.
        """
        wrong = {
            rule.id: msgspec.structs.replace(
                self.convention, rules=self.rules_with_raised_factor(rule.id)
            )
            for rule in self.convention.rules
            if rule.amount and rule.id not in self.held_apart
        }
        for evidence in self.evidence():
            right = predict_amount(self.convention, evidence, GRAD)
            wrong = {
                rule_id: convention
                for rule_id, convention in wrong.items()
                if predict_amount(convention, evidence, GRAD) == right
            }
        assert not wrong, f"no probe would notice a wrong {', '.join(sorted(wrong))}"


class Conformance(ToolConformance):
    """A kit that compares a convention with its tool on every probe and on random
    architectures.
    """

    @property
    def conformance_settings(self) -> tuple[Setting, ...]:
        """The settings in which the tool is checked: with and without gradients; a tool that reads
        files only with them.
        """
        return (GRAD,) if self.convention.sees == "node" else (GRAD, NO_GRAD)

    def observe(
        self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *settings: Setting
    ) -> Evidence:
        """Record a model; return the evidence for predictions in all these settings, which have
        the same mode (train or eval).
        """
        views = self._views_for_predictions(settings, (self.convention,))
        return self._evidence_of_recorded_run(
            RecordedRun(model, args, kwargs, self._recording_setting(settings), views), settings
        )

    def _recording_setting(self, asked: tuple[Setting, ...]) -> Setting:
        """Return the setting in which the model is recorded; only whether it trains matters."""
        return Setting(training=self.convention.setting(asked[0]).training)

    def _views_for_predictions(
        self, settings: tuple[Setting, ...], looking: Iterable[Convention]
    ) -> frozenset[View]:
        """Return the real runs that predictions by the conventions in `looking` need in addition
        to the trace.
        """
        views = (convention.view(setting) for convention in looking for setting in settings)
        return frozenset(view for view in views if view is not None)

    def _conventions_of_installed_torch_tools(self) -> tuple[Convention, ...]:
        """Return the conventions of all installed PyTorch tools; one recorded run of a probe then
        serves all kits.
        """
        tools = plugin_entry_points()
        shared = (
            convention
            for convention in all_conventions()
            if convention.framework == "torch" and convention.tool in tools
        )
        return (self.convention, *shared)

    def _evidence_of_recorded_run(
        self, recorded: RecordedRun, settings: tuple[Setting, ...]
    ) -> Evidence:
        """Return the evidence that this kit's convention needs from a recorded run; with the
        ledger only if a rule weighs native costs.
        """
        convention = self.convention
        if convention.sees == "node":
            exported, graph, trace = recorded.onnx_conversion
            return Evidence(
                trace, recorded.ledger(functions_closed=not convention.opens), graph, exported
            )
        if any(has_weighted_costs(convention, recorded.trace, setting) for setting in settings):
            return Evidence(recorded.onnx_conversion[2], recorded.ledger())
        return Evidence(recorded.trace)

    def amount_of_evidence(
        self, seen: Evidence, built: tuple[Any, tuple[Any, ...], dict[str, Any]], setting: Setting
    ) -> Amount | None:
        """Run the tool on the model, or on its ONNX file; return the total that it prints, or None
        if it raises an error.
        """
        if seen.graph is not None:
            return tool_amount_of_file(self.adapter, seen.program, setting)
        return tool_amount(self.adapter, *built, setting)

    def test_installed_version_is_verified(self) -> None:
        """Assert that the convention was verified with the installed version of the tool.

        For any other version the failure lists the probes on which the edition is off, and by how
        much.
        """
        version, convention = self.adapter.version(), self.convention
        if version not in convention.verified:
            off = [text for name in probes() if (text := self._mismatch_text(name))]
            pytest.fail(
                f"{convention.tool} {version} is not verified; the edition {convention.edition}"
                f" is exact on {len(probes()) - len(off)} of {len(probes())} probes"
                + "".join(f"\n  {text}" for text in off)
            )

    def _mismatch_text(self, name: str) -> str:
        """Return a text with the printed and the predicted total of a probe, "" if they are
        equal.
        """
        evidence = self._probe_evidence(name, GRAD, NO_GRAD)
        expected = predict_amount(self.convention, evidence, GRAD)
        answer = self.amount_of_evidence(evidence, probes()[name].build(), GRAD)
        return "" if answer == expected else f"{name}: printed {answer}, predicted {expected}"

    @pytest.mark.parametrize("name", probes())
    def test_probe_is_predicted(self, name: str) -> None:
        """Assert that the tool prints the predicted total of a probe, or fails as predicted, with
        and without gradients.
        """
        built = probes()[name].build()
        evidence = self._probe_evidence(name, GRAD, NO_GRAD)
        for setting in self.conformance_settings:
            expected = predict_amount(
                self.convention, evidence, setting
            )  # fixed before the tool runs
            answer = self.amount_of_evidence(evidence, built, setting)
            assert answer == expected, f"{setting.id}: printed {answer}, predicted {expected}"

    def test_probes_print_the_same_without_values(self) -> None:
        """Assert that a tool which declares to work on fake tensors prints the same numbers for
        them as for real tensors.

        A model whose values the tool reads is run again with real values.
        """
        if not on_fakes(self.adapter):
            pytest.skip("the tool does not declare that it does without values")
        differing = []
        for name, probe in probes().items():
            real = _comparable_numbers(run_tool_in_process(self.adapter, *probe.build(), GRAD))
            model, args, kwargs = probe.build()
            fake = run_tool_in_process(
                self.adapter, with_fake_tensors(model)[0], args, kwargs, FAKE_GRAD
            )
            needs_values = isinstance(fake, Failure) and READS in fake.message
            if _comparable_numbers(fake) != real and not needs_values:
                differing.append(
                    f"{name}: {_comparable_numbers(fake)} without values, {real} with them"
                )
        assert not differing, "\n".join(differing)

    @pytest.mark.parametrize("name", PARAMETERS)
    def test_parameters_are_predicted(self, name: str) -> None:
        """Assert that causes explain the tool's number of parameters of a probe without
        residual.
        """
        model, args, kwargs = probes()[name].build()
        answer = run_tool_in_process(self.adapter, model, args, kwargs, GRAD)
        left = parameter_residual(self.convention, self._probe_evidence(name, GRAD).trace, answer)
        assert left == 0, f"{left} of {answer} are not explained"

    @pytest.mark.parametrize("name", TRAINED)
    def test_training_mode_is_predicted(self, name: str) -> None:
        """Assert that the tool prints the predicted total of a probe in training mode."""
        model, args, kwargs = probes()[name].build()
        evidence = self._probe_evidence(name, TRAINING)
        expected = predict_amount(self.convention, evidence, TRAINING)
        answer = self.amount_of_evidence(evidence, (model.train(), args, kwargs), TRAINING)
        assert answer == expected, f"printed {answer}, predicted {expected}"

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.differing_executors],
    )
    @given(architecture=random_architectures())
    def test_random_architecture_is_predicted(self, architecture: Architecture) -> None:
        """Assert that the tool prints the predicted total of a random architecture, in each
        setting.
        """
        model, args = architecture.build()
        drawn = msgspec.json.encode(architecture)
        evidence = self._evidence_from_cache(
            drawn, lambda: (*architecture.build(), {}), (GRAD, NO_GRAD)
        )
        for setting in self.conformance_settings:
            expected = predict_amount(self.convention, evidence, setting)
            answer = self.amount_of_evidence(evidence, (model, args, {}), setting)
            assert answer == expected, f"{setting.id}: printed {answer}, predicted {expected}"

    def test_wrong_weight_is_caught(self) -> None:
        """Assert that a wrong factor in any rule, or its removal, would change the prediction for
        at least one probe.

        The same holds for leaving out a rule that books nothing and only says when the tool fails.
        """
        countable = [
            rule
            for rule in self.convention.rules
            if (rule.amount or rule.kind == "fails") and rule.id not in self.held_apart
        ]
        right = [
            Right(evidence, setting, *predict_amount_and_rules(self.convention, evidence, setting))
            for evidence, setting in self._evidence()
        ]
        missed = [rule.id for rule in countable if not self._is_wrong_factor_noticed(rule, right)]
        assert not missed, f"no probe would notice a wrong {', '.join(missed)}"

    def _is_wrong_factor_noticed(self, rule: Rule, right: list[Right]) -> bool:
        """Return whether a right prediction changes if the rule's factor is raised by 1 or the
        rule is removed.
        """
        rules = self.convention.rules
        fewer = (other for other in rules if other.id != rule.id or other.kind not in _LEFT_OUT)
        # where the rule books, or the tool fails, a fault shows at the first try
        likely_first = sorted(
            right, key=lambda other: rule.id not in other.rules and other.total is not None
        )
        return any(
            self._any_prediction_differs(tuple(wrong), likely_first)
            for wrong in (self.rules_with_raised_factor(rule.id), fewer)
        )

    def _any_prediction_differs(self, rules: tuple[Rule, ...], right: list[Right]) -> bool:
        """Return whether a convention with these rules predicts another total for one of the right
        predictions.
        """
        if rules == self.convention.rules:
            return False
        wrong = msgspec.structs.replace(self.convention, rules=rules)
        return any(
            predict_amount(wrong, case.evidence, case.setting) != case.total for case in right
        )

    def _evidence(self) -> Iterator[tuple[Evidence, Setting]]:
        """Yield (evidence, setting) for each probe in each setting in which it is checked."""
        for name in file_probes() if self.convention.sees == "node" else ():
            yield self._file_probe_evidence(name), GRAD
        for name in probes():
            evidence = self._probe_evidence(name, GRAD, NO_GRAD)
            yield from ((evidence, setting) for setting in self.conformance_settings)
        for name in TRAINED:
            yield self._probe_evidence(name, TRAINING), TRAINING

    def _file_probe_evidence(self, name: str) -> Evidence:
        """Return the evidence of a file probe: trace, counts and graph of its ONNX file."""
        with tempfile.TemporaryDirectory() as folder:
            file = OnnxFile(path=str(file_probes()[name].write(Path(folder))), inlined=False)
            graph, trace = normalize_file(file, GRAD)
        if self.convention.opens:
            return Evidence(trace, count(graph), graph)
        return Evidence(
            trace,
            count_nodes_with_their_bodies(graph.with_all_nodes_of_file),
            graph.with_all_nodes_of_file,
        )

    def _probe_evidence(self, name: str, *asked: Setting) -> Evidence:
        """Return the evidence of the probe with this name, for predictions in the settings
        `asked`.
        """
        return self._evidence_from_cache(name, probes()[name].build, asked)

    def _evidence_from_cache(
        self, name: Hashable, build: Callable[[], Built], settings: tuple[Setting, ...]
    ) -> Evidence:
        """Return the evidence of the model that `build` makes; it is recorded once under `name`,
        for the kits of all tools.
        """
        key = (
            name,
            self._recording_setting(settings),
            self._views_for_predictions(settings, self._conventions_of_installed_torch_tools()),
        )
        if key not in _RECORDED:
            _RECORDED[key] = RecordedRun(*build(), *key[1:])
        return self._evidence_of_recorded_run(_RECORDED[key], settings)


class FileConformance(Conformance):
    """A kit for tools that count ONNX files, which also checks files that no exporter writes."""

    @pytest.mark.parametrize("name", file_probes())
    def test_file_is_predicted(self, name: str, tmp_path: Path) -> None:
        """Assert that the tool prints the predicted total of a hand-written ONNX file."""
        expected = predict_amount(self.convention, self._file_probe_evidence(name), GRAD)
        answer = tool_amount(self.adapter, file_probes()[name].write(tmp_path), (), {}, GRAD)
        assert answer == expected, f"printed {answer}, predicted {expected}"


def _comparable_numbers(answer: Profile | Failure) -> tuple[Any, ...] | None:
    """Return (total, parameters, entries) of a tool's answer, to compare it with another answer;
    None for a failure.
    """
    if isinstance(answer, Failure):
        return None
    return answer.total, answer.params, answer.entries


_RECORDED: dict[tuple[Hashable, Setting, frozenset[View]], RecordedRun] = {}
