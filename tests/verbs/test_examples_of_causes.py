"""The model on a cause's page shows the cause, with the amount that is told.

The amounts were derived by hand; what they are made of stands in the comments of the probes, most
of which are the same layers.
"""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import torch
import torch.nn.utils.prune  # noqa: F401 - examples use it
from msgspec import UNSET
from torch import nn
from torch.nn import functional

from crossflops.causes import all_causes
from crossflops.frontends import Source
from crossflops.ir.profile import Profile
from crossflops.ir.trace import Setting, StepSetting
from crossflops.reconcile.alignment import align_models
from crossflops.reconcile.contractions import read_alignable_model
from crossflops.tools.registry import all_conventions, parse_convention
from crossflops.verbs.compare.accounts import build_comparison_report
from crossflops.verbs.compare.counts import collect_counts, count_by_training_mode
from crossflops.verbs.compare.predictions import predict_from_counts
from crossflops.verbs.compare.tool_file import ToolInputFile
from crossflops.verbs.count import count_source

pytestmark = pytest.mark.torch
SHOWN = [cause for cause in all_causes() if cause.example is not None and cause.example.tool]
PAIRS = [cause for cause in all_causes() if cause.example is not None and not cause.example.tool]
# Causes that a few lines of PyTorch do not show, and why.
WITHOUT = {
    "forward.parameters": "no tool counts by tokens",
    "forward.attention": "no tool counts by tokens",
    "control.one-device": "JAX",
    "conv.dilation-by-batches": "TensorFlow",
    "graph.function-not-inlined": "TensorFlow",
    "graph.unknown-shape": "TensorFlow",
    "layout.nchw-unsupported": "TensorFlow",
    "matmul.adjoint-ignored": "TensorFlow",
    "scope.backward": "TensorFlow",
    "conv.backward-by-strides": "TensorFlow",
    "conv.padding-valid-taps": "JAX",
    "elementwise.type-conversion": "JAX",
    "op.estimated": "JAX",
    "op.library-call": "JAX",
    "precision.float32": "JAX",
    "xla.computed-again": "JAX",
    "xla.computed-once": "JAX",
    "xla.library-call": "JAX",
    "xla.rewritten-algorithm": "JAX",
    "xla.rewritten-arithmetic": "JAX",
    "xla.rewritten-contraction": "JAX",
    "xla.rewritten-reduction": "JAX",
    "xla.type-conversion": "JAX",
    "graph.export-decomposition": "both sides agree on most, or one has a defect",
    "graph.one-side-alone": "both sides have it, or one has a defect",
    "module.rule-replaces-or-adds-children": "timm",
    "precision.rounded": "numbers beyond 2^53",
    "control.loop-body-once": "an ONNX file with a loop",
    "graph.lost-nodes": "an ONNX file with results that are left out",
    "graph.other-file": "a second file",
    "graph.rebuilt": "an ONNX file",
    "graph.converter": "a model of TensorFlow, JAX or scikit-learn",
    "params.no-initializer": "an ONNX file with weights elsewhere",
    "params.packed": "an ONNX file with weights of 4 bits",
    "params.unused": "an ONNX file with initializers that nothing takes",
    "module.booked-elsewhere": "in tables of modules alone",
    "tool.error": "no number, so no amount",
    "operator.taught": "a file of formulas (tests/end_to_end/test_taught_tools.py)",
}


def settings(options):
    """What the options of the command line come to."""
    return Setting(
        grad="--no-grad" not in options,
        training="--train-mode" in options,
        step=StepSetting() if "--train" in options else UNSET,
    )


def booked(example):
    """Amounts by cause when the convention's tool prints what it should."""
    names = {"torch": torch, "nn": nn, "F": functional}
    exec(example.code, names)  # it is our own
    model, inputs = names["model"], names["inputs"]
    args = inputs if isinstance(inputs, tuple) else (inputs,)
    setting, convention = settings(example.options), parse_convention(example.tool)
    file = ToolInputFile(None, Path("never-written.onnx")) if convention.sees == "node" else None
    source = Source(model.train(setting.training), args, {})
    conventions = {"tool": convention}
    counted = count_by_training_mode(source, setting, conventions)
    counts = collect_counts(source, setting, counted, conventions, file)
    predicted = predict_from_counts(counts, setting, conventions)
    profile = Profile(
        tool="tool",
        version="",
        setting=setting,
        total=predicted["tool"].total,
        params=0,
        printed_as="",
    )
    (account,) = build_comparison_report(
        counts, predicted, setting, {"tool": profile}
    ).reconciliations
    why = [*account.explanations, *(account.params.explanations if account.params else ())]
    return {explanation.cause: explanation.amount for explanation in why}


@pytest.mark.parametrize("one", SHOWN, ids=lambda cause: cause.id)
def test_the_example_shows_the_cause(one):
    """With the amount that the page tells."""
    assert booked(one.example)[one.id] == one.example.amount


def layers_of(model, inputs):
    """A model as the alignment of two models sees it."""
    native = count_source(Source(model.eval(), (inputs,), {}), Setting(), ())
    return read_alignable_model(native.graph, native.trace, native.ledger)


@pytest.mark.parametrize("one", PAIRS, ids=lambda cause: cause.id)
def test_two_models_show_the_cause(one):
    """With the amount that the page tells, and no other cause has any of it."""
    names = {"torch": torch, "nn": nn, "F": functional}
    exec(one.example.code, names)
    first = layers_of(names["model"], names["inputs"])
    second = layers_of(names["other"], names.get("other_inputs", names["inputs"]))
    alignment = align_models(first, second)
    field = {"MACs": "macs", "FLOPs": "flops", "parameters": "params"}[one.example.unit]
    amounts = {row.cause: getattr(row, field) for row in alignment.causes}
    assert amounts.pop(one.id) == one.example.amount
    assert not any(amounts.values())
    assert (alignment.residual.macs, alignment.residual.flops, alignment.residual.params) == (
        0,
        0,
        0,
    )


def test_every_cause_has_an_example_or_a_reason():
    """Nothing is left out in silence, and no reason outlives its need."""
    without = {cause.id for cause in all_causes() if cause.example is None}
    # causes of formulas are about the config of a language model (tests/tools/formulas)
    assert {cause for cause in without if not cause.startswith("formula.")} == WITHOUT.keys()


def test_the_tools_of_examples_are_known():
    """By their ids, and editions where they are named."""
    known = {convention.tool for convention in all_conventions()}
    assert {cause.example.tool.partition("@")[0] for cause in SHOWN} <= known
