"""Which model was counted, and what the whole of it comes to."""

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.core.ledger import Exactness


class InputInfo(msgspec.Struct, frozen=True):
    """An input of the model."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Which model was counted. `digest` identifies the structure, not the weights."""

    name: str
    digest: str
    inputs: tuple[InputInfo, ...]
    opset: dict[str, int]


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The whole model. `constant_macs` are the part of `macs` that depends on no input.

    `converter_macs` are in no total: what a converter's nodes multiply beyond the source model.
    `active_params` are the most of `params` that one call can use; unset where that is all.
    `exactness` says of "macs" and of "flops" how far they can be trusted: "bound" where some of
    them depend on data and are counted in full, "estimate" where some algorithm is not fixed.
    """

    macs: int
    flops: int
    params: int
    adds: int
    muls: int
    divs: int
    compares: int
    specials: int
    bytes_read: int
    bytes_written: int
    constant_macs: int
    converter_macs: int = 0
    active_params: int | UnsetType = UNSET
    exactness: dict[str, Exactness] | UnsetType = UNSET
