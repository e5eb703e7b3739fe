"""Fused operators: equal to what they were fused from, and by hand."""

import pytest

import crossflops
from crossflops.ir.ledger import Cost, CountedNode, UncountedNode
from crossflops.ledger.count import count_node
from crossflops.testing.graphs import to_node
from tests.onnx_files import parsed, saved
from tests.operators.scalars import work

MS = "com.microsoft::"
RELU, TANH = Cost(compares=1), Cost(specials=1)


def sum_of(*nodes):
    """The work of several nodes, and more of it."""
    return sum((part if isinstance(part, Cost) else work(part) for part in nodes), Cost())


X, W, Y = (2, 6, 8, 8), (4, 3, 3, 3), (2, 4, 6, 6)
LAST_X, LAST_Y = (2, 8, 8, 6), (2, 6, 6, 4)
OUT = 2 * 4 * 36


@pytest.mark.parametrize(
    ("inputs", "attrs", "more"),
    [
        ([X, W], {}, Cost()),
        ([X, W, (4,)], {"activation": "Relu"}, RELU * OUT),
        ([X, W, (4,), Y], {"activation": "Tanh"}, (TANH + Cost(adds=1)) * OUT),
        ([X, W, None, Y], {}, Cost(adds=OUT)),
        ([X, W, (4,)], {"activation": "Clip"}, Cost(compares=2) * OUT),
        ([X, W], {"activation": "LeakyRelu"}, Cost(compares=1, muls=1) * OUT),
        ([X, W], {"activation": "HardSigmoid"}, Cost(muls=1, adds=1, compares=2) * OUT),
    ],
)
def test_a_fused_convolution_is_a_convolution_and_more(inputs, attrs, more):
    """Conv, then a residual, then an activation; the layout changes nothing."""
    plain = work(to_node("Conv", inputs[:3], [Y], group=2))
    assert plain.macs == OUT * 3 * 9
    assert work(to_node(f"{MS}FusedConv", inputs, [Y], group=2, **attrs)) == plain + more
    last = [LAST_X, W, *inputs[2:3], *[LAST_Y for _ in inputs[3:]]]
    assert work(to_node(f"{MS}NhwcFusedConv", last, [LAST_Y], group=2, **attrs)) == plain + more
    blocked = to_node("com.microsoft.nchwc::Conv", inputs, [Y], group=2, **attrs)
    assert work(blocked) == plain + more


def test_a_convolution_with_channels_last_is_a_convolution():
    """NhwcConv and the internal NHWC domain keep the filter as it is."""
    plain = work(to_node("Conv", [X, W, (4,)], [Y], group=2))
    assert work(to_node(f"{MS}NhwcConv", [LAST_X, W, (4,)], [LAST_Y], group=2)) == plain
    assert (
        work(to_node("com.ms.internal.nhwc::Conv", [LAST_X, W, (4,)], [LAST_Y], group=2)) == plain
    )
    turned = (W[0], *W[2:], W[1])
    assert work(to_node(f"{MS}NhwcConv", [LAST_X, turned, (4,)], [LAST_Y], group=2)) == plain
    relu = to_node(
        "com.ms.internal.nhwc::Conv", [LAST_X, W, (4,)], [LAST_Y], activation="Relu", group=2
    )
    assert work(relu) == plain + RELU * OUT


@pytest.mark.parametrize(
    ("a", "b", "attrs"),
    [
        ((5, 3, 4, 7), (5, 3, 7, 2), {}),
        ((5, 3, 7, 4), (5, 3, 7, 2), {"transA": 1}),
        ((5, 3, 4, 7), (5, 3, 2, 7), {"transB": 1}),
        ((4, 5, 3, 7), (5, 3, 7, 2), {"transBatchA": 1}),
        ((7, 5, 3, 4), (5, 3, 7, 2), {"transA": 1, "transBatchA": 1}),
        ((5, 3, 4, 7), (7, 5, 3, 2), {"transBatchB": 1}),
    ],
)
@pytest.mark.parametrize("name", ["FusedMatMul", "TransposeMatMul", "SparseToDenseMatMul"])
def test_a_transposed_product_is_the_plain_one(name, a, b, attrs):
    """However the operands are held, 5 * 3 * 4 * 2 results are sums of 7 products."""
    plain = work(to_node("MatMul", [(5, 3, 4, 7), (5, 3, 7, 2)], [(5, 3, 4, 2)]))
    assert plain == Cost(macs=5 * 3 * 4 * 2 * 7)
    assert work(to_node(MS + name, [a, b], [(5, 3, 4, 2)], **attrs)) == plain
    halved = to_node(MS + name, [a, b], [(5, 3, 4, 2)], alpha=0.5, **attrs)
    assert work(halved) == plain + Cost(muls=120)


