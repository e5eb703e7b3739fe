"""The request of a report: enough to repeat it, and nothing of the machine it was made on."""

from typing import Any, Literal, TypeAlias

import msgspec

FAKE, REAL, META = "fake", "real", "meta"


class WeightsKind(msgspec.Struct, frozen=True):
    """The kind of weights of a PyTorch model: with numbers in them or without.

    `kind` is "real" where it has, "fake" where it was built without, on fake tensors, and "meta"
    where it put its weights on the meta device itself. `reason` is there where it should have been
    fake, and could not.
    """

    kind: str
    reason: str = ""


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A request, as it stands in the JSON of a report.

    `target` is what was typed, or of an object its class or function by its full name; a file
    that is not in the folder of the caller is named without its folders, ".../model.onnx".
    `arguments` are those of the callable, `inputs` are written as on the command line, and `flags`
    are all other options that were given, by their names in Python. `typed` says whether the
    target is a text that can be given again.
    """

    verb: str
    target: str
    typed: bool = True
    arguments: dict[str, Any] = {}
    inputs: tuple[str, ...] = ()
    flags: dict[str, Any] = {}


def report_title(model: str, digest: str, options: object) -> str:
    """Return the title of a report: the typed target, or the model's name with the beginning of
    its graph's digest.

    Objects of one class have one name, and files in other folders may: the digest of the graph
    tells them apart.
    """
    if not isinstance(options, RequestRecord):
        return model
    name = options.target if options.typed else model
    alone = options.typed and not options.target.startswith("...")
    return name if alone else f"{name} {digest[:8]}"


# Where a formula of one's own comes from.

OriginKind: TypeAlias = Literal["file", "module", "distribution", "crossflops"]


class FormulaOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a formula: a file, a module that was imported, or an installed distribution.

    `name` is the path, the module or the distribution, `version` that of a distribution.
    `digest` is the sha256 of the source that has the formula.
    """

    kind: OriginKind
    name: str
    version: str = ""
    digest: str = ""

    def __str__(self) -> str:
        """Return "NAME VERSION"."""
        return f"{self.name} {self.version}".strip()
