"""The cost of operators in the training graphs that onnxruntime writes: gradients, losses,
optimizers.

A gradient operator costs what the backward pass of its forward operator costs: it becomes that
forward node again, and the rule of the forward operator is asked for the gradients that have a
name among the results.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from crossflops.ir.graph import Node, Op, TensorSpec
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators import (
    convolution_and_pooling,
    movement,
    normalization,
    pointwise,
    reduction,
    training,
)
from crossflops.operators.access import (
    has_input,
    has_output,
    input_element_count,
    input_spec,
    integer_attribute,
    output_element_count,
    string_attribute,
)
from crossflops.operators.gradient import Gradient
from crossflops.operators.movement import MOVED, movement_cost
from crossflops.operators.operands import (
    broadcast_constraint_on,
    equal_shapes_constraint,
    sizes_constraint,
)
from crossflops.operators.pointwise import ADD, COMPARE, DIV, MUL, SPECIAL, SWISH_BACK
from crossflops.operators.rule import (
    MICROSOFT,
    TRAINING_SCHEMAS,
    Exactness,
    Formula,
    OperatorRule,
    Operators,
    Traffic,
)

_PART_OF_A_STEP = "the file already contains a training step: count it without --train"
operator = Operators(MICROSOFT, backward=_PART_OF_A_STEP)
_BOTH = ("", MICROSOFT)  # some stood in ai.onnx first


def _declare_training_operator(
    types: str | Iterable[str],
    equation: str,
    formula: Formula,
    *requires: Callable[[Node], str],
    domains: tuple[str, ...] = (MICROSOFT,),
    doubt: Callable[[Node], Exactness] | None = None,
    traffic: Traffic = "touch",
) -> None:
    """Declare operators of onnxruntime's training graphs, with their formula and constraints."""
    for domain in domains:
        operator(
            types,
            equation,
            domain=domain,
            page=TRAINING_SCHEMAS,
            requires=requires,
            doubt=doubt,
            traffic=traffic,
        )(formula)


# Gradients of operators whose backward pass has a formula.


class _Forward(NamedTuple):
    """The forward node of a gradient operator.

    `operands` are the indices of its operands among the inputs of the gradient operator; None for
    an absent one, whose shape is that of its gradient. `results` are the operands whose gradients
    the outputs are. The gradient of its result is input `gradient`.
    """

    op: Op
    rule: OperatorRule
    operands: tuple[int | None, ...]
    results: tuple[int, ...] = (0,)
    gradient: int = 0
    products: bool = False
    attrs: tuple[tuple[str, int | str], ...] = ()

    def cost_of_output_gradients(self, node: Node) -> Cost:
        """Return the cost of those gradients that the node outputs."""
        again = self._forward_node(node)
        indices = frozenset(
            position for output, position in enumerate(self.results) if has_output(node, output)
        )
        work = self.rule.formula(again) if self.products else ZERO
        backward = self.rule.backward
        if isinstance(backward, str):
            raise ValueError(f"{self.op}: {backward}")
        return _gradient_total_cost(backward(again, indices, work))

    def _forward_node(self, node: Node) -> Node:
        """Return the forward node whose gradients this gradient node computes."""
        inputs = tuple(
            self._forward_operand(node, position) for position in range(len(self.operands))
        )
        return msgspec.structs.replace(
            node,
            op=self.op,
            inputs=inputs,
            outputs=(input_spec(node, self.gradient),),
            attrs={**node.attrs, **dict(self.attrs)},
            values={},
        )

    def _forward_operand(self, node: Node, position: int) -> TensorSpec | None:
        """Return an operand of the forward node, found among the inputs or outputs of the gradient
        node.
        """
        index = self.operands[position]
        if index is not None:
            return node.inputs[index] if index < len(node.inputs) else None
        output = self.results.index(position)
        return node.outputs[output] if output < len(node.outputs) else None


def _gradient_total_cost(gradient: Gradient) -> Cost:
    """Return the sum of all costs of a gradient."""
    return sum(gradient.operands.values(), start=gradient.inner + gradient.recomputed)


