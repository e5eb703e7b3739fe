"""Replacements in quantized modules of torch.ao that torch.export accepts.

Their weights are packed into objects of C++, and their activations have types for which PyTorch
has no fake kernels. In the copy that is exported, packed weights become tensors of whole numbers,
and an operator of `torch.ops.quantized` becomes what it computes: the operator of the float model
between `dequantize` and `quantize`, which ONNX has forms of, so that its precision is known.
A quantized activation is a float tensor there. What scales a run has is no matter of work.
Source: aten/src/ATen/native/quantized/library.cpp, torch/ao/nn/quantized.
"""

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute

if TYPE_CHECKING:
    from torch import nn

_RANGE = {"int8": (-128, 127), "uint8": (0, 255), "int32": (-(2**31), 2**31 - 1)}


class PackedWeight(msgspec.Struct, kw_only=True):
    """The weight and the bias in one packed object, and the settings of a convolution that are
    packed with them.

    For a recurrent layer, `inner` has those of the input and of the state.
    """

    weight: Any = None
    bias: Any = None
    stride: list[int] = []
    padding: list[int] = []
    dilation: list[int] = []
    groups: int = 1
    output_padding: list[int] = []
    inner: tuple["PackedWeight", ...] = ()


def is_quantized(model: "nn.Module") -> bool:
    """Return True if a model has packed quantized weights or quantized layers."""
    return any(
        next(_attributes_with_packed_weights(module), None) is not None
        or type(module).__module__.startswith("torch.ao.nn")
        for module in model.modules()
    )


class UnpackedWeightSize(NamedTuple):
    """The number of elements and the bytes of weights that were unpacked."""

    elements: int
    nbytes: int


def unpack_quantized_weights(model: "nn.Module") -> UnpackedWeightSize:
    """Replace packed quantized weights by tensors in the modules; return their number of elements
    and their bytes.

    They are parameters of the model which PyTorch does not list. The modules are changed: pass a
    copy.
    """
    known: dict[int, PackedWeight] = {}
    for module in model.modules():
        for name, value in list(_attributes_with_packed_weights(module)):
            packed = known.setdefault(id(value), _unpack_script_object(value))
            vars(module)[name] = packed
        _convert_scales_to_numbers(module)
    tensors = [
        tensor for packed in known.values() for tensor in _weights_and_biases_in_packed(packed)
    ]
    stored = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    return UnpackedWeightSize(sum(tensor.numel() for tensor in tensors), stored)


def dequantize_tensors(model: "nn.Module") -> None:
    """Replace quantized tensors of a model by float tensors, in place.

    The modules are changed: pass a copy. PyTorch cannot make a fake tensor of one that is
    quantized by channel.
    """
    import torch

    for module in model.modules():
        for index in (module._buffers, vars(module)):
            for name, value in list(index.items()):
                if isinstance(value, torch.Tensor) and value.is_quantized:
                    index[name] = value.dequantize()


def _convert_scales_to_numbers(module: "nn.Module") -> None:
    """Replace the scale and zero point tensors of a quantized module by Python numbers."""
    if not type(module).__module__.startswith("torch.ao.nn"):
        return
    for name, kind in (("scale", float), ("zero_point", int)):
        tensor = module._buffers.get(name)
        if tensor is not None and tensor.numel() == 1 and not tensor.is_meta:
            del module._buffers[name]
            vars(module)[name] = kind(tensor)


def _weights_and_biases_in_packed(packed: PackedWeight) -> Iterator[Any]:
    """Yield the weights and biases of a packed quantized weight, nested ones too."""
    yield from (tensor for tensor in (packed.weight, packed.bias) if tensor is not None)
    for inner in packed.inner:
        yield from _weights_and_biases_in_packed(inner)


