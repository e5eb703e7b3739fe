"""Hold a table of several models as a paper prints it: one row for each, and how it was
counted.
"""

import msgspec

from crossflops.ir.profile import Amount


class PaperRow(msgspec.Struct, frozen=True, kw_only=True):
    """One model, named as it was typed.

    `memory_traffic` are bytes read and written. `by_tool` has None where a convention cannot count
    the model; `notes` says why, and what else a reader should know. `latency_seconds` is that of
    one run, where it was asked for and the model ran.
    """

    target: str
    params: int
    macs: int
    flops: int
    memory_traffic: int
    by_tool: dict[str, Amount | None] = {}
    inputs: tuple[str, ...] = ()
    latency_seconds: float | None = None
    uncounted: int = 0
    notes: tuple[str, ...] = ()

    def cells(self, tools: tuple[str, ...]) -> tuple[str | Amount, ...]:
        """Return the cells of the row: target, parameters, MACs, FLOPs, memory traffic in bytes,
        then the total of each of `tools`, "" if unknown.
        """
        counts = (self.by_tool.get(tool) for tool in tools)
        shown = ("" if count is None else count for count in counts)
        return (self.target, self.params, self.macs, self.flops, self.memory_traffic, *shown)


class PaperTable(msgspec.Struct, frozen=True, kw_only=True):
    """The rows, `tools` with the editions of their conventions, and the significant digits.

    `latency` says where and how the models were run; "" where they were not.
    """

    rows: tuple[PaperRow, ...]
    tools: tuple[str, ...] = ()
    editions: dict[str, str] = {}
    digits: int = 4
    latency: str = ""
    made_with: dict[str, str] = {}
