"""What a run of a model brought to light: sizes that depend on data, iterations, branches."""

import msgspec


class Seen(msgspec.Struct, frozen=True):
    """A tensor that had the same shape whenever it was made."""

    dtype: str
    shape: tuple[int, ...]


class Run(msgspec.Struct, frozen=True):
    """That sizes come from a run: of what, on what.

    `runtime` is "" where no size does, and there are only `notes`: what a reader should know of
    how a run differs from what was counted, or from another run.
    """

    runtime: str
    inputs: str
    notes: tuple[str, ...] = ()


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one model on one set of inputs.

    `inputs` are the shapes it was given, `values` the tensors that it made, by name. `trips` says
    how often the body of a Loop or a Scan ran, `branches` which branch of an If ("then", "else"):
    by the name of the node's first result. What differed within the run is in none of them.
    `draws` says whether random numbers were drawn, others in every run.
    """

    runtime: str
    inputs: dict[str, Seen]
    values: dict[str, Seen]
    trips: dict[str, int]
    branches: dict[str, str]
    draws: bool = False
