"""The models that are being recorded: such a model may not ask for a count of itself."""

from typing import Protocol


class RunningModel(Protocol):
    """The recorder of a model; `recording` says whether the model runs in this thread."""

    @property
    def recording(self) -> bool:
        """Whether the model runs in the thread that asks."""


RUNNING: list[RunningModel] = []


def is_within_model() -> bool:
    """Return whether this call comes from a model that is being recorded in this thread."""
    return any(model.recording for model in RUNNING)
