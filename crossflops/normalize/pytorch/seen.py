"""What a real run of a model showed, before it is set beside the calls of the export."""

import msgspec

from crossflops.core.tensor import TensorSpec
from crossflops.core.trace import Scalar
from crossflops.normalize.pytorch.recorder import Recorder

RUN = "(run)"  # stands for the run itself, in which nothing else may be seen


BRANCH = "branch"  # the setting of an operator that stands in a branch of a condition


class Seen(msgspec.Struct):
    """An operator that ran: `frames` are the keys of the calls around it, innermost first.

    `inside` are the operators that it called itself. Tensors and settings have the names of the
    operator's schema where it is known, else their places.
    """

    target: str
    frames: tuple[str, ...] = ()
    settings: dict[str, Scalar] = {}
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    inside: list["Seen"] = []


def chains(recorder: Recorder) -> list[tuple[str, ...]]:
    """For every frame, by its number, its key and those of all around it, innermost first."""
    by_key: dict[str | None, tuple[str, ...]] = {None: ()}
    for frame in recorder.frames:
        by_key[frame.key] = (frame.key, *by_key[frame.parent])
    return [by_key[frame.key] for frame in recorder.frames]
