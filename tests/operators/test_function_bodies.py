"""Rules against the function bodies that ONNX itself gives its operators.

ONNX's node tests come in pairs, `X` and `X_expanded`: the operator, and its body. Both are run by
ONNX's reference implementation to know every shape, and counted. What does not depend on the
data (shapes, masks made of ranges, constants) is computed once and left out.
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from crossflops.ir.graph import Node, Op, TensorSpec
from crossflops.ir.ledger import ZERO, Cost, UncountedNode
from crossflops.ledger.count import count_node
from crossflops.operators import reasons_for_missing_rules
from tests import node_tests

KINDS = ("macs", "adds", "muls", "divs", "compares", "specials")
SHAPE_READERS = ("Shape", "Size", "Constant")

# Operators whose rule and body differ in these kinds of work, and why that stands.
REVIEWED = {
    "Attention": (
        "adds muls compares",
        "the body adds a bias of zeros where there is no mask, joins a mask with a causal one in "
        "an extra add, scales shared keys once per query head, and looks for rows of -inf",
    ),
    "FlexAttention": (
        "muls",
        "the page scales the scores, the body queries and keys, each by the root of the scale",
    ),
    "AffineGrid": ("macs", "the body embeds 2-D in 3-D"),
    "CenterCropPad": ("adds divs compares", "the body computes with the input `shape`"),
    "GreaterOrEqual": ("compares", "one comparison, where the body joins two by a third"),
    "LessOrEqual": ("compares", "one comparison, where the body joins two by a third"),
    "GroupNormalization": ("adds muls divs", "the rule is that of LayerNormalization's equations"),
    "LayerNormalization": (
        "adds muls divs",
        "the page's equations sum the squared deviations and multiply by the reciprocal, the "
        "body takes E[x^2] - E[x]^2 and divides",
    ),
    "HannWindow": ("adds muls specials", "the body adds a second cosine times zero, and a Range"),
    "HammingWindow": (
        "adds muls specials",
        "the body adds a second cosine times zero, and a Range",
    ),
    "BlackmanWindow": ("adds muls", "the body makes the positions by a Range"),
    "NegativeLogLikelihoodLoss": (
        "adds muls",
        "the body shifts the targets to find the ignored ones, and multiplies by a mask of them",
    ),
    "Swish": ("muls", "a factor alpha of 1 multiplies nothing"),
}

# Operators whose body cannot be counted here.
NOT_COMPARABLE = {
    "CastLike": "numpy lacks the element types",
    "LinearAttention": "the body is a Scan",
    "Range": "the body is a Loop",
}


def costs_of_data_nodes(case) -> Iterator[tuple[Node, Cost]]:
    """The nodes of a test model whose result depends on the data, and what they cost."""
    model, graph = case.model, case.model.graph
    names = [value.name for value in graph.input]
    feeds = dict(zip(names, case.data_sets[0][0], strict=False))
    with np.errstate(all="ignore"):
        known = {"": None, **ReferenceEvaluator(model).run(None, feeds, intermediate=True)}
    known.update(feeds)
    opset = {entry.domain: entry.version for entry in model.opset_import}
    data = set(names)
    for made in graph.node:
        read = made.input[:1] if made.op_type == "CastLike" else made.input
        if not data.intersection(read) or made.op_type in SHAPE_READERS:
            continue
        data.update(made.output)
        attrs = {a.name: _value(onnx.helper.get_attribute_value(a)) for a in made.attribute}
        domain = made.domain
        since = onnx.defs.get_schema(made.op_type, opset[domain], domain).since_version
        node = Node(
            key=made.name,
            op=Op(domain, made.op_type, since),
            inputs=tuple(_spec(name, known) for name in made.input),
            outputs=tuple(_spec(name, known) for name in made.output),
            attrs=attrs,
        )
        counted = count_node(node)
        assert not isinstance(counted, UncountedNode), counted.reason
        yield node, Cost(**{kind: getattr(counted.cost, kind) for kind in KINDS})


def _value(value):
    return tuple(value) if isinstance(value, list) else value


def _spec(name, known):
    if not name or known.get(name) is None:
        return None
    array = np.asarray(known[name])
    return TensorSpec(name, str(array.dtype), array.shape)


@pytest.fixture(scope="module")
def pairs():
    """The test cases of ONNX that have an expanded twin, by operator."""
    by_operator = defaultdict(list)
    for whole, twin in node_tests.pairs():
        case = node_tests.cases()[whole]
        by_operator[case.model.graph.node[0].op_type].append((case, node_tests.cases()[twin]))
    return by_operator


def has_subgraphs(case) -> bool:
    """Whether the operator is told what to do in a subgraph: what that costs has no rule."""
    return any(a.HasField("g") for node in case.model.graph.node for a in node.attribute)


def work(case) -> Cost:
    """The work of a test model that depends on its data."""
    return sum((cost for _, cost in costs_of_data_nodes(case)), ZERO)


def test_rules_agree_with_function_bodies_by_kind(pairs):
    """A rule costs what the body costs, kind by kind, or the difference is a reviewed one."""
    compared = 0
    for operator, cases in pairs.items():
        if operator in reasons_for_missing_rules() or operator in NOT_COMPARABLE:
            continue
        cases = [pair for pair in cases if not has_subgraphs(pair[0])]
        allowed = REVIEWED.get(operator, ("", ""))[0].split()
        for whole, expanded in cases:
            ours, theirs = work(whole), work(expanded)
            differing = [k for k in KINDS if getattr(ours, k) != getattr(theirs, k)]
            assert set(differing) <= set(allowed), (whole.name, ours, theirs)
            compared += 1
    assert compared > 390


def test_every_reviewed_difference_is_real(pairs):
    """The list of differences holds no operator that agrees, and no kind that never differs."""
    for operator, (kinds, _) in REVIEWED.items():
        cases = [pair for pair in pairs[operator] if not has_subgraphs(pair[0])]
        both = [(work(whole), work(expanded)) for whole, expanded in cases]
        for kind in kinds.split():
            assert any(getattr(a, kind) != getattr(b, kind) for a, b in both), (operator, kind)


def test_every_attention_pair_has_the_same_macs(pairs):
    """Heads, pasts, masks and packed operands of all node tests of Attention agree in MACs."""
    assert len(pairs["Attention"]) >= 60
    for whole, expanded in pairs["Attention"]:
        assert work(whole).macs == work(expanded).macs > 0, whole.name
