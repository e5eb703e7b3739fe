"""Whether a clause speaks of a call: every field of a match, held and not held."""

import pytest

from crossflops.ir.convention import Match
from crossflops.ir.tensor import TensorSpec
from crossflops.ir.trace import Call, Module, Parameter, Setting, Trace
from crossflops.rules.prediction import speaks_of
from crossflops.rules.rule import Rule
from crossflops.rules.site import Site
from crossflops.tools.legacy import where


def spec(name):
    """A tensor."""
    return TensorSpec(name, "float32", (2, 3))


def module(number, path, *bases, params=(), **settings):
    """A row of the table."""
    return Module(
        id=number,
        names=(path,),
        bases=bases,
        params=tuple(Parameter(name, (3,), number) for name in params),
        children=(),
        training=False,
        settings=settings,
    )


def call(key, parent, level, target, number, **more):
    """A call."""
    return Call(key=key, parent=parent, level=level, target=target, module=number, **more)


OPERATOR = call(
    "c/F.conv2d/aten.conv2d.default",
    "c/F.conv2d",
    "operator",
    "aten.conv2d.default",
    1,
    settings={"groups": 1, "training": False},
    inputs=(spec("input"), spec("weight")),
    fused={"eval no_grad": "aten._fused.default"},
)
LAYER = call("c", "(model)", "module", "my.Conv", 1, via="forward", inputs=(spec("0"),))
ROOT = call("(model)", None, "module", "my.Net", 0, via="call")
PLAIN = call("(model)/aten.add.Tensor", "(model)", "operator", "aten.add.Tensor", 0)
TRACE = Trace(
    calls=(
        ROOT,
        LAYER,
        call("c/F.conv2d", "c", "function", "torch.nn.functional.conv2d", 1, via="attribute"),
        OPERATOR,
        PLAIN,
    ),
    modules=(
        module(0, "", "my.Net"),
        module(1, "c", "my.Conv", "torch.Conv2d", params=("weight",), bias=None, affine=True),
    ),
    setting=Setting(),
)


def holds(match, subject, level=None, setting="eval grad"):
    """Whether a clause with this match is about the subject."""
    asked = Match(**match)
    rule = Rule(
        id="x",
        cause="y",
        level=level or subject.level,
        targets=asked.targets,
        where=where(asked),
        kind="core",
    )
    return speaks_of(rule, Site(subject, TRACE, setting))


@pytest.mark.parametrize(
    ("match", "subject", "expected"),
    [
        ({}, OPERATOR, True),
        ({"targets": ("aten.conv2d.default",)}, OPERATOR, True),
        ({"targets": ("aten.conv1d.*", "aten.conv2d.*")}, OPERATOR, True),
        ({"targets": ("aten.conv2d",)}, OPERATOR, False),
        ({"targets": ("aten.conv3d.*",)}, OPERATOR, False),
        ({"targets": ("my.Conv",)}, LAYER, True),
        ({"targets": ("torch.Conv2d",)}, LAYER, False),
        ({"via": "forward"}, LAYER, True),
        ({"via": "call"}, LAYER, False),
        ({"via": "forward"}, OPERATOR, True),
        ({"via": "call"}, PLAIN, True),
        ({"bases": ("torch.Conv2d",)}, LAYER, True),
        ({"bases": ("torch.Conv2d",)}, OPERATOR, True),
        ({"bases": ("my.Conv",)}, OPERATOR, False),  # the class itself is not derived from itself
        ({"bases": ("torch.Linear",)}, OPERATOR, False),
        ({"bases": ("torch.Conv2d",)}, PLAIN, False),
        ({"entry": ("torch.nn.functional.conv2d",)}, OPERATOR, True),
        ({"entry": ("torch.nn.functional.*",)}, OPERATOR, True),
        ({"entry": ("torch.conv2d",)}, OPERATOR, False),
        ({"entry": ("torch.*",)}, PLAIN, False),
        ({"within": ("my.Conv",)}, OPERATOR, True),
        ({"within": ("my.Net",)}, OPERATOR, True),
        ({"under": ("torch.nn.functional.conv*",)}, OPERATOR, True),
        ({"under": ("my.Conv",)}, OPERATOR, False),
        ({"under": ("torch.nn.functional.conv2d",)}, PLAIN, False),
        ({"dtypes": ("float32",)}, OPERATOR, True),
        ({"dtypes": ("complex64",)}, OPERATOR, False),
        ({"dtypes": ("float32",)}, PLAIN, False),
        ({"registered": True}, OPERATOR, True),
        ({"registered": False}, OPERATOR, False),
        ({"within": ("my.Conv",)}, PLAIN, False),
        ({"settings": {"groups": 1, "training": False}}, OPERATOR, True),
        ({"settings": {"groups": 2}}, OPERATOR, False),
        ({"settings": {"missing": None}}, OPERATOR, False),
        ({"settings": {"affine": True}}, LAYER, True),
        ({"settings": {"bias": None}}, LAYER, True),
        ({"settings": {"affine": False}}, LAYER, False),
        ({"has": ("input", "weight")}, OPERATOR, True),
        ({"has": ("bias",)}, OPERATOR, False),
        ({"lacks": ("bias",)}, OPERATOR, True),
        ({"lacks": ("weight", "bias")}, OPERATOR, False),
        ({"has": ("weight",)}, LAYER, True),
        ({"has": ("0",)}, LAYER, False),
        ({"root": True}, ROOT, True),
        ({"root": False}, ROOT, False),
        ({"root": True}, LAYER, False),
        ({"root": False}, LAYER, True),
        ({"root": True}, PLAIN, True),
        ({"isa": ("my.Conv",)}, LAYER, True),
        ({"isa": ("torch.Conv2d",)}, LAYER, True),
        ({"isa": ("my.Other",)}, LAYER, False),
        ({"named": ("*Con*",)}, LAYER, True),
        ({"named": ("*Con*",)}, OPERATOR, True),
        ({"named": ("my.*",)}, LAYER, False),  # the package is no part of the bare name
        ({"named": ("*Conv2d",)}, LAYER, False),
        ({"has": ("*eigh*",)}, LAYER, True),
        ({"has": ("*eigh*", "*ias*")}, LAYER, False),
        ({"lacks": ("*ias*",)}, LAYER, True),
        ({"lacks": ("*ias*", "*eigh*")}, LAYER, False),
        ({"leaf": True}, LAYER, True),
        ({"leaf": False}, LAYER, False),
        ({"last": True}, ROOT, True),
        ({"last": False}, ROOT, False),
        ({"last": True}, LAYER, False),
        ({"has": ("weight",), "settings": {"groups": 2}}, OPERATOR, False),
    ],
)
def test_every_field_that_is_given_must_hold(match, subject, expected):
    """Targets and kernels by pattern, bases by name, inputs or parameters by presence."""
    assert holds(match, subject) is expected


def test_a_clause_is_about_its_own_level():
    """An operator clause does not speak of the module around it."""
    assert not holds({}, OPERATOR, level="module")
    assert not holds({}, LAYER, level="operator")


@pytest.mark.parametrize(
    ("patterns", "setting", "expected"),
    [
        (("aten._fused*",), "eval no_grad", True),
        (("*",), "eval no_grad", True),
        (("aten._other*",), "eval no_grad", False),
        (("aten._fused*",), "eval grad", False),
        (("*",), "eval no_grad hooked", False),
    ],
)
def test_a_kernel_counts_in_its_own_setting(patterns, setting, expected):
    """What swallows a call without gradients does not with them."""
    assert holds({"fused": patterns}, OPERATOR, setting=setting) is expected