def _attributes_with_packed_weights(module: "nn.Module") -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of each attribute of a module that holds packed quantized weights."""
    import torch

    script: Any = torch.ScriptObject
    for name, value in vars(module).items():
        if isinstance(value, script) and re.search(
            r"quantized|CellParams", _script_class_name(value)
        ):
            yield name, value


def _script_class_name(value: Any) -> str:
    """Return the TorchScript class of a script object as text; "" if it cannot be read."""
    try:
        return f"{value._type()}"
    except RuntimeError:
        return ""


def _unpack_script_object(value: Any) -> PackedWeight:
    """Return the weights, biases and settings in a script object that packs quantized weights."""
    import torch

    kind, library = _script_class_name(value), torch.ops.quantized
    if "CellParams" in kind:
        state, _ = value.__getstate__()  # and the class that it is of
        _, tensors, _, _, layers = state
        inner = tuple(map(_unpack_script_object, layers))
        for layer, bias in zip(inner, tensors, strict=False):
            layer.bias = bias
        return PackedWeight(inner=inner)
    if "Embedding" in kind:
        weight = library.embedding_bag_unpack(value)
        numbers = weight.int_repr() if weight.is_quantized else weight.to(torch.int8)
        if numbers.shape != weight.shape:  # of 4 bits, two in a byte
            numbers = torch.zeros(weight.shape, dtype=torch.uint8)
        return PackedWeight(weight=numbers)
    if "Conv" in kind:
        weight, bias = value.unpack()
        return PackedWeight(
            weight=_integer_or_half_weight(weight),
            bias=_detach_bias(bias),
            stride=list(value.stride()),
            padding=list(value.padding()),
            dilation=list(value.dilation()),
            groups=value.groups(),
            output_padding=list(value.output_padding()) if value.transpose() else [],
        )
    weight, bias = _unpack_linear_weights(value)
    return PackedWeight(weight=_integer_or_half_weight(weight), bias=_detach_bias(bias))


def _detach_bias(bias: Any) -> Any:
    """Return a bias detached from autograd; None for None."""
    return None if bias is None else bias.detach()


def _unpack_linear_weights(value: Any) -> tuple[Any, Any]:
    """Return the weight and the bias of a packed quantized linear layer."""
    import torch

    try:
        weight, bias = torch.ops.quantized.linear_unpack(value)
    except RuntimeError:  # of float16, which is packed into a class of the same name
        weight, bias = torch.ops.quantized.linear_unpack_fp16(value)
        return weight.half(), bias
    return weight, bias


def _integer_or_half_weight(weight: Any) -> Any:
    """Return the integers of a quantized weight; another weight as float16."""
    return weight.int_repr() if weight.is_quantized else weight.half()


# The operators.


_patched = functools.partial(patching_attribute, declared=inventory.QUANTIZED)


@contextmanager
def replacing_quantized_operators(packed: bool) -> Iterator[None]:
    """Compute operators on quantized tensors by float operators, inside the block.

    A model without packed weights may quantize in its own code: the replacement starts at its
    first call, so that the operators of torch.ao are loaded only for models that need them.
    """
    import torch

    with ExitStack() as stack:
        enter = functools.cache(lambda: _patch_quantized_operators(stack))
        for name, index in _QUANTIZING.items():
            stack.enter_context(_patched(torch, name, _make_fake_quantize(enter, index)))
        for owner in (torch, torch.Tensor):  # a call has its function before its arguments run
            for name, function in _READING.items():
                stack.enter_context(_patched(owner, name, function))
        if packed:
            enter()
        yield


# Where each function has the type that it quantizes to, behind the tensor.
_QUANTIZING = {
    "quantize_per_tensor": 2,
    "quantize_per_channel": 3,
    "quantize_per_tensor_dynamic": 0,
}


def _make_fake_quantize(patch_operators: Callable[[], None], index: int) -> Callable[..., Any]:
    """Return a function that returns a float tensor, or each of a list, rounded to a quantized
    type, as float.
    """

    def round_to_quantized_type(input: Any, *args: Any, **kwargs: Any) -> Any:
        """Return a tensor, or each of a list, rounded to a quantized type, as float."""
        patch_operators()
        requested = kwargs["dtype"] if "dtype" in kwargs else args[index]
        kind = str(requested).removeprefix("torch.q")
        kind = kind if kind in _RANGE else "uint8"  # numbers of 4 and of 2 bits are stored so
        if isinstance(input, list | tuple):
            return [_quantize_and_dequantize(x, kind) for x in input]
        return _quantize_and_dequantize(input, kind)

    return round_to_quantized_type


def _patch_quantized_operators(stack: ExitStack) -> None:
    """Replace quantized operators by float ones until `stack` closes."""
    import torch
    import torch.ao.quantization.fx._decomposed  # defines the operators below
    from torch import _VF

    for name, function in _float_function_table().items():
        if hasattr(torch.ops.quantized, name):
            stack.enter_context(_patched(torch.ops.quantized, name, function))
    for name, function in _float_functional_table().items():
        stack.enter_context(_patched(torch.ao.nn.quantized.functional, name, function))
    for owner in (torch, _VF):
        stack.enter_context(_patched(owner, "quantized_lstm", _float_lstm))
        stack.enter_context(_patched(owner, "quantized_gru", _float_gru))


def _quantize_and_dequantize(x: Any, kind: str = "uint8") -> Any:
    """Return a float tensor that is quantized to integers and dequantized, so that it is float
    again.
    """
    return _to_float32(_quantize_to_integers(x, kind))


def _quantize_to_integers(x: Any, kind: str = "uint8") -> Any:
    """Return the integers of a float tensor, quantized with scale 1 and zero point 0."""
    import torch

    operator = torch.ops.quantized_decomposed.quantize_per_tensor.default
    return operator(x, 1.0, 0, *_RANGE[kind], getattr(torch, kind))


_READING: dict[str, Callable[..., Any]] = {
    "dequantize": lambda x: x,
    "int_repr": _quantize_to_integers,
    "q_scale": lambda _: 1.0,
    "q_zero_point": lambda _: 0,
    "q_per_channel_scales": lambda x: x.new_ones(len(x)),
    "q_per_channel_zero_points": lambda x: x.new_zeros(len(x)).long(),
    "q_per_channel_axis": lambda _: 0,
}
"""Return the functions that read a quantized tensor, which is a float tensor here."""


def _to_float32(x: Any) -> Any:
    """Return quantized integers, or a float16 tensor, as a float32 tensor."""
    import torch

    if x.dtype == torch.float16:
        return x.float()
    name = str(x.dtype).removeprefix("torch.")
    operator = torch.ops.quantized_decomposed.dequantize_per_tensor.default
    return operator(x, 1.0, 0, *_RANGE[name], x.dtype)


def _last_sizes(sizes: list[int], count: int) -> list[int]:
    """Return the last `count` of a convolution's sizes, since it is packed with more axes."""
    return sizes[-count:]


