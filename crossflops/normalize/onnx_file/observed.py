"""What a run showed, put into the terms of a file: names of loops, and types of values."""

from collections.abc import Mapping
from typing import Any

from crossflops.core.observation import Observation
from crossflops.load.payload import ELEMENT_TYPES
from crossflops.normalize.onnx_file.control import RAN
from crossflops.normalize.onnx_file.loops import levels
from crossflops.normalize.onnx_file.settling import Asked
from crossflops.normalize.onnx_file.types import Type

_NUMBERS = {name: number for number, name in ELEMENT_TYPES.items()}


def asked_or_seen(graph: Any, asked: Asked, seen: Observation) -> Asked:
    """What the caller says about loops and branches, and what the run showed of the others."""
    trips, branches = {}, {}
    for around in levels(graph):
        for node in around.graph.node:
            first = node.output[0] if node.output else ""
            if first in seen.trips:
                trips[node.name] = seen.trips[first]
            if first in seen.branches:
                branches[node.name] = f"{RAN}{seen.branches[first]}"
    return asked._replace(trips=trips | asked.trips, branches=branches | asked.branches)


def types(seen: Observation | None) -> Mapping[str, Type]:
    """The types of the values that the run made."""
    values = seen.values if seen else {}
    return {name: Type(_NUMBERS.get(one.dtype, 0), one.shape) for name, one in values.items()}
