"""A .tflite file -> its subgraphs, signatures and operators, read by the schema of `tflite`.

Nothing of TensorFlow is imported, and no weight is read: of constants there are shapes, and the
values of small lists of whole numbers, which say axes and sizes.
"""

from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from crossflops.errors import TargetError
from crossflops.frontends.frontend import require_packages
from crossflops.load import reject_pointer_or_web_page

_IDENTIFIER = b"TFL3"
_SMALL = 64  # elements of a constant whose values are read
_DTYPES = {
    "FLOAT32": "float32", "FLOAT16": "float16", "FLOAT64": "float64", "BFLOAT16": "bfloat16",
    "INT4": "int4", "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64",
    "UINT8": "uint8", "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "BOOL": "bool",
    "COMPLEX64": "complex64", "COMPLEX128": "complex128", "STRING": "string",
}  # fmt: skip
_NUMBERS = {"int32": "<i4", "int64": "<i8"}
_AGAIN = "write the file again with tf.lite.TFLiteConverter"


class TfliteTensor(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor of a subgraph.

    `open_axes` are those whose size the file leaves open: the shape has 1 there. A `stored` tensor
    is a constant, with `values` if it is a small list of whole numbers. A `quantized` one has a
    scale, a `sparse` one stores only what is not zero.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    open_axes: tuple[int, ...] = ()
    stored: bool = False
    values: tuple[int, ...] | None = None
    quantized: bool = False
    sparse: bool = False

    @property
    def numel(self) -> int:
        """The number of elements."""
        return prod(self.shape)


class TfliteOperator(msgspec.Struct, frozen=True, kw_only=True):
    """An operator: its builtin name or custom code, its options, and indices of tensors.

    An input that is left out is -1.
    """

    kind: str
    is_custom: bool
    options: Any
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def option_value(self, name: str, default: Any = 0) -> Any:
        """Return an option by the name that the schema has for it, in camel case."""
        read = getattr(self.options, name, None)
        return default if read is None else read()


class TfliteSubgraph(msgspec.Struct, frozen=True, kw_only=True):
    """A subgraph: its tensors, and its operators in the order in which they run."""

    name: str
    tensors: tuple[TfliteTensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[TfliteOperator, ...]


class TfliteModel(msgspec.Struct, frozen=True, kw_only=True):
    """The subgraphs of a file, and its signatures: the index of a subgraph by name."""

    subgraphs: tuple[TfliteSubgraph, ...]
    signatures: Mapping[str, int]
    input_names: Mapping[int, Mapping[int, str]]  # by subgraph and tensor, as signatures have them


def read_tflite_model(path: Path) -> TfliteModel:
    """Return the content of a .tflite file. Raises TargetError, MissingExtraError."""
    if not path.is_file():
        raise TargetError(f"file {path} does not exist", "give the path of a .tflite file")
    reject_pointer_or_web_page(path)
    require_packages(("tflite",), f"read {path.name}", "tflite")
    import tflite

    content = path.read_bytes()
    if content[4:8] != _IDENTIFIER:
        raise TargetError(f"{path} is not a .tflite file: it lacks the mark TFL3", _AGAIN)
    try:
        return _model_content(tflite.Model.GetRootAs(content, 0))
    except TargetError:
        raise
    except Exception as error:  # of a damaged file the schema raises many kinds
        raise TargetError(f"{path} cannot be read as a .tflite file: {error}", _AGAIN) from error


def _model_content(model: Any) -> TfliteModel:
    """Return subgraphs and signatures of a root table."""
    kinds = [_operator_kind(model.OperatorCodes(at)) for at in range(model.OperatorCodesLength())]
    subgraphs = tuple(
        _subgraph_content(model, model.Subgraphs(at), kinds)
        for at in range(model.SubgraphsLength())
    )
    if not subgraphs:
        raise TargetError("the .tflite file has no subgraph", _AGAIN)
    signatures: dict[str, int] = {}
    names: dict[int, dict[int, str]] = {}
    for at in range(model.SignatureDefsLength()):
        row = model.SignatureDefs(at)
        index = int(row.SubgraphIndex())
        signatures[_to_text(row.SignatureKey())] = index
        for number in range(row.InputsLength()):
            names.setdefault(index, {})[int(row.Inputs(number).TensorIndex())] = _to_text(
                row.Inputs(number).Name()
            )
    return TfliteModel(subgraphs=subgraphs, signatures=signatures, input_names=names)


def _operator_kind(code: Any) -> tuple[str, bool]:
    """Return the name of an operator code, and whether it is a custom one.

    Codes above 127 are in a field of their own; files from before it have zero there.
    """
    import tflite

    known = {value: name for name, value in vars(tflite.BuiltinOperator).items() if name.isupper()}
    number = max(int(code.BuiltinCode()), int(code.DeprecatedBuiltinCode()))
    name = known.get(number, f"BUILTIN_{number}")
    return (_to_text(code.CustomCode()) or "CUSTOM", True) if name == "CUSTOM" else (name, False)


def _subgraph_content(model: Any, subgraph: Any, kinds: list[tuple[str, bool]]) -> TfliteSubgraph:
    """Return a subgraph's tensors and operators."""
    tensors = tuple(
        _tensor_content(model, subgraph.Tensors(at)) for at in range(subgraph.TensorsLength())
    )
    operators = []
    for at in range(subgraph.OperatorsLength()):
        row = subgraph.Operators(at)
        kind, is_custom = kinds[row.OpcodeIndex()]
        operators.append(
            TfliteOperator(
                kind=kind,
                is_custom=is_custom,
                options=_operator_options(row),
                inputs=tuple(int(row.Inputs(n)) for n in range(row.InputsLength())),
                outputs=tuple(int(row.Outputs(n)) for n in range(row.OutputsLength())),
            )
        )
    return TfliteSubgraph(
        name=_to_text(subgraph.Name()),
        tensors=tensors,
        inputs=tuple(int(subgraph.Inputs(n)) for n in range(subgraph.InputsLength())),
        outputs=tuple(int(subgraph.Outputs(n)) for n in range(subgraph.OutputsLength())),
        operators=tuple(operators),
    )


def _operator_options(row: Any) -> Any:
    """Return the table of an operator's options, None without one."""
    import tflite

    table = row.BuiltinOptions()
    names = {value: name for name, value in vars(tflite.BuiltinOptions).items()}
    kind = getattr(tflite, str(names.get(row.BuiltinOptionsType())), None)
    if table is None or kind is None:
        return None
    options = kind()
    options.Init(table.Bytes, table.Pos)
    return options


def _tensor_content(model: Any, tensor: Any) -> TfliteTensor:
    """Return type, shape and origin of a tensor."""
    import tflite

    types = {value: name for name, value in vars(tflite.TensorType).items()}
    dtype = _DTYPES.get(types.get(tensor.Type(), ""), "")
    shape = tuple(int(tensor.Shape(n)) for n in range(tensor.ShapeLength()))
    declared = [int(tensor.ShapeSignature(n)) for n in range(tensor.ShapeSignatureLength())]
    buffer = model.Buffers(tensor.Buffer()) if tensor.Buffer() < model.BuffersLength() else None
    stored = buffer is not None and (buffer.DataLength() > 0 or buffer.Offset() > 1)
    scales = tensor.Quantization()
    return TfliteTensor(
        name=_to_text(tensor.Name()),
        dtype=dtype,
        shape=shape,
        open_axes=tuple(axis for axis, size in enumerate(declared) if size < 0),
        stored=stored and not tensor.IsVariable(),
        values=tuple(_small_values(buffer, dtype, shape)) or None if stored else None,
        quantized=scales is not None and scales.ScaleLength() > 0,
        sparse=tensor.Sparsity() is not None,
    )


def _small_values(buffer: Any, dtype: str, shape: tuple[int, ...]) -> Iterator[int]:
    """Yield the values of a small constant of whole numbers, none of another."""
    import numpy as np

    if dtype in _NUMBERS and prod(shape) <= _SMALL and buffer.DataLength():
        yield from np.frombuffer(buffer.DataAsNumpy().tobytes(), _NUMBERS[dtype]).tolist()


def _to_text(value: bytes | None) -> str:
    """Return a text of the file, "" if it has none."""
    return (value or b"").decode("utf-8", "replace")
