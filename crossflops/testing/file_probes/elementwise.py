"""Operators without contractions, each alone: nothing of them is a multiply-accumulate."""

from crossflops.testing.file_probes.probe import FileProbe

_SHAPE = "float[2,3,4]"


def _of_one(name: str, call: str, opset: int = 18) -> FileProbe:
    """One operator on a tensor of 24 elements."""
    text = f"g ({_SHAPE} x) => ({_SHAPE} y) {{ y = {call} }}"
    return FileProbe(name, text, 0, opset=opset)


def _resize(name: str, attributes: str) -> FileProbe:
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

FILES = (
    *(_of_one(f"file_{name}", f"{name}(x)") for name in _FUNCTIONS),
    _of_one("file_Gelu", "Gelu(x)", opset=20),
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
    _resize("resize_nearest", '<mode = "nearest">'),
    _resize("resize_linear", '<mode = "linear">'),
    _resize("resize_cubic", '<mode = "cubic">'),
    _resize("resize_without_mode", ""),
)  # fmt: skip
