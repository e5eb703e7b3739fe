"""What torchinfo 1.8.0 computes for a layer: layer_info.py, `calculate_size`, `calculate_macs`.

It knows the elements of parameters and one shape, that of the module's result. `weights` and
`biases` share the parameters of a layer between them by name; `parameters` is both.
"""

from collections.abc import Iterator
from math import prod

from crossflops.ir.tensor import TensorSpec
from crossflops.ir.trace import Call, Module, Parameter
from crossflops.tools.formulas.contraction import Formula


def weights(call: Call, module: Module) -> int:
    """Elements of the weights x N S_out of a convolution, x N of others, x N T of an RNN's.

    Where the name of a parameter only contains "weight", its factor is the product of the first
    two axes of the result.
    """
    return sum(amount for name, amount in _amounts(call, module) if "weight" in name)


def biases(call: Call, module: Module) -> int:
    """The same of the parameters that are called something with "bias"."""
    return sum(amount for name, amount in _amounts(call, module) if "weight" not in name)


def parameters(call: Call, module: Module) -> int:
    """The same of both."""
    return sum(amount for _, amount in _amounts(call, module))


def readable(call: Call, module: Module) -> int:
    """0; torchinfo fails on a result that is no tensor, sequence or mapping.

    So it does on a result without axes where a parameter is named "weight" or "bias", and on a
    kernel_size that is neither a number nor a sequence (`get_kernel_size`).
    """
    if call.returns == "object":
        raise TypeError(f"{call.key} returns neither tensors nor a collection of them")
    size = module.settings.get("kernel_size", 0)
    if size is None or isinstance(size, float):
        raise TypeError(f"kernel_size of {call.key} is {size!r}")
    for _ in _amounts(call, module):
        pass
    return 0


def under_vmap(call: Call, module: Module) -> int:
    """0; torchinfo reads `.data` of the first tensor, which torch.vmap does not allow.

    Of a layer's inputs by position and of a sequence that it returns: `calculate_size`.
    """
    results = call.outputs if call.returns == "sequence" else ()
    if any(one.name == "0" for one in (*call.inputs, *results)):
        raise ValueError(f"{call.key} runs under torch.vmap, which hides .data")
    return 0


def _amounts(call: Call, module: Module) -> Iterator[tuple[str, int]]:
    """Each parameter by the name that torchinfo reads, with what it counts for it."""
    shape = _result(call)
    for parameter in _distinct(module):
        name, elements = _read(parameter)
        if name not in ("weight", "bias"):
            if "weight" in name or "bias" in name:
                yield name, elements * prod(shape[:2])
        elif "Conv" in module.class_name:
            yield name, elements * prod(shape[:1] + shape[2:])
        elif shape:
            yield name, elements * shape[0]
        else:
            raise LookupError(f"the result of {call.key} has no axes")


def _distinct(module: Module) -> Iterator[Parameter]:
    """One parameter under two names stands under the first."""
    seen: set[int] = set()
    for parameter in module.params:
        if parameter.storage not in seen:
            seen.add(parameter.storage)
            yield parameter


def _read(parameter: Parameter) -> tuple[str, int]:
    """The name and the elements: of a pruned parameter those that are kept. `get_param_count`."""
    if parameter.kept is None:
        return parameter.name, parameter.numel
    return parameter.name.removesuffix("_orig"), parameter.kept


def _result(call: Call) -> tuple[int, ...]:
    """The shape that stands for the result: the first tensor of a sequence, the last of a mapping.

    Of nested ones always the first. `calculate_size`, `nested_list_size`.
    """
    specs = call.outputs
    if call.returns == "sequence":
        specs = tuple(one for one in specs if _key(one) == "0")
    elif call.returns == "mapping" and specs:
        specs = tuple(one for one in specs if _key(one) == _key(specs[-1]))
    return (specs[0].shape or ()) if specs else ()


def _key(spec: TensorSpec) -> str:
    return spec.name.partition(".")[0]


FORMULAS: dict[str, Formula] = {
    f"torchinfo.{formula.__name__}": formula
    for formula in (weights, biases, parameters, readable, under_vmap)
}
