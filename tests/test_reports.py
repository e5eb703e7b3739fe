"""The committed reports: they still render, to the bytes that stand beside them."""

from collections import Counter

import pytest

from crossflops import Report
from crossflops.files import read_file_bytes
from crossflops.ir.profile import Failure
from crossflops.render.formats import markdown
from crossflops.report.audit import Audit
from crossflops.report.published import parse_figure
from crossflops.report.sweep import Sweep
from tests.make_reports import FOLDER, REPORTS, SUFFIX

FILES = sorted(FOLDER.glob(f"*{SUFFIX}"))
NAMES = [file.name.removesuffix(SUFFIX) for file in FILES]
MOST = 4_000_000  # bytes of the whole folder
HEAD = b"\x1f\x8b\x08\0\0\0\0\0\x02\xff"  # gzip: no flags, no time, best, no system
ATTENTIVE = {"bert", "gpt2", "llama", "timm-vit_tiny", "vit_b_16", "vit_b_16-no-grad"}
WORDS = {"bert", "gpt2", "gru", "llama", "lstm"}
COLUMNS = ("torchstat", "torchstat-madd", "torchstat-memread", "torchstat-memwrite")
# What a tool itself says on the models on which it fails.
FAILS = {
    # it has no class for the operator Attention, which is whole in the graph
    **{("onnx-tool", model): "NotImplementedError: this Node Attention" for model in ATTENTIVE},
    # it asks for the second result of the GRU, which the file does not list
    ("onnx-tool", "gru"): "IndexError",
    # its trace has the fused kernel of attention, which has no schema there
    ("torchprofile", "vit_b_16-no-grad"): "'NoneType' object has no attribute 'lower'",
    # its rule of a linear layer asserts two axes
    **{
        (column, model): "AssertionError"
        for column in COLUMNS
        for model in (ATTENTIVE - WORDS) | {"convnext_tiny", "swin_t", "swin_v2_t"}
    },
    **{(column, model): "one image of floats" for column in COLUMNS for model in WORDS},
}


@pytest.mark.parametrize("name", ["timm", "torchvision"])
def test_an_audit_renders_to_the_page_beside_it(name):
    """94 % of the figures and more are reproduced to the last printed digit."""
    audit = Audit.from_json(read_file_bytes(FOLDER / "audits" / f"{name}{SUFFIX}"))
    page = (FOLDER / "audits" / f"{name}.md").read_text(encoding="utf-8")
    assert markdown(audit) == page
    reproduced = audit.count_status("exact") + audit.count_status("contradicted")
    assert reproduced >= 0.94 * audit.figures_counted


def test_the_atlas_has_what_its_page_says():
    """How often each tool is exact, no residual, and published figures that agree."""
    atlas = Sweep.from_json(read_file_bytes(FOLDER / "atlas" / f"atlas{SUFFIX}"))
    rows = [row for row in atlas.rows if row.kind == "run" and row.total is not None]
    exact = {tool: sum(r.is_exact for r in rows if r.tool == tool) for tool in atlas.tools}
    page = (FOLDER.parent / "docs" / "atlas.md").read_text(encoding="utf-8")
    assert exact == {
        "torch-flop-counter": 158, "fvcore": 10, "thop": 5, "calflops": 2, "ptflops-pytorch": 1,
        "tensorflow": 0,
    }  # fmt: skip
    counted = Counter(row.tool for row in rows)
    assert f"Of {counted['torch-flop-counter']} architectures of PyTorch" in page
    assert "exact count for 158 (62.2 %), fvcore for 10 (of 251)" in page
    assert f"none of {counted['tensorflow']}\nKeras applications" in page
    unpredicted = {(row.tool, row.case.target) for row in rows if row.residual is None}
    assert unpredicted == {
        (tool, "hf:reports/atlas/configs/vilt.json") for tool in ("ptflops-pytorch", "calflops")
    }
    predicted = [row for row in rows if row.residual is not None]
    assert all(row.residual == 0 for row in predicted)
    assert all(row.macs + sum(row.causes.values()) == row.total for row in predicted)
    assert f"the first {len(atlas.cases)}" in page
    assert f"Of {len(atlas.published)} figures" in page
    for point in atlas.published:
        power = {"macs": 9, "params": 6}[point.unit]
        figure = parse_figure(point.text, power, point.unit)
        if (point.target, point.unit) == ("torchvision:googlenet", "params"):
            continue  # published without the auxiliary heads, which are built
        assert figure.rounding_of(point.exact) in ("exact", "rounded", "truncated"), point
    size = sum(file.stat().st_size for file in (FOLDER / "atlas").rglob("*") if file.is_file())
    assert size <= MOST


def test_there_is_a_report_of_every_model():
    """The folder holds what the `report` environment makes, and nothing else."""
    pages = {file.stem for file in FOLDER.glob("*.md")}
    assert set(NAMES) == REPORTS.keys() == pages
    every = [file for file in FOLDER.iterdir() if file.is_file()]
    assert len(every) == 2 * len(REPORTS)
    assert sum(file.stat().st_size for file in every) <= MOST


@pytest.mark.parametrize("name", NAMES)
def test_a_report_renders_to_the_page_beside_it(name):
    """What was read back renders to the same bytes, JSON and Markdown."""
    file = FOLDER / f"{name}{SUFFIX}"
    text = read_file_bytes(file).decode()
    report = Report.from_json(text)
    assert report.to_json() == text
    assert file.read_bytes()[:10] == HEAD
    assert markdown(report) == (FOLDER / f"{name}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_a_report_leaves_nothing_unexplained(name):
    """Every tool answered, with residual 0, or failed as it does on this model."""
    report = Report.from_json(read_file_bytes(FOLDER / f"{name}{SUFFIX}"))
    assert report.uncounted == ()
    assert set(report.residuals.values()) == {0}
    params = [
        reconciliation.params for reconciliation in report.reconciliations if reconciliation.params
    ]
    assert [account.residual for account in params if account.residual] == []
    failed = {
        profile.tool: profile.message
        for profile in report.profiles
        if isinstance(profile, Failure)
    }
    expected = {tool: text for (tool, of), text in FAILS.items() if of == name}
    assert failed.keys() == expected.keys()
    assert all(text in failed[tool] for tool, text in expected.items())
    assert len(report.residuals) + len(failed) == len(report.profiles) == 19
