"""A fitted estimator -> ONNX by skl2onnx, and which estimator every node came from."""

import contextlib
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from crossflops.core.tensor import TensorSpec
from crossflops.errors import InputError, NormalizeError
from crossflops.normalize.sklearn.written import SOLVE, kernels_recorded

_ML, _OLDER_ML = "ai.onnx.ml", 3  # some converters know no newer one
_LONGEST = 160  # letters of what skl2onnx says, which may print whole trees
# what of skl2onnx takes which type
_TYPES = {
    "float32": "FloatTensorType",
    "float64": "DoubleTensorType",
    "bool": "BooleanTensorType",
    "int64": "Int64TensorType",
    "int32": "Int32TensorType",
    "string": "StringTensorType",
    "float16": "Float16TensorType",
    "int8": "Int8TensorType",
    "int16": "Int16TensorType",
    "uint8": "UInt8TensorType",
}


class Converted(msgspec.Struct, frozen=True):
    """The bytes of an ONNX model, and the id of the estimator behind each node, by node name.

    `empty` are the nodes in which the estimator computes nothing (see `written`).
    """

    data: bytes
    makers: dict[str, int]
    empty: frozenset[str] = frozenset()


def to_onnx(
    model: Any, args: tuple[TensorSpec, ...], kwargs: Mapping[str, TensorSpec], parts: list[Any]
) -> Converted:
    """Convert with plain probabilities (no ZipMap). `parts` are all estimators in the model.

    Raises InputError for a type that skl2onnx does not take, NormalizeError where it fails.
    """
    from crossflops.normalize.sklearn.mended import best, mended

    types = [(name, _type(one)) for name, one in _named(args, kwargs).items()]
    options = {id(one): {"zipmap": False} for one in parts if _takes_zipmap(one)}
    try:
        with mended(parts):
            return _converted(best(model), types, options, None)
    except Exception as error:  # converters fail in as many ways as there are estimators
        why = _said(error)
        if _ML in str(error):
            with contextlib.suppress(Exception), mended(parts):
                older = {"": _newest(), _ML: _OLDER_ML}
                return _converted(best(model), types, options, older)
        raise NormalizeError(
            f"skl2onnx cannot convert {type(model).__name__}: {why}",
            "skl2onnx.supported_converters() names what it converts; leave such a step out",
        ) from error


def _said(error: Exception) -> str:
    """What skl2onnx says, in a line."""
    text = f"{type(error).__name__}: {error}"
    if type(error).__name__ == "MissingShapeCalculator":
        found = re.search(r"for type '<class '([^']*)'>'", str(error))
        text = f"it has no converter for {found[1]}" if found else text
    return textwrap.shorten(text, _LONGEST, placeholder=" ...")


def _converted(
    model: Any, types: list[Any], options: dict[int, Any], opset: dict[str, int] | None
) -> Converted:
    import skl2onnx

    made: dict[str, int] = {}
    empty: set[str] = set()
    with warnings.catch_warnings(), _recorded(made), kernels_recorded(empty):
        warnings.simplefilter("ignore")
        found = skl2onnx.convert_sklearn(
            model,
            name=type(model).__name__,
            initial_types=types,
            options=options,
            target_opset=opset,
        )
    _declare(found.graph, types)
    return Converted(found.SerializeToString(), made, frozenset(empty))


def _declare(graph: Any, types: list[Any]) -> None:
    """Say what ONNX's inference does not know: how many features a text has, and unknowns.

    onnx/docs/Operators.md, TfIdfVectorizer: Y [rows, max(ngram_indexes) + 1], one for every entry.
    Solve of skl2onnx: L [n, n], B [n, rows] -> X [n, rows].
    """
    from onnx import TensorProto
    from onnx.helper import get_node_attr_value, make_tensor_value_info

    rows = next((one.shape[0] for _, one in types if one.shape), None)
    stored = {one.name: one for one in graph.initializer}
    for node in graph.node:
        if node.op_type == "TfIdfVectorizer":
            kind, shape = (
                TensorProto.FLOAT,
                [rows, max(get_node_attr_value(node, "ngram_indexes")) + 1],
            )
        elif node.op_type == SOLVE and node.input[0] in stored:
            matrix = stored[node.input[0]]
            kind, shape = matrix.data_type, [matrix.dims[0], rows]
        else:
            continue
        graph.value_info.append(make_tensor_value_info(node.output[0], kind, shape))


def _newest() -> int:
    from skl2onnx import get_latest_tested_opset_version

    return int(get_latest_tested_opset_version())


def _named(
    args: tuple[TensorSpec, ...], kwargs: Mapping[str, TensorSpec]
) -> dict[str, TensorSpec]:
    """The inputs by name; those by place are X, X1 ..."""
    return {**{f"X{place or ''}": one for place, one in enumerate(args)}, **kwargs}


def _type(spec: TensorSpec) -> Any:
    from skl2onnx.common import data_types

    name = _TYPES.get(spec.dtype)
    if name is None or not hasattr(data_types, name):
        raise InputError(
            f"skl2onnx takes no input of the type {spec.dtype}",
            f"types: {', '.join(_TYPES)}",
        )
    return getattr(data_types, name)(list(spec.shape or ()))


def _takes_zipmap(estimator: Any) -> bool:
    """Whether it would give its probabilities as a list of maps, unless told otherwise.

    A pipeline would hand the option on to its last step, whatever that is.
    """
    from skl2onnx._supported_operators import sklearn_operator_name_map
    from skl2onnx.common._registration import get_converter

    if hasattr(estimator, "steps"):
        return False
    alias = sklearn_operator_name_map.get(type(estimator))
    try:
        return alias is not None and "zipmap" in (get_converter(alias).get_allowed_options() or ())
    except ValueError:  # there is none
        return False


@contextmanager
def _recorded(made: dict[str, int]) -> Iterator[None]:
    """Write the id of the estimator behind every node into `made` while this is open.

    skl2onnx/common/_topology.py: `Topology.call_converter` runs the converter of one operator,
    which adds nodes to a container and may declare operators for what is inside (a helper has no
    estimator of its own: it works for the one that declared it).
    """
    from skl2onnx.common._topology import Scope, Topology

    convert, declare = Topology.call_converter, Scope.declare_local_operator
    owners: dict[int, int] = {}
    running: list[int | None] = []

    def converted(self: Any, operator: Any, container: Any, **options: Any) -> None:
        own = operator.raw_operator
        owner = owners.get(id(operator), id(own) if own is not None else None)
        before = len(container.nodes)
        running.append(owner)
        try:
            convert(self, operator, container, **options)
        finally:
            running.pop()
        if owner is not None:
            made.update((node.name, owner) for node in container.nodes[before:])

    def declared(self: Any, type: str, raw_model: Any = None) -> Any:
        operator = declare(self, type, raw_model)
        if running and running[-1] is not None and raw_model is None:
            owners[id(operator)] = running[-1]
        return operator

    Topology.call_converter, Scope.declare_local_operator = converted, declared
    try:
        yield
    finally:
        Topology.call_converter, Scope.declare_local_operator = convert, declare
