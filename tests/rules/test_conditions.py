"""Whether a rule speaks of a call: every condition, held and not held."""

import pytest

from crossflops.ir.graph import TensorSpec
from crossflops.ir.trace import Call, Module, Parameter, Setting, Trace
from crossflops.rules.conditions import (
    Condition,
    Site,
    any_but,
    as_root,
    by_forward,
    by_name,
    called,
    captured,
    has,
    in_any_domain,
    inside,
    kind_of,
    lacks,
    leaf,
    of_type,
    registered,
    run_as,
    setting,
    subclass_of,
    through,
    under,
)
from crossflops.rules.prediction import applies_to_call
from crossflops.rules.rule import Rule
from crossflops.tools.torchinfo import class_name_condition
from crossflops.tools.torchstat import last_call_condition


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


def holds(about, subject, level=None, run="eval grad"):
    """Whether a rule about these targets and under these conditions is about the subject."""
    rule = Rule(
        id="x",
        cause="y",
        level=level or subject.level,
        targets=tuple(part for part in about if isinstance(part, str)),
        where=tuple(part for part in about if isinstance(part, Condition)),
        kind="core",
    )
    return applies_to_call(rule, Site(subject, TRACE, run))


@pytest.mark.parametrize(
    ("about", "subject", "expected"),
    [
        ((), OPERATOR, True),
        (("aten.conv2d.default",), OPERATOR, True),
        (("aten.conv1d.*", "aten.conv2d.*"), OPERATOR, True),
        (("aten.conv2d",), OPERATOR, False),
        (("aten.conv3d.*",), OPERATOR, False),
        (("my.Conv",), LAYER, True),
        (("torch.Conv2d",), LAYER, False),
        ((by_forward(),), LAYER, True),
        ((called(),), LAYER, False),
        ((by_forward(),), OPERATOR, True),
        ((called(),), PLAIN, True),
        ((subclass_of("torch.Conv2d"),), LAYER, True),
        ((subclass_of("torch.Conv2d"),), OPERATOR, True),
        (
            (subclass_of("my.Conv"),),
            OPERATOR,
            False,
        ),  # not derived from itself
        ((subclass_of("torch.Linear"),), OPERATOR, False),
        ((subclass_of("torch.Conv2d"),), PLAIN, False),
        ((through("torch.nn.functional.conv2d"),), OPERATOR, True),
        ((through("torch.nn.functional.*"),), OPERATOR, True),
        ((through("torch.conv2d"),), OPERATOR, False),
        ((through("torch.*"),), PLAIN, False),
        ((inside("my.Conv"),), OPERATOR, True),
        ((inside("my.Net"),), OPERATOR, True),
        ((under("torch.nn.functional.conv*"),), OPERATOR, True),
        ((under("my.Conv"),), OPERATOR, False),
        ((under("torch.nn.functional.conv2d"),), PLAIN, False),
        ((of_type("float32"),), OPERATOR, True),
        ((of_type("complex64"),), OPERATOR, False),
        ((of_type("float32"),), PLAIN, False),
        ((registered(),), OPERATOR, True),
        ((registered(False),), OPERATOR, False),
        ((inside("my.Conv"),), PLAIN, False),
        ((setting(groups=1, training=False),), OPERATOR, True),
        ((setting(groups=2),), OPERATOR, False),
        ((setting(missing=None),), OPERATOR, False),
        ((setting(affine=True),), LAYER, True),
        ((setting(bias=None),), LAYER, True),
        ((setting(affine=False),), LAYER, False),
        ((has("input", "weight"),), OPERATOR, True),
        ((has("bias"),), OPERATOR, False),
        ((lacks("bias"),), OPERATOR, True),
        ((lacks("weight", "bias"),), OPERATOR, False),
        ((has("weight"),), LAYER, True),
        ((has("0"),), LAYER, False),
        ((as_root(),), ROOT, True),
        ((as_root(False),), ROOT, False),
        ((as_root(),), LAYER, False),
        ((as_root(False),), LAYER, True),
        ((as_root(),), PLAIN, True),
        ((kind_of("my.Conv"),), LAYER, True),
        ((kind_of("torch.Conv2d"),), LAYER, True),
        ((kind_of("my.Other"),), LAYER, False),
        ((has("*eigh*"),), LAYER, True),
        ((has("*eigh*", "*ias*"),), LAYER, False),
        ((lacks("*ias*"),), LAYER, True),
        ((lacks("*ias*", "*eigh*"),), LAYER, False),
        ((leaf(),), LAYER, True),
        ((leaf(False),), LAYER, False),
        ((last_call_condition(),), ROOT, True),
        ((last_call_condition(False),), ROOT, False),
        ((last_call_condition(),), LAYER, False),
        ((has("weight"), setting(groups=2)), OPERATOR, False),
        ((by_name(),), OPERATOR, True),
        ((captured(),), OPERATOR, False),
        ((by_name(),), PLAIN, False),
        ((any_but("aten.conv2d.*"),), OPERATOR, False),
        ((any_but("aten.conv3d.*"),), OPERATOR, True),
    ],
)
def test_every_condition_must_hold(about, subject, expected):
    """Targets and kernels by pattern, bases by name, inputs or parameters by presence."""
    assert holds(about, subject) is expected


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("*Con*", LAYER, True),
        ("*Con*", OPERATOR, True),
        ("my.*", LAYER, False),  # the package is no part of the bare name
        ("*Conv2d", LAYER, False),
    ],
)
def test_a_class_is_known_by_its_bare_name(pattern, subject, expected):
    """Whatever its package."""
    assert holds((class_name_condition(pattern),), subject) is expected


def test_a_rule_is_about_its_own_level():
    """A rule about operators does not speak of the module around them."""
    assert not holds((), OPERATOR, level="module")
    assert not holds((), LAYER, level="operator")


def test_patterns_of_an_operator_fit_it_in_every_domain():
    """For a tool that looks at the type alone."""
    assert in_any_domain("Conv", "Gemm") == ("Conv", "Gemm", "*.Conv", "*.Gemm")


@pytest.mark.parametrize(
    ("kernels", "run", "expected"),
    [
        (("aten._fused*",), "eval no_grad", True),
        (("*",), "eval no_grad", True),
        (("aten._other*",), "eval no_grad", False),
        (("aten._fused*",), "eval grad", False),
        (("*",), "eval no_grad hooked", False),
    ],
)
def test_a_kernel_counts_in_its_own_setting(kernels, run, expected):
    """What swallows a call without gradients does not with them."""
    assert holds((run_as(*kernels),), OPERATOR, run=run) is expected
