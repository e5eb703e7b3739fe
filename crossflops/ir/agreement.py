"""How far the outputs of a file agree with those of the model that it was written of."""

import msgspec


class OutputAgreement(msgspec.Struct, frozen=True, kw_only=True):
    """One output of a model, and of the file in a runtime, on the same inputs.

    `absolute` is the largest difference of two elements, and `relative` that by the largest
    element of the model's; of `whole` numbers it is the share of the elements that differ.
    `rounding` is the share by which the output of the model itself changes where its weights and
    inputs are rounded otherwise. A `drawn` output depends on random numbers, and is not
    compared. `tells` is False where rounding alone makes as large a difference as a fault would.
    `problem` says why there is no difference to tell, "" where there is one.
    """

    name: str
    absolute: float = 0.0
    relative: float = 0.0
    rounding: float = 0.0
    whole: bool = False
    agrees: bool = True
    drawn: bool = False
    tells: bool = True
    problem: str = ""


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """All outputs. `runtime` ran the file; `problem` says why it could not, "" where it did."""

    runtime: str
    outputs: tuple[OutputAgreement, ...] = ()
    problem: str = ""

    @property
    def holds(self) -> bool:
        """Whether the file ran and all its outputs agree with those of the model."""
        return not self.problem and all(output.agrees for output in self.outputs)

    @property
    def is_proven(self) -> bool:
        """Whether all outputs agree, and for each of them a fault would make a larger difference
        than rounding.
        """
        return self.holds and all(output.tells for output in self.outputs)
