"""Evaluate dimension names that are formulas of other names, such as "past + seq"."""

import ast
from collections.abc import Mapping

_LONGEST = 200  # characters of a formula: exporters write short ones
_DEEPEST = 100


def formula_names(name: str) -> tuple[str, ...]:
    """Return the names in a dimension name like "past + seq"; () if it is not a formula."""
    tree = _parse_formula(name)
    if tree is None or isinstance(tree, ast.Name):
        return ()
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    return tuple(dict.fromkeys(names))


def formula_size(name: str, bound: Mapping[str, int]) -> int | None:
    """Return the size of a dimension whose name is a formula, or None if it cannot be computed."""
    tree = _parse_formula(name)
    return None if tree is None else _formula_value(tree, bound)


def _parse_formula(name: str) -> ast.expr | None:
    """Return the syntax tree of a dimension name that is a formula, or None for a plain name."""
    if len(name) > _LONGEST:
        return None
    try:
        tree = ast.parse(name.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if _is_formula(tree) else None


def _is_formula(tree: ast.expr, depth: int = 0) -> bool:
    """Return whether a syntax tree has only names, integers and + - * // /, not too deep."""
    if isinstance(tree, ast.BinOp):
        known = isinstance(tree.op, ast.Add | ast.Sub | ast.Mult | ast.FloorDiv | ast.Div)
        sides = (tree.left, tree.right)
        return known and depth < _DEEPEST and all(_is_formula(side, depth + 1) for side in sides)
    full = isinstance(tree, ast.Constant) and type(tree.value) is int
    return full or isinstance(tree, ast.Name)


def _formula_value(tree: ast.expr, bound: Mapping[str, int]) -> int | None:
    """Return the value of a formula for the sizes in `bound`, or None if a name is not in it."""
    if isinstance(tree, ast.Name):
        return bound.get(tree.id)
    if isinstance(tree, ast.Constant):
        return tree.value if type(tree.value) is int else None
    if not isinstance(tree, ast.BinOp):
        return None
    left, right = _formula_value(tree.left, bound), _formula_value(tree.right, bound)
    if left is None or right is None:
        return None
    return _arithmetic_result(tree.op, left, right)


def _arithmetic_result(operator: ast.operator, left: int, right: int) -> int | None:
    """Return the result of an operator on two integers, or None if `/` leaves a remainder."""
    if isinstance(operator, ast.Add):
        return left + right
    if isinstance(operator, ast.Sub):
        return left - right
    if isinstance(operator, ast.Mult):
        return left * right
    if right == 0 or (isinstance(operator, ast.Div) and left % right):
        return None
    return left // right
