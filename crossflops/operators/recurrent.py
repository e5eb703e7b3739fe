"""The cost of the recurrent layers LSTM, GRU and RNN, in one or both directions."""

from typing import NamedTuple

from crossflops.ir.graph import Node
from crossflops.ir.ledger import ZERO, Cost
from crossflops.operators.access import (
    has_input,
    input_spec,
    integer_attribute,
    reduction_operation_count,
    spec_shape,
    string_attribute,
    text_list_attribute,
)
from crossflops.operators.gradient import Backward, Gradient, OperandPositions
from crossflops.operators.operands import input_label, input_shape_or_raise, sizes_constraint
from crossflops.operators.pointwise import FUNCTIONS
from crossflops.operators.rule import (
    ConstantPart,
    Constraint,
    OperandProblem,
    Operators,
    input_bound_exactness,
)

operator = Operators()


class Layer(NamedTuple):
    """The sizes of a layer: D directions, T*B steps, I inputs and H hidden units."""

    directions: int
    steps: int
    inputs: int
    hidden: int

    @property
    def unit_update_count(self) -> int:
        """The number of updates of a hidden unit: directions * steps * hidden units."""
        return self.directions * self.steps * self.hidden


def recurrent_dimensions(node: Node, gates: int) -> Layer:
    """Return the sizes of a recurrent layer, from its inputs X [T, B, I] (or [B, T, I] in layout
    1) and R [D, gates*H, H].
    """
    first, second, inputs = spec_shape(input_spec(node, 0), rank=3)
    directions, rows, hidden = spec_shape(input_spec(node, 2), rank=3)
    if rows != gates * hidden:
        raise ValueError(f"R of {node.op} has {rows} rows, but {gates * hidden} are needed")
    return Layer(directions, first * second, inputs, hidden)


def _recurrent_gates_cost(node: Node, layer: Layer, gates: int) -> Cost:
    """Return the cost of all gates of an RNN, GRU or LSTM layer, without their activation
    functions. Each gate of a hidden unit has I + H MACs (I inputs, H hidden units), 2 adds if the
    layer has biases, and 2 compares if it has `clip`.
    """
    per_unit = Cost(
        macs=layer.inputs + layer.hidden,
        adds=2 if has_input(node, 3) else 0,
        compares=2 if "clip" in node.attrs else 0,
    )
    return per_unit * (gates * layer.unit_update_count)


def _activation_cost_of_all_steps(
    node: Node, layer: Layer, uses: tuple[int, ...], default: str
) -> Cost:
    """Return the cost of the activations of all steps; `uses` says how often a step applies each
    of a direction's functions to a unit.
    """
    names = text_list_attribute(node, "activations") or tuple(default.split()) * layer.directions
    if len(names) != len(uses) * layer.directions:
        raise ValueError(f"{node.op} has {len(names)} activations for {len(uses)} per direction")
    unknown = sorted({name for name in names if name.lower() not in FUNCTIONS})
    if unknown:
        raise ValueError(f"the activation {unknown[0]!r} of {node.op} is not supported")
    works = (FUNCTIONS[n.lower()] * uses[i % len(uses)] for i, n in enumerate(names))
    return sum(works, ZERO) * (layer.steps * layer.hidden)


def _recurrent_constraint(gates: int) -> Constraint:
    """Return a constraint on the shapes of X, the weights and the states of a layer with this many
    gates, in either layout.
    """
    weights = f"W[D,{gates}*H,I] R[D,{gates}*H,H] B[D,{2 * gates}*H] sequence_lens[B]"
    first, second = (
        sizes_constraint(
            f"H=@hidden_size X[{x},I] {weights} initial_h[{h},H] initial_c[{h},H] P[D,3*H]"
        )
        for x, h in (("T,B", "D,B"), ("B,T", "B,D"))
    )

    def recurrent_shape_problem(node: Node) -> OperandProblem:
        """Return why a shape is wrong in the node's layout; "" if nothing is wrong."""
        return second(node) if integer_attribute(node, "layout", 0) else first(node)

    return recurrent_shape_problem


def _direction_constraint(node: Node) -> OperandProblem:
    """Return why W does not have one direction, or two if the layer is bidirectional; "" if
    nothing is wrong.
    """
    shape = input_shape_or_raise(node, 1)
    directions = 2 if string_attribute(node, "direction", "forward") == "bidirectional" else 1
    if len(shape) != 3 or shape[0] == directions:
        return ""
    return f"{input_label(node, 1, 'W')} has {shape[0]} directions, but {directions} is needed"


