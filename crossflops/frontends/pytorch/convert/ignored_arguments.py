"""A reviewed list of the arguments that torchlib's translations of PyTorch's operators ignore,
with the outcome of each.

The exporter translates an operator by a function of onnxscript's torchlib. An argument that this
function never reads changes nothing in the file, and so nothing in the count. A test reads the
source of every such function and finds these arguments, and none beside them.
"""

from typing import Any

# What is lost with an argument, where nothing of the work and of the result is.
PLACE = "where and how the result lies in memory"
KERNEL = "which of several kernels runs, with the same result"
GRADIENT = "the backward pass alone, which is counted from the operator call"
SOURCE = "the generator of the numbers that are drawn, as many from any"
IMPLIED = "it follows from the shapes of the operands"
EMPTY = "the result has no values yet"
UNUSED = "results that are there in any case"
ALLOWED = "an order that PyTorch leaves open"
ORDER = "the order of the products, which the formula of Einsum fixes by itself"
READ = "it is read where it has a meaning: a single number has no axes to keep"
# What is not lost.
MENDED = "a form of our own reads it (translations.py)"
NAMED = "another value than the default makes the node opaque: it is named, and not counted"

# Arguments that mean the same wherever they stand.
EVERYWHERE = {
    "layout": PLACE,
    "device": PLACE,
    "pin_memory": PLACE,
    "memory_format": PLACE,
    "non_blocking": PLACE,
    "requires_grad": GRADIENT,
    "sparse": GRADIENT,
    "sparse_grad": GRADIENT,
    "scale_grad_by_freq": GRADIENT,
    "generator": SOURCE,
    "cudnn_enabled": KERNEL,
    "cudnn_enable": KERNEL,
}

BY_OPERATOR: dict[str, dict[str, str]] = {
    "aten.allclose.default": {"equal_nan": NAMED},
    "aten.einsum.default": {"path": ORDER},
    "aten.embedding.default": {"padding_idx": GRADIENT},
    "aten.empty_strided.default": {"stride": EMPTY},
    "aten.new_empty_strided.default": {"stride": EMPTY},
    "aten.expand.default": {"implicit": PLACE},
    "aten.multinomial.default": {"replacement": MENDED},
    "aten.native_batch_norm.default": {"training": MENDED},
    "aten._native_batch_norm_legit.default": {"training": MENDED},
    "aten._native_batch_norm_legit.no_stats": {"training": MENDED},
    "aten._native_batch_norm_legit_functional.default": {"training": MENDED},
    "aten.native_group_norm.default": {"N": IMPLIED, "C": IMPLIED, "HxW": IMPLIED},
    "aten.repeat_interleave.self_int": {"output_size": IMPLIED},
    "aten.repeat_interleave.Tensor": {"output_size": IMPLIED},
    "aten.stft.default": {"return_complex": PLACE, "align_to_window": NAMED},
    "aten.sym_storage_offset.default": {"self": PLACE},
    "aten.unique_consecutive.default": {"return_inverse": UNUSED, "return_counts": UNUSED},
    "aten._unique.default": {"sorted": ALLOWED},
    "aten._unique2.default": {"sorted": ALLOWED},
    "aten.unique_dim.default": {"sorted": ALLOWED},
    "aten.linalg_vector_norm.default": {"keepdim": READ},
    "aten.avg_pool2d.default": {"divisor_override": MENDED},
    "aten.avg_pool3d.default": {"divisor_override": MENDED},
    "aten.cross_entropy_loss.default": {"label_smoothing": MENDED},
    "aten._scaled_dot_product_flash_attention.default": {"return_debug_mask": UNUSED},
    "aten.upsample_linear1d.default": {"scales": MENDED},
    "aten.upsample_bilinear2d.default": {"scales_h": MENDED, "scales_w": MENDED},
    "aten._upsample_bilinear2d_aa.default": {"scales_h": MENDED, "scales_w": MENDED},
    "aten.upsample_bicubic2d.default": {"scales_h": MENDED, "scales_w": MENDED},
    "aten._upsample_bicubic2d_aa.default": {"scales_h": MENDED, "scales_w": MENDED},
    "aten.upsample_trilinear3d.default": {
        "scales_d": MENDED, "scales_h": MENDED, "scales_w": MENDED,
    },
    # Not operators of ATen: the exporter's own, whose shapes stand at their results.
    "onnx_symbolic._symbolic.default": {"shape": IMPLIED},
    "onnx_symbolic._symbolic_multi_out.default": {"shapes": IMPLIED},
}  # fmt: skip

_NAMED = {
    operator: [name for name, outcome in arguments.items() if outcome == NAMED]
    for operator, arguments in BY_OPERATOR.items()
}


def effect_of_ignored_argument(operator: str, argument: str) -> str | None:
    """Return what happens if the translation of `operator` ignores `argument`, as text; None if
    that is not listed.
    """
    return BY_OPERATOR.get(operator, {}).get(argument) or EVERYWHERE.get(argument)


def is_argument_ignored(node: Any) -> bool:
    """Return True if the ONNX translation of a node ignores an argument that matters, with a value
    other than its default.
    """
    names = _NAMED.get(str(node.target))
    if not names:
        return False
    schema = node.target._schema.arguments
    provided = dict(zip((argument.name for argument in schema), node.args, strict=False))
    provided.update(node.kwargs)
    return any(
        argument.name in names
        and provided.get(argument.name, argument.default_value) != argument.default_value
        for argument in schema
    )
