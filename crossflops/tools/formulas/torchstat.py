"""What torchstat 0.0.7 computes for a layer: compute_flops.py, compute_madd.py, compute_memory.py.

It always runs a batch of one, and MAdd leaves the first axis out. Every assertion of the tool is a
LookupError here: it fails on such a model.
"""

from math import prod

from crossflops.ir.trace import Call, Module
from crossflops.tools.formulas.contraction import (
    Formula,
    extents_of,
    number_of,
    result_of,
    shape_of,
)

_OF_IMAGES = {"Conv2d", "ConvTranspose2d", "BatchNorm2d", "MaxPool2d", "AvgPool2d"}


def _window(module: Module) -> int:
    """The positions of the kernel, which is one number or two."""
    sizes = extents_of(module, "kernel_size")
    return prod(sizes) if isinstance(module.settings["kernel_size"], list) else sizes[0] ** 2


def _input(call: Call, rank: int | None = None) -> tuple[int, ...]:
    """The shape of the first input. Raises LookupError where torchstat asserts another rank."""
    shape = shape_of(call, "0")
    if rank is not None and (len(shape) != rank or len(_output(call)) != rank):
        raise LookupError(f"torchstat asserts {rank} axes, and {call.key} has {len(shape)}")
    return shape


def _output(call: Call) -> tuple[int, ...]:
    return result_of(call).shape or ()


def image(call: Call, module: Module) -> int:
    """0; the model is asked about one image of floats, (1, C, H, W). statistics.py: ModelStat."""
    first = call.inputs[0]
    shape = first.shape or ()
    if len(call.inputs) > 1 or len(shape) != 4 or shape[0] != 1 or first.dtype != "float32":
        raise LookupError("torchstat runs a model on one image that it makes, 1xCxHxW float32")
    return 0


def leaf(call: Call, module: Module) -> int:
    """0; one tensor in by position, and one out. model_hook.py: wrap_call."""
    shape_of(call, "0")
    if len(call.outputs) != 1:
        raise LookupError(f"{call.key} returns {len(call.outputs)} tensors, not one")
    return 0


def arguments(call: Call, module: Module) -> int:
    """0; what the rules assert of a layer that they know. compute_madd.py, compute_flops.py."""
    first, second = shape_of(call, "0"), call.input("1")
    bases = {name.rpartition(".")[2] for name in module.bases}
    if "Bilinear" in bases:
        ranks = [len(first), len(shape_of(call, "1")), len(_output(call))]
        if ranks != [2, 2, 2]:
            raise LookupError(f"torchstat asserts two axes, and {call.key} has {ranks}")
    elif second is not None:
        raise LookupError(f"torchstat has no rule for the second input of {call.key}")
    elif not bases.isdisjoint(_OF_IMAGES):
        _input(call, 4)
    elif "Linear" in bases:
        _input(call, 2)
    elif len(first) < (2 if "Softmax" in bases else 1):
        raise LookupError(f"torchstat asserts more axes than {call.key} has")
    return 0


def recursion(call: Call, module: Module) -> int:
    """Fails: the wrapper of a class calls the one that it found, which is itself.

    model_hook.py: wrap_call.
    """
    raise LookupError(f"torchstat wraps a base of {call.target}, and is lost in its own wrapper")