def _float_convolution(
    axes: int, is_dynamic: bool, activation: Callable[[Any], Any], x: Any, packed: Any
) -> Any:
    """Return the result of a quantized convolution, computed in float with quantized
    activations.
    """
    import torch

    transposed = bool(packed.output_padding)
    weight = _to_float32(packed.weight)
    if weight.dim() > axes + 2:
        weight = weight.squeeze(2)
    sizes = [
        _last_sizes(extents, axes) for extents in (packed.stride, packed.padding, packed.dilation)
    ]
    x = _quantize_and_dequantize(x) if is_dynamic else x
    result = torch.ops.aten.convolution.default(
        x, weight, packed.bias, *sizes, transposed,
        _last_sizes(packed.output_padding, axes) or [0] * axes, packed.groups,
    )  # fmt: skip
    return activation(result) if is_dynamic else _quantize_and_dequantize(activation(result))


def _float_linear(is_dynamic: bool, activation: Callable[[Any], Any], x: Any, packed: Any) -> Any:
    """Return the result of a quantized linear layer, computed in float with quantized
    activations.
    """
    import torch

    halves = packed.weight.dtype == torch.float16
    x = _quantize_and_dequantize(x) if is_dynamic and not halves else x
    result = activation(torch.ops.aten.linear.default(x, _to_float32(packed.weight), packed.bias))
    return result if is_dynamic else _quantize_and_dequantize(result)


def _identity_function(x: Any) -> Any:
    """Return the argument unchanged."""
    return x


def _aten_relu(x: Any) -> Any:
    """Return the ReLU of a tensor, by the operator of ATen."""
    import torch

    return torch.ops.aten.relu.default(x)


def _float_product_functions() -> dict[str, Callable[..., Any]]:
    """Return the float functions that replace quantized convolutions and linear layers, by
    name.
    """
    table: dict[str, Callable[..., Any]] = {}
    for suffix, after in (("", _identity_function), ("_relu", _aten_relu)):
        table[f"linear{suffix}"] = lambda x, p, *_, f=after, **__: _float_linear(False, f, x, p)
        table[f"linear{suffix}_dynamic"] = table[f"linear_dynamic{suffix}"] = table[
            f"linear{suffix}_dynamic_fp16"
        ] = lambda x, p, *_, f=after, **__: _float_linear(True, f, x, p)
        table[f"linear_dynamic_fp16{suffix}"] = table[f"linear{suffix}_dynamic_fp16"]
        for axes in (1, 2, 3):
            for kind in ("conv", "conv_transpose"):
                table[f"{kind}{axes}d{suffix}"] = lambda x, p, *_, a=axes, f=after, **__: (
                    _float_convolution(a, False, f, x, p)
                )
                table[f"{kind}{axes}d{suffix}_dynamic"] = table[
                    f"{kind}{axes}d_dynamic{suffix}"
                ] = lambda x, p, *_, a=axes, f=after, **__: _float_convolution(a, True, f, x, p)
    return table