def _constant_macs_of_layer(gates: int) -> ConstantPart:
    """Return a function that gives the MACs of a recurrent layer that depend on constant operands
    alone: X, or the first state.

    A GRU that resets before it multiplies has r H-1 in one of them, and r depends on X.
    """

    def macs_of_constant_operands(node: Node, varying: frozenset[int], _work: Cost) -> Cost:
        """Return the part of a recurrent layer's MACs that depends on none of the
        varying inputs.
        """
        layer = recurrent_dimensions(node, gates)
        macs = 0
        if varying.isdisjoint((0, 1)):
            macs += gates * layer.unit_update_count * layer.inputs
        if varying.isdisjoint((2, 5)):
            length = spec_shape(input_spec(node, 0), rank=3)[
                1 if integer_attribute(node, "layout", 0) else 0
            ]
            late = node.op.type == "GRU" and not integer_attribute(node, "linear_before_reset", 0)
            macs += (gates - late) * (layer.unit_update_count // max(length, 1)) * layer.hidden
        return Cost(macs=macs)

    return macs_of_constant_operands


# Work of the gradient of one unit in one step, y (1 - y) for a sigmoid, 1 - y^2 for tanh.
#
# LSTM: do = dH tanh(C), dC += dH o (1 - tanh(C)^2), di, dc, df, dC-1: 4 muls; 4 gates with 2 muls
# and an add each, and the sum of dH from above and from the next step.
# GRU: dz = dH (H-1 - h), dh = dH (1 - z), dH-1 += dH z, dr = d(r H-1) H-1 and d(r H-1) r.
UNIT_BACK = {
    "LSTM": Cost(muls=16, adds=7),
    "GRU": Cost(muls=11, adds=7),
    "RNN": Cost(muls=2, adds=2),
}


def _recurrent_backward(gates: int) -> Backward:
    """Return the backward function, through time, of a recurrent layer with this many gates.

    The state of a step needs a gradient where any operand requires one, the first one where
    initial_h does: (T-1)/T of the state's part, or all of it. The product with a first state of
    zeros is run, in dR too. A GRU that resets before it multiplies has r H-1 there, of which r has
    a gradient. Biases: one add for each gate and step and each summed bias. Raises ValueError for
    activations that are not the default ones, for peepholes and for clips.
    """

    def gradient_of_recurrent_layer(
        node: Node, requested: OperandPositions, _forward: Cost
    ) -> Gradient:
        """Return the cost of the gradients of a recurrent layer. Raises ValueError for options
        without a formula.
        """
        if text_list_attribute(node, "activations") and not _has_default_activations(node):
            raise ValueError(
                f"the backward pass of {node.op} has formulas only for the default activations"
            )
        if has_input(node, 7) or "clip" in node.attrs:
            raise ValueError(f"peepholes and clips of {node.op} have no backward formula yet")
        layer = recurrent_dimensions(node, gates)
        rows = gates * layer.unit_update_count
        length = spec_shape(input_spec(node, 0), rank=3)[
            1 if integer_attribute(node, "layout", 0) else 0
        ]
        recurrent = rows * layer.hidden
        unasked = 0 if 5 in requested else recurrent // max(length, 1)
        if node.op.type == "GRU" and not integer_attribute(node, "linear_before_reset", 0):
            unasked -= unasked // gates
        work = {
            index: Cost(macs=rows * size)
            for index, size in ((0, layer.inputs), (1, layer.inputs), (2, layer.hidden))
            if index in requested
        }
        if 3 in requested:
            work[3] = Cost(
                adds=reduction_operation_count(
                    2 * rows, 2 * gates * layer.directions * layer.hidden
                )
            )
        work |= {index: ZERO for index in (5, 6) if index in requested}
        inner = Cost(macs=recurrent - unasked) + UNIT_BACK[node.op.type] * layer.unit_update_count
        return Gradient(work, inner=inner)

    return gradient_of_recurrent_layer


def _has_default_activations(node: Node) -> bool:
    """Return whether the node uses the default activations of its operator."""
    default = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}
    names = tuple(name.lower() for name in text_list_attribute(node, "activations"))
    usual = default[node.op.type]
    return names == usual * (len(names) // len(usual))


_PER_GATE = "B: 2 adds, clip: 2 compares per gate"


@operator(
    "LSTM",
    f"D*T*B*4*H*(I+H) MACs; {_PER_GATE}; P: D*T*B*H*(3 muls, 3 adds); "
    "D*T*B*H*(3 muls, 1 add, 3 f, g, h)",
    doubt=input_bound_exactness(4),
    requires=(_direction_constraint, _recurrent_constraint(4)),
    contracts=(0, 1, 2),
    constant_part=_constant_macs_of_layer(4),
    backward=_recurrent_backward(4),
)
def onnx_lstm_cost(node: Node) -> Cost:
    """Return the cost of LSTM: it, ot, ft = f(gate); ct = g(gate); Ct = ft*Ct-1 + it*ct; Ht =
    ot*h(Ct).

    gate = Xt*W^T + Ht-1*R^T + Wb + Rb: D*T*B*4*H*(I+H) MACs, with B 2 adds per gate; peepholes
    P a mul and an add in 3 gates; clip 2 compares per gate. Per unit and step 3 muls, 1 add,
    3 f, 1 g, 1 h. sequence_lens bounds: T holds. X [T, B, I], W [D, 4H, I], R [D, 4H, H].
    https://onnx.ai/onnx/operators/onnx__LSTM.html
    """
    if integer_attribute(node, "input_forget", 0):
        raise ValueError("LSTM with input_forget has no equation in the specification")
    layer = recurrent_dimensions(node, gates=4)
    peephole = Cost(muls=3, adds=3) if has_input(node, 7) else ZERO
    update = Cost(muls=3, adds=1) + peephole
    functions = _activation_cost_of_all_steps(node, layer, (3, 1, 1), "Sigmoid Tanh Tanh")
    return _recurrent_gates_cost(node, layer, 4) + update * layer.unit_update_count + functions


@operator(
    "GRU",
    f"D*T*B*3*H*(I+H) MACs; {_PER_GATE}; D*T*B*H*(3 muls, 2 adds, 2 f, g); "
    "linear_before_reset: D*T*B*H adds",
    doubt=input_bound_exactness(4),
    requires=(_direction_constraint, _recurrent_constraint(3)),
    contracts=(0, 1, 2),
    constant_part=_constant_macs_of_layer(3),
    backward=_recurrent_backward(3),
)
def onnx_gru_cost(node: Node) -> Cost:
    """Return the cost of GRU: zt, rt = f(gate); ht = g(Xt*Wh^T + (rt*Ht-1)*Rh^T + b); Ht =
    (1-zt)*ht + zt*Ht-1.

    D*T*B*3*H*(I+H) MACs, with B 2 adds per gate; clip 2 compares per gate. Per unit and step
    3 muls, 2 adds, 2 f, 1 g. linear_before_reset: rt meets the finished Ht-1*Rh^T, whose sum
    with Xt*Wh^T is then one add more. X [T, B, I], W [D, 3H, I], R [D, 3H, H].
    https://onnx.ai/onnx/operators/onnx__GRU.html
    """
    layer = recurrent_dimensions(node, gates=3)
    joined = 1 if integer_attribute(node, "linear_before_reset", 0) else 0
    update = Cost(muls=3, adds=2 + joined)
    functions = _activation_cost_of_all_steps(node, layer, (2, 1), "Sigmoid Tanh")
    return _recurrent_gates_cost(node, layer, 3) + update * layer.unit_update_count + functions


@operator(
    "RNN",
    f"D*T*B*H*(I+H) MACs; {_PER_GATE}; D*T*B*H*f",
    doubt=input_bound_exactness(4),
    requires=(_direction_constraint, _recurrent_constraint(1)),
    contracts=(0, 1, 2),
    constant_part=_constant_macs_of_layer(1),
    backward=_recurrent_backward(1),
)
def onnx_rnn_cost(node: Node) -> Cost:
    """Return the cost of RNN, Ht = f(Xt*Wi^T + Ht-1*Ri^T + Wbi + Rbi): I + H MACs, biases and f
    per unit and step.

    With B 2 adds, clip 2 compares, 1 f per unit and step. X [T, B, I], W [D, H, I], R [D, H, H].
    https://onnx.ai/onnx/operators/onnx__RNN.html
    """
    layer = recurrent_dimensions(node, gates=1)
    return _recurrent_gates_cost(node, layer, 1) + _activation_cost_of_all_steps(
        node, layer, (1,), "Tanh"
    )
