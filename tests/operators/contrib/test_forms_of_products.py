"""Operators of two forms: what onnxruntime runs counts the hand value, what it refuses is refused.

Where this build of onnxruntime has no kernel for a form, the count alone is held.
"""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import crossflops
from tests.onnx_files import saved

pytestmark = [
    pytest.mark.onnxruntime,
    pytest.mark.filterwarnings("ignore::crossflops.errors.CrossflopsWarning"),
]
KINDS = {"float32": TensorProto.FLOAT, "uint8": TensorProto.UINT8, "int8": TensorProto.INT8}
KINDS["int32"] = TensorProto.INT32
REFUSED = None
PRODUCT = 2 * 3 * 4 * 5 * 6  # 2x3 matrices of 4x5 and 5x6


def ones(*shape, dtype="float32"):
    """Small numbers of that shape."""
    return np.full(shape, 0.1 if dtype == "float32" else 1, dtype)


def packed(bits, groups=2, **more):
    """A of 3x64 times 16 columns of packed weights: bytes of a block, and what may follow."""
    zeros = more.get("zeros", False)
    return [
        ones(3, 64),
        ones(16, 2, 32 * bits // 8 + more.get("wrong", 0), dtype="uint8"),
        ones(16 * groups),
        ones(16 * -(-2 * bits // 8), dtype="uint8") if zeros else None,
        np.zeros(64, np.int32) if more.get("indices") else None,
        ones(16) if more.get("bias") else None,
    ]


NBITS = {"K": 64, "N": 16, "block_size": 32}
STORED = (1, 2, 3, 4, 5)
FEW_BITS = [
    (f"{bits} bits, {sorted(more)}", "MatMulNBits", packed(bits, **more), STORED,
     {**NBITS, "bits": bits}, REFUSED if "wrong" in more else 3 * 64 * 16)
    for bits in (2, 4, 8)
    for more in ({}, {"bias": True}, {"zeros": True}, {"indices": True}, {"wrong": 1})
    if (bits, more) != (8, {"indices": True})  # the CPU has no kernel: see below
]  # fmt: skip
ODD_BITS = [
    (f"{bits} bits", "MatMulNBits", packed(bits), STORED, {**NBITS, "bits": bits}, REFUSED)
    for bits in (3, 5)
]


def grouped(packed_rows, wrong=0, rows=4, past=0):
    """4 query heads and 2 heads of keys and values, of 8; packed or not."""
    query = ones(1, rows, (8 if packed_rows else 4) * 8 + wrong)
    other = None if packed_rows else ones(1, rows, 16)
    total = rows + past
    lengths = [np.full(1, total - 1, np.int32), np.array(total, np.int32)]
    return [query, other, other, ones(1, 2, past, 8), ones(1, 2, past, 8), *lengths]


HEADS = {"num_heads": 4, "kv_num_heads": 2}
X, TWO = ones(2, 4, 16), {"num_heads": 2}
SELF = 2 * 2 * 4 * 4 * 16  # scores and their values: 2 batches, 4 x 4 tokens, 16 features
SCALE, ZERO = ones(), ones(dtype="uint8")


def bytes_of_gemm(scales, zeros, flags, bias=None):
    """4x7 times 7x5 on bytes, transposed as the flags say, with scales and zero points of B."""
    rows = (7, 4) if flags.get("transA") else (4, 7)
    columns = (5, 7) if flags.get("transB") else (7, 5)
    operands = [ones(*rows, dtype="uint8"), SCALE, ZERO, ones(*columns, dtype="int8")]
    operands += [ones(*scales), ones(*zeros, dtype="int8"), bias, SCALE, ZERO]
    return operands


BYTES_OF_GEMM = [
    (f"{flags} {scales} {zeros}", "QGemm", bytes_of_gemm(scales, zeros, flags),
     (1, 2, 3, 4, 5, 7, 8), flags, 4 * 7 * 5 if runs else REFUSED)
    for flags in ({}, {"transA": 1}, {"transB": 1}, {"transA": 1, "transB": 1})
    for scales, zeros, runs in (
        ((), (), True),
        ((5,), (5,), True),
        ((7,), (7,), False),
        ((1, 5), (1, 5), False),
        ((5,), (), False),
    )
]  # fmt: skip
QUANTIZED = [ones(2, 4, 16, dtype="uint8"), ones(16, 48, dtype="int8"), ones(48), SCALE, SCALE,
             None, ZERO, ones(dtype="int8")]  # fmt: skip
CASES = [
    *FEW_BITS,
    *ODD_BITS,
    *BYTES_OF_GEMM,
    ("per column", "DynamicQuantizeMatMul",
     [ones(3, 7), ones(7, 5, dtype="int8"), ones(5), ones(5, dtype="int8")], (1, 2, 3), {}, 105),
    ("per row", "DynamicQuantizeMatMul",
     [ones(3, 7), ones(7, 5, dtype="int8"), ones(7), ones(7, dtype="int8")], (1, 2, 3), {},
     REFUSED),
    ("a vector", "DynamicQuantizeMatMul",
     [ones(3, 7), ones(7, dtype="int8"), ones(7), ones(7, dtype="int8")], (1, 2, 3), {}, REFUSED),
    *(
        (f"{flags}", "FusedMatMul", [ones(*a), ones(*b)], (), flags, macs)
        for a, b, flags, macs in (
            ((2, 3, 4, 5), (2, 3, 5, 6), {}, PRODUCT),
            ((2, 3, 5, 4), (2, 3, 6, 5), {"transA": 1, "transB": 1}, PRODUCT),
            ((4, 2, 3, 5), (2, 3, 5, 6), {"transBatchA": 1}, PRODUCT),
            ((5, 2, 3, 4), (2, 3, 5, 6), {"transBatchA": 1, "transA": 1}, PRODUCT),
            ((2, 3, 4, 5), (5, 2, 3, 6), {"transBatchB": 1}, PRODUCT),
            ((2, 3, 4, 5), (6, 2, 3, 5), {"transBatchB": 1, "transB": 1}, PRODUCT),
            ((4, 2, 3, 5), (5, 2, 3, 6), {"transBatchA": 1, "transBatchB": 1}, PRODUCT),
            ((4, 2, 3, 5), (2, 3, 4, 6), {"transBatchA": 1}, REFUSED),
            ((4, 5), (5, 6), {"transBatchA": 1}, REFUSED),
            ((4, 2, 5), (5, 6), {"transBatchA": 1}, REFUSED),
        )
    ),
    ("three", "GroupQueryAttention", grouped(False), (5, 6), HEADS, 2 * 4 * 4 * 32),
    ("packed", "GroupQueryAttention", grouped(True), (5, 6), HEADS, 2 * 4 * 4 * 32),
    ("a cache", "GroupQueryAttention", grouped(True, rows=1, past=3), (5, 6), HEADS, 2 * 4 * 32),
    ("odd rows", "GroupQueryAttention", grouped(True, wrong=3), (5, 6), HEADS, REFUSED),
    ("three", "MultiHeadAttention", [X, ones(2, 6, 16), ones(2, 6, 16)], (), TWO,
     2 * 2 * 4 * 6 * 16),
    ("wide values", "MultiHeadAttention", [X, ones(2, 6, 16), ones(2, 6, 32)], (), TWO,
     2 * 4 * 6 * (16 + 32)),
    ("heads first", "MultiHeadAttention", [X, ones(2, 2, 6, 8), ones(2, 2, 6, 8)], (), TWO,
     2 * 2 * 4 * 6 * 16),
    ("narrow keys", "MultiHeadAttention", [X, ones(2, 6, 12), ones(2, 6, 16)], (), TWO, REFUSED),
    ("rows alone", "MultiHeadAttention", [X], (), TWO, REFUSED),
    ("thirds", "Attention", [X, ones(16, 48), ones(48)], (1, 2), TWO, 8 * 16 * 48 + SELF),
    ("sizes", "Attention", [X, ones(16, 28), ones(28)], (1, 2),
     {**TWO, "qkv_hidden_sizes": [8, 8, 12]}, 8 * 16 * 28 + 2 * 4 * 4 * (8 + 12)),
    ("a wrong sum", "Attention", [X, ones(16, 28), ones(28)], (1, 2),
     {**TWO, "qkv_hidden_sizes": [8, 8, 8]}, REFUSED),
    ("other keys", "Attention", [X, ones(16, 32), ones(32)], (1, 2),
     {**TWO, "qkv_hidden_sizes": [8, 12, 12]}, REFUSED),
    ("no thirds", "Attention", [X, ones(16, 47), ones(47)], (1, 2), TWO, REFUSED),
    ("bytes", "QAttention", QUANTIZED, (1, 2, 3, 4, 6, 7), TWO, 8 * 16 * 48 + SELF),
    ("short", "QAttention", [QUANTIZED[0], ones(15, 48, dtype="int8"), *QUANTIZED[2:]],
     (1, 2, 3, 4, 6, 7), TWO, REFUSED),
]  # fmt: skip

# Forms for which the CPU has no kernel.
ORDERED = [ones(2, 4, 32, dtype="int8"), SCALE, ones(32, 64, dtype="int8"), SCALE, SCALE]
ORDERS = {"order_A": 1, "order_B": 0, "order_Y": 1}
ELSEWHERE = [
    ("QKV", "MultiHeadAttention", [ones(2, 4, 2, 3, 8)], (), TWO, SELF),
    ("KV", "MultiHeadAttention", [X, ones(2, 6, 2, 2, 8)], (), TWO, 2 * 2 * 4 * 6 * 16),
    ("indices", "MatMulNBits", packed(8, indices=True), STORED, {**NBITS, "bits": 8}, 3 * 64 * 16),
    ("rows", "QOrderedMatMul", ORDERED, (1, 2, 3, 4), ORDERS, 2 * 4 * 32 * 64),
    ("short", "QOrderedMatMul", [*ORDERED[:2], ones(16, 64, dtype="int8"), SCALE, SCALE],
     (1, 2, 3, 4), ORDERS, REFUSED),
    *(
        (f"{flags}", "GemmFloat8", [ones(*a), ones(*b)], (), {"dtype": 1, **flags}, macs)
        for a, b, flags, macs in (
            ((4, 8), (8, 6), {}, 4 * 8 * 6),
            ((8, 4), (8, 6), {"transA": 1}, 4 * 8 * 6),
            ((4, 8), (6, 8), {"transB": 1}, 4 * 8 * 6),
            ((4, 8), (6, 8), {}, REFUSED),
        )
    ),
]  # fmt: skip


def written(folder, operator, operands, stored, attributes):
    """A file of one node, and what it is given."""
    names = ["" if value is None else f"i{at}" for at, value in enumerate(operands)]
    given = {name: value for name, value in zip(names, operands, strict=True) if name}
    weights = {f"i{at}" for at in stored}
    make, domain = helper.make_tensor_value_info, "com.microsoft"
    results = {"GroupQueryAttention": ["y", "k", "v"]}.get(operator, ["y"])
    node = helper.make_node(operator, names, results, domain=domain, name="n", **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [
            make(name, KINDS[str(value.dtype)], value.shape)
            for name, value in given.items()
            if name not in weights
        ],
        [onnx.ValueInfoProto(name=name) for name in results],
        [onnx.numpy_helper.from_array(given[name], name) for name in given if name in weights],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    path = saved(folder, helper.make_model(graph, opset_imports=opsets, ir_version=8))
    return path, {name: value for name, value in given.items() if name not in weights}


def runs(path, feeds):
    """Whether onnxruntime takes the file and its operands."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        providers = ["CPUExecutionProvider"]
        onnxruntime.InferenceSession(path, options, providers=providers).run(None, feeds)
    except Exception:  # of a class of its own for each thing that is wrong
        return False
    return True


def holds(path, macs):
    """The count of the file, or its refusal, is as expected."""
    if macs is REFUSED:
        with pytest.raises(crossflops.CrossflopsError, match="cannot run"):
            crossflops.count(path)
    else:
        report = crossflops.count(path)
        assert (report.totals.macs, report.uncounted) == (macs, ())


@pytest.mark.parametrize(
    ("label", "operator", "operands", "stored", "attributes", "macs"),
    CASES,
    ids=[f"{case[1]}-{case[0]}" for case in CASES],
)
def test_what_onnxruntime_runs_is_counted(
    label, operator, operands, stored, attributes, macs, tmp_path
):
    """It runs what has a hand value, and refuses what has none."""
    path, feeds = written(tmp_path, operator, operands, stored, attributes)
    assert runs(path, feeds) == (macs is not REFUSED)
    holds(path, macs)


@pytest.mark.parametrize(
    ("label", "operator", "operands", "stored", "attributes", "macs"),
    ELSEWHERE,
    ids=[f"{case[1]}-{case[0]}" for case in ELSEWHERE],
)
def test_forms_of_other_devices_are_counted(
    label, operator, operands, stored, attributes, macs, tmp_path
):
    """By the schema: the CPU says that it has not implemented them."""
    path, _ = written(tmp_path, operator, operands, stored, attributes)
    holds(path, macs)
