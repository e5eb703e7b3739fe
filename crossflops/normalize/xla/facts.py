"""What rules ask of an instruction beside its shapes: what it is there for."""

from collections.abc import Mapping, Sequence
from typing import cast

from crossflops.core.trace import Scalar
from crossflops.normalize.xla.program import Instruction, Program

_HANDED_ON = ("reshape", "broadcast", "transpose", "bitcast", "convert", "copy")
_GIVEN = ("parameter", "constant", "get-tuple-element")
_CONTRACTIONS = {"convolution": "convolution", "dot": "product"}
_WHOLE = ("int", "uint", "bool")
_REDUCERS: dict[tuple[str, ...], str] = {("maximum",): "max", ("add",): "sum"}


def bias_of(operands: Sequence[Instruction], program: Program) -> str:
    """What made one term of a sum, where the other is a weight of fewer axes.

    A "convolution", a "product", or "".
    """
    for one, other in (operands, operands[::-1]):
        made, given = _origin(one, program), _origin(other, program)
        narrow = given.opcode in _GIVEN and _axes(given) < _axes(other)
        if made.opcode in _CONTRACTIONS and narrow:
            return _CONTRACTIONS[made.opcode]
    return ""


def _origin(one: Instruction, program: Program) -> Instruction:
    """What made a value, before others handed it on."""
    while one.opcode in _HANDED_ON:
        one = program.by_id[one.operands[0]]
    return one


def _axes(one: Instruction) -> int:
    return len(one.results[0].shape or ()) if one.results else 0


def numbers(one: Instruction, operands: Sequence[Instruction]) -> str:
    """Whether it computes with "whole" numbers (truth values too) or with "real" ones."""
    seen = one.results[0].dtype if one.results else ""
    if seen == "bool" and operands and operands[0].results:
        seen = operands[0].results[0].dtype
    return "whole" if seen.startswith(_WHOLE) else "real"


def pooled(one: Instruction, applied: Mapping[str, Scalar]) -> str:
    """Whether a window pools, by "max" or by "sum"; "" for running sums and the like.

    Those have a window as wide as the dimension along which they run.
    """
    if one.opcode != "reduce-window":
        return ""
    window = cast(Sequence[Mapping[str, int]], one.settings["window"])
    sizes = one.results[0].shape or ()
    running = any(
        dimension["size"] == size > 1 and dimension["padding_low"] + dimension["padding_high"]
        for dimension, size in zip(window, sizes, strict=True)
    )
    reducer = tuple(cast(Sequence[str], applied["applied"]))
    return "" if running else _REDUCERS.get(reducer, "")
