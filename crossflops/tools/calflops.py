"""Define the convention of calflops, a copy of DeepSpeed's profiler of 2023: the rules that the
two do not share.

It replaces neither the operator @ nor mm, bmm and scaled_dot_product_attention, divides a
transposed convolution by its groups twice, and adds up the tree of modules along every path.
Sources: calflops/pytorch_ops.py, calflops/calculate_pipline.py, calflops/utils.py.
"""

from math import prod

from crossflops.ir.trace import ALONG_CHAINS
from crossflops.rules.conditions import Site
from crossflops.rules.rule import Parameters, with_formula
from crossflops.tools import replaced_functions as replaced
from crossflops.tools.replaced_functions import Arguments

products, may_fail, parts = (
    replaced.function_rule_group(),
    replaced.function_rule_group(),
    replaced.function_rule_group(),
)


@products.contraction(
    replaced.TRANSPOSED,
    cause="conv.transpose-groups",
    source="_conv_trans_flops_compute",
    name="transposed",
)
@with_formula("N x Ci x (Co/g // g) x prod(k) x prod(i): divided by the groups a second time")
def calflops_transposed_macs(call: Site) -> int:
    """Return the MACs that calflops counts for a transposed convolution, whose output channels it
    divides by the number of groups a second time.
    """
    provided = Arguments(call)
    replaced.functional_output_extents(
        provided
    )  # which it computes, and may fail at, even without a bias
    shape, weight = provided.shape("input"), provided.shape("weight")
    filters = weight[1] // provided.number("groups", 1)
    return shape[0] * shape[1] * filters * prod(weight[2:]) * prod(shape[2:])


@parts.adds(
    replaced.TRANSPOSED,
    replaced.BIASED,
    cause="bias.conv",
    name="transposed.bias",
    source="_conv_trans_flops_compute",
)
@with_formula("N x Co/g x prod(o), o the extents of a convolution that is not transposed")
def calflops_transposed_bias_adds(call: Site) -> int:
    """Return the additions that calflops counts for the bias of a transposed convolution: batch
    size x output channels of one group x output positions of an ordinary convolution.
    """
    provided = Arguments(call)
    return (
        provided.shape("weight")[1]
        * provided.shape("input")[0]
        * prod(replaced.functional_output_extents(provided))
    )


@parts.adds(
    replaced.ARITHMETIC,
    cause="elementwise.broadcast-shape",
    name="arithmetic.aligned",
    source="_elementwise_flops_compute",
    formula="n(shapes broadcast from the left) - n(y)",
)
def calflops_misalignment_adds(call: Site) -> int:
    """Return how many more operations calflops counts for an addition or a multiplication because
    it broadcasts the two shapes from the left: elements of that shape - elements of the true
    result.
    """
    shapes = Arguments(call).shapes("input", "other")
    if len(shapes) < 2:
        return 0
    rank = max(map(len, shapes))
    first, second = ((*shape, *(1,) * (rank - len(shape))) for shape in shapes)
    return prod(map(max, first, second)) - replaced.functional_arithmetic_operations(call)


@replaced.resampling_rule(may_fail)
@with_formula("prod(size), or n(x) if no size is given")
def calflops_resampling_operations(call: Site) -> int:
    """Return the operations that calflops counts for a resampling: the product of the given
    `size`, or the number of input elements if no `size` is given.

    A scale for each axis ends the tool with a TypeError unless they are a tuple and as many as
    samples: it takes the length of the input, its batch, for its rank.
    """
    provided, size = replaced.resampling_input(call), replaced.resampling_given_positions(call)
    if size is not None:
        return size
    scale = replaced.resampling_scale_factors(call)
    tuples = not {"scale_factor", "2"} & set(call.call.lists)
    if isinstance(scale, list) and not (tuples and len(scale) == (provided.shape or (0,))[0]):
        raise LookupError("the tool raises the scales to a power")
    return provided.numel


CONVENTIONS = replaced.flops_and_macs_conventions(
    "calflops",
    "0.3.2",
    "calflops/pytorch_ops.py",
    products=products,
    may_fail=may_fail,
    parts=parts,
    times=ALONG_CHAINS,
    # calflops/flops_counter.py: include_backPropagation, with the default of compute_bp_factor
    steps=("thrice", "thrice"),
    parameters=Parameters(
        trainable=True, reference="calflops/calculate_pipline.py: reset_flops_calculate"
    ),
)
