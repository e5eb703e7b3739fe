"""The cost of each ONNX operator: one short pure function with all facts about the operator.

In: an operator, or a node with its shapes and attributes. Out: its rule, and by the rule's formula
the kinds of work; ValueError where a shape that the formula needs is not known.
May import: ir, errors.

A file declares its operators (see `find_operator_rule`), those of onnxruntime stand in `contrib`,
those of ai.onnx.ml in `ml`. A file is imported when an operator of its domain is looked up.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache, lru_cache
from types import MappingProxyType, ModuleType

from crossflops.ir.graph import Op
from crossflops.operators.rule import (
    BREVITAS,
    FINN,
    JAX,
    MICROSOFT,
    ML,
    NCHWC,
    NHWC,
    QONNX,
    SCIPY,
    TENSORFLOW,
    TORCH,
    OperatorRule,
    UnruledOperator,
    merge_operator_rules,
)

__all__ = [
    "OperatorRule",
    "all_operator_rules",
    "find_operator_rule",
    "find_unruled_operator",
    "missing_rule_reason",
    "reasons_for_missing_rules",
]

_OF_ONNX = ("", "ai.onnx", ML)  # whose operators all have a rule, or a reason why not
# Domains of operators that no version of ONNX has, and what these are.
_FOREIGN = {JAX: "an equation of JAX", TENSORFLOW: "an operation of TensorFlow"}


@cache
def _onnx_operator_modules() -> tuple[ModuleType, ...]:
    """Return the modules that declare the operators of the ONNX standard."""
    from crossflops.operators import (
        attention,
        convolution_and_pooling,
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
        training_graphs,
        uncounted,
    )

    return (
        *(convolution_and_pooling, matmul, attention, recurrent, normalization, pointwise),
        *(reduction, resampling, quantization, movement, spectral, training, linear_algebra),
        *(training_graphs, legacy, uncounted),
    )


def _operator_modules_of_domain(domain: str) -> tuple[ModuleType, ...]:
    """Return the modules that declare the operators of a domain."""
    if domain in (MICROSOFT, NCHWC, NHWC, QONNX, FINN, BREVITAS):
        from crossflops.operators.contrib import FAMILIES

        return (*_onnx_operator_modules(), *FAMILIES)
    if domain == ML:
        from crossflops.operators import ml

        return (ml,)
    if domain in (TORCH, JAX, TENSORFLOW, SCIPY):
        from crossflops.operators import (
            aten,
            complex_numbers,
            framework_functions,
            sparse,
            sparse_arrays,
        )

        return (aten, complex_numbers, framework_functions, sparse, sparse_arrays)
    return _onnx_operator_modules()


@cache
def _rules_by_operator_name(
    files: tuple[ModuleType, ...],
) -> dict[tuple[str, str], list[tuple[int, OperatorRule]]]:
    """Return the rules of these modules by (domain, operator type), as pairs (first version,
    rule), the newest first.
    """
    editions: dict[tuple[str, str], list[tuple[int, OperatorRule]]] = defaultdict(list)
    table = merge_operator_rules(file.operator for file in files)
    for op, known in sorted(table.items(), key=lambda row: -row[0].since):
        editions[op.domain, op.type].append((op.since, known))
    return dict(editions)


def _domain_without_default_name(op: Op) -> str:
    """Return the domain of an operator, with "" for the ONNX standard ("ai.onnx")."""
    return "" if op.domain == "ai.onnx" else op.domain


def find_operator_rule(op: Op) -> OperatorRule | None:
    """Return the rule that counts an operator: the newest one for its version or an older one;
    None if there is none.

    An operator that no rule is about may have a formula of one's own: see `formula_sources`.
    """
    known = _find_package_rule(op)
    return known if known is not None or op.domain in _OF_ONNX else _find_formula_rule(op)


@lru_cache(maxsize=4096)
def _find_package_rule(op: Op) -> OperatorRule | None:
    """Return the rule that crossflops itself has for an operator in its version, or None."""
    domain = _domain_without_default_name(op)
    editions = _rules_by_operator_name(_operator_modules_of_domain(domain)).get(
        (domain, op.type), ()
    )
    return next((known for since, known in editions if since <= op.since), None)


def is_counted_by_package(op: Op) -> bool:
    """Return whether crossflops itself has a rule for the operator, or declares why it
    has none.
    """
    return _find_package_rule(op) is not None or find_unruled_operator(op) is not None


def _find_formula_rule(op: Op) -> OperatorRule | None:
    """Return the rule made of a registered formula for this operator, or None."""
    from crossflops.operators.formula_sources import find_formula_rule

    return find_formula_rule(op)


def full_name_of_counted_operator(name: str) -> str:
    """Return the full name of the operator if crossflops itself has a rule for it, else ""."""
    domain, _, kind = name.partition("::")
    domain = "" if domain == "ai.onnx" else domain
    dotted = f"{domain}.{kind}"
    for op in all_operator_rules():
        if (op.domain, op.type) == (domain, kind):
            return str(op)
        if op.domain == TORCH and (op.type == dotted or op.type.rpartition(".")[0] == dotted):
            return op.type
    return ""


def find_unruled_operator(op: Op) -> UnruledOperator | None:
    """Return the declaration which says why an operator has no rule in any version, or None if
    there is no such declaration.
    """
    domain = _domain_without_default_name(op)
    name = str(Op(domain, op.type, op.since))
    files = _operator_modules_of_domain(domain)
    return next((known for file in files if (known := file.operator.unruled.get(name))), None)


def missing_rule_reason(op: Op) -> str:
    """Return a text which says why the operator has no rule."""
    known = find_unruled_operator(op)
    if known is not None:
        return f"{Op(_domain_without_default_name(op), op.type, op.since)}: {known.why}"
    if op.domain in _FOREIGN:
        return f"{op} is {_FOREIGN[op.domain]} without an equivalent in ONNX"
    domain = _domain_without_default_name(op)
    editions = _rules_by_operator_name(_operator_modules_of_domain(domain)).get(
        (domain, op.type), ()
    )
    older = f" before version {editions[-1][0]}: it is of {op.since}" if editions else ""
    return f"no formula for {op}{older}"


@cache
def all_operator_rules() -> Mapping[Op, OperatorRule]:
    """Return all rules of crossflops, by operator with the first version for which each holds."""
    return MappingProxyType(
        merge_operator_rules(file.operator for file in _all_operator_modules())
    )


@cache
def reasons_for_missing_rules() -> Mapping[str, str]:
    """Return the reason, by operator name, for each operator that is declared to have no rule."""
    named = {
        name: known.why
        for file in _all_operator_modules()
        for name, known in file.operator.unruled.items()
    }
    return MappingProxyType(named)


def _all_operator_modules() -> tuple[ModuleType, ...]:
    """Return the modules that declare operators, of all domains."""
    return (
        *_operator_modules_of_domain(MICROSOFT),
        *_operator_modules_of_domain(ML),
        *_operator_modules_of_domain(TORCH),
    )
