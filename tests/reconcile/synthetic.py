"""Traces, conventions and ledgers made up for the reconciler, by hand and at random."""

from hypothesis import strategies as st

from crossflops.ir.graph import Node, Op, TensorSpec
from crossflops.ir.ledger import Cost, CountedNode, Ledger
from crossflops.ir.profile import Entry, Profile
from crossflops.ir.trace import ALONG_CHAINS_SQUARED, Call, Module, Setting, Trace
from crossflops.reconcile.walk import reconcile
from crossflops.rules.conditions import input_elements, run_as
from crossflops.rules.prediction import predict
from crossflops.rules.rule import Convention, CostWeights, Rule
from crossflops.tools.ptflops_pytorch import ptflops_batch_size, ptflops_total_amount

SETTING = Setting()
BATCH = ptflops_batch_size  # the length of the model's input
CLASSES = ("my.Conv", "my.Norm", "my.Block")
TARGETS = ("aten.conv", "aten.mm", "aten.add")
FUNCTIONS = ("torch.mm", "torch.nn.functional.relu")
_NAMES = {"module": CLASSES, "function": FUNCTIONS, "operator": TARGETS}


def module(number, path, cls="my.Block", children=()):
    """A row of the table."""
    return Module(
        id=number,
        names=(path,) if path is not None else (),
        bases=(cls,),
        params=(),
        children=tuple((f"c{place}", child) for place, child in enumerate(children)),
        training=False,
        settings={},
    )


def call(key, parent, level, target, number, size=1, live=True, fused=()):
    """A call on a tensor of `size` elements."""
    return Call(
        key=key,
        parent=parent,
        level=level,
        target=target,
        module=number,
        via="call" if level == "module" else "attribute",
        inputs=(TensorSpec("0", "float32", (size,)),),
        live=live,
        fused=dict(fused),
        arity=1,
    )


def rule(name, kind, target, level="operator", cause=None, **more):
    """A rule about one target, which books its input elements where it has an amount."""
    kernels = more.pop("fused", ())
    return Rule(
        id=name,
        cause=cause or name,
        level=level,
        targets=(target,) if target else (),
        where=(*more.pop("where", ()), *([run_as(*kernels)] if kernels else [])),
        kind=kind,
        reference=f"source of {name}",
        **more,
    )


def convention(*rules, unit=1, counts_dead=False, **more):
    """A convention of a made-up tool."""
    return Convention(
        tool="made-up",
        edition="1",
        verified=("1",),
        unit=unit,
        printed_as="things",
        sees="operator",
        rules=rules,
        counts_dead=counts_dead,
        unseen="unseen.by-default",
        source="source of the tool",
        **more,
    )


def ledger(macs, adds=None):
    """Native costs by operator call: one node each."""
    adds = adds or {}
    return Ledger(
        "digest",
        tuple(
            CountedNode(
                node=Node(
                    key=f"n{place}", op=Op("", "MatMul", 13), inputs=(), outputs=(), call=key
                ),
                cost=Cost(macs=amount, adds=adds.get(key, 0)),
                formula="",
                precision="float32",
            )
            for place, (key, amount) in enumerate(macs.items())
        ),
    )


def printed(total, entries=()):
    """A tool's answer."""
    return Profile(
        tool="made-up",
        version="1",
        setting=SETTING,
        total=total,
        printed_as="things",
        entries=tuple(Entry(path, amount) for path, amount in entries),
    )


def explained(rules, trace, costs, profile=None):
    """What a convention makes of a trace: by cause, and the whole reconciliation."""
    account = reconcile(predict(rules, trace, SETTING, costs), trace, costs, profile)
    return {explanation.cause: explanation.amount for explanation in account.explanations}, account


def trace(*calls, rows=None):
    """A trace of a root with these calls."""
    return Trace(
        calls=(call("(model)", None, "module", "my.Block", 0), *calls),
        modules=tuple(rows or (module(0, ""),)),
        setting=SETTING,
    )


def operator(key, target="aten.mm", parent="(model)", number=0, size=10, **more):
    """An operator call."""
    return call(key, parent, "operator", target, number, size, **more)


SEES = rule("sees", "core", "aten.mm", amount=input_elements, factor=10)


amounts = st.integers(0, 10**20)


@st.composite
def traces(draw):
    """A module tree with sharing, calls of some of its modules, operators beneath; their MACs.

    A dead operator has no node, as in a graph that was exported.
    """
    size = draw(st.integers(1, 5))
    children = [
        draw(st.lists(st.integers(number + 1, size - 1), max_size=3)) if number + 1 < size else []
        for number in range(size)
    ]
    rows = tuple(
        module(number, f"m{number}" if number else "", draw(st.sampled_from(CLASSES)), own)
        for number, own in enumerate(children)
    )
    calls = [call("(model)", None, "module", rows[0].bases[0], 0, 1 + draw(amounts))]
    macs = {}
    for place in range(draw(st.integers(0, 8))):
        parent = draw(st.sampled_from([outer for outer in calls if outer.level != "operator"]))
        number = draw(st.integers(0, size - 1))
        if draw(st.booleans()):
            target = rows[number].bases[0]
            calls.append(call(f"m{place}", parent.key, "module", target, number, draw(amounts)))
            continue
        if draw(st.booleans()):
            target = draw(st.sampled_from(FUNCTIONS))
            number = parent.module
            calls.append(call(f"f{place}", parent.key, "function", target, number, draw(amounts)))
            continue
        live = draw(st.booleans())
        key = f"{parent.key}/o{place}"
        fused = {SETTING.id: "aten._fused"} if draw(st.booleans()) else {}
        target = draw(st.sampled_from(TARGETS))
        size_of = draw(amounts)
        calls.append(
            call(key, parent.key, "operator", target, parent.module, size_of, live, fused.items())
        )
        if live:
            macs[key] = draw(amounts)
    if draw(st.booleans()):
        macs[""] = draw(amounts)  # a node of no known call
    return Trace(calls=tuple(calls), modules=rows, setting=SETTING), ledger(macs)


@st.composite
def conventions(draw):
    """Rules of every kind on two levels, in any order, with any unit."""
    rules = []
    for place in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(("core", "core", "part", "unseen")))
        level = "operator" if kind == "unseen" else draw(st.sampled_from(tuple(_NAMES)))
        counted = kind != "unseen" and draw(st.booleans())
        rules.append(
            rule(
                f"rule{place}",
                kind,
                draw(st.sampled_from((*_NAMES[level], ""))),
                level,
                cause=draw(st.sampled_from(("cause.a", "cause.b", "cause.c"))),
                amount=input_elements
                if counted
                else CostWeights({"macs": draw(st.integers(-3, 3))})
                if kind != "unseen" and draw(st.booleans())
                else None,
                factor=draw(st.integers(-5, 5)),
                times=draw(st.sampled_from((None, ALONG_CHAINS_SQUARED)))
                if kind != "unseen"
                else None,
                fused=draw(st.sampled_from(((), ("aten._fused*",)))),
                again=draw(st.sampled_from(("", "cause.again"))) if level == "function" else "",
                batch=draw(st.sampled_from((None, BATCH))) if kind != "unseen" else None,
                in_total_only=draw(st.booleans()),
                stands_for=draw(st.sampled_from(((), TARGETS[:1]))) if kind == "core" else (),
            )
        )
    return convention(
        *rules,
        unit=draw(st.integers(1, 3)),
        counts_dead=draw(st.booleans()),
        adds_up=ptflops_total_amount,
    )