def test_a_vector_is_not_transposed():
    """A 1-D operand stays a row."""
    assert work(to_node(f"{MS}FusedMatMul", [(7,), (7, 2)], [(2,)], transA=1)) == Cost(macs=14)


@pytest.mark.parametrize(
    ("attrs", "more"),
    [
        ({"activation": "Relu"}, RELU * 24),
        # 6 rows of 4: 18 compares, 24 subs + 18 adds, 24 exps, 24 divs.
        ({"activation": "Softmax"}, Cost(compares=18, adds=42, specials=24, divs=24)),
        # 8 columns of 3 (axis 1 of 2x3x4): 16 compares, 24 + 24 subs + 16 adds, 24 exps, 8 logs.
        (
            {"activation": "LogSoftmax", "activation_axis": 1},
            Cost(compares=16, adds=64, specials=32),
        ),
    ],
)
def test_a_product_with_an_activation(attrs, more):
    """FusedMatMulActivation by hand."""
    inputs, out = [(2, 3, 5), (2, 5, 4)], (2, 3, 4)
    product = to_node(f"{MS}FusedMatMulActivation", inputs, [out], alpha=2.0, **attrs)
    assert work(product) == Cost(macs=120, muls=24) + more


def test_fused_gemm_is_gemm_and_an_activation():
    """A row per operand and scale."""
    inputs, attrs = [(3, 5), (4, 5), (4,)], {"transB": 1, "alpha": 0.5, "beta": 2.0}
    plain = to_node("Gemm", inputs, [(3, 4)], **attrs)
    fused = to_node(f"{MS}FusedGemm", inputs, [(3, 4)], activation="Sigmoid", **attrs)
    assert work(fused) == sum_of(plain, TANH * 12)
    fused = to_node(f"{MS}GemmFastGelu", [(2, 3, 5), (5, 4), (4,)], [(2, 3, 4)])
    gelu = to_node("Gelu", [(2, 3, 4)], [(2, 3, 4)], approximate="tanh")
    product = to_node("MatMul", [(2, 3, 5), (5, 4)], [(2, 3, 4)])
    assert work(fused) == sum_of(product, gelu, Cost(adds=24))


@pytest.mark.parametrize(
    ("inputs", "attrs", "more"),
    [
        ([], {}, Cost()),
        ([(3, 4)], {}, Cost()),  # beta is 0: C has no part
        ([(3, 4)], {"beta": 1.0}, Cost(adds=12)),
        ([(3, 4)], {"beta": 0.5}, Cost(adds=12, muls=12)),
        ([None, (1,), (1,)], {}, Cost(muls=12)),
        ([None, (1,), (1,), (1,)], {"activation": "RELU"}, Cost(muls=24, compares=12)),
    ],
)
def test_gemm_of_float8(inputs, attrs, more):
    """M*N*K products in the eight bits of A."""
    operands = ["3x5:float8e4m3fn", "4x5:float8e4m3fn"]
    gemm = to_node(f"{MS}GemmFloat8", [*operands, *inputs], [(3, 4)], transB=1, **attrs)
    assert work(gemm) == Cost(macs=60) + more
    assert count_node(gemm).precision == "float8e4m3fn"


