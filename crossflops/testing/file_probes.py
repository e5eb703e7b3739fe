"""Define small ONNX files, each of which shows one thing that tools of files count differently.

They are what no exporter writes: operators of other frameworks, functions, control flow, what is
left out. Each is a graph in ONNX's own text form.
"""

import functools
from pathlib import Path

import msgspec


class FileProbe(msgspec.Struct, frozen=True):
    """A named graph as text, with functions after it, and the names of its inputs that are stored
    in the file.

    `macs` is the result of a hand calculation, by the comment or the operator's own formula.
    """

    name: str
    text: str
    macs: int
    stored: tuple[str, ...] = ()
    opset: int = 18

    def write(self, folder: Path) -> Path:
        """Write the ONNX file into the folder, with zeros for its stored inputs; return its
        path.
        """
        import onnx

        imports = f'"": {self.opset}, "com.microsoft": 1, "local": 1'
        model = onnx.parser.parse_model(f"<ir_version: 10, opset_import: [{imports}]> {self.text}")
        inputs = {value.name: value for value in model.graph.input}
        for name in self.stored:
            tensor = inputs[name].type.tensor_type
            dims = [dim.dim_value for dim in tensor.shape.dim]
            size = _element_nbytes(tensor.elem_type)
            for dim in dims:
                size *= dim
            zeros = onnx.helper.make_tensor(name, tensor.elem_type, dims, bytes(size), raw=True)
            model.graph.initializer.append(zeros)
            model.graph.input.remove(inputs[name])
        path = folder / "model.onnx"
        path.write_bytes(model.SerializeToString())
        return path


def _element_nbytes(element_type: int) -> int:
    """Return the size of one element of an ONNX element type in bytes."""
    import onnx

    return int(onnx.helper.tensor_dtype_to_np_dtype(element_type).itemsize)


@functools.cache
def file_probes() -> dict[str, FileProbe]:
    """Return all file probes as {name: probe}; raise ValueError if two have the same name."""
    by_name: dict[str, FileProbe] = {}
    for probe in (*_LAYERS_FILES, *_ELEMENTWISE_FILES, *_WINDOWS_FILES, *_STRUCTURE_FILES):
        if probe.name in by_name:
            raise ValueError(f"two probes are called {probe.name!r}")
        by_name[probe.name] = probe
    return by_name


# Functions, control flow, foreign operators, and what is unusual about a file as a whole.

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
_DEAD = """g (float[3,4] x, float[4,5] w, float[4,6] v) => (float[3,5] y) {
    y = MatMul(x, w)
    d = MatMul(x, v)
    e = Relu(d)
    }"""
