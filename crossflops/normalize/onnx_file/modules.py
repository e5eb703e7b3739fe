"""Which module a node belongs to: from an exporter's notes, else from the names of the nodes."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from crossflops.core.trace import Module

_SCOPES, _CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
_ITEM = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
_COUNTER = re.compile(r"__\d+$")
_DROPPED = ("", "StatefulPartitionedCall", "PartitionedCall")


class Place(NamedTuple):
    """The modules around a node from the root inwards, as (path, class); the class may be ""."""

    chain: tuple[tuple[str, str], ...]

    @property
    def path(self) -> str:
        """The path of the innermost module, "" for the root."""
        return self.chain[-1][0] if self.chain else ""


def of_notes(node: Any) -> Place | None:
    """The place that torch.onnx wrote into the metadata, None where it wrote none.

    `name_scopes` lists the module paths from the root ("") inwards, and last the operator;
    `class_hierarchy` their classes.
    """
    notes = {one.key: one.value for one in node.metadata_props}
    if _SCOPES not in notes:
        return None
    paths = _items(notes[_SCOPES])[:-1]
    classes = _items(notes.get(_CLASSES, ""))[: len(paths)]
    classes += [""] * (len(paths) - len(classes))
    return Place(tuple(zip(paths, classes, strict=True)))


def _items(text: str) -> list[str]:
    """The strings in a printed Python list."""
    return [single or double for single, double in _ITEM.findall(text)]


def of_name(name: str) -> Place:
    """The place that a node name tells: "/layer1/layer1.0/conv1/Conv" is in layer1.0.conv1.

    PyTorch's older exporter repeats the path of a container in the names of its items; tf2onnx
    keeps TensorFlow's names and appends counters.
    """
    path, chain = "", []
    for part in name.split("/")[:-1]:
        word = _COUNTER.sub("", part)
        if word in _DROPPED:
            continue
        last = path.rpartition(".")[2] if path else ""
        if last and word.startswith(f"{last}."):
            path += word.removeprefix(last)
        elif path and word.startswith(f"{path}."):
            path = word
        else:
            path = f"{path}.{word}" if path else word
        chain.append((path, ""))
    return Place(tuple(chain))


def places(nodes: Iterable[Any]) -> list[Place]:
    """The place of every node of a graph."""
    nodes = list(nodes)
    noted = [of_notes(node) for node in nodes]
    if any(place is not None for place in noted):
        return [place or Place(()) for place in noted]
    return [of_name(node.name) for node in nodes]


def table(found: Iterable[Place], root: str) -> tuple[Module, ...]:
    """The module table: the root and every module that a node is in, parents first."""
    classes: dict[str, str] = {"": ""}
    for place in found:
        for path, name in place.chain:
            for end in (at for at, letter in enumerate(path) if letter == "."):
                classes.setdefault(path[:end], "")
            classes[path] = classes.get(path) or name
    classes[""] = classes[""] or root
    ids = {path: number for number, path in enumerate(classes)}
    children: dict[str, list[tuple[str, int]]] = {}
    for path in ids:
        if path:
            parent, _, name = path.rpartition(".")
            children.setdefault(parent, []).append((name, ids[path]))
    return tuple(
        Module(
            id=ids[path],
            names=(path,),
            bases=(name,),
            params=(),
            children=tuple(children.get(path, ())),
            training=False,
            settings={},
        )
        for path, name in classes.items()
    )