A = (2, 3, 4)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (to_node(f"{MS}Gelu", [A], [A]), work(to_node("Gelu", [A], [A]))),
        (
            to_node(f"{MS}BiasGelu", [A, (4,)], [A]),
            sum_of(to_node("Gelu", [A], [A]), Cost(adds=24)),
        ),
        (to_node(f"{MS}FastGelu", [A], [A]), work(to_node("Gelu", [A], [A], approximate="tanh"))),
        (
            to_node(f"{MS}FastGelu", [A, (4,)], [A]),
            sum_of(to_node("Gelu", [A], [A], approximate="tanh"), Cost(adds=24)),
        ),
        (to_node(f"{MS}QuickGelu", [A], [A]), Cost(specials=24, muls=48)),
        (to_node(f"{MS}QuickGelu", [A], [A], alpha=1.0), work(to_node("Swish", [A], [A]))),
        (to_node(f"{MS}ScaledSiLU", [A], [A]), work(to_node("Swish", [A], [A]))),
        (to_node(f"{MS}ScaledSiLU", [A, ()], [A]), Cost(specials=24, muls=48)),
        # 24 adds; then 12 Gelus (div, erf, add, 2 muls) and 12 muls.
        (
            to_node(f"{MS}BiasSplitGelu", [A, (4,)], [(2, 3, 2)]),
            Cost(adds=24 + 12, divs=12, specials=12, muls=36),
        ),
        (to_node(f"{MS}BiasAdd", [A, (4,), A], [A]), Cost(adds=48)),
        (to_node(f"{MS}BiasDropout", [A, (4,), A], [A, None]), Cost(adds=48)),
        (to_node(f"{MS}BiasDropout", [A, (4,)], [A]), Cost(adds=24)),
        (
            to_node(f"{MS}BiasSoftmax", [A, A], [A], axis=2),
            sum_of(to_node("Softmax", [A], [A], axis=-1), Cost(adds=24)),
        ),
        (
            to_node(f"{MS}BiasSoftmax", [A, A], [A], axis=1),
            sum_of(to_node("Softmax-11", [A], [A], axis=1), Cost(adds=24)),
        ),
    ],
    ids=lambda v: str(getattr(v, "op", "")),
)
def test_activations_are_what_they_were_made_of(one, expected):
    """A bias is one add per element before the activation."""
    assert work(one) == expected


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (to_node(f"{MS}FusedConv", [X, W], [Y], activation="Snake", group=2), "Snake"),
        (to_node(f"{MS}BiasDropout", [A, (4,), None, None, ":bool"], [A]), "training_mode"),
        (
            to_node(
                f"{MS}FusedMatMulActivation",
                [A, (4, 4)],
                [A],
                activation="Softmax",
                activation_axis=3,
            ),
            "out of range",
        ),
    ],
)
def test_what_cannot_be_known_has_a_reason(one, words):
    """No silent zero."""
    gap = count_node(one)
    assert isinstance(gap, UncountedNode)
    assert words in gap.reason


def test_a_sparse_operand_gives_a_bound():
    """How many products are spared is in the data."""
    counted = count_node(to_node(f"{MS}SparseToDenseMatMul", [(3, 5), (5, 4)], [(3, 4)]))
    assert isinstance(counted, CountedNode)
    assert counted.exactness == "bound"


@pytest.mark.parametrize("weight", ["6,3,3,8", "6,8,3,3"])
@pytest.mark.parametrize("attributes", ["", "kernel_shape = [3, 3], "])
def test_a_file_has_its_filter_in_either_layout(weight, attributes, tmp_path):
    """8 x 8 x 6 x 72 MACs, and the shape behind it: a product of its 6 channels with 5."""
    text = f"""g (float[1,8,8,8] x, float[{weight}] w, float[6,5] m) => (y) {{
    h = com.microsoft.NhwcConv <{attributes}pads = [1, 1, 1, 1]> (x, w) y = MatMul (h, m) }}"""
    macs = crossflops.count(saved(tmp_path, parsed(text))).totals.macs
    assert macs == 8 * 8 * 6 * 72 + 8 * 8 * 6 * 5


def test_a_filter_of_other_channels_is_refused(tmp_path):
    """Neither axis has the 8 channels of X."""
    text = """g (float[1,8,8,8] x, float[6,3,3,7] w) => (y) {
    y = com.microsoft.NhwcConv (x, w) }"""
    with pytest.raises(crossflops.CrossflopsError, match="cannot run"):
        crossflops.count(saved(tmp_path, parsed(text)))
