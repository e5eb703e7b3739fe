"""A .tflite file that is to be counted, not opened yet, and which of its signatures."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from crossflops.errors import TargetError

if TYPE_CHECKING:
    from crossflops.frontends.tflite.reading import TfliteModel

SUFFIX = ".tflite"


class TfliteFile(msgspec.Struct, frozen=True, kw_only=True):
    """A .tflite file, and the name of the signature that is counted, "" for its only one."""

    path: str
    signature: str = ""

    def subgraph_index(self, model: "TfliteModel") -> int:
        """Return the index of the subgraph that runs. Raises TargetError if it is not clear."""
        known = model.signatures
        if self.signature:
            if self.signature not in known:
                raise TargetError(
                    f"{self.path} has no signature {self.signature!r}",
                    f"its signatures are: {', '.join(known)}"
                    if known
                    else f"give {self.path} without a signature: the file has none",
                )
            return known[self.signature]
        if len(set(known.values())) > 1:
            signature = next(iter(known))
            raise TargetError(
                f"{self.path} has several signatures: {', '.join(known)}",
                f"write one of them after a colon: {self.path}:{signature}",
            )
        return next(iter(known.values()), 0)


def file_from_target(target: str) -> TfliteFile | None:
    """Return the file of a target `FILE.tflite` or `FILE.tflite:SIGNATURE`, None for others."""
    if Path(target).suffix == SUFFIX:
        return TfliteFile(path=target)
    path, colon, signature = target.rpartition(":")
    if colon and signature and Path(path).suffix == SUFFIX:
        return TfliteFile(path=path, signature=signature)
    return None
