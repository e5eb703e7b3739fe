"""ONNX files of many nodes, which no exporter writes in a reasonable time.

    python benchmarks/chains.py chain-100000 FOLDER

Five nodes in turn: a product with a weight of its own, a bias, a Relu, a Transpose and its
inverse. The exporters' files (exporters.py) are what people have; these show how cost grows.
"""

import sys
from pathlib import Path

import onnx
from onnx import TensorProto, helper

SIZE = 32


def chain(nodes: int) -> onnx.ModelProto:
    """So many nodes in a row."""
    made, weights, value = [], [], "x"
    for number in range(nodes):
        result = f"v{number}"
        step = number % 5
        if step == 0:
            name = f"w{number}"
            held = bytes(4 * SIZE * SIZE)
            weights.append(TensorProto(name=name, dims=[SIZE, SIZE], data_type=1, raw_data=held))
            made.append(helper.make_node("MatMul", [value, name], [result], name=f"n{number}"))
        elif step == 1:
            made.append(helper.make_node("Add", [value, "bias"], [result], name=f"n{number}"))
        elif step == 2:
            made.append(helper.make_node("Relu", [value], [result], name=f"n{number}"))
        else:
            node = helper.make_node("Transpose", [value], [result], name=f"n{number}", perm=[1, 0])
            made.append(node)
        value = result
    weights.append(TensorProto(name="bias", dims=[SIZE], data_type=1, raw_data=bytes(4 * SIZE)))
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, (SIZE, SIZE))
    result = helper.make_tensor_value_info(value, TensorProto.FLOAT, None)
    graph = helper.make_graph(made, "chain", [given], [result], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def main(name: str, folder: str) -> None:
    """Write the file."""
    onnx.save(chain(int(name.removeprefix("chain-"))), Path(folder, f"{name}.onnx"))


if __name__ == "__main__":
    main(*sys.argv[1:])
