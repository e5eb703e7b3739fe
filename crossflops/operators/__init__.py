"""What each ONNX operator costs: one short pure function, or one row of data, per operator.

A formula gives the kinds of work of a node from its shapes and attributes. It raises ValueError
when a shape that it needs is not known. `RULES` lists all rules by operator and first version.
"""

from collections import defaultdict
from collections.abc import Mapping

from crossflops.ir.graph import Op
from crossflops.operators import (
    aten,
    attention,
    framework_functions,
    legacy,
    linear_algebra,
    matmul,
    movement,
    normalization,
    pointwise,
    quantization,
    recurrent,
    reduction,
    resampling,
    spectral,
    training,
    windows,
)
from crossflops.operators.contrib import FAMILIES as CONTRIB
from crossflops.operators.legacy import NOT_YET
from crossflops.operators.ml import features, models
from crossflops.operators.rule import Rule, assemble

__all__ = ["NOT_YET", "RULES", "Rule", "missing", "rule"]

_FAMILIES = (
    windows,
    matmul,
    attention,
    recurrent,
    normalization,
    pointwise,
    reduction,
    resampling,
    quantization,
    movement,
    spectral,
    training,
    linear_algebra,
    legacy,
    aten,
    framework_functions,
    models,
    features,
)

RULES: Mapping[Op, Rule] = assemble((*(family.ENTRIES for family in _FAMILIES), *CONTRIB))

# Domains of operators that no version of ONNX has, and what these are.
_FOREIGN = {"jax": "an equation of JAX", "tensorflow": "an operation of TensorFlow"}


def _editions() -> dict[tuple[str, str], list[tuple[int, Rule]]]:
    found: dict[tuple[str, str], list[tuple[int, Rule]]] = defaultdict(list)
    for op, known in sorted(RULES.items(), key=lambda row: -row[0].since):
        found[op.domain, op.type].append((op.since, known))
    return dict(found)


_EDITIONS = _editions()


def _domain(op: Op) -> str:
    return "" if op.domain == "ai.onnx" else op.domain


def rule(op: Op) -> Rule | None:
    """The rule of the newest version that is not newer than `op`, or None if there is none."""
    editions = _EDITIONS.get((_domain(op), op.type), [])
    return next((known for since, known in editions if since <= op.since), None)


def missing(op: Op) -> str:
    """Why an operator has no rule, in words."""
    name = str(Op(_domain(op), op.type, op.since))
    if name in NOT_YET:
        return f"{name}: {NOT_YET[name]}"
    if op.domain in _FOREIGN:
        return f"{op} is {_FOREIGN[op.domain]} without an equal in ONNX"
    return f"no rule for {op} since version {op.since}"