@functools.cache
def _float_function_table() -> dict[str, Callable[..., Any]]:
    """Return the float functions that replace the operators of `torch.ops.quantized`, by name."""
    import torch

    aten = torch.ops.aten
    table = _float_product_functions()
    table["linear_leaky_relu"] = lambda x, p, _s, _z, slope: _float_linear(
        False, lambda y: aten.leaky_relu.default(y, slope), x, p
    )
    table["linear_tanh"] = lambda x, p, *_, **__: _float_linear(False, aten.tanh.default, x, p)
    for suffix, after in (("", _identity_function), ("_relu", _aten_relu)):
        for name, of_two in (("add", aten.add), ("mul", aten.mul)):
            for kind in ("", "_scalar", "_out", "_scalar_out"):
                table[f"{name}{kind}{suffix}"] = table[f"{name}{suffix}{kind}"] = (
                    lambda a, b, *_, f=after, g=of_two, **__: _quantize_and_dequantize(f(g(a, b)))
                )
        table[f"cat{suffix}"] = lambda xs, dim=0, *_, f=after, **__: _quantize_and_dequantize(
            f(aten.cat(xs, dim))
        )
        for axes in ("", "1d", "2d", "3d"):
            table[f"batch_norm{axes}{suffix}"] = lambda x, w, b, m, v, eps, *_, f=after: (
                _quantize_and_dequantize(f(aten.batch_norm(x, w, b, m, v, False, 0.0, eps, False)))
            )
    table["matmul"] = lambda a, b, *_: _quantize_and_dequantize(aten.matmul(a, b))
    table |= _float_norms_and_activations()
    for name, cell in _aten_cell_functions().items():
        table[f"quantized_{name}_cell_dynamic"] = lambda x, h, *p, f=cell: _run_float_cell(
            f, x, h, *p
        )
    for bits in ("byte", "4bit", "2bit"):
        table[f"embedding_{bits}"] = lambda p, at, *_, **__: aten.embedding(
            _to_float32(p.weight), at
        )
        table[f"embedding_bag_{bits}"] = lambda p, at, offsets=None, *_, **k: _float_embedding_bag(
            p, at, offsets, k
        )
    table["embedding_bag_byte_rowwise_offsets"] = table["embedding_bag_byte"]
    table["embedding_bag_4bit_rowwise_offsets"] = table["embedding_bag_4bit"]
    return table


def _float_norms_and_activations() -> dict[str, Callable[..., Any]]:
    """Return the float functions that replace quantized norms and activations, by name."""
    import torch

    aten = torch.ops.aten
    return {
        "layer_norm": lambda x, shape, weight=None, bias=None, eps=1e-5, *_, **__: (
            _quantize_and_dequantize(aten.layer_norm(x, list(shape), weight, bias, eps))
        ),
        "group_norm": lambda x, groups, weight=None, bias=None, eps=1e-5, *_, **__: (
            _quantize_and_dequantize(aten.group_norm(x, groups, weight, bias, eps))
        ),
        "instance_norm": lambda x, weight=None, bias=None, eps=1e-5, *_, **__: (
            _quantize_and_dequantize(
                aten.instance_norm(x, weight, bias, None, None, True, 0.0, eps, False)
            )
        ),
        "hardswish": lambda x, *_, **__: _quantize_and_dequantize(aten.hardswish(x)),
        "sigmoid": lambda x, *_, **__: _quantize_and_dequantize(aten.sigmoid(x)),
        "relu6": lambda x, *_, **__: aten.relu6(x),
        "elu": lambda x, *_, **__: _quantize_and_dequantize(aten.elu(x)),
        "celu": lambda x, *_, **__: _quantize_and_dequantize(aten.celu(x)),
        "leaky_relu": lambda x, slope=0.01, *_, **__: _quantize_and_dequantize(
            aten.leaky_relu(x, slope)
        ),
        "prelu": lambda x, weight, *_, **__: _quantize_and_dequantize(
            aten.prelu(x, _detach_weight(weight))
        ),
        "softmax": lambda x, dim, *_, **__: _quantize_and_dequantize(aten.softmax(x, dim)),
    }