_DEAD_IN_LOOP = """g (float[3,3] x) => (float[3,3] y) {
    n = Constant<value = int64 {4}>()
    t = Constant<value = bool {1}>()
    y, z = Loop (n, t, x) <
        body = b (int64 i, bool go, float[3,3] s) => (bool on, float[3,3] r, float[3,3] u)
            { on = Identity(go) r = MatMul(s, s) u = MatMul(s, s) v = MatMul(u, u) }
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

_STRUCTURE_FILES = (
    FileProbe("branches", _BRANCHES, 60, ("w",)),
    FileProbe("loop", _LOOP, 4 * 27),
    FileProbe("dead", _DEAD, 60, ("w", "v")),
    FileProbe("dead_in_loop", _DEAD_IN_LOOP, 4 * 27),
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
        "foreign_namesake", "g (float[2,3] x) => (float[2,3] y) { y = com.microsoft.Gelu(x) }", 0
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

# Layers, windows and elementwise operators in the forms that exporters give them.

_CONV = "Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>"
# 2x3x8x8 to 4 maps, 3x3
_CONV_MACS = 2 * 4 * 64 * 27

_LAYERS_FILES = (
    FileProbe(
        "conv_with_bias",
        f"g (float[2,3,8,8] x, float[4,3,3,3] w, float[4] b) => (float[2,4,8,8] y)"
        f" {{ y = {_CONV}(x, w, b) }}",
        _CONV_MACS,
        ("w", "b"),
    ),
    FileProbe(
        "conv_with_a_nameless_bias",
        f"g (float[2,3,8,8] x, float[4,3,3,3] w) => (float[2,4,8,8] y)"
        f' {{ y = {_CONV}(x, w, "") }}',
        _CONV_MACS,
        ("w",),
    ),
    FileProbe(
        "conv_without_kernel_shape",
        "g (float[2,3,8,8] x, float[4,3,3,3] w) => (float[2,4,8,8] y)"
        " { y = Conv<pads = [1, 1, 1, 1]>(x, w) }",
        _CONV_MACS,
        ("w",),
    ),
    FileProbe(
        "conv_transpose_in_groups",
        "g (float[1,4,5,5] x, float[4,3,2,2] w, float[6] b) => (float[1,6,10,10] y)"
        " { y = ConvTranspose<kernel_shape = [2, 2], strides = [2, 2], group = 2>(x, w, b) }",
        4 * 25 * 3 * 4,
        ("w", "b"),
    ),
    FileProbe(
        "quantized_conv",
        "g (uint8[1,2,6,6] x, float s, uint8 z, uint8[3,2,3,3] w, int32[3] b)"
        " => (uint8[1,3,4,4] y)"
        " { y = QLinearConv<kernel_shape = [3, 3]>(x, s, z, w, s, z, s, z, b) }",
        3 * 16 * 18,
        ("s", "z", "w", "b"),
    ),
    FileProbe(
        "integer_conv",
        "g (uint8[1,2,6,6] x, uint8[3,2,3,3] w) => (int32[1,3,4,4] y)"
        " { y = ConvInteger<kernel_shape = [3, 3]>(x, w) }",
        3 * 16 * 18,
        ("w",),
    ),
    FileProbe(
        "gemm_transposed_twice",
        "g (float[5,3] a, float[4,5] b, float[4] c) => (float[3,4] y)"
        " { y = Gemm<transA = 1, transB = 1>(a, b, c) }",
        3 * 4 * 5,
        ("b", "c"),
    ),
    FileProbe(
        "matmul_with_batches_of_b_alone",
        "g (float[6,8] a, float[2,4,8,10] b) => (float[2,4,6,10] y) { y = MatMul(a, b) }",
        8 * 6 * 8 * 10,
    ),
    FileProbe(
        "matmul_by_a_vector",
        "g (float[3,4,5] a, float[5] b) => (float[3,4] y) { y = MatMul(a, b) }",
        60,
    ),
    FileProbe(
        "integer_matmul",
        "g (uint8[4,6] a, uint8[6,5] b, uint8 z) => (int32[4,5] y) { y = MatMulInteger(a, b, z) }",
        120,
        ("b", "z"),
    ),
    FileProbe(
        "quantized_matmul",
        "g (uint8[4,6] a, float s, uint8 z, uint8[6,5] b) => (uint8[4,5] y)"
        " { y = QLinearMatMul(a, s, z, b, s, z, s, z) }",
        120,
        ("s", "z", "b"),
    ),
    FileProbe(
        "einsum_of_two",
        "g (float[3,4] a, float[4,5] b) => (float[3,5] y)"
        ' { y = Einsum<equation = "ij,jk->ik">(a, b) }',
        60,
    ),
    FileProbe(
        "einsum_without_arrow",
        "g (float[3,4] a, float[4,5] b) => (float[3,5] y)"
        ' { y = Einsum<equation = "ij,jk">(a, b) }',
        60,
    ),
    FileProbe(
        "einsum_of_one",
        'g (float[3,4] a) => (float[4,3] y) { y = Einsum<equation = "ij->ji">(a) }',
        0,
    ),
    FileProbe(
        "lstm_with_bias",
        "g (float[5,2,6] x, float[1,16,6] w, float[1,16,4] r, float[1,32] b)"
        " => (float[5,1,2,4] y, float[1,2,4] h, float[1,2,4] c)"
        " { y, h, c = LSTM<hidden_size = 4>(x, w, r, b) }",
        5 * 2 * 16 * 10,
        ("w", "r", "b"),
    ),
    FileProbe(
        "lstm_without_bias",
        "g (float[5,2,6] x, float[1,16,6] w, float[1,16,4] r) => (float[5,1,2,4] y)"
        " { y = LSTM<hidden_size = 4>(x, w, r) }",
        5 * 2 * 16 * 10,
        ("w", "r"),
    ),
    FileProbe(
        "lstm_without_its_sequence",
        "g (float[5,2,6] x, float[1,16,6] w, float[1,16,4] r, float[1,32] b)"
        ' => (float[1,2,4] h) { "", h = LSTM<hidden_size = 4>(x, w, r, b) }',
        5 * 2 * 16 * 10,
        ("w", "r", "b"),
    ),
    FileProbe(
        "gru_with_one_result",
        "g (float[5,2,6] x, float[1,12,6] w, float[1,12,4] r, float[1,24] b)"
        " => (float[5,1,2,4] y) { y = GRU<hidden_size = 4>(x, w, r, b) }",
        5 * 2 * 12 * 10,
        ("w", "r", "b"),
    ),
    FileProbe(
        "gru_with_two_results",
        "g (float[5,2,6] x, float[1,12,6] w, float[1,12,4] r, float[1,24] b)"
        " => (float[5,1,2,4] y, float[1,2,4] h)"
        " { y, h = GRU<hidden_size = 4>(x, w, r, b) }",
        5 * 2 * 12 * 10,
        ("w", "r", "b"),
    ),
    FileProbe(
        "rnn",
        "g (float[5,2,6] x, float[1,4,6] w, float[1,4,4] r, float[1,8] b)"
        " => (float[5,1,2,4] y) { y = RNN<hidden_size = 4>(x, w, r, b) }",
        5 * 2 * 4 * 10,
        ("w", "r", "b"),
    ),
    FileProbe(
        "lstm_that_waits_for_itself",
        "g (float[5,2,6] x, float[1,16,6] w, float[1,16,4] r, float[1,32] b, float[1,2,4] i)"
        " => (float[1,2,4] z, float[5,2,6] y)"
        ' { "", h = LSTM<hidden_size = 4>(x, w, r, b, "", i, i) z = Tanh(h) y = Exp(x) }',
        5 * 2 * 16 * 10,
        ("w", "r", "b", "i"),
    ),
    FileProbe(
        "integer_matmul_of_four",
        "g (uint8[4,6] a, uint8[6,5] b, uint8 z) => (int32[4,5] y)"
        " { y = MatMulInteger(a, b, z, z) }",
        120,
        ("b", "z"),
    ),
)


# Operators without contractions, each alone: nothing of them is a multiply-accumulate.

_SHAPE = "float[2,3,4]"


def _single_operator_probe(name: str, call: str, opset: int = 18) -> FileProbe:
    """Return a probe with one operator on a tensor of 24 elements; `call` is its text, such as
    "Relu(x)".
    """
    text = f"g ({_SHAPE} x) => ({_SHAPE} y) {{ y = {call} }}"
    return FileProbe(name, text, 0, opset=opset)


def _resize_file_probe(name: str, attributes: str) -> FileProbe:
    """Return a probe with one Resize that has these attributes."""
    return FileProbe(
        name,
        "g (float[1,2,4,4] x) => (float[1,2,8,8] y)"
        " { s = Constant<value = float[4] {1.0, 1.0, 2.0, 2.0}>()"
        f' y = Resize{attributes}(x, "", s) }}',
        0,
    )


_FUNCTIONS = (
    "Abs", "Neg", "Ceil", "Floor", "Round", "Sign", "Exp", "Log", "Sqrt", "Reciprocal", "Sin",
    "Cos", "Tan", "Atan", "Erf", "Sigmoid", "Tanh", "Softplus", "Softsign", "Relu", "LeakyRelu",
    "Elu", "Selu", "HardSigmoid", "HardSwish", "Softmax", "LogSoftmax", "Hardmax", "Identity",
    "LpNormalization", "Dropout",
)  # fmt: skip

_ELEMENTWISE_FILES = (
    *(_single_operator_probe(f"file_{name}", f"{name}(x)") for name in _FUNCTIONS),
    _single_operator_probe("file_Gelu", "Gelu(x)", opset=20),
    *(
        FileProbe(
            f"file_{name}",
            f"g (float[3,1] x, float[1,4] y) => (float[3,4] z) {{ z = {name}(x, y) }}",
            0,
        )
        for name in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean")
    ),
    *(
        FileProbe(
            f"file_{name}",
            f"g (float[4] x, float[3,4] y) => (bool[3,4] z) {{ z = {name}(x, y) }}",
            0,
        )
        for name in ("Less", "GreaterOrEqual", "Equal")
    ),
    FileProbe("add_of_the_smaller", "g (float[4] x, float[2,3,4] y) => (float[2,3,4] z)"
              " { z = Add(x, y) }", 0),
    FileProbe("add_of_scalars", "g (float x, float y) => (float z) { z = Add(x, y) }", 0),
    FileProbe("sum_of_three", f"g ({_SHAPE} x, {_SHAPE} y) => ({_SHAPE} z) {{ z = Sum(x, y, x) }}",
              0),
    FileProbe("max_of_three", f"g ({_SHAPE} x, {_SHAPE} y) => ({_SHAPE} z) {{ z = Max(x, y, x) }}",
              0),
    FileProbe("power", f"g ({_SHAPE} x, float e) => ({_SHAPE} z) {{ z = Pow(x, e) }}", 0, ("e",)),
    FileProbe("prelu", f"g ({_SHAPE} x, float[4] s) => ({_SHAPE} z) {{ z = PRelu(x, s) }}", 0,
              ("s",)),
    FileProbe("clip_from_below", f"g ({_SHAPE} x, float l) => ({_SHAPE} z) {{ z = Clip(x, l) }}",
              0, ("l",)),
    FileProbe("running_sum", f"g ({_SHAPE} x, int64 a) => ({_SHAPE} z) {{ z = CumSum(x, a) }}", 0,
              ("a",)),
    FileProbe("quantized_and_back", "g (float[2,3] x, float s, uint8 z) => (float[2,3] y)"
              " { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }", 0, ("s", "z")),
    FileProbe("local_response", "g (float[1,4,5,5] x) => (float[1,4,5,5] y)"
              " { y = LRN<size = 3>(x) }", 0),
    FileProbe("batch_norm", "g (float[2,3,4] x, float[3] s) => (float[2,3,4] y)"
              " { y = BatchNormalization(x, s, s, s, s) }", 0, ("s",)),
    FileProbe("instance_norm", "g (float[2,3,4] x, float[3] s) => (float[2,3,4] y)"
              " { y = InstanceNormalization(x, s, s) }", 0, ("s",)),
    FileProbe("layer_norm_of_two_axes", "g (float[2,3,4] x, float[3,4] s) => (float[2,3,4] y)"
              " { y = LayerNormalization<axis = 1>(x, s) }", 0, ("s",)),
    FileProbe("max_pool", "g (float[1,2,9,9] x) => (float[1,2,4,4] y)"
              " { y = MaxPool<kernel_shape = [3, 3], strides = [2, 2]>(x) }", 0),
    FileProbe("max_pool_of_three_axes", "g (float[1,2,6,6,6] x) => (float[1,2,3,3,3] y)"
              " { y = MaxPool<kernel_shape = [2, 2, 2], strides = [2, 2, 2]>(x) }", 0),
    FileProbe("average_pool_of_one_axis", "g (float[1,2,8] x) => (float[1,2,4] y)"
              " { y = AveragePool<kernel_shape = [2], strides = [2]>(x) }", 0),
    FileProbe("global_average_pool", "g (float[1,2,5,5] x) => (float[1,2,1,1] y)"
              " { y = GlobalAveragePool(x) }", 0),
    FileProbe("global_max_pool", "g (float[1,2,5,5] x) => (float[1,2,1,1] y)"
              " { y = GlobalMaxPool(x) }", 0),
    *(
        FileProbe(
            f"file_{name}",
            f"g ({_SHAPE} x) => (float[2,1,4] y)"
            f" {{ a = Constant<value = int64[1] {{1}}>() y = {name}(x, a) }}",
            0,
        )
        for name in ("ReduceMean", "ReduceMax", "ReduceProd")
    ),
    FileProbe("norm_over_an_axis", "g (float[2,3,4] x) => (float[2,1,4] y)"
              " { y = ReduceL2<axes = [1]>(x) }", 0, opset=13),
    _resize_file_probe("resize_nearest", '<mode = "nearest">'),
    _resize_file_probe("resize_linear", '<mode = "linear">'),
    _resize_file_probe("resize_cubic", '<mode = "cubic">'),
    _resize_file_probe("resize_without_mode", ""),
)  # fmt: skip


# Convolutions and pools whose sizes are told in unusual words.


def _pool_file_probe(name: str, axes: int, attributes: str, out: int) -> FileProbe:
    """Return a probe with one MaxPool that has 3 positions per axis, on an input of 9 elements per
    axis.
    """
    into, to = ",".join(["9"] * axes), ",".join([str(out)] * axes)
    kernel = ", ".join(["3"] * axes)
    return FileProbe(
        name,
        f"g (float[1,2,{into}] x) => (float[1,2,{to}] y)"
        f" {{ y = MaxPool<kernel_shape = [{kernel}]{attributes}>(x) }}",
        0,
    )


def _conv_file_probe(
    name: str, axes: int, attributes: str, out: int, kind: str = "Conv"
) -> FileProbe:
    """Return a probe with one convolution that has 3 positions per axis, on an input of 6 elements
    per axis.

    It has 2 input and 4 output channels.
    """
    into, to = ",".join(["6"] * axes), ",".join([str(out)] * axes)
    kernel = ",".join(["3"] * axes)
    weights = f"4,2,{kernel}" if kind == "Conv" else f"2,4,{kernel}"
    indices = out**axes if kind == "Conv" else 6**axes
    return FileProbe(
        name,
        f"g (float[1,2,{into}] x, float[{weights}] w) => (float[1,4,{to}] y)"
        f" {{ y = {kind}<kernel_shape = [{kernel}]{attributes}>(x, w) }}",
        4 * 2 * 3**axes * indices,
        ("w",),
    )


_SAME = ', auto_pad = "SAME_UPPER"'
_VALID = ', auto_pad = "VALID"'
_TRIPLE = ", strides = [3, 3, 3], dilations = [1, 1, 1]"

_WINDOWS_FILES = (
    _pool_file_probe("pool_of_three_axes_without_strides", 3, "", 7),
    _pool_file_probe("pool_of_three_padded_axes", 3, f"{_TRIPLE}, pads = [1, 1, 1, 1, 1, 1]", 3),
    _pool_file_probe("pool_of_same_size", 2, f"{_SAME}, strides = [2, 2]", 5),
    _pool_file_probe("pool_of_one_axis_of_same_size", 1, f"{_SAME}, strides = [2]", 5),
    _pool_file_probe("pool_of_whole_windows", 2, f"{_VALID}, strides = [2, 2]", 4),
    _pool_file_probe("pool_of_wide_windows", 2,
                     f"{_VALID}, strides = [2, 2], dilations = [2, 2]", 3),
    _conv_file_probe("conv_of_same_size", 2, f"{_SAME}, strides = [2, 2]", 3),
    _conv_file_probe("conv_of_three_axes_of_same_size", 3, f"{_SAME}, strides = [2, 2, 2]", 3),
    _conv_file_probe("conv_of_whole_windows", 2, _VALID, 4),
    _conv_file_probe("conv_of_wide_windows", 2, f"{_VALID}, dilations = [2, 2]", 2),
    _conv_file_probe("conv_of_four_axes", 4, "", 4),
    _conv_file_probe("transposed_of_same_size", 2, f"{_SAME}, strides = [2, 2]", 12,
                     "ConvTranspose"),
    _conv_file_probe("transposed_of_three_axes", 3, "", 8, "ConvTranspose"),
    _conv_file_probe("transposed_to_a_size", 2, ", strides = [2, 2], output_shape = [12, 12]", 12,
          "ConvTranspose"),
)  # fmt: skip
