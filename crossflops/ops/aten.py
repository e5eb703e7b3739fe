"""Operators of PyTorch for which ONNX has no form: the export keeps each as one opaque node.

A node has the tensors of the call as inputs, lists flattened, and its plain arguments as
attributes, by the names of PyTorch's schema (native_functions.yaml).
"""

from crossflops.core.cost import ZERO, Cost
from crossflops.core.graph import Node
from crossflops.ops.access import integer, number, shape, source
from crossflops.ops.movement import DROPPED
from crossflops.ops.rule import TORCH, Entry, entry

_SIGMOIDS_AND_TANHS = Cost(specials=5)


def lstm(node: Node) -> Cost:
    """aten.lstm.input: the LSTM of nn.LSTM, ht = Whr*(ot*tanh(ct)) where it projects.

    Per step, sample and cell of H units: 4*H*(I+P) MACs for the gates, P*H for the projection
    (P = H without one), with biases 2 adds per gate; per unit 3 muls, 1 add, 3 sigmoids, 2
    tanhs. In training what a layer gives to the next is dropped out. input [T, B, I], hx, then
    by layer and direction w_ih [4H, I], w_hh [4H, P], two biases, w_hr [P, H].
    https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html
    """
    layers = integer(node, "num_layers")
    directions = 2 if integer(node, "bidirectional") else 1
    biased = integer(node, "has_biases")
    first, second, _ = shape(source(node, 0), rank=3)
    size, rest = divmod(len(node.inputs) - 3, layers * directions)
    if rest or size not in ((4, 5) if biased else (2, 3)):
        raise ValueError(f"{node.op} has {len(node.inputs)} inputs for {layers} layers")
    each = ZERO
    for place in range(3, len(node.inputs), size):
        rows, inputs = shape(source(node, place), rank=2)
        carried = shape(source(node, place + 1), rank=2)[1]
        projection = carried * (rows // 4) if size in (3, 5) else 0
        each += Cost(macs=rows * (inputs + carried) + projection, adds=2 * rows if biased else 0)
        each += (Cost(muls=3, adds=1) + _SIGMOIDS_AND_TANHS) * (rows // 4)
    drops = integer(node, "train", 0) and number(node, "dropout", 0.0) > 0
    between = carried * directions * (layers - 1) if drops else 0
    return (each + DROPPED * between) * (first * second)


ENTRIES: tuple[Entry, ...] = (
    entry(
        "aten.lstm.input",
        lstm,
        "T*B*(4*H*(I+P) + P*H) MACs per layer and direction; biases: 2 adds per gate; "
        "T*B*H*(3 muls, 1 add, 3 sigmoids, 2 tanhs)",
        domain=TORCH,
        page="https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html",
    ),
)
