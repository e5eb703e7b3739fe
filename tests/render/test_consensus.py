"""Which number to publish: the sentence, and what each tool makes of it."""

import pytest
from msgspec.structs import replace

from crossflops import Report
from crossflops.ir.profile import Failure
from crossflops.ir.trace import Setting
from crossflops.render.formats import markdown
from crossflops.render.terminal import terminal
from crossflops.report.consensus import build_consensus
from crossflops.report.report import ModuleRow, UncountedRow
from crossflops.verbs.compare.questions import answer_report_questions

MACS = 4_089_184_256


def told(report, tool, **changes):
    """The report, in which the explanations of a tool say what of them stands in MACs."""
    return replace(
        report,
        reconciliations=tuple(
            replace(
                reconciliation,
                explanations=tuple(
                    replace(row, macs=changes.get(row.cause, 0))
                    for row in reconciliation.explanations
                ),
                unit=2 if reconciliation.tool == "torch-flop-counter" else 1,
            )
            if reconciliation.tool == tool
            else reconciliation
            for reconciliation in report.reconciliations
        ),
    )


@pytest.fixture
def found(resnet):
    """ResNet-50 with the three tools, as a comparison of today makes it."""
    for tool in ("thop", "fvcore", "torch-flop-counter"):
        resnet = told(resnet, tool)
    return replace(resnet, made_with={"crossflops": "0.1.0", "torch": "2.13.0+cpu"})


def stands(report):
    """Where each tool stands."""
    return {verdict.tool: verdict.stand for verdict in build_consensus(report).verdicts}


def test_the_sentence_can_be_cited(found):
    """Value, convention, inputs, setting, versions, and who agrees."""
    agreement = build_consensus(found)
    assert (agreement.macs, agreement.flops, agreement.citable, agreement.caveats) == (
        MACS,
        2 * MACS,
        True,
        (),
    )
    assert agreement.sentence == (
        "ResNet: 4 089 184 256 multiply-accumulates (MACs; 8.178 GFLOPs at 2 per MAC) "
        "for one forward pass at input 1x3x224x224 float32, in evaluation mode, "
        "contractions only (Conv, Gemm), no biases, normalizations or activations; "
        "counted by crossflops 0.1.0 on the ONNX graph (opset 23) exported by torch 2.13; "
        "torch-flop-counter 2.13 agrees; thop 0.1.1, fvcore 0.1.5 agree after operations "
        "outside of contractions are subtracted."
    )
    assert agreement.reason.startswith("3 of 3 tools count these MACs, 2 of them plus other")
    assert stands(found) == {
        "thop": "agrees after",
        "fvcore": "agrees after",
        "torch-flop-counter": "agrees",
    }


def test_a_tool_that_counts_other_macs_differs(found):
    """Whatever it counts on top: it is named with its largest causes, and not in the sentence."""
    wrong = told(found, "thop", **{"pool.adaptive": 102_400})
    assert stands(wrong)["thop"] == "differs"
    assert "thop" not in build_consensus(wrong).sentence
    (why,) = (verdict.why for verdict in build_consensus(wrong).verdicts if verdict.tool == "thop")
    assert why == "+1.09 % as MACs: norm.batch +44.46 M, pool.adaptive +102.4 k"


def test_a_residual_is_no_agreement(found):
    """One unexplained operation, and the tool is no witness."""
    first, *others = found.reconciliations
    wrong = replace(found, reconciliations=(replace(first, theirs=first.theirs + 1), *others))
    assert stands(wrong)["thop"] == "unexplained"
    assert "+1 of its total is not explained" in terminal(
        answer_report_questions(wrong, consensus=True), 120
    )


def test_uncounted_nodes_are_in_the_sentence(found):
    """No number can be cited without them: it is a lower bound."""
    some = replace(found, uncounted=tuple(UncountedRow(f"n{k}", "Odd", "new") for k in range(2)))
    agreement = build_consensus(some)
    assert not agreement.citable
    assert "at least 4 089 184 256 multiply" in agreement.sentence
    assert (
        "2 nodes could not be counted (Odd); their work is unknown, not zero" in agreement.sentence
    )
    assert "To publish, only with its caveat" in terminal(
        answer_report_questions(some, consensus=True), 80
    )


@pytest.mark.parametrize(("grade", "word"), [("bound", "at most"), ("estimate", "about")])
def test_a_weaker_count_says_so(found, grade, word):
    """A node whose work depends on data makes it an upper bound."""
    weak = replace(found, nodes=tuple(replace(node, exactness=grade) for node in found.nodes))
    assert f"ResNet: {word} 4 089 184 256" in build_consensus(weak).sentence
    assert not build_consensus(weak).citable


def test_setting_and_failures_are_told(found):
    """Training without gradients; a tool that failed has its reason."""
    failure = Failure(tool="torchinfo", stage="time", message="ran past 5 s", hint="wait")
    other = replace(
        found,
        setting=Setting(training=True, grad=False),
        profiles=(*found.profiles, failure),
    )
    assert (
        "in training mode, without gradients, contractions only" in build_consensus(other).sentence
    )
    assert "torchinfo            failed" in terminal(
        answer_report_questions(other, consensus=True), 80
    )


def test_a_module_is_worded_as_one(found):
    """With --module the number is that of the module."""
    row = ModuleRow(path="layer1.0", class_="Block", macs=7, flops=14, params=1)
    agreement = build_consensus(replace(found, module=row))
    assert agreement.sentence.startswith(
        "layer1.0 of ResNet: 7 multiply-accumulates (MACs; 14 FLOPs"
    )


def test_without_tools_there_is_a_number(count):
    """Nobody agrees, and the sentence says nothing of it."""
    agreement = build_consensus(count)
    assert agreement.verdicts == ()
    assert agreement.sentence.endswith("counted by crossflops on the ONNX graph (opset 23).")


def test_it_is_read_back_as_it_was_written(found):
    """JSON holds the sentence; pages show it with the tools, and no account of each."""
    report = answer_report_questions(found, consensus=True)
    assert report.to_dict()["consensus"]["sentence"] == build_consensus(found).sentence
    assert Report.from_json(report.to_json()) == report
    page = markdown(report)
    assert "multiply-accumulates (MACs; 8.178 GFLOPs at 2 per MAC)" in page
    assert "thop = native" not in page
    assert max(map(len, terminal(report, 60).splitlines())) <= 60
