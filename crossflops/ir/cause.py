"""A named reason for which two counts differ, and a model that shows it."""

import msgspec


class Example(msgspec.Struct, frozen=True):
    """A model that shows a cause: a few lines that define `model` and `inputs`.

    With the convention of `tool` ("TOOL" or "TOOL@EDITION") the cause is booked with `amount`,
    under `options` of the command line. Of a cause between two models `tool` is "", the lines
    define `other` too, and `other_inputs` where these differ, and `unit` says of what the amount
    is: "MACs", "FLOPs" or "parameters".
    """

    code: str
    tool: str
    amount: int
    options: tuple[str, ...] = ()
    unit: str = ""


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """A named reason for which two counts differ.

    `page` says what it is, `recognise` how to tell it without crossflops, `example` shows it,
    `references` are threads upstream, "owner/repository#number".
    """

    id: str
    title: str
    page: str
    recognise: str = ""
    example: Example | None = None
    references: tuple[str, ...] = ()