def _forward_of_gradient_node(
    family: Operators,
    name: str,
    *operands: int | None,
    since: int = 1,
    results: tuple[int, ...] = (0,),
    gradient: int = 0,
    products: bool = False,
    **attrs: int | str,
) -> _Forward:
    """Return how the inputs and outputs of a gradient node correspond to those of the forward
    operator `name`.
    """
    op = Op("", name, since)
    rule = family.rules[op]
    return _Forward(op, rule, operands, results, gradient, products, tuple(attrs.items()))


_pooling, _norms = convolution_and_pooling.operator, normalization.operator
_elements, _moves, _losses = pointwise.operator, movement.operator, training.operator
_THREE, _TWO = (0, 1, 2), (0, 1)

_CONVOLUTIONS = {
    f"{name}Grad": _forward_of_gradient_node(
        _pooling, name, 1, 2, None, results=_THREE, products=True
    )
    for name in ("Conv", "ConvTranspose")
}
_NORMS = {
    "LayerNormalizationGrad": _forward_of_gradient_node(
        _norms, "LayerNormalization", 1, 2, None, since=17, results=_THREE
    ),
    **dict.fromkeys(
        ("SimplifiedLayerNormalizationGrad", "T5LayerNormalizationGrad"),
        _forward_of_gradient_node(_norms, "RMSNormalization", 1, 2, since=23, results=_TWO),
    ),
    "BatchNormalizationGrad": _forward_of_gradient_node(
        _norms, "BatchNormalization", 1, 2, None, results=_THREE, training_mode=1
    ),
}
_GATHERED = {
    "GatherGrad": _forward_of_gradient_node(_moves, "Gather", None, 1, gradient=2),
    "GatherElementsGrad": _forward_of_gradient_node(_moves, "GatherElements", None, 2, since=11),
    "GatherNDGrad": _forward_of_gradient_node(_moves, "GatherND", None, 1, since=11, gradient=2),
}
_POOLS = {
    "MaxPoolGrad": _forward_of_gradient_node(_pooling, "MaxPool", None),
    "AveragePoolGrad": _forward_of_gradient_node(_pooling, "AveragePool", None),
}
_ELEMENTS = {
    **{
        f"{name}Grad": _forward_of_gradient_node(_elements, name, 1, since=since)
        for name, since in (
            *(("Relu", 1), ("LeakyRelu", 1), ("Sigmoid", 1), ("Tanh", 1), ("Abs", 1)),
            ("Gelu", 20),
        )
    },
    "FastGeluGrad": _forward_of_gradient_node(_elements, "Gelu", 1, since=20, approximate="tanh"),
}
_SOFTENED = {
    "SoftmaxGrad": _forward_of_gradient_node(_norms, "Softmax", 1),
    "SoftmaxGrad_13": _forward_of_gradient_node(_norms, "Softmax", 1, since=13),
    "LogSoftmaxGrad": _forward_of_gradient_node(_norms, "LogSoftmax", 1),
    "LogSoftmaxGrad_13": _forward_of_gradient_node(_norms, "LogSoftmax", 1, since=13),
}
_DIVISION = _forward_of_gradient_node(_elements, "Div", 1, 2, results=_TWO)

_FITTING = {
    "ConvGrad": sizes_constraint("g=@group:1 dY[N,g*P,...] X[N,g*I,...] W[g*P,I,...]"),
    "ConvTransposeGrad": sizes_constraint("g=@group:1 dY[N,g*P,...] X[N,g*C,...] W[g*C,P,...]"),
}
for _name, _of in _CONVOLUTIONS.items():
    _declare_training_operator(
        _name,
        "the MACs of the forward pass for dX and dW; dB: n(dY)-n(B) adds",
        _of.cost_of_output_gradients,
        _FITTING[_name],
        domains=_BOTH,
    )
for _name, _of in _NORMS.items():
    _declare_training_operator(
        _name,
        f"the backward pass of {_of.op.type}",
        _of.cost_of_output_gradients,
        equal_shapes_constraint(0, 1),
    )
