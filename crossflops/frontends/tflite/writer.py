"""The nodes of one subgraph as they are written: values by tensor, and names that occur once."""

from collections.abc import Mapping, Sequence

from crossflops.errors import NormalizeError
from crossflops.frontends.onnx.modules import NodePlace, place_from_name
from crossflops.frontends.tflite.reading import TfliteOperator, TfliteSubgraph, TfliteTensor
from crossflops.ir.graph import Attribute, Graph, Node, Op, TensorSpec

OPSET = 22  # of ai.onnx, in whose operators the nodes are written
_INTEGERS = ("int4", "int8", "uint8", "int16", "uint16")


class TfliteToGraphWriter:
    """Writes operators of a subgraph as nodes; `prefix` sets its names apart from others.

    A tensor of quantized numbers is an operand in its own type. The result of an operator that
    computes is first a value without a name in the file, which QuantizeLinear writes.
    """

    def __init__(self, subgraph: TfliteSubgraph, prefix: str = "") -> None:
        """Start with the tensors of the subgraph, and without nodes."""
        self.subgraph, self.prefix = subgraph, prefix
        self.nodes: list[Node] = []
        self.places: list[NodePlace] = []
        self._replaced: dict[int, int] = {}
        self._operator: TfliteOperator | None = None
        self._key, self._count, self._written = "", 0, 0
        self._place = NodePlace(())

    # The operator that is written.

    def start_nodes_of_operator(self, index: int, operator: TfliteOperator) -> None:
        """Begin the nodes of an operator, whose first result says in which module they are."""
        self._operator, self._count, self._written = operator, 0, 0
        self._key = f"{self.prefix}{operator.kind.lower()}_{index}"
        names = [self.tensor_or_copied_constant(at).name for at in operator.outputs if at >= 0]
        path = names[0].partition(";")[0].replace(".", "_") if names else ""
        self._place = place_from_name(path)

    @property
    def current_operator(self) -> TfliteOperator:
        """The operator that is written."""
        assert self._operator is not None
        return self._operator

    def has_input(self, position: int) -> bool:
        """Return whether the operator has an input at this position."""
        return (
            position < len(self.current_operator.inputs)
            and self.current_operator.inputs[position] >= 0
        )

    def input_spec(self, position: int, shape: Sequence[int] | None = None) -> TensorSpec:
        """Return an input of the operator, with its axes in another order if a shape is given."""
        return self.value_of_tensor(self.current_operator.inputs[position], shape)

    def input_tensor(self, position: int) -> TfliteTensor:
        """Return the tensor of an input. Raises NormalizeError if it is left out."""
        if not self.has_input(position):
            raise NormalizeError(
                f"{self._key} lacks its input {position}", "the file is damaged: convert it again"
            )
        return self.tensor_or_copied_constant(self.current_operator.inputs[position])

    def output_tensor(self, position: int = 0) -> TfliteTensor:
        """Return the tensor of an output."""
        return self.tensor_or_copied_constant(self.current_operator.outputs[position])

    def constant_input_values(self, position: int) -> tuple[int, ...] | None:
        """Return the whole numbers of a constant input, None if they are not known."""
        if not self.has_input(position):
            return None
        return self.input_tensor(position).values

    # Values.

    def tensor_or_copied_constant(self, index: int) -> TfliteTensor:
        """Return a tensor, or the constant that it is a copy of."""
        return self.subgraph.tensors[self._replaced.get(index, index)]

    def replace_by_constant(self, index: int, source: int) -> None:
        """Use tensor `source`, a constant, wherever tensor `index`, its copy in another type, is
        read from now on.
        """
        self._replaced[index] = self._replaced.get(source, source)

    def value_of_tensor(self, index: int, shape: Sequence[int] | None = None) -> TensorSpec:
        """Return the value of a tensor, with its axes in another order if a shape is given."""
        index = self._replaced.get(index, index)
        tensor = self.subgraph.tensors[index]
        role = ""
        if tensor.stored:
            is_weight = tensor.dtype.startswith(("float", "bfloat")) or tensor.quantized
            role = "parameter" if is_weight and tensor.numel > 1 else "constant"
        name = f"{self.prefix}{tensor.name or 'tensor'}#{index}"
        return TensorSpec(
            name, tensor.dtype, tuple(tensor.shape if shape is None else shape), role
        )

    def temporary_value(self, shape: Sequence[int], dtype: str = "float32") -> TensorSpec:
        """Return a value between two nodes of the operator."""
        self._count += 1
        return TensorSpec(f"{self._key}:{self._count}", dtype, tuple(shape))

    def result_before_quantization(
        self, shape: Sequence[int] | None = None, position: int = 0
    ) -> TensorSpec:
        """Return the value in which an operator computes a result, before it is quantized."""
        result = self.value_of_tensor(self.current_operator.outputs[position], shape)
        if not self.is_quantized(position):
            return result
        return TensorSpec(f"{result.name}:real", "float32", result.shape, storage=result.dtype)

    def is_quantized(self, position: int = 0) -> bool:
        """Return whether a result of the operator is stored in whole numbers with a scale."""
        tensor = self.output_tensor(position)
        return tensor.quantized and tensor.dtype in _INTEGERS

    # Nodes.

    def add_node(
        self,
        kind: str,
        inputs: Sequence[TensorSpec | None],
        outputs: Sequence[TensorSpec | None],
        attrs: Mapping[str, Attribute] | None = None,
        *,
        domain: str = "",
        in_kernel: bool = False,
        bodies: tuple[Graph, ...] = (),
        trips: int | None = None,
    ) -> None:
        """Add a node of the operator."""
        number, self._written = self._written, self._written + 1
        self.nodes.append(
            Node(
                key=f"{self._key}:{number}" if number else self._key,
                op=Op(domain, kind, OPSET if not domain else 1),
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                attrs=dict(attrs or {}),
                path=self._place.innermost_module_path,
                sparse=any(
                    self.tensor_or_copied_constant(at).sparse
                    for at in self.current_operator.inputs
                    if at >= 0
                ),
                folded=in_kernel,
                bodies=bodies,
                trips=trips,
            )
        )
        self.places.append(self._place)

    def add_quantize_node(self, position: int = 0) -> None:
        """Add the node that writes a computed result in whole numbers, if it is stored so."""
        if self.is_quantized(position):
            written = self.value_of_tensor(self.current_operator.outputs[position])
            self.add_node(
                "QuantizeLinear",
                (self.result_before_quantization(None, position),),
                (written,),
                in_kernel=True,
            )