def _float_functional_table() -> dict[str, Callable[..., Any]]:
    """Return the float functions that replace those of torch.ao.nn.quantized.functional, by
    name.
    """
    import torch.ao.nn.quantized.functional as quantized
    import torch.nn.functional as plain

    similar = (
        *("avg_pool2d", "avg_pool3d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"),
        *("max_pool1d", "max_pool2d", "hardtanh", "hardsigmoid", "threshold", "interpolate"),
        *("upsample", "upsample_bilinear", "upsample_nearest"),
    )
    same = {name: getattr(plain, name) for name in similar if hasattr(quantized, name)}
    return same | {
        "elu": lambda x, _s, _z, alpha=1.0: _quantize_and_dequantize(plain.elu(x, alpha)),
        "celu": lambda x, _s, _z, alpha=1.0: _quantize_and_dequantize(plain.celu(x, alpha)),
        "hardswish": lambda x, *_: _quantize_and_dequantize(plain.hardswish(x)),
        "leaky_relu": lambda x, slope=0.01, *_, **__: plain.leaky_relu(x, slope),
        "clamp": lambda x, low, high: x.clamp(low, high),
    }


def _detach_weight(weight: Any) -> Any:
    """Return a weight detached from autograd; another value as it is."""
    return weight.detach() if hasattr(weight, "detach") else weight


def _aten_cell_functions() -> dict[str, Any]:
    """Return ATen's functions of recurrent cells by kind: LSTM, GRU, RNN with ReLU or tanh."""
    import torch

    aten = torch.ops.aten
    return {
        "lstm": aten.lstm_cell,
        "gru": aten.gru_cell,
        "rnn_relu": aten.rnn_relu_cell,
        "rnn_tanh": aten.rnn_tanh_cell,
    }


def _run_float_cell(
    function: Any, x: Any, state: Any, input_weight: Any, state_weight: Any, *biases: Any
) -> Any:
    """Return the result of a quantized recurrent cell, computed in float with rounded input and
    state.
    """
    weights = _to_float32(input_weight.weight), _to_float32(state_weight.weight)
    states = (
        list(map(_quantize_and_dequantize, state[:1])) + list(state[1:])
        if isinstance(state, tuple)
        else None
    )
    rounded = tuple(states) if states else _quantize_and_dequantize(state)
    return function(_quantize_and_dequantize(x), rounded, *weights, *biases)


def _float_embedding_bag(packed: Any, indices: Any, offsets: Any, options: dict[str, Any]) -> Any:
    """Return the sum of the embedding rows in each bag of indices, computed in float."""
    import torch

    last = options.get("include_last_offset", False)
    if offsets is None:  # a bag in each row
        offsets = torch.arange(0, indices.numel(), indices.shape[1], device=indices.device)
        indices = indices.reshape(-1)
    return torch.ops.aten.embedding_bag(
        _to_float32(packed.weight), indices, offsets, False, 0, False, None, last
    )[0]


def _flat_layer_weights(params: Any) -> list[Any]:
    """Return the weights and biases of all layers as a flat list, in the order of ATen's recurrent
    operators.
    """
    flat: list[Any] = []
    for cell in params:
        flat += [_to_float32(layer.weight) for layer in cell.inner]
        flat += [layer.bias for layer in cell.inner]
    return flat


def _float_lstm(x: Any, *args: Any, **kwargs: Any) -> Any:
    """Return a quantized LSTM's result, computed in float."""
    return _float_recurrent_layer("lstm", x, *args)


def _float_gru(x: Any, *args: Any, **kwargs: Any) -> Any:
    """Return a quantized GRU's result, computed in float."""
    return _float_recurrent_layer("gru", x, *args)


def _float_recurrent_layer(name: str, x: Any, state: Any, *rest: Any) -> Any:
    """Return the result of the quantized recurrent layer `name`, computed in float, for a padded
    or a packed batch.
    """
    import torch

    packet = getattr(torch.ops.aten, name)
    packed = isinstance(rest[0], (torch.Tensor, tuple)) or _is_list_of_states(rest[0])
    if packed:  # (data, batch_sizes, state, params, biased, layers, dropout, train, bidirectional)
        hidden, params, *plain = rest
        return packet.data(
            _quantize_and_dequantize(x), state, hidden, _flat_layer_weights(params), *plain[:5]
        )
    params, *plain = rest
    return packet.input(
        _quantize_and_dequantize(x), state, _flat_layer_weights(params), *plain[:6]
    )


def _is_list_of_states(value: Any) -> bool:
    """Return True if a value is a list of tensors, as the initial states of a recurrent layer
    are.
    """
    import torch

    return isinstance(value, list) and all(isinstance(item, torch.Tensor) for item in value)