for _name, _of in _GATHERED.items():
    _declare_training_operator(_name, "n(dY) adds", _of.cost_of_output_gradients)
for _name, _of in _POOLS.items():
    _declare_training_operator(
        _name, f"the backward pass of {_of.op.type}", _of.cost_of_output_gradients, domains=_BOTH
    )
for _name, _of in {**_ELEMENTS, **_SOFTENED}.items():
    _declare_training_operator(
        _name,
        f"the backward pass of {_of.op.type}",
        _of.cost_of_output_gradients,
        equal_shapes_constraint(0, 1),
    )
_SINE = _forward_of_gradient_node(_elements, "Sin", 1, since=7)
_declare_training_operator(
    "SinGrad",
    "the backward pass of Sin",
    _SINE.cost_of_output_gradients,
    equal_shapes_constraint(0, 1),
    domains=_BOTH,
)
_declare_training_operator(
    "DivGrad",
    "the backward pass of Div",
    _DIVISION.cost_of_output_gradients,
    broadcast_constraint_on(1, 2),
)


def _bias_gelu_gradient_formula(name: str) -> Formula:
    """Return the formula of the gradient of a Gelu (operator `name`) of X + B, with an add per
    element for X + B again.
    """

    def cost_of_bias_gelu_gradient(node: Node) -> Cost:
        """Return the cost of the gradient of the activation, and of one add per element."""
        return _ELEMENTS[name].cost_of_output_gradients(node) + ADD * output_element_count(node)

    return cost_of_bias_gelu_gradient


for _name in ("Gelu", "FastGelu"):
    _declare_training_operator(
        f"Bias{_name}Grad_dX",
        "the backward pass of Gelu, n(X) adds",
        _bias_gelu_gradient_formula(f"{_name}Grad"),
    )


def _quick_gelu_gradient_cost(node: Node) -> Cost:
    """Return the cost of QuickGeluGrad, dY s (1 + alpha X (1 - s)) with s = sigmoid(alpha X)."""
    scaled = MUL if node.attrs.get("alpha", 1.702) != 1 else ZERO
    return (SWISH_BACK + scaled) * output_element_count(node)


_declare_training_operator("QuickGeluGrad", "n*(sigmoid, 3 muls, 2 adds); alpha != 1: n muls",
         _quick_gelu_gradient_cost, equal_shapes_constraint(0, 1))  # fmt: skip


def _invertible_norm_cost(node: Node) -> Cost:
    """Return the cost of InvertibleLayerNormalizationGrad: as for LayerNormalization, with (Y -
    bias) / scale as its normalized input.

    x^ takes n subs and n divs in place of n subs and n muls.
    """
    count = input_element_count(node, 1)
    again = Cost(muls=count) if has_output(node, 0) or has_output(node, 1) else ZERO
    work = _NORMS["LayerNormalizationGrad"].cost_of_output_gradients(node)
    return msgspec.structs.replace(work, muls=work.muls - again.muls, divs=work.divs + again.muls)


_declare_training_operator("InvertibleLayerNormalizationGrad",
         "the backward pass of LayerNormalization, with n divs for n muls",
         _invertible_norm_cost, equal_shapes_constraint(0, 1))  # fmt: skip


def _batch_norm_training_cost(node: Node) -> Cost:
    """Return the cost of BatchNormInternal: BatchNormalization in training, which stores what its
    gradient needs.
    """
    attrs = {**node.attrs, "training_mode": 1}
    return normalization.batch_normalization_cost(msgspec.structs.replace(node, attrs=attrs))


_declare_training_operator(
    "BatchNormInternal",
    "as BatchNormalization in training",
    _batch_norm_training_cost,
    normalization.batch_norm_constraint,
)


def _dropout_gradient_formula(index: int) -> Formula:
    """Return the formula of the gradient of Dropout: 2 muls per element in training; input `index`
    is training_mode.
    """

    def cost_of_dropout_gradient(node: Node) -> Cost:
        """Return 2 muls per element in training, else zero. Raises ValueError if training_mode is
        unknown.
        """
        mode = node.values.get(index, (-1,))[0] if has_input(node, index) else 1
        if mode < 0:
            raise ValueError(
                f"it is unknown whether {node.op} drops, because the value of training_mode is "
                "unknown"
            )
        return MUL * (2 * input_element_count(node)) if mode else ZERO

    return cost_of_dropout_gradient


