"""ONNX files for count_files.py, made in a process of their own: a parent's memory is inherited.

python benchmarks/file_models.py NAME FILE
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

GIGABYTES = 2_300_000_000


class Builder:
    """A graph that grows by one node at a time, with zeros for weights."""

    def __init__(self, dtype: int, *shape: int) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.input = helper.make_tensor_value_info("x", dtype, shape)

    def weight(self, *shape: int) -> str:
        """The name of a stored tensor."""
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.zeros(shape, np.float32), name))
        return name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """The name of the result of a new node."""
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def model(self, output: str) -> onnx.ModelProto:
        """The model."""
        result = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "graph", [self.input], [result], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def resnet() -> onnx.ModelProto:
    """ResNet-50 with its batch normalization folded: 4.09 GMACs, 25.5 million weights."""
    made = Builder(TensorProto.FLOAT, 1, 3, 224, 224)

    def conv(x: str, before: int, after: int, size: int, stride: int = 1) -> str:
        weights = made.weight(after, before, size, size), made.weight(after)
        pads = [size // 2] * 4
        return made.node("Conv", x, *weights, strides=[stride, stride], pads=pads)

    x = made.node("Relu", conv("x", 3, 64, 7, 2))
    x = made.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    before = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            y = made.node("Relu", conv(x, before, width, 1))
            y = made.node("Relu", conv(y, width, width, 3, stride))
            y = conv(y, width, 4 * width, 1)
            x = x if block else conv(x, before, 4 * width, 1, stride)
            x = made.node("Relu", made.node("Add", x, y))
            before = 4 * width
    x = made.node("Flatten", made.node("GlobalAveragePool", x))
    return made.model(made.node("Gemm", x, made.weight(2048, 1000), made.weight(1000)))


def bert(layers: int = 12, width: int = 768, words: int = 128) -> onnx.ModelProto:
    """The encoder of BERT-base with its embedding: 108 million weights, 436 MB."""
    made = Builder(TensorProto.INT64, 1, words)
    heads = helper.make_tensor("heads", TensorProto.INT64, [4], [0, 0, 12, width // 12])
    joined = helper.make_tensor("joined", TensorProto.INT64, [3], [0, 0, width])

    def dense(x: str, before: int, after: int) -> str:
        return made.node(
            "Add", made.node("MatMul", x, made.weight(before, after)), made.weight(after)
        )

    def normed(x: str) -> str:
        return made.node("LayerNormalization", x, made.weight(width), made.weight(width))

    x = normed(made.node("Gather", made.weight(30522, width), "x"))
    for _ in range(layers):
        q, k, v = (
            made.node("Transpose", made.node("Reshape", dense(x, width, width), "heads"), perm=p)
            for p in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        weights = made.node("Softmax", made.node("MatMul", q, k))
        mixed = made.node("Transpose", made.node("MatMul", weights, v), perm=[0, 2, 1, 3])
        x = normed(made.node("Add", x, dense(made.node("Reshape", mixed, "joined"), width, width)))
        inner = made.node("Gelu", dense(x, width, 4 * width))
        x = normed(made.node("Add", x, dense(inner, 4 * width, width)))
    made.weights += [heads, joined]
    return made.model(x)


def chain(nodes: int) -> onnx.ModelProto:
    """So many nodes, four kinds in turn, one of them a matrix product with a weight of its own."""
    made = Builder(TensorProto.FLOAT, 16, 32)
    x = "x"
    for number in range(nodes):
        step = number % 4
        if step == 0:
            x = made.node("MatMul", x, made.weight(32, 32))
        elif step == 1:
            x = made.node("Add", x, "w0")
        elif step == 2:
            x = made.node("Relu", x)
        else:
            x = made.node("Transpose", made.node("Transpose", x, perm=[1, 0]), perm=[1, 0])
    if nodes > 1:
        made.weights.append(made.weights[0])
        made.weights[0] = numpy_helper.from_array(np.zeros(32, np.float32), "w0")
        made.weights[-1] = numpy_helper.from_array(np.zeros((32, 32), np.float32), "first")
        made.nodes[0].input[1] = "first"
    return made.model(x)


def huge(path: Path, inline: bool) -> None:
    """One product with 2.3 GB of weights: in the file, as a hole at its end, or not at all."""
    made = Builder(TensorProto.FLOAT, 1, 1000)
    model = made.model(made.node("MatMul", "x", "w"))
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1000, GIGABYTES // 4000])
    if not inline:
        tensor.data_location = TensorProto.EXTERNAL
        model.graph.initializer.append(tensor)
        onnx.save(model, path)
        return
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    head = tensor.SerializeToString() + field(9, GIGABYTES)
    stored = field(5, len(head) + GIGABYTES) + head
    with path.open("wb") as file:
        file.write(model.SerializeToString())
        file.write(field(7, len(graph) + len(stored) + GIGABYTES) + graph + stored)
        file.truncate(file.tell() + GIGABYTES)


def field(number: int, length: int) -> bytes:
    """Tag and length of a field of bytes, in protobuf's wire format."""
    digits = []
    for value in (number << 3 | 2, length):
        while value > 0x7F:
            digits.append(value & 0x7F | 0x80)
            value >>= 7
        digits.append(value)
    return bytes(digits)


def main(name: str, file: str) -> None:
    """Make one of the files."""
    if name.startswith("huge"):
        huge(Path(file), inline=name == "huge")
    else:
        model = {"resnet": resnet, "bert": bert}.get(name, lambda: chain(int(name)))()
        onnx.save(model, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
