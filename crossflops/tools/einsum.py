"""What the equation of an einsum says of its operands: labels, extents, and which pairs meet."""

Shapes = list[tuple[int, ...]]


def einsum_pairs(equation: str, shapes: Shapes) -> tuple[list[tuple[str, str]], dict[str, int]]:
    """The labels that meet in each product of a pair, those that are kept of it, and all extents.

    Pairs go from left to right; a label of one operand alone that nothing needs is summed before.
    """
    terms, result, extents = _labels(equation.replace(" ", ""), shapes)
    left, pairs = terms[0], []
    for place, right in enumerate(terms[1:], start=1):
        needed = set(result).union(*terms[place + 1 :])
        shared = set(left) & set(right)
        both = dict.fromkeys(left + right)
        pair = "".join(label for label in both if label in needed or label in shared)
        left = "".join(label for label in pair if label in needed)
        pairs.append((pair, left))
    return pairs, extents


def einsum_extents(equation: str, shapes: Shapes) -> tuple[list[dict[str, int]], str]:
    """The extents of each operand by label, and the labels that the result keeps."""
    terms, result, _ = _labels(equation.replace(" ", ""), shapes)
    extents = (
        dict(zip(term, shape, strict=True)) for term, shape in zip(terms, shapes, strict=True)
    )
    return list(extents), result


def _labels(equation: str, shapes: Shapes) -> tuple[list[str], str, dict[str, int]]:
    """The labels of each operand and of the result, and the extent of each label.

    An ellipsis becomes capital letters that the equation does not use, aligned to the right.
    """
    left, arrow, right = equation.partition("->")
    written = left.split(",")
    free = [label for label in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if label not in equation]
    hidden = [
        len(shape) - len(term.replace("...", ""))
        for term, shape in zip(written, shapes, strict=True)
    ]
    widest = max((n for n, term in zip(hidden, written, strict=True) if "..." in term), default=0)
    dots = "".join(free[:widest])
    terms = [
        term.replace("...", dots[widest - n :]) if "..." in term else term
        for n, term in zip(hidden, written, strict=True)
    ]
    extents: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, extent in zip(term, shape, strict=True):
            extents[label] = max(extent, extents.get(label, 1))
    if arrow:
        return terms, right.replace("...", dots), extents
    letters = "".join(written)
    once = sorted(label for label in set(letters) - {"."} if letters.count(label) == 1)
    return terms, dots + "".join(once), extents
