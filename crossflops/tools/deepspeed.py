"""Define the conventions of DeepSpeed's flops profiler: its current version, and its version of
2021, which produced published figures.

Today it has two numbers. What it has beside the rules that it shares with calflops stands below.
In 2021 it had one, called MACs, in which biases, activations, norms, pools and the elements of a
softmax count as well; it replaced functions of torch.nn.functional alone, so products of attention
are not in it. 3139.93 GMACs were published so for BERT-Large.
Source: deepspeed/profiling/flops_profiler/profiler.py.
"""

from math import prod

from crossflops.ir.trace import ALONG_CHAINS, ALONG_CHAINS_SQUARED, ONCE_IN_EACH
from crossflops.rules.conditions import Site, input_elements
from crossflops.rules.rule import Parameters, with_formula
from crossflops.tools import replaced_functions as replaced
from crossflops.tools.replaced_functions import (
    BIASED,
    PIECEWISE,
    TRANSPOSED,
    Arguments,
    functional_names,
)

_SOURCE = "deepspeed/profiling/flops_profiler/profiler.py"

# Today: what it has beside the shared rules.

products, may_fail, parts = (
    replaced.function_rule_group(),
    replaced.function_rule_group(),
    replaced.function_rule_group(),
)

products.contraction(
    ("torch.Tensor.__matmul__", "torch.mm", "torch.Tensor.mm", "torch.bmm", "torch.Tensor.bmm"),
    cause=replaced.BROADCAST,
    name="matmul.more",
    source="_matmul_flops_compute",
)(replaced.functional_matmul_macs)


@products.contraction(
    TRANSPOSED,
    cause="conv.transpose-groups",
    source="_conv_trans_flops_compute",
    name="transposed",
)
@with_formula("N x Ci x Co/g x prod(k) x prod(i)")
def deepspeed_transposed_macs(call: Site) -> int:
    """Return the MACs that DeepSpeed counts for a transposed convolution: batch size x input
    channels x output channels of one group x kernel positions x input positions.
    """
    provided = Arguments(call)
    _deepspeed_transposed_output_extents(
        provided
    )  # which it computes, and may fail at, whether there is a bias or not
    shape, weight = provided.shape("input"), provided.shape("weight")
    return shape[0] * shape[1] * prod(weight[1:]) * prod(shape[2:])


@parts.adds(
    TRANSPOSED,
    BIASED,
    cause="bias.conv",
    name="transposed.bias",
    source="_conv_trans_flops_compute",
)
@with_formula("N x Co x prod(o), o the output's extents")
def deepspeed_transposed_bias_adds(call: Site) -> int:
    """Return the additions that DeepSpeed counts for the bias of a transposed convolution: batch
    size x output channels x output positions.
    """
    provided = Arguments(call)
    channels = provided.shape("weight")[1] * provided.number("groups", 1)
    return (
        channels
        * provided.shape("input")[0]
        * prod(_deepspeed_transposed_output_extents(provided))
    )


def _deepspeed_transposed_output_extents(provided: Arguments) -> tuple[int, ...]:
    """Return the sizes of a transposed convolution's result along its spatial axes, computed from
    the arguments of the call.
    """
    extents, kernel = provided.shape("input")[2:], provided.shape("weight")[2:]
    strides, dilations = (
        provided.extents(name, 1, len(extents)) for name in ("stride", "dilation")
    )
    paddings, more = (
        provided.extents(name, 0, len(extents)) for name in ("padding", "output_padding")
    )
    return tuple(
        (extent - 1) * strides[axis]
        - 2 * paddings[axis]
        + dilations[axis] * (kernel[axis] - 1)
        + more[axis]
        + 1
        for axis, extent in enumerate(extents)
    )


@products.contraction(
    functional_names("scaled_dot_product_attention"),
    cause="attention.sdpa",
    source="_attn_flops_compute",
    name="attention",
)
@with_formula("n(q) Sk + n(q)/D Sk Dv, q, k and v the first three positional inputs")
def deepspeed_attention_macs(call: Site) -> int:
    """Return the MACs that DeepSpeed counts for scaled_dot_product_attention: query elements x
    keys for the scores, and query rows x keys x head size of values for the result.

    q, k and v are the first three positional inputs.

    Raises LookupError when they go by keyword.
    """
    shapes = [spec.shape for name in "012" if (spec := call.input(name)) is not None]
    if len(shapes) < 3 or None in shapes:
        raise LookupError("the tool's function takes q, k and v by position")
    query, key, value = (shape or () for shape in shapes)
    return prod(query) * key[-2] + prod(query[:-1]) * key[-2] * value[-1]


