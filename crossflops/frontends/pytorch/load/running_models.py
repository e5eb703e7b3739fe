"""The models that are being recorded: such a model may not ask for a count of itself."""

from typing import Protocol


class RunningModel(Protocol):
    """The recorder of a model; `recording` says whether the model runs in this thread."""

    @property
    def is_recording(self) -> bool:
        """True if the recorded model runs in the thread of the caller."""


RUNNING: list[RunningModel] = []


def is_within_recorded_model() -> bool:
    """Return True if the caller runs inside a model that is being recorded."""
    return any(model.is_recording for model in RUNNING)
