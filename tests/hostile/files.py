"""Files made to hurt, by what is wrong with them, and the words of the answer to each.

Where the words are None the file is counted, with exit status 0; else they stand in the error.
"""

import random

from onnx import ModelProto, TensorProto, helper

from crossflops.load.reader import encode_bytes_field_header
from tests.frontends.onnx.test_control_flow import doubling
from tests.onnx_files import parsed

LOCAL = '<domain: "local", opset_import: ["": 17, "local": 1]>'


def chained(levels):
    """Functions that each call the next: as deep as there are levels."""
    calls = (f"F{k} (a) => (b) {{ b = local.F{k + 1} (a) }}" for k in range(levels))
    text = "g (float[4] x) => (y) { y = local.F0 (x) } "
    return parsed(text + " ".join(f"{LOCAL} {call}" for call in calls))


def branching(levels):
    """Functions that call the next on what came and on what is as long as no other: 2^levels."""
    text = "g (float[4] x) => (y) { y = local.F0 (x) }"
    for k in range(levels):
        text += (
            f" {LOCAL} F{k} (a) => (e) {{ s = Constant <value_ints = [{2**k}]> () "
            f"t = ConstantOfShape (s) b = Concat <axis = 0> (a, t) c = local.F{k + 1} (a) "
            f"d = local.F{k + 1} (b) e = Concat <axis = 0> (c, d) }}"
        )
    return parsed(f"{text} {LOCAL} F{levels} (a) => (c) {{ c = Relu (a) }}")


def resized(scale):
    """A Resize by a scale that is no number."""
    model = parsed("g (float[1,1,4,4] x) => (y) { y = Resize(x, , s) }")
    scales = helper.make_tensor("s", TensorProto.FLOAT, [4], [1, 1, scale, scale])
    model.graph.initializer.append(scales)
    return model


def nested(depth):
    """If within If, in wire format, since protobuf itself does not nest that deep."""
    inner = helper.make_node("Relu", ["x"], ["y"]).SerializeToString()
    for _ in range(depth):
        graph = encode_bytes_field_header(1, len(inner)) + inner
        attribute = b"\x0a\x01b\xa0\x01\x05" + encode_bytes_field_header(6, len(graph)) + graph
        inner = b"\x22\x02If" + encode_bytes_field_header(5, len(attribute)) + attribute
    graph = encode_bytes_field_header(1, len(inner)) + inner
    return encode_bytes_field_header(7, len(graph)) + graph


def looped(trips, result="float[4,4]", body="e = MatMul(a, a)"):
    """A Loop of that many runs, of 64 MACs each."""
    return parsed(
        f"g (float[4,4] x) => (y) <int64 m = {{{trips}}}> {{ y = Loop (m, , x) <body = b "
        f"(int64 i, bool c, {result} a) => (d, e) {{ d = Identity(c) {body} }}> }}"
    )


def towers(depth, functions):
    """Loops of 2^62 runs within one another, in functions that call one another."""
    text = "g (float[4,4] x) => (y) { y = local.F0 (x) }"
    for k in range(functions):
        inner = f"e{depth} = MatMul(a{depth}, a{depth})"
        if k < functions - 1:
            inner = f"h = local.F{k + 1} (a{depth}) e{depth} = local.F{k + 1} (h)"
        for level in range(depth, 0, -1):
            inner = (
                f"e{level - 1} = Loop (m, , a{level - 1}) <body = b (int64 i{level}, "
                f"bool c{level}, float[4,4] a{level}) => (d{level}, e{level}) "
                f"{{ d{level} = Identity(c{level}) "
                f"{inner} }}>"
            )
        text += f" {LOCAL} F{k} (a0) => (e0) {{ m = Constant <value_int = {2**62}> () {inner} }}"
    return parsed(text)


def large(x, w):
    """A product of huge matrices."""
    return parsed(f"g (float[{x}] x, float[{w}] w) => (y) {{ y = MatMul(x, w) }}")


def with_tensor(dims, data=b"\0\0\0\0", **fields):
    """A product with a stored matrix of those dimensions."""
    model = parsed("g (float[4,4] x) => (y) { y = MatMul(x, w) }")
    model.graph.initializer.append(TensorProto(name="w", data_type=1, dims=dims, **fields))
    if data:
        model.graph.initializer[0].raw_data = data
    return model


def outside(location):
    """A product with a matrix that is said to lie in another file."""
    model = with_tensor([4, 4], b"", data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "0"), ("length", str(2**62))):
        model.graph.initializer[0].external_data.add(key=key, value=value)
    return model


def handmade(*nodes, inputs=("x",), versions=(17,)):
    """A graph of nodes that no checker has seen, on inputs of 4 x 4."""
    model = ModelProto(
        ir_version=10, opset_import=[helper.make_opsetid("", version) for version in versions]
    )
    for name in inputs:
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4])
        model.graph.input.append(value)
    for op, read, made, *attributes in nodes:
        node = helper.make_node(op, read.split(), made.split(), name=f"node_{made}")
        node.attribute.extend(helper.make_attribute(*pair) for pair in attributes)
        model.graph.node.append(node)
    return model


def cut(share):
    """The first part of a file."""
    data = doubling(5).SerializeToString()
    return data[: int(len(data) * share)]


def wide(count):
    """A node that reads one value so many times."""
    return handmade(("Sum", "x " * count, "y"))


def fields_of(count):
    """A model of so many tiny fields."""
    return b"\x08\x08" * count