@replaced.resampling_rule(may_fail)
@with_formula("prod(size), or n(x) prod(scale) if no size is given")
def deepspeed_resampling_operations(call: Site) -> int:
    """Return the operations that DeepSpeed counts for a resampling: the product of the given
    `size`, or the number of input elements x the scale factors if no `size` is given.
    """
    provided, size = replaced.resampling_input(call), replaced.resampling_given_positions(call)
    if size is not None:
        return size
    scale = replaced.resampling_scale_factors(call)
    if isinstance(scale, list):
        return int(provided.numel * prod(scale))
    return int(provided.numel * scale ** (len(provided.shape or ()) - 2))


# einops calls torch.einsum, which is replaced as well
@may_fail.adds(
    "einops.einsum",
    cause="functional.double-counted",
    name="einops",
    source="_einops_einsum_flops_compute",
)
@with_formula("F, the FLOPs that numpy.einsum_path prints for the last argument")
def deepspeed_einops_operations(call: Site) -> int:
    """Return the operations that DeepSpeed adds for einops.einsum: the FLOPs that
    numpy.einsum_path prints for the equation, which is the last argument.
    """
    return replaced.einsum_path_flops(call, equation_index=len(call.inputs))


# In 2021: convolutions knew two spatial axes. On one axis they fail, of three they take the last
# two of the kernel and the first two of the output. 0.3.13 and 0.5.0 agree.

products_in_2021, parts_in_2021 = replaced.function_rule_group(), replaced.function_rule_group()

products_in_2021.contraction(
    replaced.LINEAR, cause=replaced.BROADCAST, name="linear", source="_linear_flops_compute"
)(replaced.functional_linear_macs)


@products_in_2021.contraction(
    replaced.CONVOLUTION,
    cause=replaced.RECOMPUTED,
    name="convolution",
    source="_conv_flops_compute",
)
@with_formula("N x Ci x Co/g x prod(k) x prod(o), k the last two axes and o the first")
def deepspeed_2021_convolution_macs(call: Site) -> int:
    """Return the MACs that DeepSpeed of 2021 counts for a convolution, as if it had two spatial
    axes: the last two of the kernel, the first two of the output.
    """
    provided = Arguments(call)
    return (
        replaced.functional_channel_products(provided)
        * prod(provided.shape("weight")[-2:])
        * prod(_deepspeed_2021_output_extents(provided))
    )


@products_in_2021.contraction(
    TRANSPOSED,
    cause="conv.transpose-groups",
    name="transposed",
    source="_conv_trans_flops_compute",
)
@with_formula("N x Ci x (Ci // g) x prod(k) x prod(i): the first axis of the weight used as Co")
def deepspeed_2021_transposed_macs(call: Site) -> int:
    """Return the MACs that DeepSpeed of 2021 counts for a transposed convolution, where it uses
    the first axis of the weight as the number of output channels.
    """
    provided = Arguments(call)
    _deepspeed_2021_output_extents(
        provided
    )  # which it computes, and fails at, whether there is a bias or not
    shape, weight = provided.shape("input"), provided.shape("weight")
    filters = weight[0] // provided.number("groups", 1)
    return shape[0] * shape[1] * filters * prod(weight[-2:]) * prod(shape[2:])


@parts_in_2021.adds(
    (*replaced.CONVOLUTION, *TRANSPOSED),
    BIASED,
    cause="bias.conv",
    name="bias",
    source="_conv_flops_compute",
)
@with_formula("N x W[0] x prod(o), o as in a convolution that is not transposed")
def deepspeed_2021_bias_adds(call: Site) -> int:
    """Return the additions that DeepSpeed of 2021 counts for the bias of a convolution, transposed
    or not: batch size x first axis of the weight x output positions of an ordinary convolution.
    """
    provided = Arguments(call)
    return (
        provided.shape("weight")[0]
        * provided.shape("input")[0]
        * prod(_deepspeed_2021_output_extents(provided))
    )


