"""Figures of timm's table, whose models compute attention in one of two ways."""

import functools
import importlib
from pathlib import Path

import pytest

from crossflops.frontends import load_with_retry
from crossflops.report.published import parse_figure
from crossflops.report.readings import SWITCHES, find_readings
from crossflops.targets.request import Request
from crossflops.targets.target import alternative_target_arguments, build_target
from crossflops.verbs.audit import AuditChoice, audit_table
from crossflops.verbs.model_numbers import choose_conventions, predict_model_numbers

pytestmark = [
    pytest.mark.tools,
    pytest.mark.filterwarnings("ignore:using the default input"),
]

DEIT = "timm:deit_tiny_patch16_224"
PVT = "Wang et al. 2021, 2102.12122, table 2"
TIMM = "pytorch-image-models, results/benchmark-infer-*.csv"
FIGURES = [
    ("1.3 GFLOPs", "native", "MACs", "", PVT),
    ("5.7M", "native", "params", "", PVT),
    ("1.08G", "fvcore", "flops", "", f"{TIMM}: files b and m"),
    ("1.26G", "fvcore", "flops", "TIMM_FUSED_ATTN=0", f"{TIMM}: all other files"),
]


@functools.cache
def numbers_of_deit():
    """Every convention's number of DeiT-Tiny, counted once."""
    return predict_model_numbers(Request.from_arguments(DEIT), choose_conventions(()))


@pytest.mark.parametrize(("text", "tool", "unit", "switch", "source"), FIGURES)
def test_the_right_source_comes_first(text, tool, unit, switch, source):
    """Neither doubled nor halved, and under the switch of the library if there is one."""
    first = find_readings(parse_figure(text), numbers_of_deit())[0]
    assert (first.number.tool, first.number.unit, first.switch) == (tool, unit, switch), source
    assert first.factor == 1


def test_fvcore_counts_attention_where_timm_writes_products():
    """The number under TIMM_FUSED_ATTN=0 is what the convention says of such a model."""
    layers = load_with_retry(lambda: importlib.import_module("timm.layers"))
    fused = numbers_of_deit()
    [switch] = SWITCHES
    [number] = [number for number in fused.numbers if number.tool == switch.tool]
    [missed] = [cause.amount for cause in number.causes if cause.cause == switch.cause]
    before = layers.use_fused_attn()
    layers.set_fused_attn(False)
    try:
        request = Request.from_arguments("timm:deit_tiny_patch16_224")
        plain = predict_model_numbers(request, choose_conventions(["fvcore"]))
    finally:
        layers.set_fused_attn(before)
    assert missed == -12 * 2 * 197 * 197 * 192  # layers, products, tokens, width
    assert plain.numbers[-1].total == number.total - missed


def test_branches_are_merged_for_inference():
    """timm's table has mobileone_s0 with 2.08 M parameters, and with 5.29 M before the merge."""
    [merged] = alternative_target_arguments("timm:mobileone_s0")
    assert alternative_target_arguments("timm:vit_tiny_patch16_224.augreg_in21k") == ()
    numbers = []
    for arguments in ({}, merged):
        model, _ = build_target("timm:mobileone_s0", arguments)
        numbers.append(round(sum(weight.numel() for weight in model.parameters()) / 1e6, 2))
    assert numbers == [5.29, 2.08]


def test_a_sample_of_timms_table_is_reproduced():
    """With the variants of attention: files b and m of the table contradict the others."""
    sample = Path(__file__).with_name("timm_sample.csv")
    audit = audit_table(sample, AuditChoice(library="timm", as_=("fvcore",), jobs=1))
    rows = {(row.line, row.column): row for row in audit.rows}
    assert audit.count_status("open") == 0
    assert audit.count_status("exact") == len(audit.rows) - 1
    [odd] = [row for row in rows.values() if row.status == "contradicted"]
    assert odd.model == "deit_tiny_patch16_224"
    assert len(audit.contradictions) == 1
    assert "1 of 4 rows" in audit.contradictions[0]
    assert audit.ignored == ("macts", "files", "variants")