def conv2d(call: Call, module: Module) -> int:
    """N Ho Wo x kh kw x C x (Co // groups). compute_flops.py: compute_Conv2d_flops."""
    batch, channels = _input(call, 4)[:2]
    out_channels, height, width = _output(call)[1:]
    window = _window(module) * channels * (out_channels // number_of(module, "groups"))
    return window * batch * height * width


def conv2d_sample(call: Call, module: Module) -> int:
    """Ho Wo x Co x kh kw x (C // groups). compute_madd.py: compute_Conv2d_madd."""
    return _sums(call, module, _output(call)[2:]) * _taps(call, module)


def transposed_sample(call: Call, module: Module) -> int:
    """H W x Co x kh kw x (C // groups), H, W of the input. compute_ConvTranspose2d_madd."""
    return transposed_sums(call, module) * _taps(call, module)


def transposed_sums(call: Call, module: Module) -> int:
    """H W x Co, a sum for each position of the input. compute_ConvTranspose2d_madd."""
    return _sums(call, module, _input(call, 4)[2:])


def _taps(call: Call, module: Module) -> int:
    return _window(module) * (_input(call, 4)[1] // number_of(module, "groups"))


def _sums(call: Call, module: Module, places: tuple[int, ...]) -> int:
    groups = number_of(module, "groups")
    return prod(places) * (_output(call)[1] // groups) * groups


def linear(call: Call, module: Module) -> int:
    """N x in x out, of two axes. compute_flops.py: compute_Linear_flops."""
    return prod(_input(call, 2)) * _output(call)[1]


def linear_sample(call: Call, module: Module) -> int:
    """in x out, of two axes. compute_madd.py: compute_Linear_madd."""
    return _input(call, 2)[1] * _output(call)[1]


def bilinear_sample(call: Call, module: Module) -> int:
    """out x (in1 x in2 + in2), of two axes. compute_madd.py: compute_Bilinear_madd."""
    first, second = _input(call, 2)[1], shape_of(call, "1")[1]
    return _output(call)[1] * (first * second + second)


def input_whole(call: Call, module: Module) -> int:
    """n(x). compute_flops.py: compute_ReLU_flops."""
    return prod(_input(call))


def input_image(call: Call, module: Module) -> int:
    """n(x) of four axes. compute_flops.py: compute_BatchNorm2d_flops, compute_Pool2d_flops."""
    return prod(_input(call, 4))


def output_image(call: Call, module: Module) -> int:
    """n(y) of four axes. compute_memory.py."""
    _input(call, 4)
    return prod(_output(call))


def input_sample(call: Call, module: Module) -> int:
    """n(x) / N. compute_madd.py: compute_ReLU_madd, compute_Softmax_madd."""
    return prod(_input(call)[1:])


def input_image_sample(call: Call, module: Module) -> int:
    """C H W of four axes. compute_madd.py: compute_BatchNorm2d_madd."""
    return prod(_input(call, 4)[1:])


def output_sample(call: Call, module: Module) -> int:
    """n(y) / N. model_hook.py: wrap_call, inference_memory."""
    return prod(_output(call)[1:])


def pooled_sample(call: Call, module: Module) -> int:
    """kh kw x n(y) / N of four axes. compute_madd.py: compute_AvgPool2d_madd."""
    _input(call, 4)
    return _window(module) * output_sample(call, module)


def one(call: Call, module: Module) -> int:
    """1: a sum of n has n - 1 additions. compute_madd.py: compute_Softmax_madd."""
    return 1


def upsampled(call: Call, module: Module) -> int:
    """N Ho Wo: the channels are lost. compute_flops.py: compute_Upsample_flops."""
    return _input(call)[0] * prod(_output(call)[2:])


def _bytes(call: Call, elements: int) -> int:
    """model_hook.py: wrap_call multiplies by the size of an element of the input."""
    spec = call.input("0")
    if spec is None or not spec.numel:
        raise LookupError(f"{call.key} has no input 0")
    return elements * (spec.nbytes // spec.numel)


def input_bytes(call: Call, module: Module) -> int:
    """n(x), in bytes. compute_memory.py."""
    return _bytes(call, prod(_input(call)))


def input_image_bytes(call: Call, module: Module) -> int:
    """n(x) of four axes, in bytes. compute_memory.py."""
    return _bytes(call, prod(_input(call, 4)))


def input_row_bytes(call: Call, module: Module) -> int:
    """n(x) of two axes, in bytes. compute_memory.py: compute_Linear_memory."""
    return _bytes(call, prod(_input(call, 2)))


def output_image_bytes(call: Call, module: Module) -> int:
    """n(y) of four axes, in bytes. compute_memory.py."""
    return _bytes(call, output_image(call, module))


def output_row_bytes(call: Call, module: Module) -> int:
    """n(y) of two axes, in bytes. compute_memory.py: compute_Linear_memory."""
    _input(call, 2)
    return _bytes(call, prod(_output(call)))


def parameter_bytes(call: Call, module: Module) -> int:
    """N x trainable parameters, in bytes of the input's type. compute_memory.py: num_params."""
    sizes = {one.storage: one.numel for one in module.params if one.trainable}
    return _bytes(call, _input(call)[0] * sum(sizes.values()))


def channel_bytes(call: Call, module: Module) -> int:
    """N x C, in bytes. compute_memory.py: compute_BatchNorm2d_memory."""
    return _bytes(call, prod(_input(call, 4)[:2]))


FORMULAS: dict[str, Formula] = {
    f"torchstat.{formula.__name__}": formula
    for formula in (
        *(
            image,
            leaf,
            arguments,
            recursion,
            conv2d,
            conv2d_sample,
            transposed_sample,
            transposed_sums,
            linear,
            linear_sample,
        ),
        *(bilinear_sample, input_whole, input_image, input_sample, input_image_sample),
        *(output_sample, output_image, pooled_sample, one, upsampled, input_bytes),
        *(input_image_bytes, input_row_bytes, output_image_bytes, output_row_bytes),
        *(parameter_bytes, channel_bytes),
    )
}
