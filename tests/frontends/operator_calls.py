"""Calls of ATen operators, read from a file: `aten.gt.Scalar(f32[2,3]^, 0)`.

A tensor is its type and shape, and behind them its range: `^` 0 to 1, `+` from 0 on, `<4` the
integers below 4; other floats are normal ones. Each argument that an operator has takes several
values in its lines, so that a form which ignores it cannot pass.
"""

import re
from pathlib import Path

from tests.models import nn, torch

FILE = Path(__file__).with_name("operator_calls.txt")
_TENSOR = re.compile(r"\b(f32|f64|i64|i32|i16|i8|u8|b8)\[([\d,]*)\](<\d+|\+|\^)?")
_TYPES = {
    "f32": torch.float32, "f64": torch.float64, "i64": torch.int64, "i32": torch.int32,
    "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "b8": torch.bool,
}  # fmt: skip


def tensor(kind: str, shape: str, span: str | None) -> torch.Tensor:
    """Random numbers of a type and range."""
    size = [int(extent) for extent in shape.split(",") if extent]
    if kind == "b8":
        return torch.rand(size) < 0.5
    if span and span[0] == "<":
        return torch.randint(int(span[1:]), size).to(_TYPES[kind])
    numbers = torch.randn(size) if span is None else torch.rand(size) * (3 if span == "+" else 1)
    return numbers.to(_TYPES[kind])


def operator(line: str):
    """The operator of a line."""
    *path, overload = line.partition("(")[0].split(".")
    packet = torch.ops
    for name in path:
        packet = getattr(packet, name)
    return getattr(packet, overload)


class Calls(nn.Module):
    """The operators of these lines, all of their tensors being inputs."""

    def __init__(self, lines):
        super().__init__()
        self.calls, self.tensors = [], []
        for line in lines:
            arguments = line[line.index("(") :]
            arguments = _TENSOR.sub(self._placed, arguments)
            code = compile(f"operator{arguments}", "<call>", "eval")
            self.calls.append((operator(line), code))

    def _placed(self, match):
        self.tensors.append(tensor(*match.groups()))
        return f"given[{len(self.tensors) - 1}]"

    def forward(self, *given):
        """Return the tensors that each call gives."""
        names = {"given": given, "torch": torch, "inf": float("inf"), "nan": float("nan")}
        results = []
        for operator, code in self.calls:
            result = eval(code, {**names, "operator": operator})
            results.append(list(result) if isinstance(result, tuple | list) else [result])
        return results
