"""Operators that have no ONNX form, exported as opaque nodes: named in the ledger, not counted.

One operator that the exporter does not know would else cost the whole count.
"""

import re
from collections.abc import Callable
from typing import Any

DOMAIN = "torch.ops"
_UNKNOWN = re.compile(r"<OpOverload\(op='(?P<name>[\w.]+)', overload='(?P<overload>\w+)'\)>")
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


def opaque(operator: Any) -> Callable[..., Any]:
    """A translation of the operator into one node of the domain `torch.ops`."""
    from onnx.defs import OpSchema
    from onnxscript import values

    results = sum("Tensor" in str(result.type) for result in operator._schema.returns)
    inputs = OpSchema.FormalParameter(
        "inputs",
        "T",
        param_option=OpSchema.FormalParameterOption.Variadic,
        is_homogeneous=False,
        min_arity=0,
    )
    schema = OpSchema(
        str(operator),
        DOMAIN,
        1,
        inputs=[inputs],
        outputs=[OpSchema.FormalParameter(f"output{n}", "T") for n in range(results)],
        type_constraints=[("T", _TYPES, "")],
    )
    node = values.Op(values.Opset(DOMAIN, 1), str(operator), schema)

    def translate(*args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        flat = [x for one in given for x in (one if isinstance(one, list | tuple) else [one])]
        return node(*(x for x in flat if hasattr(x, "dtype") and hasattr(x, "shape")))

    return translate
