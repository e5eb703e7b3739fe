"""A .gguf file -> the model of transformers that its metadata describe.

In: a file of llama.cpp. Out: a PyTorch model without values, whose weights have the types in which
the file stores them: everything after that is `frontends.pytorch`.
May import: frontends, ir, errors.
"""

from typing import Any

from crossflops.errors import NormalizeError
from crossflops.frontends.frontend import Frontend, Program, Recording, Run, Source
from crossflops.frontends.named import Library


class Gguf(Frontend):
    """The frontend of .gguf files: it builds models of PyTorch, and has none of its own."""

    name = "gguf"
    title = "GGUF"
    models = ()
    extra = "gguf"
    packages = ("gguf",)
    builds = "torch"
    versions = (("gguf", "gguf"),)
    suffixes = (".gguf",)

    def recognizes(self, value: object) -> bool:
        """Return false: the models of these files are PyTorch's."""
        return False

    def model_libraries(self) -> tuple[Library, ...]:
        """Return the library that builds a model from the path of a .gguf file."""
        from crossflops.frontends.gguf.library import GgufFiles

        return (GgufFiles(),)

    def prepare_source(self, model: Any, *arguments: Any, **options: Any) -> Source:
        """Raise an error: the frontend of PyTorch takes what these files describe."""
        raise _no_model_error(model)

    def convert(self, recording: Recording, run: Run | None) -> Program:
        """Raise an error: the frontend of PyTorch converts what these files describe."""
        raise _no_model_error(recording.source.model)

    def require_packages_for(self, model: Any) -> None:
        """Do nothing: packages are required when the file is read."""
        return


def _no_model_error(model: Any) -> NormalizeError:
    """Return the error for a model that is not a .gguf file."""
    return NormalizeError(
        f"the model is of the type {type(model).__name__}, not a .gguf file",
        "give the path of the file",
    )


FRONTEND: Frontend = Gguf()
