"""Reports made by hand: ResNet-50 as it was published, and a model with every trouble."""

import pytest

from crossflops import Report
from crossflops.errors import UnknownNameError
from crossflops.ir.profile import ConventionCount, Failure, Profile
from crossflops.ir.reconciliation import Cause, Explanation, PathRow, Reconciliation
from crossflops.ir.trace import Setting
from crossflops.render.pages import comparison, places
from crossflops.report.report import (
    InputInfo,
    ModelInfo,
    ModuleRow,
    NodeRow,
    OpRow,
    Totals,
    UncountedRow,
)
from crossflops.rules.rule import Convention

MACS = 4_089_184_256
BATCH_NORM = 11_113_984  # elements that ResNet-50's 53 batch norms see
TITLES = {
    "norm.batch": "4 per element of every nn.BatchNorm2d",
    "pool.adaptive": "(49 adds + 1 div) per output of AdaptiveAvgPool2d",
    "unit.mac-vs-flop": "2 FLOPs for a MAC",
}
UNITS = {"thop": 1, "fvcore": 1, "torch-flop-counter": 2}


@pytest.fixture(autouse=True)
def knowledge(monkeypatch):
    """Causes and conventions that the tests know, whatever the package holds."""

    def cause(name):
        if name not in TITLES:
            raise UnknownNameError(f"unknown cause {name!r}", "none")
        return Cause(id=name, title=TITLES[name], page="")

    def find(tool, edition=None):
        if tool not in UNITS:
            raise UnknownNameError(f"unknown tool {tool!r}", "none")
        return Convention(
            tool=tool,
            edition=edition or "1",
            verified=("1.0",),
            unit=UNITS[tool],
            printed_as="x",
            sees="module",
            rules=(),
            unseen="functional.invisible",
            counts_dead=True,
        )

    monkeypatch.setattr(places, "find_cause", cause)
    monkeypatch.setattr(comparison, "find_convention", find)


BY_OP = (
    OpRow("Relu", 49, 0, 60_616_832),
    OpRow("Gemm", 1, 2_048_000, 4_096_000),
    OpRow("Conv", 53, 4_087_136_256, 8_174_272_512),
)
NODES = (
    NodeRow(
        node="conv",
        op="Conv",
        path="conv1",
        macs=1,
        flops=2,
        bytes_read=1,
        bytes_written=1,
        precision="float32",
        exactness="exact",
    ),
)


def counted(**changes):
    """A count of ResNet-50 whose kinds add up: 2 x MACs + 60 000 000 adds + 616 832 specials."""
    fields = {
        "model": ModelInfo(
            name="ResNet",
            digest="d",
            inputs=(InputInfo("x", "float32", (1, 3, 224, 224)),),
            opset={"": 23},
        ),
        "totals": Totals(
            macs=MACS,
            flops=2 * MACS + 60_616_832,
            params=25_557_032,
            adds=60_000_000,
            muls=0,
            divs=0,
            compares=0,
            specials=616_832,
            bytes_read=1_000,
            bytes_written=2_000,
            constant_macs=0,
        ),
        "macs_by_precision": {"float32": MACS},
        "uncounted": (),
        "by_op": BY_OP,
        "modules": (
            ModuleRow(path="", class_="ResNet", macs=MACS, flops=1, params=25_557_032),
            ModuleRow(path="fc|x", class_="Linear", macs=2_048_000, flops=1, params=2_049_000),
        ),
        "nodes": NODES,
    }
    return Report(**(fields | changes))


def answer(tool, version, total, printed_as, **changes):
    """What a tool printed on a version that was checked."""
    fields = {"setting": Setting(), "params": 25_557_032, "verified": True}
    return Profile(
        tool=tool, version=version, total=total, printed_as=printed_as, **(fields | changes)
    )


def why(tool, theirs, amounts, **changes):
    """A reconciliation; `amounts` is a tuple of (cause, amount, number of calls)."""
    explanations = tuple(
        Explanation(
            cause=name, amount=amount, calls=tuple(f"call{k}" for k in range(calls)), reference="r"
        )
        for name, amount, calls in amounts
    )
    fields = {
        "edition": "1",
        "ours": MACS,
        "predicted": theirs,
        "explanations": explanations,
    }
    return Reconciliation(tool=tool, theirs=theirs, **(fields | changes))


@pytest.fixture
def count():
    """A count without tools."""
    return counted()


@pytest.fixture
def resnet():
    """The comparison that the README shows, with the published totals."""
    adaptive = 50 * 2_048
    return counted(
        setting=Setting(),
        profiles=(
            answer("thop", "0.1.1.post2209072238", 4_133_742_592, "MACs"),
            answer("fvcore", "0.1.5.post20221221", 4_111_512_576, "flops"),
            answer("torch-flop-counter", "2.13.0+cpu", 2 * MACS, "FLOPs"),
        ),
        reconciliations=(
            why(
                "thop",
                4_133_742_592,
                (("norm.batch", 4 * BATCH_NORM, 53), ("pool.adaptive", adaptive, 1)),
            ),
            why(
                "fvcore",
                4_111_512_576,
                (("norm.batch", 2 * BATCH_NORM, 53), ("pool.adaptive", 100_352, 1)),
            ),
            why("torch-flop-counter", 2 * MACS, (("unit.mac-vs-flop", MACS, 54),)),
        ),
    )


@pytest.fixture
def troubled():
    """A comparison with everything that is not as it should be."""
    paths = (
        PathRow(path="", ours=MACS, predicted=MACS, theirs=MACS + 1),
        PathRow(path="layer1", ours=10, predicted=10, theirs=11),
        PathRow(path="layer1.conv", ours=6, predicted=6, theirs=7),
        PathRow(path="layer1.relu", ours=0, predicted=0, theirs=0),
        PathRow(path="layer10", ours=3, predicted=3),
    )
    return counted(
        setting=Setting(grad=False),
        uncounted=tuple(UncountedRow(f"node{k}", "Mystery", "no formula yet") for k in range(14)),
        profiles=(
            answer("thop", "9.9", MACS + 1, "MACs", verified=False, params=58_070_000),
            Failure(tool="fvcore", stage="time", message="ran past 5 s", hint="--timeout 60"),
        ),
        reconciliations=(why("thop", MACS + 1, (("new.cause", 0, 0),), by_path=paths),),
    )


@pytest.fixture
def folded():
    """A count by a convention that had to assume its calls."""
    return counted(
        as_=ConventionCount(tool="thop", edition="0.0.31", total=4_111_514_624, assumed=True)
    )