_declare_training_operator(
    ("DropoutGrad", "BitmaskDropoutGrad"),
    "2n(dY) muls; 0 in inference",
    _dropout_gradient_formula(3),
)
_declare_training_operator("TrainableDropoutGrad", "2n(dY) muls", _dropout_gradient_formula(3))
_declare_training_operator(
    "FakeQuantGrad", "n(dY) muls", lambda node: MUL * input_element_count(node)
)
_declare_training_operator(("SliceGrad", "ConcatTraining", "SplitTraining"), MOVED, movement_cost)
_declare_training_operator("ReshapeGrad", MOVED, movement_cost, domains=_BOTH)
_declare_training_operator(
    ("ZeroGradient", "ShrunkenGather", "PadAndUnflatten", "FlattenAndUnpad"), MOVED, movement_cost
)
_declare_training_operator(
    (
        *("View", "RecordEvent", "WaitEvent", "Group", "PassThrough", "YieldOp"),
        "BroadcastGradientArgs",
    ),
    "0: handles and known values",
    movement_cost,
    traffic="view",
)


# Losses, with what they keep for their gradient.


def _with_ignore_index(node: Node, index: int) -> Node:
    """Return the node with the attribute `ignore_index` if it is given the input at this index
    that says the same.
    """
    attrs = {**node.attrs, "ignore_index": 0} if has_input(node, index) else node.attrs
    return msgspec.structs.replace(node, attrs=attrs)


def _training_loss_cost(node: Node) -> Cost:
    """Return the cost of a softmax cross-entropy loss, as SoftmaxCrossEntropyLoss of ONNX."""
    return training.softmax_cross_entropy_cost(_with_ignore_index(node, 3))


_LOSS = _forward_of_gradient_node(_losses, "SoftmaxCrossEntropyLoss", 1, 2, 3, since=12)


def _loss_gradient_cost(node: Node) -> Cost:
    """Return the cost of the gradient of a softmax cross-entropy loss by its scores, with an add
    per score for a bias.

    A bias behind them is added to the gradient: n adds.
    """
    added = ADD * input_element_count(node, 1) if has_input(node, 5) else ZERO
    return _LOSS.cost_of_output_gradients(_with_ignore_index(node, 4)) + added


_ENTROPY = "LogSoftmax, and NegativeLogLikelihoodLoss"
_declare_training_operator("SoftmaxCrossEntropyLossInternal", _ENTROPY, _training_loss_cost)
_declare_training_operator(
    "SparseSoftmaxCrossEntropy", _ENTROPY, _training_loss_cost, domains=_BOTH
)
_ENTROPY_BACK = "the backward passes of LogSoftmax and NegativeLogLikelihoodLoss"
_declare_training_operator(
    ("SoftmaxCrossEntropyLossGrad", "SoftmaxCrossEntropyLossInternalGrad"),
    f"{_ENTROPY_BACK}; bias: n adds",
    _loss_gradient_cost,
)
_declare_training_operator(
    "SparseSoftmaxCrossEntropyGrad", _ENTROPY_BACK, _loss_gradient_cost, domains=_BOTH
)


def _softmax_row_count(node: Node, index: int) -> int:
    """Return the number of softmaxes over scores [..., classes] in the input at this index."""
    spec = input_spec(node, index)
    if not spec.shape:
        raise ValueError(f"the shape of {spec.name!r} is unknown")
    return spec.numel // spec.shape[-1] if spec.shape[-1] else 0


def _is_mean_loss(node: Node) -> bool:
    """Return whether the loss is the mean over its targets."""
    return string_attribute(node, "reduction", "mean") == "mean"


