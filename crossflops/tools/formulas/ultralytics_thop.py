"""What ultralytics-thop 2.2.3 computes for layers: thop/vision/basic_hooks.py, calc_func.py.

A rule reads the first argument of a module, by position or by keyword, and its result; what it
does not find is a LookupError here, since the tool fails there.
"""

from math import prod

from crossflops.ir.trace import Call, Module
from crossflops.tools.formulas.contraction import Formula, extents_of, number_of, result_of


def argument(call: Call, place: int = 0, *names: str) -> tuple[int, ...]:
    """The shape of an argument by its place, or under one of these names."""
    found = call.input(str(place))
    for name in names:
        found = found or call.input(name)
    if found is None and place == 0 and call.inputs and not call.inputs[0].name[:1].isdigit():
        found = call.inputs[0]  # the only argument, under a name of its own
    if found is None or found.shape is None or "." in found.name:
        raise LookupError(f"{call.key} has no tensor as argument {place}")
    return found.shape


def _result(call: Call) -> tuple[int, ...]:
    if call.returns not in ("", "tensor"):
        raise LookupError(f"{call.key} does not return one tensor")
    return result_of(call).shape or ()


def input_elements(call: Call, module: Module) -> int:
    """n(x)."""
    return prod(argument(call))


def output_elements(call: Call, module: Module) -> int:
    """n(y)."""
    return prod(_result(call))


def _axes(call: Call, module: Module) -> int:
    """The axes of the kernel: of the weight, or stated where that is computed."""
    weights = [one.shape for one in module.params if one.name == "weight"]
    return len(weights[0]) - 2 if weights else len(extents_of(module, "kernel_size"))


def _kernel(module: Module) -> int:
    weights = [one.shape for one in module.params if one.name == "weight"]
    return prod(weights[0][2:]) if weights else prod(extents_of(module, "kernel_size"))


def convolution(call: Call, module: Module) -> int:
    """n(y) x (C // groups) x K, C the axis of x before the spatial ones.

    calc_func.py: calculate_conv2d_flops.
    """
    channels = argument(call)[-1 - _axes(call, module)]
    return prod(_result(call)) * (channels // number_of(module, "groups")) * _kernel(module)


def transposed(call: Call, module: Module) -> int:
    """n(x) x (C // groups) x K, C the axis of y before the spatial ones."""
    channels = _result(call)[-1 - _axes(call, module)]
    return prod(argument(call)) * (channels // number_of(module, "groups")) * _kernel(module)


def linear(call: Call, module: Module) -> int:
    """in_features x n(y). basic_hooks.py: count_linear."""
    return number_of(module, "in_features") * prod(_result(call))


def bilinear(call: Call, module: Module) -> int:
    """(in1_features + 1) x in2_features x n(y). basic_hooks.py: count_bilinear."""
    first, second = number_of(module, "in1_features"), number_of(module, "in2_features")
    return (first + 1) * second * prod(_result(call))


def softmax_work(rows: int, features: int) -> int:
    """f exponentials, f - 1 additions and f divisions for each row."""
    return rows * (2 * features + max(features - 1, 0))


def softmax(call: Call, module: Module) -> int:
    """rows x (3 f - 1), f the features of the axis. basic_hooks.py: count_softmax."""
    rows, features = _rows(call, module)
    return softmax_work(rows, features)


def log_softmax(call: Call, module: Module) -> int:
    """rows x 3 f: a logarithm more for each."""
    return softmax(call, module) + _rows(call, module)[0]


def softmin(call: Call, module: Module) -> int:
    """rows x (3 f - 1) + n(x): all elements are negated before."""
    return softmax(call, module) + input_elements(call, module)


def _rows(call: Call, module: Module) -> tuple[int, int]:
    shape = argument(call)
    axis = module.settings.get("dim")
    if axis is None:
        axis = 0 if len(shape) in (0, 1, 3) else 1
    if not isinstance(axis, int):
        raise TypeError(f"dim of {call.key} is {axis!r}")
    features = shape[axis] if shape else 1
    return (prod(shape) // features if features else 0), features


def softmax_2d(call: Call, module: Module) -> int:
    """rows x (3 f - 1), f the channels. basic_hooks.py: count_softmax."""
    shape = argument(call)
    features = shape[-3]
    return softmax_work(prod(shape) // features if features else 0, features)


def average(call: Call, module: Module) -> int:
    """The elements in all windows, and n(y). basic_hooks.py: count_avgpool.

    Along each axis a window is cut off where the input ends, or its padding if that is counted.
    """
    results = _result(call)
    axes = _pooled_axes(call, module)
    kernel, stride, padding = (
        _each(module, name, axes) for name in ("kernel_size", "stride", "padding")
    )
    shape = argument(call)
    padded = bool(module.settings["count_include_pad"])
    windows = prod(
        _covered(size, count, kernel[axis], stride[axis], padding[axis], padded)
        for axis, (size, count) in enumerate(zip(shape[-axes:], results[-axes:], strict=True))
    )
    return prod(shape[:-axes]) * windows + prod(results)


def _pooled_axes(call: Call, module: Module) -> int:
    """A kernel that is one number is that of AvgPool3d or of AvgPool2d."""
    kernel = module.settings["kernel_size"]
    if isinstance(kernel, list):
        return len(kernel)
    return 3 if any(base.endswith(".AvgPool3d") for base in module.bases) else 2


def _each(module: Module, name: str, axes: int) -> tuple[int, ...]:
    value = extents_of(module, name)
    return value if isinstance(module.settings[name], list) else value * axes


def _covered(size: int, count: int, kernel: int, stride: int, padding: int, padded: bool) -> int:
    """The positions of one axis in all its windows."""
    low, high = (-padding, size + padding) if padded else (0, size)
    starts = (place * stride - padding for place in range(count))
    return sum(max(min(start + kernel, high) - max(start, low), 0) for start in starts)


def adaptive_average(call: Call, module: Module) -> int:
    """The elements in all windows, and n(y): window j is [floor(j I / O), ceil((j + 1) I / O)).

    basic_hooks.py: count_adap_avgpool.
    """
    results = _result(call)
    windows = (
        sum(-(-(j + 1) * size // count) - j * size // count for j in range(count))
        for size, count in zip(argument(call), results, strict=False)
    )
    return prod(windows) + prod(results)


FORMULAS: dict[str, Formula] = {
    f"ultralytics-thop.{formula.__name__}": formula
    for formula in (
        *(input_elements, output_elements, convolution, transposed, linear, bilinear),
        *(softmax, log_softmax, softmin, softmax_2d, average, adaptive_average),
    )
}
