"""What is known of a node of a file when a torch module is made for it."""

from typing import Any

import msgspec

READ_IT = "the tools that count files, and `crossflops count`, take it as it is"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """A node: its attributes, which inputs it has, and the values of those that are constant.

    `constants` are arrays by place, None where an input is computed or left out; `shapes` are
    those of the inputs, None where one is not known.
    """

    operator: str
    name: str
    attributes: dict[str, Any]
    given: tuple[bool, ...]
    constants: tuple[Any, ...]
    shapes: tuple[tuple[int, ...] | None, ...]
    outputs: int

    def has(self, place: int) -> bool:
        """Whether the node has such an input."""
        return place < len(self.given) and self.given[place]

    def constant(self, place: int) -> Any:
        """The value of an input, an array; None where it is computed or left out."""
        return self.constants[place] if place < len(self.constants) else None

    def shape(self, place: int) -> tuple[int, ...] | None:
        """The shape of an input, where it is known."""
        return self.shapes[place] if place < len(self.shapes) else None
