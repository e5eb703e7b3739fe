"""The cost of work: integers by kind, with the two operations of a commutative monoid."""

import msgspec


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Operations by kind, one each, and bytes moved under the unfused model.

    `macs` are multiply-accumulates of contractions (Conv, MatMul, Gemm, Einsum, Attention,
    recurrent layers) and of nothing else. `specials` are exp, log, tanh, sqrt and their kin.

    >>> Cost(macs=3) + Cost(adds=2) * 2
    Cost(macs=3, adds=4, muls=0, divs=0, compares=0, specials=0, bytes_read=0, bytes_written=0)
    """

    macs: int = 0
    adds: int = 0
    muls: int = 0
    divs: int = 0
    compares: int = 0
    specials: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def flops(self) -> int:
        """2 x MACs + adds + muls + divs + compares + specials. A count, not a rate."""
        return 2 * self.macs + self.adds + self.muls + self.divs + self.compares + self.specials

    def __add__(self, other: "Cost") -> "Cost":
        # Written out: a report adds costs several times per node.
        return Cost(
            macs=self.macs + other.macs,
            adds=self.adds + other.adds,
            muls=self.muls + other.muls,
            divs=self.divs + other.divs,
            compares=self.compares + other.compares,
            specials=self.specials + other.specials,
            bytes_read=self.bytes_read + other.bytes_read,
            bytes_written=self.bytes_written + other.bytes_written,
        )

    def __mul__(self, times: int) -> "Cost":
        return Cost(**{f: getattr(self, f) * times for f in self.__struct_fields__})

    __rmul__ = __mul__


ZERO = Cost()