def _one_hot_loss_cost(node: Node) -> Cost:
    """Return the cost of SoftmaxCrossEntropy, -sum(label * LogSoftmax(logits)), divided by N for a
    mean.
    """
    count = input_element_count(node)
    softened = normalization.log_softmax_cost(count, _softmax_row_count(node, 0))
    summed = Cost(muls=count, adds=max(count - 1, 0) + 1)
    return softened + summed + (DIV if _is_mean_loss(node) else ZERO)


def _one_hot_loss_gradient_cost(node: Node) -> Cost:
    """Return the cost of SoftmaxCrossEntropyGrad, dY (exp(log_prob) - label), with dY / N once for
    a mean.
    """
    return (SPECIAL + ADD + MUL) * input_element_count(node, 1) + (
        DIV if _is_mean_loss(node) else ZERO
    )


_declare_training_operator(
    "SoftmaxCrossEntropy",
    "LogSoftmax; n muls, n-1 adds, a negation; mean: a div",
    _one_hot_loss_cost,
    equal_shapes_constraint(0, 1),
)
_declare_training_operator("SoftmaxCrossEntropyGrad", "n*(exp, sub, mul); mean: a div",
         _one_hot_loss_gradient_cost, equal_shapes_constraint(1, 2))  # fmt: skip


# Accumulation, scales and norms of gradients.

_SUM = reduction.operator.rules[Op("", "ReduceSum", 1)]
_declare_training_operator("ReduceSumTraining", "n-m adds", _SUM.formula)
_declare_training_operator(
    "InPlaceAccumulator",
    "n adds",
    lambda node: ADD * input_element_count(node),
    equal_shapes_constraint(0, 1),
)


def _buffer_overwrite_exactness(node: Node) -> Exactness:
    """Return "bound" if a flag decides whether the buffer is overwritten, so that nothing is
    added; else "exact".
    """
    return "bound" if has_input(node, 2) else "exact"


_declare_training_operator(
    "InPlaceAccumulatorV2",
    "n adds; 0 if the value is overwritten",
    lambda node: ADD * input_element_count(node),
    equal_shapes_constraint(0, 1),
    doubt=_buffer_overwrite_exactness,
)


def _input_element_total(node: Node, first: int = 0) -> int:
    """Return the number of elements of all inputs from the index `first` on."""
    return sum(input_element_count(node, index) for index in range(first, len(node.inputs)))


def _norm_of_all_inputs_cost(node: Node) -> Cost:
    """Return the cost of ReduceAllL2: the square root of the sum of squares of all inputs that
    `ignore_mask` does not exclude.
    """
    ignored = integer_attribute(node, "ignore_mask", 0)
    count = sum(
        input_element_count(node, index)
        for index in range(len(node.inputs))
        if not ignored >> index & 1
    )
    return Cost(muls=count, adds=max(count - 1, 0), specials=1)


_declare_training_operator(
    "ReduceAllL2", "n muls, n-1 adds, a sqrt; n of all inputs", _norm_of_all_inputs_cost
)
_declare_training_operator(
    "MixedPrecisionScale", "n(X) muls", lambda node: MUL * _input_element_total(node, 1)
)
_declare_training_operator(
    "IsFinite", "n(X) compares", lambda node: COMPARE * input_element_count(node)
)
_declare_training_operator(
    "All", "n(X)-1 compares", lambda node: COMPARE * max(input_element_count(node) - 1, 0)
)


def _scale_operator_cost(node: Node) -> Cost:
    """Return the cost of Scale, input * scale or input / scale, per element."""
    return (DIV if integer_attribute(node, "scale_down", 0) else MUL) * input_element_count(node)


def _sum_with_scales_cost(node: Node) -> Cost:
    """Return the cost of ScaledSum, scale_0 * input_0 + scale_1 * input_1 + scale_2 * input_2, per
    element.
    """
    count = sum(spec is not None for spec in node.inputs)
    return Cost(muls=count, adds=max(count - 1, 0)) * input_element_count(node)


_declare_training_operator("Scale", "n muls; scale_down: n divs", _scale_operator_cost)
_declare_training_operator(
    "ScaledSum", "n*(k muls, k-1 adds)", _sum_with_scales_cost, equal_shapes_constraint(0, 1, 2)
)


