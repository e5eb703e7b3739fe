"""Totals as polynomials in named dimensions, against formulas derived by hand."""

import json

import pytest

from crossflops import Report, count
from crossflops.cli import main
from crossflops.errors import InputError
from crossflops.ir.graph import Op
from crossflops.ir.polynomial import evaluate_polynomial, polynomial_text
from crossflops.operators import find_operator_rule
from crossflops.render.terminal import terminal
from tests.onnx_files import ledger_of, parsed, saved

WEIGHTS = "float[768,768] w, float[768,3072] u, float[3072,768] d"


def encoder(layers: int) -> str:
    """A BERT-base encoder without its norms: per layer four projections, attention, two products.

    768 wide, 12 heads of 64, 3072 inside; its weights are inputs.
    """
    lines, last = [], "x"
    for n in range(layers):
        for name in "qkv":
            lines.append(f"{name}a{n} = MatMul ({last}, w)")
            lines.append(f"{name}b{n} = Reshape ({name}a{n}, heads)")
            perm = "[0,2,3,1]" if name == "k" else "[0,2,1,3]"
            lines.append(f"{name}{n} = Transpose <perm = {perm}> ({name}b{n})")
        lines += [
            f"s{n} = MatMul (q{n}, k{n})",
            f"p{n} = Softmax (s{n})",
            f"c{n} = MatMul (p{n}, v{n})",
            f"t{n} = Transpose <perm = [0,2,1,3]> (c{n})",
            f"r{n} = Reshape (t{n}, flat)",
            f"o{n} = MatMul (r{n}, w)",
            f"m{n} = MatMul (o{n}, u)",
            f"g{n} = Relu (m{n})",
            f"y{n} = MatMul (g{n}, d)",
        ]
        last = f"y{n}"
    stored = "<int64[4] heads = {0, 0, 12, 64}, int64[3] flat = {0, 0, 768}>"
    inputs = f"float[batch,seq,768] x, {WEIGHTS}"
    return f"g ({inputs}) => (float[batch,seq,768] {last}) {stored} {{ {' '.join(lines)} }}"