def _deepspeed_2021_output_extents(provided: Arguments) -> tuple[int, ...]:
    """Return the output height and width that DeepSpeed of 2021 computes for a convolution."""
    strides, paddings, dilations = (
        provided.extents(name, default, axes=2)
        for name, default in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    extents, kernel = provided.shape("input")[2:], provided.shape("weight")[-2:]
    return replaced.functional_window_positions(
        (extents[0], extents[1]), kernel, strides, paddings, dilations
    )


@with_formula("n(x)")
def deepspeed_2021_activation_operations(call: Site) -> int:
    """Return the operations that DeepSpeed of 2021 counts for an activation with at most one
    argument after its input: the number of input elements.
    """
    return prod(Arguments(call, "relu").shape("input"))


for name, cause, targets, amount, source in (
    (
        "relu",
        "act.relu",
        functional_names("relu"),
        deepspeed_2021_activation_operations,
        "_relu_flops_compute",
    ),
    (
        "piecewise",
        "act.piecewise-other",
        PIECEWISE,
        deepspeed_2021_activation_operations,
        "_relu_flops_compute",
    ),
    (
        "elu",
        "act.transcendental",
        functional_names("elu"),
        deepspeed_2021_activation_operations,
        "_relu_flops_compute",
    ),
    (
        "softmax",
        "softmax",
        functional_names("softmax"),
        replaced.functional_input_elements,
        "_softmax_flops_compute",
    ),
    *((*pool, input_elements, "_pool_flops_compute") for pool in replaced.POOLS),
):
    parts_in_2021.adds(targets, cause=cause, name=name, source=source)(amount)
parts_in_2021.adds(
    functional_names("batch_norm"),
    cause="norm.batch",
    name="batch_norm",
    source="_batch_norm_flops_compute",
    factor=2,
)(input_elements)


@replaced.resampling_rule(parts_in_2021)
@with_formula("prod(size), or n(x) if no size is given")
def deepspeed_2021_resampling_operations(call: Site) -> int:
    """Return the operations that DeepSpeed of 2021 counts for a resampling: the product of the
    given `size`, or the number of input elements if no `size` is given.

    Raise LookupError if `size` or the scale is a single number, because the tool fails on it.

    A single number ends it, be it a size or a scale.
    """
    provided, size = replaced.resampling_input(call), replaced.resampling_given_positions(call)
    if size is not None:
        if not isinstance(call.settings.get("size", call.settings.get("1")), list):
            raise LookupError("the tool's function takes a size for each axis")
        return size
    scale = replaced.resampling_scale_factors(call)
    if not isinstance(scale, list) or len(scale) != (provided.shape or (0,))[0]:
        raise LookupError("the tool's function takes as many scales as samples")
    return provided.numel


in_2021 = replaced.module_hooking_tool(
    "deepspeed",
    "2021",
    _SOURCE,
    prints="MACs",
    per_mac=1,
    verified=("0.3.13", "0.5.0"),
    prefix="deepspeed@2021",
    parameters=Parameters(trainable=True, reference=f"{_SOURCE}: reset_profile"),
)
# Hooks were set once more for each path to a module, and the tree of modules summed so.
in_2021.include(products_in_2021, parts_in_2021, times=ALONG_CHAINS, source=_SOURCE)
in_2021.include(replaced.hooks, replaced.hook_parts, times=ALONG_CHAINS_SQUARED, source=_SOURCE)
in_2021.include(replaced.rules_for_unseen_work(products_in_2021), source=_SOURCE)

CONVENTIONS = (
    # get_module_flops sums over `modules()`, which has each of them once
    *replaced.flops_and_macs_conventions(
        "deepspeed",
        "0.19.8",
        _SOURCE,
        products=products,
        may_fail=may_fail,
        parts=parts,
        times=ONCE_IN_EACH,
        steps=("thrice", ""),  # print_model_profile: bwd_factor, where nothing is recomputed
        parameters=Parameters(reference=f"{_SOURCE}: reset_profile"),
    ),
    in_2021.convention,
)
