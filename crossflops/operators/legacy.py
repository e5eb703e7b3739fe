"""The cost of operators that the ONNX standard no longer has."""

from functools import partial

from crossflops.ir.graph import Node
from crossflops.ir.ledger import Cost
from crossflops.operators.gradient import elementwise_backward, movement_backward, no_gradient
from crossflops.operators.movement import MOVED, movement_cost
from crossflops.operators.operands import input_label, input_shape, integer_list_or_none
from crossflops.operators.pointwise import ADD, COMPARE, MUL, formula_per_output_element
from crossflops.operators.rule import EXTINCT, Constraint, OperandProblem, Operators

operator = Operators()
dropped = partial(operator, page=EXTINCT)


def declare_legacy_pointwise(
    type: str, work: Cost, equation: str, back: Cost, *requires: Constraint
) -> None:
    """Declare a former ONNX operator that costs `work` per element of its result Y = `equation`.

    `back` is the work for each element of the gradient, by the chain rule.
    """
    dropped(
        type,
        f"n(Y)*work of Y = {equation}",
        requires=requires,
        backward=elementwise_backward(back),
    )(formula_per_output_element(work))


def _image_bias_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the operands of ImageScaler, or "" if nothing is: a bias for each
    channel of [N, C, H, W].
    """
    dims, bias = input_shape(node, 0), node.attrs.get("bias")
    if dims is None or not isinstance(bias, tuple) or (len(dims) > 3 and dims[1] == len(bias)):
        return ""
    return f"{input_label(node, 0)} needs rank 4 and the {len(bias)} channels of attribute 'bias'"


declare_legacy_pointwise("Affine", MUL + ADD, "alpha * X + beta", MUL)
declare_legacy_pointwise(
    "ImageScaler", MUL + ADD, "scale * X + bias of the channel", MUL, _image_bias_constraint
)
declare_legacy_pointwise("Scale", MUL, "scale * X", MUL)
# dX = dY (alpha beta - (beta / alpha) Y^2)
declare_legacy_pointwise(
    "ScaledTanh", Cost(muls=2, specials=1), "alpha * tanh(beta * X)", Cost(muls=3, adds=1)
)
# dX = dY alpha beta sigmoid(beta X)
declare_legacy_pointwise(
    "ParametricSoftplus",
    Cost(muls=2, specials=2, adds=1),
    "alpha * log(exp(beta * X) + 1)",
    Cost(muls=3, specials=1),
)
declare_legacy_pointwise("ThresholdedRelu", COMPARE, "X > alpha ? X : 0", COMPARE)


def _crop_border_constraint(node: Node) -> OperandProblem:
    """Return what is wrong with the operands of Crop, or "" if nothing is: four borders inside the
    image [N, C, H, W].
    """
    dims, border = input_shape(node, 0), integer_list_or_none(node, "border") or ()
    if dims is None or not border or (len(dims) == 4 == len(border)):
        inside = not dims or all(
            size >= before + after
            for size, before, after in zip(dims[:1:-1], border, border[2:], strict=False)
        )
        return "" if inside else f"{input_label(node, 0)} is smaller than its border"
    return (
        f"{input_label(node, 0)} has rank {len(dims)}, and the border has {len(border)} sizes: "
        "both must be 4"
    )


dropped(
    "Crop", MOVED, traffic="gather", requires=_crop_border_constraint, backward=movement_backward
)(movement_cost)
dropped("DynamicSlice", MOVED, traffic="gather", backward=movement_backward)(movement_cost)
dropped("GivenTensorFill", "0: known values", backward=no_gradient)(movement_cost)
