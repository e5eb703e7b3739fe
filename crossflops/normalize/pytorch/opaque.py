"""Operators that have no ONNX form, exported as opaque nodes: named in the ledger, not counted.

One operator that the exporter does not know would else cost the whole count.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

DOMAIN = "torch.ops"
_UNKNOWN = re.compile(r"<OpOverload\(op='(?P<name>[\w.]+)', overload='(?P<overload>\w+)'\)>")
_PLAIN = re.compile(
    r"(?:Optional\[)?(?:List\[(?P<items>int|float|bool)\]|(?P<one>int|float|bool|str))\]?"
)
_TYPES = [
    f"tensor({name})"
    for name in (
        "float", "double", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8",
        "bool", "complex64", "complex128",
    )
]  # fmt: skip


def unknown_operator(error: BaseException) -> Any:
    """The operator that an export failed on for want of an ONNX function, or None."""
    import torch

    cause: BaseException | None = error
    while cause is not None:
        found = _UNKNOWN.search(str(cause)) if type(cause).__name__ == "DispatchError" else None
        if found:
            namespace, _, name = found["name"].partition(".")
            packet = getattr(getattr(torch.ops, namespace), name)
            return getattr(packet, found["overload"])
        cause = cause.__cause__
    return None


@contextmanager
def for_complex_too(table: Mapping[Any, Callable[..., Any]]) -> Iterator[None]:
    """The translations hold for complex arguments, too.

    PyTorch keeps those apart, and `torch.onnx.export` adds none of them to its own.
    """
    from torch.onnx._internal.exporter import _dispatching

    dispatch = _dispatching.dispatch

    def ours_first(node: Any, registry: Any) -> tuple[Any, str]:
        known = table.get(node.target)
        return (known, "") if known is not None else dispatch(node, registry)

    _dispatching.dispatch = ours_first
    try:
        yield
    finally:
        _dispatching.dispatch = dispatch


def opaque(operator: Any) -> Callable[..., Any]:
    """A translation of the operator into one node of the domain `torch.ops`.

    Its inputs are the tensors among the arguments, lists of tensors flattened; its attributes
    the plain arguments that are given, by their names in the operator's schema.
    """
    from onnxscript import values

    arguments = operator._schema.arguments
    opset, name = values.Opset(DOMAIN, 1), str(operator)

    def translate(*args: Any, **kwargs: Any) -> Any:
        named = dict(zip((one.name for one in arguments), args, strict=False)) | kwargs
        flat = [x for one in named.values() for x in (one if _is_list(one) else [one])]
        tensors = [x for x in flat if _is_tensor(x)]
        schema = _schema(operator, bool(tensors))
        plain = {
            name: value
            for name, value in named.items()
            if name in schema.attributes and _is_plain(value)
        }
        return values.Op(opset, name, schema)(*tensors, **plain)

    return translate


def _schema(operator: Any, has_inputs: bool) -> Any:
    """How ONNX is told of the operator: a list of inputs must not be empty, but may be absent."""
    from onnx.defs import OpSchema

    inputs = OpSchema.FormalParameter(
        "inputs",
        "T",
        param_option=OpSchema.FormalParameterOption.Variadic,
        is_homogeneous=False,
        min_arity=0,
    )
    results = sum("Tensor" in str(result.type) for result in operator._schema.returns)
    return OpSchema(
        str(operator),
        DOMAIN,
        1,
        inputs=[inputs] if has_inputs else [],
        outputs=[OpSchema.FormalParameter(f"output{n}", "T") for n in range(results)],
        type_constraints=[("T", _TYPES, "")],
        attributes=[
            OpSchema.Attribute(one.name, kind, "", required=False)
            for one in operator._schema.arguments
            if (kind := _attribute_type(str(one.type))) is not None
        ],
    )


def _attribute_type(written: str) -> Any:
    """The ONNX type of an attribute for an argument of this type, None where there is none."""
    from onnx.defs import OpSchema

    kind = OpSchema.AttrType
    found = _PLAIN.fullmatch(written)
    if found is None:
        return None
    if found["items"]:
        return kind.FLOATS if found["items"] == "float" else kind.INTS
    return {"float": kind.FLOAT, "str": kind.STRING}.get(found["one"], kind.INT)


def _is_plain(value: Any) -> bool:
    items = value if _is_list(value) else [value]
    return all(isinstance(item, int | float | str) for item in items)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "dtype") and hasattr(value, "shape")
