"""Functions, control flow, foreign operators, and what is unusual about a file as a whole."""

from crossflops.testing.file_probes.probe import FileProbe

_BRANCHES = """g (bool c, float[3,4] x, float[4,5] w) => (float[3,5] y) {
    y = If (c) <
        then_branch = t () => (float[3,5] a) { a = MatMul(x, w) },
        else_branch = e () => (float[3,5] b) { p = MatMul(x, w) b = Relu(p) }
    > }"""
_LOOP = """g (float[3,3] x) => (float[3,3] y) {
    n = Constant<value = int64 {4}>()
    t = Constant<value = bool {1}>()
    y = Loop (n, t, x) <
        body = b (int64 i, bool go, float[3,3] s) => (bool on, float[3,3] r)
            { on = Identity(go) r = MatMul(s, s) }
    > }"""
_SCAN = """g (float[3,3] h, float[4,3,3] x) => (float[3,3] y, float[4,3,3] z) {
    y, z = Scan <
        num_scan_inputs = 1,
        body = b (float[3,3] s, float[3,3] i) => (float[3,3] r, float[3,3] o)
            { r = MatMul(s, i) o = Identity(r) }
    > (h, x) }"""
_FUNCTION = """g (float[3,4] x, float[4,5] w) => (float[3,5] y) {
        p = local.dense(x, w)
        y = Relu(p)
    }
    <domain: "local", opset_import: ["": 18]>
    dense (a, b) => (c) { m = MatMul(a, b) c = Sigmoid(m) }"""

FILES = (
    FileProbe("branches", _BRANCHES, 60, ("w",)),
    FileProbe("loop", _LOOP, 4 * 27),
    FileProbe("scan", _SCAN, 4 * 27),
    FileProbe("function", _FUNCTION, 60, ("w",)),
    FileProbe(
        "foreign_result",
        "g (float[2,3] x) => (float[2,3] y) { y = com.microsoft.QuickGelu(x) }",
        0,
    ),
    FileProbe(
        "foreign_inside",
        "g (float[2,3] x) => (float[2,3] y) { q = com.microsoft.QuickGelu(x) y = Relu(q) }",
        0,
    ),
    FileProbe(
        "foreign_namesake",
        "g (float[2,3] x) => (float[2,3] y) { y = com.microsoft.Gelu(x) }",
        0,
    ),
    FileProbe(
        "result_that_nobody_uses",
        "g (float[3,4] x, float[4,5] w) => (float[3,4] y) { m = MatMul(x, w) y = Relu(x) }",
        60,
        ("w",),
    ),
    FileProbe(
        "attention",
        "g (float[1,2,5,4] q) => (float[1,2,5,4] y) { y = Attention(q, q, q) }",
        2 * 2 * 5 * 5 * 4,
        opset=23,
    ),
    FileProbe(
        "what_moves",
        "g (float[2,3,4] x) => (float[24] y) { c = Concat<axis = 1>(x, x)"
        " s = Constant<value = int64[2] {3, 3}>() a, b = Split<axis = 1>(c, s)"
        " i = Identity(a) f = Flatten<axis = 0>(i) v = Constant<value = int64[1] {24}>()"
        " y = Reshape(f, v) }",
        0,
    ),
    FileProbe(
        "split_without_axis",
        "g (float[4,3] x) => (float[2,3] a, float[2,3] b)"
        " { s = Constant<value = int64[2] {2, 2}>() a, b = Split(x, s) }",
        0,
    ),
    FileProbe(
        "split_without_its_first",
        "g (float[4,3] x) => (float[2,3] b)"
        ' { s = Constant<value = int64[2] {2, 2}>() "", b = Split<axis = 0>(x, s) }',
        0,
    ),
    FileProbe(
        "top_of_a_list",
        "g (float[6] x) => (float[2] v, int64[2] i)"
        " { k = Constant<value = int64[1] {2}>() v, i = TopK(x, k) }",
        0,
    ),
    FileProbe(
        "constant_that_is_a_number",
        "g (float[2,3] x) => (float[2,3] y) { c = Constant<value_float = 2.0>() y = Mul(x, c) }",
        0,
    ),
    FileProbe(
        "scalar_with_an_axis",
        "g (float x) => (float[1] y) { s = Constant<value = int64[1] {1}>() y = Reshape(x, s) }",
        0,
    ),
    FileProbe(
        "bfloat16_weights",
        "g (bfloat16[3,4] x, bfloat16[4,5] w) => (bfloat16[3,5] y) { y = MatMul(x, w) }",
        60,
        ("w",),
    ),
    FileProbe(
        "input_of_whole_numbers",
        "g (int32[2,3] i, float[7,4] t) => (float[2,3,4] y) { y = Gather(t, i) }",
        0,
        ("t",),
    ),
)
