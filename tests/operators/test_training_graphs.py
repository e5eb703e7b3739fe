"""Gradients, losses and optimizers of onnxruntime's training graphs, derived by hand."""

import numpy as np
import onnx
import pytest
from onnx import helper

import crossflops
from crossflops.errors import OperandError
from crossflops.ir.ledger import Cost, UncountedNode
from crossflops.ledger.count import count_node
from crossflops.testing.graphs import to_node
from tests.onnx_files import saved
from tests.operators.scalars import work

MS = "com.microsoft::"
X, ROW = (2, 3, 4), (4,)  # 24 elements, 6 rows of 4
STATISTICS = (2, 3, 1)
PICTURE, KERNEL, RESULT = (2, 3, 5, 5), (4, 3, 3, 3), (2, 4, 3, 3)  # 72 results of 27 products
FLAG, COUNT = ":bool", ":int64"


def pairwise(name, **attrs):
    """A gradient operator of dY and of what its forward operator kept."""
    return to_node(f"{MS}{name}", [X, X], [X], **attrs)


CASES = [
    # 72 * 27 for each of dX and dW; dB sums 72 numbers to 4.
    (to_node("ConvGrad", [RESULT, PICTURE, KERNEL], [PICTURE, KERNEL, (4,)]),
     Cost(macs=2 * 1944, adds=68)),
    (to_node(f"{MS}ConvGrad", [RESULT, PICTURE, KERNEL], [None, KERNEL]), Cost(macs=1944)),
    (to_node("ConvGrad", [(1, 4, 3, 3), (1, 4, 5, 5), (4, 1, 3, 3)], [None, (4, 1, 3, 3), (4,)],
          group=4), Cost(macs=36 * 9, adds=32)),
    # each of n(X) = 18 elements meets 2 channels of 3 * 3.
    (to_node(f"{MS}ConvTransposeGrad", [(1, 2, 5, 5), (1, 2, 3, 3), (2, 2, 3, 3)],
          [(1, 2, 3, 3), (2, 2, 3, 3)]), Cost(macs=2 * 18 * 18)),
    # Y (dY - sum(Y dY)): 24 muls twice, 24 subs, and a sum: of 2 rows of 12, or 6 of 4.
    (pairwise("SoftmaxGrad"), Cost(muls=48, adds=24 + 22)),
    (pairwise("SoftmaxGrad_13"), Cost(muls=48, adds=24 + 18)),
    (pairwise("SoftmaxGrad_13", axis=1), Cost(muls=48, adds=24 + 24 - 8)),
    (pairwise("LogSoftmaxGrad"), Cost(muls=24, specials=24, adds=24 + 22)),
    (pairwise("LogSoftmaxGrad_13"), Cost(muls=24, specials=24, adds=24 + 18)),
    # dX: 4n muls, 2 (n - m) + 2n adds, 2m divs; scale: n muls, n - 4 adds; bias: n - 4 adds; x^
    # again: n muls, n subs.
    (to_node(f"{MS}LayerNormalizationGrad", [X, X, ROW, STATISTICS, STATISTICS], [X, ROW, ROW]),
     Cost(muls=6 * 24, adds=2 * 18 + 48 + 20 + 20 + 24, divs=12)),
    (to_node(f"{MS}LayerNormalizationGrad", [X, X, ROW, STATISTICS, STATISTICS],
          [None, None, ROW]), Cost(adds=20)),
    # one mean in place of two, and nothing to subtract again.
    (to_node(f"{MS}SimplifiedLayerNormalizationGrad", [X, X, ROW, STATISTICS], [X, ROW]),
     Cost(muls=6 * 24, adds=18 + 24 + 20, divs=6)),
    (to_node(f"{MS}InvertibleLayerNormalizationGrad", [X, X, ROW, ROW, STATISTICS], [X, ROW, ROW]),
     Cost(muls=5 * 24, adds=2 * 18 + 48 + 20 + 20 + 24, divs=12 + 24)),
    # 3 channels of 50 are the groups.
    (to_node(f"{MS}BatchNormalizationGrad", [PICTURE, PICTURE, (3,), (3,), (3,)],
          [PICTURE, (3,), (3,)], epsilon=1e-5),
     Cost(muls=6 * 150, adds=2 * 147 + 300 + 147 + 147 + 150, divs=6)),
    (pairwise("ReluGrad"), Cost(compares=24)),
    (pairwise("LeakyReluGrad"), Cost(compares=24, muls=24)),
    (pairwise("SigmoidGrad"), Cost(muls=48, adds=24)),
    (pairwise("TanhGrad"), Cost(muls=48, adds=24)),
    (pairwise("AbsGrad"), Cost(compares=48, muls=24)),
    (to_node("SinGrad", [X, X], [X]), Cost(specials=24, muls=24)),
    (pairwise("GeluGrad"), Cost(divs=1, specials=2, adds=2, muls=6) * 24),
    (pairwise("FastGeluGrad"), Cost(specials=1, adds=5, muls=12) * 24),
    (to_node(f"{MS}BiasGeluGrad_dX", [X, X, ROW], [X]),
     Cost(divs=1, specials=2, adds=3, muls=6) * 24),
    (pairwise("QuickGeluGrad"), Cost(specials=1, adds=2, muls=4) * 24),
    (pairwise("QuickGeluGrad", alpha=1.0), Cost(specials=1, adds=2, muls=3) * 24),
    # dA = dY / B; dB = -dY A / B^2 for each of 24, summed to 4.
    (to_node(f"{MS}DivGrad", [X, X, ROW], [X, ROW]), Cost(divs=3 * 24, muls=24, adds=24 + 20)),
    (to_node(f"{MS}DivGrad", [X, X, ROW], [X]), Cost(divs=24)),
    (to_node(f"{MS}DropoutGrad", [X, "2x3x4:bool"], [X]), Cost(muls=48)),
    # each of the gradients is added into zeros.
    (to_node(f"{MS}GatherGrad", ["2:int64", "3:int64", (3, 4)], [(5, 4)]), Cost(adds=12)),
    (to_node(f"{MS}GatherElementsGrad", [(2, 3), "2:int64", "2x3:int64"], [(5, 3)]), Cost(adds=6)),
    (to_node(f"{MS}GatherNDGrad", ["2:int64", "3x1:int64", (3, 4)], [(5, 4)]), Cost(adds=12)),
    (to_node(f"{MS}SliceGrad", [(2, 3), *["2:int64"] * 3], [(5, 3)]), Cost()),
    (to_node(f"{MS}ConcatTraining", [X, X], [(4, 3, 4), "2:int64"], axis=0), Cost()),
    (to_node("MaxPoolGrad", [(1, 2, 3, 3), "1x2x3x3:int64"], [(1, 2, 6, 6)]), Cost(adds=18)),
    (to_node("AveragePoolGrad", [(1, 2, 3, 3)], [(1, 2, 6, 6)], kernel_shape=(2, 2)),
     Cost(divs=18, adds=72)),
    # 6 labels of 4 classes: LogSoftmax is 18 compares, 24 subs, 24 exps, 18 adds, 6 logs, 24 subs;
    # the loss 6 negations, 5 adds and a div; with ignored ones 6 compares and 5 adds more.
    (to_node(f"{MS}SoftmaxCrossEntropyLossInternal", [(6, 4), "6:int64"], [(), (6, 4)]),
     Cost(compares=18, adds=66 + 11, specials=30, divs=1)),
    (to_node(f"{MS}SoftmaxCrossEntropyLossInternal", [(6, 4), "6:int64", None, COUNT],
          [(), (6, 4)]), Cost(compares=18 + 6, adds=66 + 16, specials=30, divs=1)),
    (to_node(f"{MS}SoftmaxCrossEntropyLossInternalGrad", [(), (6, 4), "6:int64"], [(6, 4)]),
     Cost(muls=24, specials=24, adds=6 + 24 + 18, divs=1)),
    (to_node(f"{MS}SoftmaxCrossEntropyLossInternalGrad",
          [(), (6, 4), "6:int64", None, COUNT, (6, 4)], [(6, 4)]),
     Cost(muls=24, specials=24, adds=6 + 24 + 18 + 24, divs=1, compares=6)),
    (to_node(f"{MS}SoftmaxCrossEntropyGrad", [(), (6, 4), (6, 4)], [(6, 4)]),
     Cost(specials=24, adds=24, muls=24, divs=1)),
    (to_node(f"{MS}ReduceSumTraining", [X, "1:int64"], [STATISTICS]), Cost(adds=18)),
    (to_node(f"{MS}InPlaceAccumulator", [X, X], [X]), Cost(adds=24)),
    (to_node(f"{MS}ReduceAllL2", [X, (2, 3), ROW], [()]), Cost(muls=34, adds=33, specials=1)),
    (to_node(f"{MS}ReduceAllL2", [X, (2, 3), ROW], [()], ignore_mask=0b010),
     Cost(muls=28, adds=27, specials=1)),
    (to_node(f"{MS}MixedPrecisionScale", [(), X, (2, 3)], [X, (2, 3)], to=10), Cost(muls=30)),
    (to_node(f"{MS}Scale", [X, ()], [X]), Cost(muls=24)),
    (to_node(f"{MS}Scale", [X, ()], [X], scale_down=1), Cost(divs=24)),
    (to_node(f"{MS}ScaledSum", [X, X, X], [X]), Cost(muls=72, adds=48)),
    (to_node(f"{MS}IsFinite", [X], ["2x3x4:bool"]), Cost(compares=24)),
    (to_node(f"{MS}ZeroGradient", [X, FLAG], [X]), Cost()),
    (to_node(f"{MS}SGDOptimizer", [(), X, X], [X, None]), Cost(muls=24, adds=24)),
    # M: 2 muls, add; V: 3 muls, add; 2 divs of the correction; sqrt, add, div; lambda: mul, add;
    # the step: mul, sub.
    (to_node(f"{MS}AdamOptimizer", [(), COUNT, X, X, X, X], [COUNT, X, X, X]),
     Cost(muls=7, adds=5, divs=3, specials=1) * 24),
    (to_node(f"{MS}AdamOptimizer", [(), COUNT, X, X, X, X, None, ()], [COUNT, X, X, X],
          do_bias_correction=0), Cost(muls=7, adds=5, divs=2, specials=1) * 24),
    (to_node(f"{MS}LambOptimizer", [None, None, None, (), COUNT, X, X, X, X, None, ROW, ROW, ROW,
                                 ROW, None], [COUNT, X, None, X, X, None, ROW]),
     Cost(muls=9, adds=7, divs=3, specials=1) * 28 + Cost(adds=-4, specials=4, divs=2)),
]  # fmt: skip


