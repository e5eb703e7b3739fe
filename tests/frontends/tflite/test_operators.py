"""Operators that today's converters seldom write, on subgraphs made by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from crossflops.errors import NormalizeError
from crossflops.frontends.tflite.operators import WRITERS, write_operator_nodes
from crossflops.frontends.tflite.reading import TfliteOperator, TfliteSubgraph, TfliteTensor
from crossflops.frontends.tflite.sizes import with_inferred_sizes
from crossflops.frontends.tflite.writer import TfliteToGraphWriter
from crossflops.ir.graph import Graph
from crossflops.ir.ledger import Ledger
from crossflops.ledger.count import count


def tensor(*shape: int, stored: bool = False, values=None, open_axes=()) -> TfliteTensor:
    """A float tensor, or a list of whole numbers."""
    return TfliteTensor(
        name="",
        dtype="float32" if values is None else "int32",
        shape=shape,
        stored=stored,
        values=values,
        open_axes=open_axes,
    )


def count_operator(kind: str, inputs: list, outputs: list, **options) -> Ledger:
    """The count of one operator on these tensors; None is an input that is left out."""
    given = [one for one in inputs if one is not None]
    indices, places = iter(range(len(given))), []
    for one in inputs:
        places.append(-1 if one is None else next(indices))
    results = tuple(range(len(given), len(given) + len(outputs)))
    operator = TfliteOperator(
        kind=kind,
        is_custom=False,
        options=SimpleNamespace(
            **{name: lambda value=value: value for name, value in options.items()}
        ),
        inputs=tuple(places),
        outputs=results,
    )
    subgraph = TfliteSubgraph(
        name="", tensors=(*given, *outputs), inputs=(0,), outputs=results, operators=(operator,)
    )
    writer = TfliteToGraphWriter(subgraph)
    writer.start_nodes_of_operator(0, operator)
    write_operator_nodes(writer)
    assert len({node.key for node in writer.nodes}) == len(writer.nodes)
    graph = Graph(
        name="", nodes=tuple(writer.nodes), inputs=(), outputs=(), params=0, opset={"": 22}
    )
    ledger = count(graph)
    assert not ledger.uncounted
    return ledger


def weight(*shape: int) -> TfliteTensor:
    """A stored tensor."""
    return tensor(*shape, stored=True)


def test_svdf_is_two_products() -> None:
    """B*F*I for the features, B*F*M over the steps; pairs of filters are summed for 2 units."""
    batch, inputs, filters, steps, units = 3, 5, 4, 7, 2
    macs = 0
    for _ in np.ndindex(batch, filters):
        macs += inputs + steps
    given = [tensor(batch, inputs), weight(filters, inputs), weight(filters, steps), weight(units)]
    total = count_operator("SVDF", given, [tensor(batch, units)], FusedActivationFunction=1).total
    assert total.macs == macs
    assert total.adds == batch * (filters - units) + batch * units
    assert total.compares == batch * units


@pytest.mark.parametrize("coupled", [False, True])
def test_sequence_lstm_is_its_equations(coupled: bool) -> None:
    """x W + h R + b of each gate, then its function, c = f c + i g, h = o tanh(c)."""
    batch, steps, inputs, units = 2, 3, 5, 4
    gates = 3 if coupled else 4
    macs = adds = muls = specials = 0
    for _ in np.ndindex(batch, steps, units):
        for _gate in range(gates):
            macs += inputs + units
            adds += 2  # the bias, and the sum of both products
            specials += 1
        muls += 3
        adds += 1 + coupled  # of two products, and 1 - f
        specials += 1
    first = None if coupled else weight(units, inputs)
    given = [
        tensor(batch, steps, inputs),
        *(first, *(weight(units, inputs) for _ in range(3))),
        *(first and weight(units, units), *(weight(units, units) for _ in range(3))),
        *(None, None, None),
        *(first and weight(units), *(weight(units) for _ in range(3))),
        *(None, None, tensor(batch, units), tensor(batch, units)),
    ]
    total = count_operator(
        "UNIDIRECTIONAL_SEQUENCE_LSTM", given, [tensor(batch, steps, units)]
    ).total
    assert (total.macs, total.adds, total.muls) == (macs, adds, muls)
    assert total.specials + total.divs >= specials


def test_volumes_are_convolved_and_extended() -> None:
    """CONV_3D has W [d, h, w, C, M]; its transposed form W [d, h, w, M, C], on inputs."""
    given = [tensor(1, 4, 4, 4, 3), weight(2, 2, 2, 3, 5)]
    options = {f"Stride{axis}": 2 for axis in "DHW"} | {"Padding": 1}
    assert (
        count_operator("CONV_3D", given, [tensor(1, 2, 2, 2, 5)], **options).total.macs
        == 8 * 5 * 24
    )
    given = [tensor(5, values=(1, 4, 4, 4, 3)), weight(2, 2, 2, 3, 5), tensor(1, 2, 2, 2, 5)]
    total = count_operator("CONV_3D_TRANSPOSE", given, [tensor(1, 4, 4, 4, 3)], **options).total
    assert total.macs == 8 * 5 * 24


# Operators with operands of shapes of their own, which other tests give them.
_OF_OWN_SHAPES = {
    *("CONV_2D", "CONV_3D", "CONV_3D_TRANSPOSE", "CUMSUM", "DEPTHWISE_CONV_2D", "GATHER"),
    *("FULLY_CONNECTED", "GATHER_ND", "SVDF", "TOPK_V2", "TRANSPOSE_CONV"),
    "UNIDIRECTIONAL_SEQUENCE_LSTM",
}


@pytest.mark.parametrize("kind", sorted(WRITERS.keys() - _OF_OWN_SHAPES))
def test_operators_on_equal_shapes_are_counted(kind: str) -> None:
    """Each of them has a formula that takes the operands as they are written."""
    given = [tensor(1, 4, 4, 4) for _ in range(3)]
    outputs = [tensor(1, 4, 4, 4) for _ in range(2 if kind.startswith(("SPLIT", "UNPACK")) else 1)]
    count_operator(kind, given, outputs, FilterHeight=1, FilterWidth=1, Axis=1)


def size_of_reshape(shape: tuple[int, ...], result: TfliteTensor, values=None) -> tuple[int, ...]:
    """The size of a result of RESHAPE in a subgraph with known sizes."""
    tensors = (tensor(*shape), tensor(len(result.shape), values=values), result)
    operator = TfliteOperator(
        kind="RESHAPE", is_custom=False, options=None, inputs=(0, 1), outputs=(2,)
    )
    subgraph = TfliteSubgraph(
        name="", tensors=tensors, inputs=(0,), outputs=(2,), operators=(operator,)
    )
    return with_inferred_sizes(subgraph).tensors[2].shape


def test_open_sizes_of_a_reshape() -> None:
    """One open size follows from the others; two do only if both are 1."""
    assert size_of_reshape((1, 8, 32), tensor(1, 32, open_axes=(0,)), (-1, 32)) == (8, 32)
    assert size_of_reshape((1, 8, 32), tensor(1, 32, open_axes=(0,))) == (8, 32)
    assert size_of_reshape((1, 32), tensor(1, 1, 32, open_axes=(0, 1))) == (1, 1, 32)
    with pytest.raises(NormalizeError, match="does not fix the sizes of ''"):
        size_of_reshape((1, 8, 32), tensor(1, 1, 32, open_axes=(0, 1)))
