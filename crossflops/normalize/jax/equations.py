"""Which equation of a JAX program each ONNX node was made for: written down while it is made."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from crossflops.core.tensor import TensorSpec
from crossflops.core.trace import Scalar
from crossflops.normalize.jax.resizes import FUNCTION as RESIZE
from crossflops.normalize.jax.resizes import method_of, without_method

_NOTE = "crossflops.equation"
_KINDS = ("fft_type",)  # parameters that are a member of an enumeration
_CALLS = ("jit", "pjit")
# functions of JAX that have no equation of their own, by the primitive that they are written in
_WRITTEN_IN = {"conv_general_dilated": ("lax/other.conv_general_dilated_patches",)}


class Equation(msgspec.Struct, frozen=True, kw_only=True):
    """An equation as jax2onnx lowers it: a primitive of JAX, or one that it puts in (nnx.conv).

    `stack` is the whole name stack around it, that of the equations that hold it included, and
    `around` the number of the innermost of these. `function` is the function of JAX itself that
    it calls, or that it was written in: "numpy/linalg.solve".
    """

    primitive: str
    stack: str
    settings: dict[str, Scalar]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    function: str = ""
    around: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """What it may be known as: the function, and the primitive."""
        return (self.function, self.primitive) if self.function else (self.primitive,)


class Recorder:
    """The equations in the order in which jax2onnx begins to lower them."""

    def __init__(self) -> None:
        self.equations: list[Equation] = []
        self._stack: list[str] = []
        self._open: list[int] = []

    @contextmanager
    def within(self, eqn: Any, builder: Any) -> Iterator[None]:
        """Every node that is made while this is open is noted with the equation's number.

        A note of an equation within it stays.
        """
        number = len(self.equations)
        last = next(iter(reversed(builder.nodes)), None)
        stack = str(eqn.source_info.name_stack)
        method = method_of(stack)
        self._stack.append(without_method(stack))
        around = self._open[-1] if self._open else None
        whole = "/".join(filter(None, self._stack))
        self.equations.append(_equation(eqn, whole, around, method))
        self._open.append(number)
        try:
            yield
        finally:
            self._stack.pop()
            self._open.pop()
        for node in reversed(builder.nodes):
            if node is last:
                break
            node.metadata_props.setdefault(_NOTE, str(number))


def _equation(eqn: Any, stack: str, around: int | None, method: Mapping[str, Scalar]) -> Equation:
    return Equation(
        primitive=eqn.primitive.name,
        stack=stack,
        settings={**_settings(eqn.params), **method},
        inputs=tuple(_spec(f"input_{n}", one) for n, one in enumerate(eqn.invars)),
        outputs=tuple(_spec(f"output_{n}", one) for n, one in enumerate(eqn.outvars)),
        function=_function(eqn, method),
        around=around,
    )


def _function(eqn: Any, method: Mapping[str, Scalar]) -> str:
    """The function of JAX that a `jit` is of, or in which JAX wrote a convolution; else ""."""
    if eqn.primitive.name in _CALLS:
        inner = getattr(eqn.params.get("jaxpr"), "jaxpr", None)
        written = str(getattr(getattr(inner, "debug_info", None), "func_filename", None) or "")
        name = _name_in_jax(written, str(eqn.params.get("name")))
        return "" if name == RESIZE and not method else name
    if eqn.primitive.name in _WRITTEN_IN:
        frames = getattr(eqn.source_info.traceback, "frames", ())
        names = {_name_in_jax(one.file_name, one.function_name) for one in frames}
        return next((one for one in _WRITTEN_IN[eqn.primitive.name] if one in names), "")
    return ""


def _name_in_jax(file: str, name: str) -> str:
    """As "numpy/linalg.solve" in jax/_src/numpy/linalg.py; "" for a file that is not of JAX."""
    place = file.replace("\\", "/").rpartition("/jax/_src/")[2] if "/jax/_src/" in file else ""
    return f"{place.removesuffix('.py')}.{name}" if place else ""


def _spec(name: str, variable: Any) -> TensorSpec:
    shape = tuple(map(int, variable.aval.shape)) if hasattr(variable.aval, "shape") else None
    return TensorSpec(name, str(getattr(variable.aval, "dtype", "")), shape)


def _settings(params: dict[str, Any]) -> dict[str, Scalar]:
    """The plain parameters of an equation: numbers, texts, lists of numbers."""
    found: dict[str, Scalar] = {}
    for name, value in params.items():
        if name in _KINDS:
            found[name] = str(getattr(value, "name", value))
        elif isinstance(value, tuple) and value and all(isinstance(item, int) for item in value):
            found[name] = list(value)
        elif value is None or isinstance(value, bool | int | float | str):
            found[name] = value
    return found


def named(model: Any) -> dict[str, int]:
    """Give every node of a model (of onnx_ir) a name of its own; the equations by these names.

    A node that jax2onnx made between equations belongs to that of what it reads, or of what reads
    it; one in a subgraph to that of the node that holds it.
    """
    found: dict[str, int] = {}
    _name(model.graph, None, found, {})
    for function in model.functions.values():
        _name(function, None, found, {})
    return found


def _name(graph: Any, around: int | None, found: dict[str, int], used: dict[str, int]) -> None:
    for node in graph:
        number = noted(node)
        if number is None:
            beside = (noted(one) for one in _beside(node))
            number = next((one for one in beside if one is not None), around)
        kind = node.op_type
        used[kind] = used.get(kind, 0) + 1
        node.name = f"{kind}_{used[kind]}"
        if number is not None:
            found[node.name] = number
            node.metadata_props[_NOTE] = str(number)
        for attribute in node.attributes.values():
            for body in _bodies(attribute):
                _name(body, number, found, used)


def noted(node: Any) -> int | None:
    """The number of the equation that a node was made for, None where none is noted."""
    note = node.metadata_props.get(_NOTE) if node is not None else None
    return int(note) if note is not None else None


def _beside(node: Any) -> Iterator[Any]:
    yield from (one.producer() for one in node.inputs if one is not None)
    yield from (reader for one in node.outputs for reader, _ in one.uses())


def _bodies(attribute: Any) -> list[Any]:
    kind = getattr(attribute.type, "name", "")
    if kind == "GRAPH":
        return [attribute.value]
    return list(attribute.value) if kind == "GRAPHS" else []
