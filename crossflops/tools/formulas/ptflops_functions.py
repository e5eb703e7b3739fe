"""What ptflops' replaced functions and its rules for attention compute: ptflops/pytorch_ops.py."""

from math import prod

from crossflops.ir.profile import Amount
from crossflops.ir.trace import Call, Module
from crossflops.tools.formulas.contraction import Formula, number_of, result_of, shape_of


def input_elements(call: Call, module: Module) -> int:
    """n(input). _numel_functional_flops_hook."""
    return prod(shape_of(call, "0", "input"))


def interpolation(call: Call, module: Module) -> Amount:
    """prod(size) x N C, or n(input) x scale ^ axes: a float where the scale is one.

    Scales that are given as a tuple are cut off to integers before they are multiplied.
    _interpolate_functional_flops_hook.
    """
    shape = shape_of(call, "0", "input")
    axes = len(shape) - 2
    if axes < 1:
        raise ValueError("an input without spatial axes")
    size = call.settings.get("size", call.settings.get("1"))
    if isinstance(size, list):
        return prod(map(int, size)) * prod(shape[:2])
    if isinstance(size, int | float):
        return prod([int(size)] * axes) * prod(shape[:2])
    scale = call.settings.get("scale_factor", call.settings.get("2"))
    is_tuple = not {"scale_factor", "2"} & set(call.lists)  # a list is raised to a power: it fails
    if isinstance(scale, list) and len(scale) == axes and is_tuple:
        return prod(shape) * prod(map(int, scale))
    if not isinstance(scale, int | float):
        raise TypeError(f"scale_factor is {scale!r}")
    amount: Amount = prod(shape) * scale**axes
    return amount


def _is_nearest(call: Call) -> bool:
    mode = call.settings.get("mode", call.settings.get("3", "nearest"))
    return str(mode).startswith("nearest")


def nearest_interpolation(call: Call, module: Module) -> Amount:
    """`ptflops.interpolation` in a mode "nearest", else 0."""
    amount = interpolation(call, module)
    return amount if _is_nearest(call) else 0


def linear_interpolation(call: Call, module: Module) -> Amount:
    """`ptflops.interpolation` in any other mode, else 0."""
    amount = interpolation(call, module)
    return 0 if _is_nearest(call) else amount


def product(call: Call, module: Module) -> int:
    """n(A) x B.shape[-1]. _matmul_tensor_flops_hook."""
    return prod(shape_of(call, "0", "input")) * shape_of(call, "1", "other")[-1]


def added_product(call: Call, module: Module) -> int:
    """n(A) x B.shape[-1] of input + A B. _addmm_tensor_flops_hook."""
    return prod(shape_of(call, "1", "mat1")) * shape_of(call, "2", "mat2")[-1]


def added(call: Call, module: Module) -> int:
    """n(input) of input + A B, unless beta is 0. _addmm_tensor_flops_hook."""
    return prod(shape_of(call, "0", "input")) if call.settings.get("beta", 1) else 0


def elementwise_result(call: Call, module: Module) -> int:
    """n(y): what an addition or a product of tensors computes."""
    return result_of(call).numel


def elementwise_misaligned(call: Call, module: Module) -> int:
    """The product of the extents, broadcast from the left, minus n(y).

    _elementwise_tensor_flops_hook. Raises LookupError without two operands.
    """
    shapes = [one.shape for one in call.inputs if one.name in {"0", "1", "input", "other"}]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        raise LookupError(f"{call.key} has operands of unknown shape")
    wide = max(map(len, known), default=0)
    full = [(*shape, *(1,) * (wide - len(shape))) for shape in known]
    # an extent of 0 is smaller than the 1 that stands for a missing one
    aligned = prod(int(max(extents)) for extents in zip(*full, strict=True))
    return aligned - result_of(call).numel


class _Attention:
    """The extents that the rule for nn.MultiheadAttention reads. Raises where it fails."""

    def __init__(self, call: Call, module: Module) -> None:
        if call.arity != 3:
            raise ValueError(f"query, key and value by position, not {call.arity} inputs")
        query, key, value = (shape_of(call, name) for name in "012")
        place = 1 if module.settings["batch_first"] else 0
        self.batch = query[1 - place]
        self.q, self.k, self.v = query[place], key[place], value[place]
        self.q_size, self.k_size, self.v_size = query[2], key[2], value[2]
        if self.q_size != number_of(module, "embed_dim"):
            raise ValueError("the query has another size than embed_dim")
        self.heads = number_of(module, "num_heads")


def attention(call: Call, module: Module) -> int:
    """B (Lq Eq^2 + Lk Ek^2 + Lv Ev^2 + h Lq Lk (Eq // h + Ev // h) + Lq Ev^2).

    multihead_attention_counter_hook: keys and values are projected by squares of their own size.
    """
    one = _Attention(call, module)
    projections = one.q * one.q_size**2 + one.k * one.k_size**2 + one.v * one.v_size**2
    sizes = one.q_size // one.heads + one.v_size // one.heads
    output = one.q * one.v_size**2
    return one.batch * (projections + one.heads * one.q * one.k * sizes + output)


def attention_scores(call: Call, module: Module) -> int:
    """B (Lq Eq + h Lq Lk): the scale and the softmax."""
    one = _Attention(call, module)
    return one.batch * (one.q * one.q_size + one.heads * one.q * one.k)


def attention_bias(call: Call, module: Module) -> int:
    """B ((Lq + Lk + Lv) Eq + Lq Ev), the first only with in_proj_bias."""
    one = _Attention(call, module)
    has_bias = any(each.name == "in_proj_bias" for each in module.params)
    before = (one.q + one.k + one.v) * one.q_size if has_bias else 0
    return one.batch * (before + one.q * one.v_size)


def _tokens(call: Call, module: Module) -> tuple[int, int, int]:
    """B, N and the heads. A first input without three axes fails."""
    batch, tokens, _ = shape_of(call, "0")
    return batch, tokens, number_of(module, "num_heads")


def timm_attention(call: Call, module: Module) -> int:
    """2 B h N N d: the products of timm's Attention. timm_attention_counter_hook."""
    batch, tokens, heads = _tokens(call, module)
    return 2 * batch * heads * tokens * tokens * number_of(module, "head_dim")


def timm_attention_scores(call: Call, module: Module) -> int:
    """B h (N d + N N): the scale and the softmax. timm_attention_counter_hook."""
    batch, tokens, heads = _tokens(call, module)
    return batch * heads * tokens * (number_of(module, "head_dim") + tokens)


FORMULAS: dict[str, Formula] = {
    "ptflops.input_elements": input_elements,
    "ptflops.interpolation": interpolation,
    "ptflops.nearest_interpolation": nearest_interpolation,
    "ptflops.linear_interpolation": linear_interpolation,
    "ptflops.product": product,
    "ptflops.added_product": added_product,
    "ptflops.added": added,
    "ptflops.elementwise_result": elementwise_result,
    "ptflops.elementwise_misaligned": elementwise_misaligned,
    "ptflops.attention": attention,
    "ptflops.attention_scores": attention_scores,
    "ptflops.attention_bias": attention_bias,
    "ptflops.timm_attention": timm_attention,
    "ptflops.timm_attention_scores": timm_attention_scores,
}
