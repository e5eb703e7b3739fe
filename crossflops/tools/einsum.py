"""The labels of an einsum: which meet in each product of a pair, and which the result keeps."""


def einsum_pairs(
    equation: str, shapes: list[tuple[int, ...]]
) -> tuple[list[tuple[str, str]], dict[str, int]]:
    """The labels that meet in each product of a pair, those that are kept of it, and all extents.

    Pairs go from left to right. A label of one operand alone is summed before its first product
    where neither the result nor a later operand has it.
    """
    terms, result, extents = _einsum_labels(equation.replace(" ", ""), shapes)
    left, pairs = terms[0], []
    for place, right in enumerate(terms[1:], start=1):
        needed = set(result).union(*terms[place + 1 :])
        shared = set(left) & set(right)
        pair = "".join(x for x in dict.fromkeys(left + right) if x in needed or x in shared)
        left = "".join(x for x in pair if x in needed)
        pairs.append((pair, left))
    return pairs, extents


def einsum_extents(
    equation: str, shapes: list[tuple[int, ...]]
) -> tuple[list[dict[str, int]], str]:
    """The extents of each operand by label, and the labels that the result keeps."""
    terms, result, _ = _einsum_labels(equation.replace(" ", ""), shapes)
    extents = (
        dict(zip(term, shape, strict=True)) for term, shape in zip(terms, shapes, strict=True)
    )
    return list(extents), result


def _einsum_labels(
    equation: str, shapes: list[tuple[int, ...]]
) -> tuple[list[str], str, dict[str, int]]:
    """The labels of each operand and of the result, and the extent of each label.

    An ellipsis becomes capital letters that the equation does not use, aligned to the right.
    """
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    free = [x for x in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if x not in equation]
    wide = max(
        (len(s) - len(t) + 3 for t, s in zip(terms, shapes, strict=True) if "..." in t), default=0
    )
    dots = "".join(free[:wide])
    full = [
        t.replace("...", dots[wide - (len(s) - len(t) + 3) :]) if "..." in t else t
        for t, s in zip(terms, shapes, strict=True)
    ]
    extents: dict[str, int] = {}
    for term, shape in zip(full, shapes, strict=True):
        for label, extent in zip(term, shape, strict=True):
            extents[label] = max(extent, extents.get(label, 1))
    if arrow:
        return full, right.replace("...", dots), extents
    once = sorted(x for x in set("".join(terms)) - {"."} if "".join(terms).count(x) == 1)
    return full, dots + "".join(once), extents