@pytest.mark.parametrize(("one", "expected"), CASES, ids=lambda v: str(getattr(v, "op", "")))
def test_work_by_kind(one, expected):
    """Each operation is counted once, by its kind."""
    assert work(one) == expected


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (to_node(f"{MS}PythonOp", [X], [X]), "another program"),
        (to_node(f"{MS}AdamWOptimizer", [(), COUNT], [FLAG]), "sequence of tensors"),
        (to_node(f"{MS}NcclAllReduce", [X], [X]), "between devices"),
        (to_node(f"{MS}DropoutGrad", [X, "2x3x4:bool", (), FLAG], [X]), "training_mode"),
        (to_node(f"{MS}GatherGrad", ["2:int64", "3:int64", None], [None]), "no input 2"),
    ],
    ids=lambda v: str(getattr(v, "op", "")),
)
def test_what_cannot_be_known_has_a_reason(one, words):
    """No silent zero."""
    gap = count_node(one)
    assert isinstance(gap, UncountedNode)
    assert words in gap.reason


@pytest.mark.parametrize("name", ["ReluGrad", "LayerNormalizationGrad", "SoftmaxGrad"])
def test_a_gradient_of_another_shape_is_refused(name):
    """A gradient has the shape of what it is a gradient of."""
    with pytest.raises(OperandError, match="does not have the shape"):
        count_node(to_node(f"{MS}{name}", [(2, 3), X, ROW], [X]))


