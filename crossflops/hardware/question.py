"""What is asked of a count and a peak, in groups of fields. Every group has flags of its own.

The names of the fields are those of the flags (`--peak-tflops` is `peak_tflops`), and no two
groups have one in common, so that `Question.of` takes them all as keyword arguments.
"""

from typing import Any

import msgspec

from crossflops.errors import InputError


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Whose count: the native one unless said. `macs` is a count as text, such as 4.112G."""

    macs: str | None = None
    as_: str | None = None
    compare: bool = False
    tools: tuple[str, ...] = ()


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured."""

    examples_per_second: float | None = None


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """What is run besides the forward pass."""

    train: bool = False


class Against(msgspec.Struct, frozen=True, kw_only=True):
    """The device, or a dense peak in TFLOP/s, and the precision that ran."""

    device: str | None = None
    precision: str = ""
    peak_tflops: float | None = None


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """Which work, at which speed, against which peak."""

    work: Work = Work()
    speed: Speed = Speed()
    training: Training = Training()
    against: Against = Against()

    @classmethod
    def of(cls, **fields: Any) -> "Question":
        """From the fields of all groups. Raises InputError for one that no group has."""
        groups = {}
        for group in msgspec.structs.fields(cls):
            own = {name: fields.pop(name) for name in names(group.type) if name in fields}
            groups[group.name] = group.type(**own)
        if fields:
            raise InputError(f"{', '.join(fields)} is asked of no count", "see help of efficiency")
        return cls(**groups)

    @property
    def flat(self) -> dict[str, Any]:
        """The fields of all groups, by name."""
        groups = msgspec.structs.asdict(self).values()
        return {
            name: value for one in groups for name, value in msgspec.structs.asdict(one).items()
        }


def names(group: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields of a group."""
    return group.__struct_fields__
