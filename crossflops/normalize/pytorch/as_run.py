"""What a model asks about how it is run: whether it is being exported, compiled or traced.

Libraries take another path then, one that a compiler can follow. What is counted is what runs, so
their questions are noticed, and may be answered as a run answers them: with no. What PyTorch asks
itself is left alone, as its own exporter needs the truth.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# By module: the functions that answer. Not is_dynamo_compiling, which says no to an export, and
# which Dynamo has to recognise when it takes the body of a torch.cond apart.
_QUESTIONS = {
    "torch.compiler": ("is_exporting", "is_compiling"),
    "torch._dynamo": ("is_compiling",),
    "torch._utils": ("is_compiling",),
    "torch._dynamo.external_utils": ("is_compiling",),
}


class Asked:
    """Whether code outside of PyTorch asked one of these and heard yes."""

    def __init__(self) -> None:
        self.heard_yes = False


@contextmanager
def questions(denied: bool) -> Iterator[Asked]:
    """In this context the questions are noticed, and where they are `denied` answered with no.

    Functions that were imported by name are found in the modules that hold them.
    """
    asked = Asked()
    wrappers = {
        id(original): _wrapped(original, asked, denied)
        for home, names in _QUESTIONS.items()
        if home in sys.modules
        for name in names
        if (original := getattr(sys.modules[home], name, None)) is not None
    }
    replaced: list[tuple[dict[str, Any], str, Any]] = []
    spoken = {name for names in _QUESTIONS.values() for name in names}
    try:
        for module in list(sys.modules.values()):
            held = getattr(module, "__dict__", None)
            if not isinstance(held, dict):
                continue
            for name in spoken & held.keys():
                if id(held[name]) in wrappers:
                    replaced.append((held, name, held[name]))
                    held[name] = wrappers[id(held[name])]
        yield asked
    finally:
        for held, name, original in replaced:
            held[name] = original


def _wrapped(original: Callable[[], bool], asked: Asked, denied: bool) -> Callable[[], bool]:
    def answer() -> bool:
        said = original()
        if not said or _is_pytorch(sys._getframe(1).f_globals.get("__name__", "")):
            return said
        asked.heard_yes = True
        return not denied

    answer._dynamo_marked_constant = True  # type: ignore[attr-defined]  # Dynamo calls it, then
    return answer


def _is_pytorch(module: str) -> bool:
    return module.partition(".")[0] in {"torch", "functorch", "crossflops"}
