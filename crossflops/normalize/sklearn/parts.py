"""The estimators in an estimator: steps of pipelines, what ensembles and searches fitted."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from crossflops.normalize.sklearn.kinds import is_model

_NAMED = ("steps", "transformer_list", "transformers_", "named_estimators_")


class Part(msgspec.Struct, frozen=True):
    """An estimator and its path from the root, "" for the root itself.

    `named` is whether the user gave it its name; else the path says where it lies: "estimators.0".
    """

    path: str
    estimator: Any
    named: bool


def parts(root: Any) -> list[Part]:
    """All fitted estimators in one, parents first, each once."""
    found = [Part("", root, True)]
    seen = {id(root)}
    for one in found:
        for name, estimator, named in _inside(one.estimator):
            if id(estimator) not in seen:
                seen.add(id(estimator))
                word = name.replace(".", "_") if named else name
                found.append(Part(f"{one.path}.{word}".lstrip("."), estimator, named))
    return found


def _inside(estimator: Any) -> Iterator[tuple[str, Any, bool]]:
    """Name, estimator and whether the user named it. What was given to be cloned is left out."""
    own = vars(estimator)
    for attribute in _NAMED:
        value = own.get(attribute, ())
        pairs = value.items() if isinstance(value, Mapping) else value
        for name, one, *_ in pairs:
            if is_model(one):
                yield str(name), one, True
    if hasattr(estimator, "get_support"):
        return  # a selection: what chose the features is asked no more
    for attribute, value in own.items():
        if attribute.startswith("_") or (attribute.endswith("_") and attribute not in _NAMED):
            yield from _unnamed(attribute.strip("_"), value)


def _unnamed(name: str, value: Any) -> Iterator[tuple[str, Any, bool]]:
    """Estimators in a fitted attribute: one, or a list or an array of them."""
    if is_model(value):
        yield name, value, False
        return
    for place, one in enumerate(_items(value)):
        if is_model(one):
            yield f"{name}.{place}", one, False
        elif type(one).__module__.startswith("sklearn.calibration"):  # with its calibrators
            for attribute, held in vars(one).items():
                yield from _unnamed(f"{name}.{place}.{attribute}", held)


def _items(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value)
    if getattr(getattr(value, "dtype", None), "kind", "") == "O":
        return list(value.ravel())
    return []
