"""The numbers that conventions print for one model at one input: those that a figure may be."""

import msgspec

from crossflops.ir.profile import Amount

NATIVE = "native"  # the tool of a number that is the native count
PER_TOKEN = " per token"  # how the unit of a number for one token ends


class CauseAmount(msgspec.Struct, frozen=True):
    """A cause of a difference, and what it contributes to the number of a tool."""

    cause: str
    amount: Amount


class ConventionNumber(msgspec.Struct, frozen=True, kw_only=True):
    """The number of one convention, and the causes that lead there from the native MACs.

    `unit` is the word of the tool for what it counts, `per_mac` what it counts for one MAC: 0 for
    a number without contractions. `is_tool` is false for conventions that no tool has.
    """

    tool: str
    edition: str
    unit: str
    per_mac: int
    total: Amount
    is_tool: bool = True
    causes: tuple[CauseAmount, ...] = ()


class ModelNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of one model in one setting.

    `macs`, `flops` and `params` are the native count. `inputs` are shapes as they are typed.
    `refused` are the conventions that have no number, each with the reason. `uncounted` is the
    number of nodes whose work is in none of the native numbers. `variants` are the numbers of the
    model as its library builds it for weights, each `built_with` other arguments.
    """

    target: str
    inputs: tuple[str, ...] = ()
    numbers: tuple[ConventionNumber, ...] = ()
    macs: int = 0
    flops: int = 0
    params: int = 0
    uncounted: int = 0
    refused: dict[str, str] = {}
    made_with: dict[str, str] = {}
    built_with: str = ""
    variants: tuple["ModelNumbers", ...] = ()
