"""How a file declares its operators: all that is known of one stands over its formula."""

import subprocess
import sys

from crossflops.ir.graph import Op
from crossflops.ir.ledger import Cost
from crossflops.operators.operands import rank_constraint
from crossflops.operators.rule import MICROSOFT, NCHWC, Operators, estimate_exactness


def twice(node):
    """Y = 2 * X: n(X) muls."""
    return Cost(muls=node.inputs[0].numel)


def test_a_decorator_says_all_that_is_known_of_an_operator():
    """The function stays as it is; what is not said is the same for most operators."""
    operator, needs = Operators(MICROSOFT), rank_constraint(0, 2)
    assert operator("Twice", "n(X) muls", doubt=estimate_exactness, requires=needs)(twice) is twice
    ((op, rule),) = operator.rules.items()
    assert op == Op(MICROSOFT, "Twice", 1)
    assert (rule.formula, rule.equation) == (twice, "n(X) muls")
    assert (rule.doubt, rule.requires, rule.traffic) == (estimate_exactness, (needs,), "touch")
    assert rule.page.endswith("/docs/ContribOperators.md#com.microsoft.Twice")


def test_operators_that_are_alike_are_declared_together():
    """In another domain than that of the file, from a later version on."""
    operator = Operators()
    operator(("Twice", "Double"), "n(X) muls", since=7)(twice)
    operator("Twice", "n(X) muls", domain=NCHWC)(twice)
    assert [(op.domain, op.type, op.since) for op in operator.rules] == [
        *(("", "Twice", 7), ("", "Double", 7), (NCHWC, "Twice", 1))
    ]
    assert operator.rules[Op("", "Double", 7)].page.endswith("/onnx__Double.html#double-7")


def test_an_operator_without_a_formula_says_why():
    """Silence is impossible: what has no rule has a reason."""
    operator, needs = Operators(MICROSOFT), rank_constraint(0, 0)
    why = "how long it runs depends on data"
    operator.declare_without_rule("Search", why, requires=needs)
    assert operator.unruled["com.microsoft.Search"] == (why, (needs,))


def test_a_file_is_imported_when_an_operator_of_its_domain_is_looked_up():
    """A model of ai.onnx alone needs no rule of onnxruntime, of ai.onnx.ml or of a framework."""
    code = """
import sys
from crossflops.ir.graph import Op
from crossflops.operators import find_operator_rule

def files():
    return {name.split(".")[2] for name in sys.modules if name.startswith("crossflops.operators.")}

assert find_operator_rule(Op("", "Conv", 22))
assert not find_operator_rule(Op("other", "Conv", 1))
print(*files() & {"ml", "contrib", "aten", "framework_functions"})
assert find_operator_rule(Op("ai.onnx.ml", "Scaler", 1))
assert find_operator_rule(Op("com.microsoft", "Gelu", 1))
print(*sorted(files() & {"ml", "contrib", "aten", "framework_functions"}))
"""
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert shown == ["", "contrib ml"]