LOOP = (
    "g (float[n,4,4] x, float[4,4] w) => (y) <int64[1] zero = {0}, bool go = {1}> "
    "{ s = Shape <end = 1> (x) t = Squeeze (s, zero) "
    "y = Loop (t, go, w) <body = b (int64 i, bool c, float[4,4] a) => (d, e) "
    "{ d = Identity (c) e = MatMul (a, w) }> }"
)
# Name -> the model, the dimensions, the MACs by hand.
BY_HAND = {
    "a product": ("g (float[n,8] x, float[8,4] w) => (y) { y = MatMul (x, w) }", "n", "32 n"),
    # [n,m] x [m,8] and [n,8] x [8,n]: 8 n m + 8 n^2.
    "a chain of products": (
        "g (float[n,m] x, float[m,8] w, float[8,n] v) => (y) "
        "{ a = MatMul (x, w) y = MatMul (a, v) }",
        "n m",
        "8 n^2 + 8 n m",
    ),
    "a convolution of the same size": (
        "g (float[1,3,h,w] x, float[8,3,3,3] k) => (y) { y = Conv <pads = [1,1,1,1]> (x, k) }",
        "h w",
        "216 h w",
    ),
    # (h - 2)(w - 2) outputs of 216 each.
    "a convolution without a border": (
        "g (float[1,3,h,w] x, float[8,3,3,3] k) => (y) { y = Conv (x, k) }",
        "h w",
        "216 h w - 432 h - 432 w + 864",
    ),
    # 5 heads, 16 + 16 per pair of a query and a key.
    "attention": (
        "g (float[b,5,s,16] q, float[b,5,s,16] k, float[b,5,s,16] v) => (y) "
        "{ y = Attention (q, k, v) }",
        "b s",
        "160 b s^2",
    ),
    "a loop that runs n times": (LOOP, "n", "64 n"),
    # 12 x (4 x 768^2 + 2 x 768 x 3072) = 84934656, and 12 x 2 x 768 = 18432.
    "BERT-base": (encoder(12), "batch seq", "18432 batch seq^2 + 84934656 batch seq"),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_the_macs_are_the_polynomial_by_hand(name, tmp_path):
    """Named, exact, in every size, and as JSON the same again."""
    text, names, macs = BY_HAND[name]
    path = saved(tmp_path, parsed(text, opset=23))
    report = count(path, vary=names.split())
    assert polynomial_text(report.formulas.macs) == macs
    assert [dimension.multiple_of for dimension in report.formulas.dimensions] == [1] * len(
        names.split()
    )
    assert Report.from_json(report.to_json()) == report
    sizes = dict.fromkeys(names.split(), 23)
    total = ledger_of(path, dims=sizes).total
    for kind in ("macs", "flops", "bytes_read", "bytes_written"):
        assert evaluate_polynomial(getattr(report.formulas, kind), sizes) == getattr(total, kind)


def test_all_totals_are_polynomials(tmp_path):
    """[n,8] x [8,4] reads 4 (8 n + 32) bytes and writes 16 n, with 2 x 32 n FLOPs."""
    path = saved(tmp_path, parsed(BY_HAND["a product"][0]))
    formulas = count(path, vary=["n"]).formulas
    kinds = ("flops", "bytes_read", "bytes_written", "params")
    assert [polynomial_text(getattr(formulas, kind)) for kind in kinds] == [
        "64 n", "32 n + 128", "16 n", "0"
    ]  # fmt: skip


@pytest.mark.skipif(
    find_operator_rule(Op("com.microsoft", "MoE", 1)) is None, reason="MoE has no rule yet"
)
def test_a_mixture_of_experts(tmp_path):
    """Each token meets 2 of 6 experts, of 8 x 8 and 8 x 8."""
    text = (
        "g (float[n,8] x, float[n,6] r, float[6,8,8] u, float[6,8,8] d) => (float[n,8] y) "
        '{ y = com.microsoft.MoE <k = 2, activation_type = "relu"> (x, r, u, , d) }'
    )
    formulas = count(saved(tmp_path, parsed(text)), vary=["n"]).formulas
    assert polynomial_text(formulas.macs) == "256 n"


STRIDED = (
    "g (float[b,3,h,8] x, float[8,3,3,3] k, float[4,8,1,1] l) => (y) { "
    "c = Conv <pads = [1,1,1,1]> (x, m) a = Relu (c) s = Conv <pads = [1,1,1,1], "
    "strides = [4,1]> (a, k) y = Conv (s, l) }"
)


def test_a_stride_has_no_polynomial_and_names_its_node(tmp_path):
    """(h - 1) // 4 + 1 rows: no polynomial in h, but on multiples of 4; in b there is one."""
    text = STRIDED.replace("float[8,3,3,3] k", "float[3,3,3,3] m, float[8,3,3,3] k")
    model = parsed(text)
    model.graph.node[2].name = "the stride"
    report = count(saved(tmp_path, model), vary=["b", "h"])
    b, h = report.formulas.dimensions
    assert (b.multiple_of, b.node) == (1, "")
    assert (h.multiple_of, h.node) == (4, "the stride")
    # h x 8 x 3 x 27 + (h / 4) x 8 x 8 x 27 + (h / 4) x 8 x 4 x 8, for every b.
    assert polynomial_text(report.formulas.macs) == "1144 b h"


def test_a_stride_that_no_multiple_helps_leaves_no_formula(tmp_path, capsys):
    """By 100 no power of two up to 64 divides; the count itself still stands."""
    text = STRIDED.replace("[4,1]", "[100,1]")
    text = text.replace("float[8,3,3,3] k", "float[3,3,3,3] m, float[8,3,3,3] k")
    path = saved(tmp_path, parsed(text))
    assert main(["count", path, "--vary", "h", "--dim", "b=2", "--dim", "h=100"]) == 0
    out = capsys.readouterr().out
    assert "no polynomial in h: node 'Conv_2'" in " ".join(out.split())
    assert count(path, vary=["h"], dims={"b": 2, "h": 100}).formulas.macs is None


def test_sizes_that_the_model_does_not_take_are_left_out(tmp_path):
    """Rows in pairs: only even sizes can be counted at all, and the reason says so."""
    text = (
        "g (float[n,8] x, float[16,4] w) => (y) <int64[2] pairs = {-1, 16}> "
        "{ a = Reshape (x, pairs) y = MatMul (a, w) }"
    )
    report = count(saved(tmp_path, parsed(text)), vary=["n"])
    (n,) = report.formulas.dimensions
    assert n.multiple_of == 2
    assert polynomial_text(report.formulas.macs) == "32 n"


def test_the_command_prints_them(tmp_path, capsys):
    """As text with where they hold, and as JSON with their terms."""
    path = saved(tmp_path, parsed(BY_HAND["attention"][0], opset=23))
    assert main(["count", path, "--vary", "b", "--vary", "s", "--dim", "b=3"]) == 0
    out = capsys.readouterr().out
    assert "160 b s^2" in out
    assert "s: every size, checked from 17 to" in " ".join(out.split())
    assert "is the count at b=3, s=17" in " ".join(out.split())
    assert main(["count", path, "--vary", "b", "--vary", "s", "--json"]) == 0
    formulas = json.loads(capsys.readouterr().out)["formulas"]
    assert formulas["macs"] == [{"coefficient": 160, "powers": {"b": 1, "s": 2}}]


def test_what_cannot_vary_is_refused(tmp_path):
    """A name that no input has, one that is there twice, and an unbound one."""
    path = saved(tmp_path, parsed(BY_HAND["a chain of products"][0]))
    with pytest.raises(InputError, match="no input of the model has a dimension 'q'"):
        count(path, vary=["q"])
    with pytest.raises(InputError, match="--vary names n twice"):
        count(path, vary=["n", "n"])
    with pytest.raises(InputError, match="unknown"):
        count(path, vary=["n"])


def test_a_dimension_without_a_name_gets_one_in_the_shape(tmp_path):
    """A file that leaves a size open without a name: n x 8 x 4, at a given n."""
    model = parsed(BY_HAND["a product"][0])
    model.graph.input[0].type.tensor_type.shape.dim[0].ClearField("dim_param")
    report = count(saved(tmp_path, model), ["x=rowsx8"], vary=["rows"], dims={"rows": 3})
    assert polynomial_text(report.formulas.macs) == "32 rows"
    assert (report.macs, report.formulas.at) == (96, {"rows": 3})


# So many positions are known: a longer sequence is cut to them.
POSITIONS = (
    "g (float[n,8] x, float[300,8] table, float[8,4] w) => (y) "
    "<int64[1] zero = {0}> "
    "{ s = Shape <end = 1> (x) p = Slice (table, zero, s) y = MatMul (p, w) }"
)


def test_a_kink_far_beyond_leaves_a_formula_below_it(tmp_path):
    """A table of 300 positions: n x 8 x 4 below its end, 9600 beyond."""
    report = count(saved(tmp_path, parsed(POSITIONS)), vary=["n"])
    (line,) = report.formulas.dimensions
    assert polynomial_text(report.formulas.macs) == "32 n"
    assert (line.multiple_of, line.largest < 300, bool(line.node)) == (1, True, True)
    assert f"for much larger sizes, node '{line.node}' has another cost" in " ".join(
        terminal(report, 200).split()
    )
