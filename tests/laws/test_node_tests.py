"""ONNX's own node tests as an oracle: none crashes, none is silent, and twins agree."""

import os
import re
import warnings
from collections import Counter
from collections.abc import Iterator

import onnx
import pytest

from crossflops.errors import CrossflopsWarning
from crossflops.ir.ledger import Ledger
from crossflops.operators import reasons_for_missing_rules
from tests.node_tests import cases, pairs, specs, with_learned_shapes
from tests.onnx_files import ledger_of, saved

# What stays uncounted when every shape is known, and the words of the reason.
STATED = {
    **reasons_for_missing_rules(),
    "Dropout": "the value of training_mode is unknown",
    **dict.fromkeys(("Loop", "SequenceMap"), "the number of iterations depends on data"),
}
# The branches of this body hold sizes that even a run does not bring to light.
BRANCHES = re.compile("test_affine_grid_2d.*_expanded")
# AffineGrid's body computes a 2-D grid as a 3-D one, and keeps a part of it.
UNEQUAL = {"test_affine_grid_2d", "test_affine_grid_2d_align_corners"}
# By operator, how many of ONNX's pairs have MACs: the others hold none in either form.
PAIRS_WITH_MACS = {
    "Attention": 93,
    "LinearAttention": 14,
    "CausalConvWithState": 13,
    "FlexAttention": 11,
    "AffineGrid": 4,
}


@pytest.fixture(scope="module")
def quietly() -> Iterator[None]:
    """Inference runs in this process, as where a system has no fork: it is twice as fast."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.delattr(os, "fork", raising=False)
        # Strict inference does not like the body of MeanVarianceNormalization.
        warnings.simplefilter("ignore", CrossflopsWarning)
        yield


@pytest.fixture(scope="module")
def raw(quietly, tmp_path_factory) -> dict[str, Ledger]:
    """The ledger of every node test, from a file, without its data."""
    folder = tmp_path_factory.mktemp("raw")
    return {
        name: ledger_of(saved(folder, case.model), specs=specs(case))
        for name, case in cases().items()
    }


@pytest.fixture(scope="module")
def learned(quietly, raw, tmp_path_factory) -> dict[str, Ledger]:
    """The same, with the shapes that the data of a test tell where its file does not."""
    folder = tmp_path_factory.mktemp("learned")
    ledgers = dict(raw)
    for name, ledger in raw.items():
        if ledger.uncounted and any("shape" in gap.reason for gap in ledger.uncounted):
            case = cases()[name]
            model = saved(folder, with_learned_shapes(case))
            ledgers[name] = ledger_of(model, specs=specs(case))
    return ledgers


def test_none_crashes_and_none_is_silent(raw, learned):
    """Every model counts; what is uncounted is named, and is so for want of a shape or a reason.

    The shapes are those that depend on data: with them all but the stated operators count.
    """
    assert len(raw) > 1800
    for name, ledger in raw.items():
        assert ledger.counts or not cases()[name].model.graph.node, name
        for gap in learned[name].uncounted:
            op = str(gap.node.op)
            if BRANCHES.fullmatch(name) and "the shape of" in gap.reason:
                continue
            assert STATED.get(op, "nothing") in gap.reason, (name, op, gap.reason)
        for gap in ledger.uncounted:
            named = [spec.name for spec in (*gap.node.inputs, *gap.node.outputs) if spec]
            words = (gap.node.op.type, *(repr(value) for value in named))
            assert any(word in gap.reason for word in words), (name, gap.reason)


def test_twins_have_equal_macs(raw, learned):
    """The operator and its function body do the same MACs, each read from its file."""
    with_macs = Counter()
    for whole, twin in pairs():
        if any(str(gap.node.op) in STATED for gap in raw[whole].uncounted):
            continue
        ours, theirs = (learned[name].total.macs for name in (whole, twin))
        assert (ours == theirs) is (whole not in UNEQUAL), (whole, ours, theirs)
        with_macs[cases()[whole].model.graph.node[0].op_type] += bool(ours)
    print(f"{with_macs.total()} of {len(pairs())} pairs have MACs: {dict(+with_macs)}")
    assert +with_macs == PAIRS_WITH_MACS


@pytest.mark.parametrize("kind", ["macs", "muls"])
def test_linear_attention_agrees_with_its_scan(kind, raw):
    """The body is a Scan over the tokens, and does as many MACs and products of numbers."""
    for whole, twin in pairs():
        if whole.startswith("test_linear_attention"):
            ours, theirs = (getattr(raw[name].total, kind) for name in (whole, twin))
            assert ours == theirs > 0, whole


def test_linear_attention_adds_to_its_state_within_its_macs(raw):
    """The body forms k v^T and adds it to the state; a MAC does both. All other adds agree."""
    for whole, twin in pairs():
        if whole.startswith("test_linear_attention"):
            (node,) = cases()[whole].model.graph.node
            heads = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            shapes = {spec.name: spec.shape for spec in specs(cases()[whole])}
            batch, length, keys = shapes["key"]
            state = keys * shapes["value"][2] // heads["kv_num_heads"]
            adds = raw[twin].total.adds - raw[whole].total.adds
            assert adds == batch * length * state, whole