def test_shapes_go_through_a_training_graph(tmp_path):
    """Backward through Gather, MatMul, LayerNormalization and a loss: no size is in the file.

    6 tokens of 4 features, 3 classes: the two products of the linear layer are 6 * 4 * 3 each.
    """
    floats, whole = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    make, domain = helper.make_node, {"domain": "com.microsoft"}
    nodes = [
        make("SoftmaxCrossEntropyLossInternalGrad", ["dl", "p", "labels"], ["dz"], **domain),
        make("Transpose", ["h"], ["ht"], perm=[1, 0]),
        make("MatMul", ["ht", "dz"], ["dw"]),
        make("Transpose", ["w"], ["wt"], perm=[1, 0]),
        make("MatMul", ["dz", "wt"], ["dh"]),
        make("LayerNormalizationGrad", ["dh", "x", "s", "m", "v"], ["dx", "ds", "db"], **domain),
        make("GatherGrad", ["shape", "ids", "dx"], ["dt"], **domain),
        make("ReduceAllL2", ["dt", "dw", "ds", "db"], ["norm"], **domain),
        make("Scale", ["dt", "norm"], ["y"], scale_down=1, **domain),
    ]
    shapes = {"dl": (), "p": (6, 3), "h": (6, 4), "w": (4, 3), "x": (6, 4), "s": (4,)}
    shapes |= {"m": (6, 1), "v": (6, 1)}
    inputs = [helper.make_tensor_value_info(name, floats, dims) for name, dims in shapes.items()]
    inputs += [helper.make_tensor_value_info(name, whole, (6,)) for name in ("labels", "ids")]
    table = onnx.numpy_helper.from_array(np.array([10, 4], np.int64), "shape")
    outputs = [helper.make_tensor_value_info("y", floats, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [table])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    report = crossflops.count(saved(tmp_path, model))
    assert not report.uncounted
    assert report.totals.macs == 2 * 6 * 4 * 3
    by_op = {row.op.rpartition(".")[2]: row.flops for row in report.by_op}
    assert by_op["GatherGrad"] == 24
    assert by_op["ReduceAllL2"] == 2 * (40 + 12 + 4 + 4)
    assert by_op["Scale"] == 40
