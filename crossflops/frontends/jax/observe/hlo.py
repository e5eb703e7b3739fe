"""Read an HLO program from its serialized form (HloModuleProto), without its numbers.

The fields are those of xla/service/hlo.proto and xla/xla_data.proto. Literals, which hold the
weights that a function closes over, are passed by.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import cast

import msgspec

from crossflops.ir.graph import TensorSpec
from crossflops.ir.trace import Scalar
from crossflops.load.reader import BYTES, Field, decode_varint, protobuf_fields

# xla_data.proto: PrimitiveType
_TYPES = {
    1: "bool", 30: "int1", 26: "int2", 21: "int4", 2: "int8", 3: "int16", 4: "int32", 5: "int64",
    31: "uint1", 27: "uint2", 22: "uint4", 6: "uint8", 7: "uint16", 8: "uint32", 9: "uint64",
    10: "float16", 11: "float32", 12: "float64", 16: "bfloat16", 15: "complex64",
    18: "complex128", 19: "float8e5m2", 28: "float8e4m3", 20: "float8e4m3fn",
    23: "float8e4m3b11fnuz", 29: "float8e3m4", 24: "float8e5m2fnuz", 25: "float8e4m3fnuz",
    32: "float4e2m1", 33: "float8e8m0",
}  # fmt: skip
_TUPLE = 13
_NO_ARRAYS = (14, 17, 34)  # opaque, token, buffer
_WINDOW = {
    1: "size", 2: "stride", 3: "padding_low", 4: "padding_high", 5: "window_dilation",
    6: "base_dilation",
}  # fmt: skip
_NUMBERS = {14: "dimensions", 32: "fft_length", 50: "feature_groups", 58: "batch_groups"}
_TEXTS = {11: "fusion_kind", 28: "custom_call_target", 63: "direction"}
_CONVOLUTION = {
    7: "input_batch", 8: "input_feature", 11: "input_spatial", 3: "kernel_input",
    4: "kernel_output", 6: "kernel_spatial", 9: "output_batch", 10: "output_feature",
    12: "output_spatial",
}  # fmt: skip
_DOT = {1: "lhs_contracting", 2: "rhs_contracting", 3: "lhs_batch", 4: "rhs_batch"}
_SINGLE = ("feature_groups", "batch_groups")


class Instruction(msgspec.Struct, frozen=True, kw_only=True):
    """One instruction. `results` are the arrays of its result, those of a tuple one by one.

    `operands`, `control` (instructions that must run before) and `called` (computations) are ids.
    `op_name` is the name stack of the JAX primitive that it came from.
    """

    id: int
    name: str
    opcode: str
    results: tuple[TensorSpec, ...]
    operands: tuple[int, ...]
    control: tuple[int, ...]
    called: tuple[int, ...]
    op_name: str
    settings: dict[str, Scalar]


class Computation(msgspec.Struct, frozen=True):
    """A function of HLO: its instructions, in the order of the file, and the id of its result."""

    name: str
    instructions: tuple[Instruction, ...]
    root: int


class HloProgram(msgspec.Struct, frozen=True, dict=True):
    """An HLO module: its computations by id, and the id of the one that is run."""

    computations: dict[int, Computation]
    entry: int

    @cached_property
    def instruction_by_id(self) -> dict[int, Instruction]:
        """The instructions by id, which is unique in the program."""
        return {
            instruction.id: instruction
            for computation in self.computations.values()
            for instruction in computation.instructions
        }


def read_hlo_program(data: bytes) -> HloProgram:
    """Return the program in a serialized HloModuleProto. Raises TargetError."""
    computations: dict[int, Computation] = {}
    entry = 0
    for field in protobuf_fields(data, 0, len(data)):
        if field.number == 3 and field.wire == BYTES:
            number, computation = _read_computation(data, field)
            computations[number] = computation
        elif field.number == 6:
            entry = field.value
    return HloProgram(computations, entry)


def _read_computation(data: bytes, at: Field) -> tuple[int, Computation]:
    """Return (id, computation) from a field of an HLO file."""
    name, number, root = "", 0, 0
    instructions: list[Instruction] = []
    for field in protobuf_fields(data, at.value, at.end):
        if field.number == 1:
            name = _field_text(data, field)
        elif field.number == 2:
            instructions.append(_read_instruction(data, field))
        elif field.number == 5:
            number = field.value
        elif field.number == 6:
            root = field.value
    return number, Computation(name, tuple(instructions), root)


def _read_instruction(data: bytes, at: Field) -> Instruction:
    """Return the instruction in a field of an HLO file."""
    texts = {1: "", 2: ""}
    ids: dict[int, list[int]] = {35: [], 36: [], 37: [], 38: []}
    settings: dict[str, Scalar] = {}
    lists: dict[str, list[int]] = {}
    results: tuple[TensorSpec, ...] = ()
    op_name = ""
    for field in protobuf_fields(data, at.value, at.end):
        number = field.number
        if number in texts:
            texts[number] = _field_text(data, field)
        elif number in ids:
            ids[number] += _field_integers(data, field)
        elif number == 3:
            results = tuple(_result_specs(_array_shapes(data, field)))
        elif number == 7:
            op_name = _op_name(data, field)
        elif number in _NUMBERS:
            lists.setdefault(_NUMBERS[number], []).extend(_field_integers(data, field))
        elif number in _TEXTS:
            settings[_TEXTS[number]] = _field_text(data, field)
        elif number == 15:
            settings["window"] = [
                _window_dimension(data, message, _WINDOW) for message in _inner_fields(data, field)
            ]
        elif number == 16:
            settings |= _dimension_numbers(data, field, _CONVOLUTION)
        elif number == 30:
            settings |= _dimension_numbers(data, field, _DOT)
    settings |= {name: values[0] if name in _SINGLE else values for name, values in lists.items()}
    return Instruction(
        id=ids[35][0] if ids[35] else 0,
        name=texts[1],
        opcode=texts[2],
        results=results,
        operands=tuple(ids[36]),
        control=tuple(ids[37]),
        called=tuple(ids[38]),
        op_name=op_name,
        settings=settings,
    )


def _inner_fields(data: bytes, at: Field) -> Iterator[Field]:
    """Yield the fields of a nested message."""
    return protobuf_fields(data, at.value, at.end)


def _field_text(data: bytes, at: Field) -> str:
    """Return the value of a protobuf field as text."""
    return data[at.value : at.end].decode(errors="replace")


def _field_integers(data: bytes, at: Field) -> list[int]:
    """Return the integers of a protobuf field, packed or single."""
    if at.wire != BYTES:
        return [_to_signed_integer(at.value)]
    numbers, index = [], at.value
    while index < at.end:
        value, index = decode_varint(data, index, at.end)
        numbers.append(_to_signed_integer(value))
    return numbers


def _to_signed_integer(value: int) -> int:
    """Return a 64-bit varint as a signed integer (two's complement)."""
    return value - (1 << 64) if value >> 63 else value


def _op_name(data: bytes, at: Field) -> str:
    """Return the op_name in an instruction's metadata, or ""."""
    return next(
        (_field_text(data, field) for field in _inner_fields(data, at) if field.number == 2), ""
    )


def _window_dimension(data: bytes, at: Field, names: dict[int, str]) -> dict[str, int]:
    """Return size, stride, padding, ... of one dimension of a window, by name."""
    record = dict.fromkeys(names.values(), 0)
    for field in _inner_fields(data, at):
        if field.number in names:
            record[names[field.number]] = _to_signed_integer(field.value)
    return record


def _dimension_numbers(data: bytes, at: Field, names: dict[int, str]) -> dict[str, Scalar]:
    """Return the dimension numbers of a dot or a convolution by name."""
    dimensions: dict[str, Scalar] = {
        name: [] if name.endswith(("spatial", "contracting")) or names is _DOT else 0
        for name in names.values()
    }
    for field in _inner_fields(data, at):
        name = names.get(field.number, "")
        known = dimensions.get(name)
        if isinstance(known, list):
            known += _field_integers(data, field)
        elif name:
            dimensions[name] = _to_signed_integer(field.value)
    return dimensions


def _array_shapes(data: bytes, at: Field) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield (dtype, shape) of each array in an HLO shape, which may be a tuple."""
    kind, sizes, inner = 0, list[int](), list[Field]()
    for field in _inner_fields(data, at):
        if field.number == 2:
            kind = field.value
        elif field.number == 3:
            sizes += _field_integers(data, field)
        elif field.number == 4:
            inner.append(field)
    if kind == _TUPLE:
        for field in inner:
            yield from _array_shapes(data, field)
    elif kind not in _NO_ARRAYS:
        yield _TYPES.get(kind, f"type{kind}"), tuple(sizes)


def _result_specs(shapes: Iterator[tuple[str, tuple[int, ...]]]) -> Iterator[TensorSpec]:
    """Yield the specs of an instruction's results from their dtypes and shapes."""
    for number, (kind, sizes) in enumerate(shapes):
        yield TensorSpec(f"output_{number}", kind, sizes)


# What rules ask of an instruction beside its shapes: what it is there for.

_HANDED_ON = ("reshape", "broadcast", "transpose", "bitcast", "convert", "copy")
_GIVEN = ("parameter", "constant", "get-tuple-element")
_CONTRACTIONS = {"convolution": "convolution", "dot": "product"}
_WHOLE = ("int", "uint", "bool")
_REDUCERS: dict[tuple[str, ...], str] = {("maximum",): "max", ("add",): "sum"}


def kind_of_biased_operator(operands: Sequence[Instruction], program: HloProgram) -> str:
    """Return what a sum adds a bias to: "convolution" or "product", or "" if no bias."""
    for operand, other in (operands, operands[::-1]):
        made, provided = (
            _computing_instruction_behind_moves(operand, program),
            _computing_instruction_behind_moves(other, program),
        )
        narrow = provided.opcode in _GIVEN and _result_rank(provided) < _result_rank(other)
        if made.opcode in _CONTRACTIONS and narrow:
            return _CONTRACTIONS[made.opcode]
    return ""


def _computing_instruction_behind_moves(
    instruction: Instruction, program: HloProgram
) -> Instruction:
    """Return the instruction that computes a value, before those that only move it."""
    while instruction.opcode in _HANDED_ON:
        instruction = program.instruction_by_id[instruction.operands[0]]
    return instruction


def _result_rank(instruction: Instruction) -> int:
    """Return the number of axes of an instruction's first result."""
    return len(instruction.results[0].shape or ()) if instruction.results else 0


def number_kind(instruction: Instruction, operands: Sequence[Instruction]) -> str:
    """Return "whole" if an instruction computes with integers or bools, else "real"."""
    seen = instruction.results[0].dtype if instruction.results else ""
    if seen == "bool" and operands and operands[0].results:
        seen = operands[0].results[0].dtype
    return "whole" if seen.startswith(_WHOLE) else "real"


def pooling_kind(instruction: Instruction, applied: Mapping[str, Scalar]) -> str:
    """Return "max" or "sum" if an instruction is such a pooling, or "" for others.

    These have a window as wide as the dimension along which they run.
    """
    if instruction.opcode != "reduce-window":
        return ""
    window = cast(Sequence[Mapping[str, int]], instruction.settings["window"])
    sizes = instruction.results[0].shape or ()
    running = any(
        dimension["size"] == size > 1 and dimension["padding_low"] + dimension["padding_high"]
        for dimension, size in zip(window, sizes, strict=True)
    )
    reducer = tuple(cast(Sequence[str], applied["applied"]))
    return "" if running else _REDUCERS.get(reducer, "")