RANGE = "<int64 a = {0}, int64 n = {100000000000}, int64 s = {1}>"
TIMES = "<int64[2] n = {1000000, 1000000}>"
SHAPE = "<int64[3] s = {1099511627776, 1099511627776, -1}>"
GROWS = "e = Concat<axis = 0>(a, a)"
CONV = (("Conv", "x x", "y", ("strides", [0, 0])), ("Conv", "x x", "z", ("group", 0)))
FILES = {
    "doubling functions": (doubling(27), None),
    "functions in a long chain": (chained(5000), "deeper than 32"),
    "functions in ever new shapes": (branching(13), "different combinations"),
    "a function that calls itself": (
        parsed(
            f"g (float[4] x) => (y) {{ y = local.F (x) }} {LOCAL} F (a) => (b) "
            "{ b = local.F (a) }"
        ),
        "'F' calls itself",
    ),
    "loops in functions in loops": (towers(8, 30), None),
    "functions that lie too deep in loops": (towers(8, 6), "nested too deeply"),
    "too many loops in functions in loops": (towers(20, 30), "nested too deeply"),
    "a long range": (parsed(f"g () => (y) {RANGE} {{ y = Range(a, n, s) }}"), None),
    "a large tile": (parsed(f"g (float[9,9] x) => (y) {TIMES} {{ y = Tile(x, n) }}"), None),
    "an overflowing input": (large("4611686018427387904,4611686018427387904", "4,4"), "2^63"),
    "a huge product": (large("2147483648,2147483648", "2147483648,2147483648"), None),
    "a negative input": (large("4,-5", "4,4"), "x [4, ?]"),
    "a tensor of 64 billion": (with_tensor([10**9, 10**9]), "'w' declares 1000000000x1000000000"),
    "a tensor that is too long": (with_tensor([1], bytes(5000)), "byte"),
    "a negative tensor": (with_tensor([4, -4]), "'w' has the negative dimension -4"),
    "an overflowing tensor": (with_tensor([2**62, 2**62], b""), "2^63"),
    "a tensor of a hundred dimensions": (with_tensor([1] * 100), "100 dimensions"),
    "an infinite scale": (resized(float("inf")), "node 'Resize_0'"),
    "a scale that is no number": (resized(float("nan")), "node 'Resize_0'"),
    "an overflowing reshape": (
        parsed(f"g (float[4,4] x) => (y) {SHAPE} {{ y = Reshape(x, s) }}"),
        "'x' (4x4) has 16 elements, which do not fill",
    ),
    "an input too many": (handmade(("MatMul", "x x x", "y")), "3 inputs, and MatMul takes 2"),
    "an input too few": (handmade(("MatMul", "x", "y")), "1 inputs, and MatMul takes 2"),
    "an attribute of an older version": (  # without it, all axes would be reduced
        handmade(("ReduceSum", "x", "y", ("axes", [1]))),
        "ReduceSum has no attribute 'axes' since version 13",
    ),
    "a version to come, of which anything may be": (
        handmade(("Relu", "x", "y", ("new", 1)), versions=(99,)),
        None,
    ),
    "a cycle": (handmade(("Add", "x b", "a"), ("Relu", "a", "b")), "'node_a' depends on its own"),
    "nodes out of order": (handmade(("Relu", "a", "b"), ("Relu", "x", "a")), None),
    "a value made twice": (
        handmade(("Relu", "x", "a"), ("Relu", "x", "a")),
        "'node_a' produces 'a' a second time",
    ),
    "a value that nothing makes": (handmade(("Relu", "q", "a")), "'node_a' reads 'q'"),
    "two inputs of one name": (handmade(("Relu", "x", "a"), inputs=("x", "x")), "two inputs"),
    "an operator of no name": (handmade(("", "x", "a")), "has no operator"),
    "steps and groups of zero": (handmade(*CONV), "'x' (4x4) has rank 2, but needs at least 3"),
    "a node with a million inputs": (wide(1_000_000), None),
    "a Loop without end": (looped(2**62), None),
    "a Loop without end that grows": (looped(2**62, "float[n,4]", GROWS), None),
    "a Loop that grows beyond all": (looped(1000, "float[n,4]", GROWS), "no"),
    "deep nesting": (nested(60), "cannot parse the model"),
    "deeper nesting": (nested(5000), "nest"),
    "many tiny fields": (fields_of(5_000_000), "fields"),
    "zeros": (bytes(1_000_000), "byte 0"),
    "an empty file": (b"", "is empty"),
    "a pointer of Git LFS": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4cac\nsize 12345\n",
        "Git LFS pointer",
    ),
    "a page that shows a file": (b"\n<!DOCTYPE html><html><body>", "a web page"),
    "operators of no version": (
        handmade(("Relu", "x", "a"), versions=()),
        "'node_a' (Relu): the file does not declare the opset version of the domain ai.onnx",
    ),
    "no nodes": (ModelProto(ir_version=10), "no nodes"),
    "half a file": (cut(0.5), "byte"),
    "nearly a file": (cut(0.98), "byte"),
    "random bytes": (random.Random(1).randbytes(100_000), "byte"),
    "a number of eleven bytes": (b"\x08" + b"\xff" * 11, "more than ten bytes at byte 1"),
    "a length beyond the file": (b"\x3a\xff\xff\xff\xff\x07", "beyond its message at byte 0"),
    "data in another folder": (outside("../../../etc/passwd"), None),
    "data in a device": (outside("/dev/zero"), None),
    "data on the network": (outside("//host/share"), None),
}