# Optimizers. What is once per step is not counted, as of those of ai.onnx.preview.training.

_declare_training_operator(
    "SGDOptimizer",
    "n(W)*(mul, add)",
    lambda node: (MUL + ADD) * input_element_count(node, 1),
    equal_shapes_constraint(1, 2),
)


def _adam_moments_cost(node: Node) -> Cost:
    """Return the cost per element of updating Adam's moments M and V and computing its direction
    D.

    M = a*M + (1-a)*G: 2 muls, add; V = b*V + (1-b)*G*G: 3 muls, add; with do_bias_correction a div
    for each; D = M / (sqrt(V) + eps): sqrt, add, div; D + lambda*W: mul, add.
    """
    unbiased = 2 if integer_attribute(node, "do_bias_correction", 1) else 0
    return Cost(muls=6, adds=4, divs=1 + unbiased, specials=1)


def _adam_optimizer_cost(node: Node) -> Cost:
    """Return the cost of AdamOptimizer per element: `_adam_moments_cost`, a mul and a sub for W =
    W - r*D, a div if G is scaled.
    """
    scaled = DIV if has_input(node, 7) or has_input(node, 8) else ZERO
    return (_adam_moments_cost(node) + MUL + ADD + scaled) * input_element_count(node, 2)


def _lamb_optimizer_cost(node: Node) -> Cost:
    """Return the cost of LambOptimizer: for each weight `_adam_moments_cost`, the norms of W and
    D, and W = W - r*(|W| / |D|)*D.

    The norms take 2n muls, 2(n-1) adds, 2 sqrts, a div; a step a mul and a sub for each element.
    Groups of five inputs (W, G, M, V, W in few bits) begin at input 5.
    """
    scaled = DIV if has_input(node, 1) or has_input(node, 2) else ZERO
    cost = ZERO
    for index in range(5, len(node.inputs), 5):
        count = input_element_count(node, index)
        norms = Cost(muls=2 * count, adds=2 * max(count - 1, 0), specials=2, divs=1)
        cost += (_adam_moments_cost(node) + MUL + ADD + scaled) * count + norms
    return cost


_ADAM = "n(W)*(7 muls, 5 adds, sqrt, div); bias correction: 2 divs"
_declare_training_operator(
    "AdamOptimizer",
    f"{_ADAM}; loss scale: a div",
    _adam_optimizer_cost,
    equal_shapes_constraint(2, 3, 4, 5),
)
_declare_training_operator(
    "LambOptimizer",
    f"{_ADAM}; loss scale: a div; norms: 2n muls, 2(n-1) adds, 2 sqrts, div for each weight",
    _lamb_optimizer_cost,
)

operator.declare_without_rule(
    ("AdamWOptimizer", "SGDOptimizerV2"),
    "its weights are a sequence of tensors, whose sizes are unknown",
)
operator.declare_without_rule(
    ("PythonOp", "PythonOpGrad", "TritonOp", "ExternalOp"),
    "it runs code of another program",
)
operator.declare_without_rule("ATen", "it runs code of another program", domain="org.pytorch.aten")
operator.declare_without_rule(
    ("LSTMTraining", "LSTMGrad", "GRUTraining", "GRUGrad", "ResizeGrad"),
    "its gradient has no formula yet: count the forward model with --train",
)
operator.declare_without_rule(
    (
        *("NcclAllReduce", "NcclAllGather", "NcclReduceScatter", "Send", "Recv", "MegatronF"),
        *("MegatronG", "AdasumAllReduce"),
    ),
    "communication between devices is not counted",
)
operator.declare_without_rule(("HorovodAllReduce", "HorovodBarrier"),
                      "communication between devices is not counted", domain="")  # fmt: skip
operator.declare_without_rule(
    ("SummaryScalar", "SummaryHistogram", "SummaryMerge", "SummaryText"),
    "text for a log is not counted",
)
operator.declare_without_rule(
    ("GistBinarizeEncoder", "GistBinarizeDecoder", "GistPack1Encoder", "GistPack1Decoder"),
    "it is a compression for one kind of device",
)
