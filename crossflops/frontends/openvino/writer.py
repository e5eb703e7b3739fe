"""The nodes of ONNX that stand for the layers of one model or body, as they are written."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from crossflops.errors import NormalizeError, TargetError
from crossflops.frontends.openvino.reading import (
    IrConstant,
    IrLayer,
    IrNet,
    IrPort,
    LayerPort,
    layer_constant,
)
from crossflops.ir.graph import TensorSpec
from crossflops.load.payload import ELEMENT_TYPES
from crossflops.load.protobuf import onnx_message_module

OPSET = 23  # of ai.onnx, in whose operators the nodes are written
DOMAIN = "openvino"  # of operations without an operator of ONNX, which are named
Attribute: TypeAlias = Any  # a number, a text, a list of these, or a graph
# TensorProto.DataType by the names of element types, and by those that ports have
_TYPES = {
    "f32": 1, "u8": 2, "i8": 3, "u16": 4, "i16": 5, "i32": 6, "i64": 7, "string": 8, "boolean": 9,
    "f16": 10, "f64": 11, "u32": 12, "u64": 13, "bf16": 16, "f8e4m3": 17, "f8e5m2": 19, "u4": 21,
    "i4": 22, "f4e2m1": 23, "nf4": 23, "f8e8m0": 24, "u2": 25,
}  # fmt: skip
_PRECISIONS = {"FP32": "f32", "FP16": "f16", "FP64": "f64", "BOOL": "boolean"}
INT64 = 7
_FLOAT, _INT, _STRING, _GRAPH, _INTS, _STRINGS = 1, 2, 3, 5, 7, 8  # AttributeProto.AttributeType


def onnx_type_number(precision: str) -> int:
    """Return the number that ONNX has for an element type of OpenVINO, such as 1 for "f32"; 0 if
    it has none.
    """
    return _TYPES.get(_PRECISIONS.get(precision, precision.lower()), 0)


def node_name_with_modules(name: str) -> str:
    """Return the name of a layer with the path of its PyTorch modules before the slash and its
    operation after it, such as "layer1.0.conv1/aten::_convolution.Convolution".

    >>> node_name_with_modules("__module.layer1.0.conv1/aten::_convolution/Convolution")
    'layer1.0.conv1/aten::_convolution.Convolution'
    >>> node_name_with_modules("aten::softmax/Softmax")
    '/aten::softmax.Softmax'
    """
    module, slash, rest = name.partition("/")
    if "::" in module:
        module, rest = "__module", name
    if not module.startswith("__module") or not slash:
        return name
    return f"{module.removeprefix('__module').lstrip('.')}/{rest.replace('/', '.')}"


class IrToOnnxWriter:
    """Writes the layers of a model, or of the body `net`, as nodes of an ONNX `graph`.

    `outer_values` has by layer number what a Parameter of a body is. Names begin with
    `prefix`, which sets those of bodies apart. `storage` collects by value the element type in
    which the file stores a weight that is computed in another one. `weights_of` has by value that
    type of weights as they are moved, `constant_types` that of all constants.
    """

    def __init__(
        self,
        net: IrNet,
        graph: Any,
        weights: Path,
        outer_values: Mapping[int, str] | None = None,
        prefix: str = "",
        storage: dict[str, str] | None = None,
    ) -> None:
        """Start with the layers of the model, and an empty graph."""
        self.net, self.graph, self.weights, self.prefix = net, graph, weights, prefix
        self.storage: dict[str, str] = {} if storage is None else storage
        self.layers = {layer.number: layer for layer in net.layers}
        self.values: dict[LayerPort, str] = {}
        self.weights_of: dict[str, str] = {}
        self.constant_types: dict[str, str] = {}
        self._names: set[str] = set()
        self._layer = net.layers[0]
        self._written = 0
        self._count = 0
        self._outer_values = dict(outer_values or {})

    def set_body_parameter(self, layer: int, value: str) -> None:
        """Set the name of the value that a Parameter layer of this body gets."""
        self._outer_values[layer] = value

    # The layer that is written.

    def start_nodes_of_layer(self, layer: IrLayer) -> None:
        """Make this layer the current one, and choose the names of its results."""
        self._layer, self._written = layer, 0
        outer = self._outer_values.get(layer.number)
        for at, port in enumerate(layer.outputs):
            if outer is not None:
                self.values[layer.number, port.number] = outer
                continue
            named = port.names[0] if layer.kind == "Parameter" and port.names else layer.name
            name = self.prefix + (named if at == 0 else f"{named}.{at}")
            self.values[layer.number, port.number] = self._unique_name(name)

    @property
    def current_layer(self) -> IrLayer:
        """The layer whose nodes are being written."""
        return self._layer

    def _unique_name(self, name: str) -> str:
        """Return the name; with a number behind it if another value has the name already."""
        while name in self._names:
            self._count += 1
            name = f"{name}__{self._count}"
        self._names.add(name)
        return name

    def text_attribute(self, name: str, default: str = "") -> str:
        """Return an attribute of the current layer as text, or `default` if it is missing."""
        return self._layer.data.get(name, default)

    def integer_attribute(self, name: str, default: int = 0) -> int:
        """Return an attribute of the current layer as an integer, or `default` if it
        is missing.
        """
        return int(float(self._layer.data.get(name, default)))

    def float_attribute(self, name: str, default: float = 0.0) -> float:
        """Return an attribute of the current layer as a float, or `default` if it is missing."""
        return float(self._layer.data.get(name, default))

    def flag_attribute(self, name: str, default: bool = False) -> bool:
        """Return an attribute of the current layer as a boolean, or `default` if it is missing."""
        written = self._layer.data.get(name)
        return default if written is None else written.lower() in ("true", "1")

    def integers_attribute(self, name: str) -> tuple[int, ...]:
        """Return an attribute of the current layer as a tuple of integers, () if it is missing."""
        written = self._layer.data.get(name, "")
        return tuple(int(word) for word in written.split(",") if word.strip())

    # Operands.

    def has_operand(self, at: int) -> bool:
        """Return whether the current layer has an input at position `at`."""
        return at < len(self._layer.inputs) and self._operand_source(at) is not None

    def _operand_source(self, at: int) -> LayerPort | None:
        """Return the layer and the port that input `at` of the current layer comes from; None if
        it is omitted.
        """
        if at >= len(self._layer.inputs):
            return None
        return self.net.edges.get((self._layer.number, self._layer.inputs[at].number))

    def operand_value_name(self, at: int) -> str:
        """Return the name of the ONNX value that is input `at` of the current layer; "" if it is
        omitted. Raises TargetError.
        """
        if at >= len(self._layer.inputs):
            return ""
        source = self._operand_source(at)
        if source is None or source not in self.values:
            raise TargetError(
                f"input {at} of {self._layer.name!r} comes from no layer of the model",
                "the file is damaged: write it again with openvino.save_model",
            )
        return self.values[source]

    def operand_value_names(self) -> list[str]:
        """Return the names of the ONNX values that are the inputs of the current layer."""
        return [self.operand_value_name(at) for at in range(len(self._layer.inputs))]

    def operand_port(self, at: int) -> IrPort:
        """Return the port (type, sizes) of input `at` of the current layer. Raises TargetError if
        it has none.
        """
        if at >= len(self._layer.inputs):
            raise TargetError(
                f"{self._layer.name!r} ({self._layer.kind}) lacks its input {at}",
                "the file is damaged: write it again with openvino.save_model",
            )
        return self._layer.inputs[at]

    def operand_rank(self, at: int) -> int:
        """Return the number of axes of input `at` of the current layer."""
        return len(self.operand_port(at).dims)

    def operand_maker(self, at: int) -> IrLayer | None:
        """Return the layer whose result is input `at` of the current layer; None if
        it is omitted.
        """
        source = self._operand_source(at)
        return None if source is None else self.layers.get(source[0])

    def operand_constant(self, at: int) -> IrConstant | None:
        """Return the constant that is input `at` of the current layer, also if its type is
        converted; None if the input is not a constant.
        """
        layer = self.operand_maker(at)
        while layer is not None and layer.kind in ("Convert", "Reshape", "Squeeze", "Unsqueeze"):
            source = self.net.edges.get((layer.number, layer.inputs[0].number))
            layer = None if source is None else self.layers.get(source[0])
        return layer_constant(layer) if layer is not None and layer.kind == "Const" else None

    def vector_elements(self, at: int) -> list[int | str]:
        """Return the elements of a vector (input `at`) that a Concat joins: numbers, and names of
        computed values of one element; [] if another operation makes the vector.
        """
        layer = self.operand_maker(at)
        if layer is None or layer.kind != "Concat":
            return []
        elements: list[int | str] = []
        for port in layer.inputs:
            source = self.net.edges[layer.number, port.number]
            maker = self.layers[source[0]]
            stored = layer_constant(maker) if maker.kind == "Const" else None
            known = stored.read_numbers(self.weights) if stored is not None else None
            if known is not None:
                elements += map(int, known)
            elif port.dims == (1,):
                value = self.values[source]
                is_int64 = onnx_type_number(port.precision) == INT64
                elements.append(value if is_int64 else self.add_node("Cast", [value], to=INT64))
            else:
                return []
        return elements

    def operand_depends_on_data(self, at: int) -> bool:
        """Return whether input `at` of the current layer depends on the values of the model's
        inputs, not only on their shapes.
        """
        source = self._operand_source(at)
        todo, known = [] if source is None else [source[0]], set[int]()
        while todo:
            number = todo.pop()
            layer = self.layers.get(number)
            if layer is None or number in known:
                continue
            known.add(number)
            if layer.kind in ("Parameter", "ReadValue"):
                return True
            if layer.kind != "ShapeOf":
                todo += [
                    self.net.edges[number, port.number][0]
                    for port in layer.inputs
                    if (number, port.number) in self.net.edges
                ]
        return False

    def constant_numbers(self, at: int) -> tuple[int | float, ...] | None:
        """Return the values of input `at` of the current layer if it is a small constant; None
        otherwise.

        Raises TargetError if the file with the constants is missing.
        """
        stored = self.operand_constant(at)
        if stored is None or not stored.has_read_values:
            return None
        if not self.weights.is_file():
            raise TargetError(
                f"{self._layer.name!r} ({self._layer.kind}) needs a constant of "
                f"{self.weights.name}, which is not in the folder of the model",
                f"put {self.weights.name} next to {self.weights.with_suffix('.xml').name}",
            )
        return stored.read_numbers(self.weights)

    def constant_integers(self, at: int) -> tuple[int, ...] | None:
        """Return the values of input `at` of the current layer if it is a small constant of
        integers; None otherwise.
        """
        values = self.constant_numbers(at) if self.has_operand(at) else None
        return None if values is None else tuple(map(int, values))

    def operand_as_int64(self, at: int, vector: bool = True) -> str:
        """Add nodes that make input `at` an int64 tensor (with `vector` one with one axis), as
        ONNX needs for sizes and axes; return its name.
        """
        port = self.operand_port(at)
        known = self.constant_integers(at)
        if known is not None and vector:
            return self.add_integer_constant(known)
        value = self.operand_value_name(at)
        if onnx_type_number(port.precision) != INT64:
            value = self.add_node("Cast", [value], to=INT64)
        if vector and not port.dims:
            value = self.add_node("Reshape", [value, self.add_integer_constant((-1,))])
        return value

    # Values.

    def result_name(self, at: int = 0) -> str:
        """Return the name of the ONNX value that is result `at` of the current layer."""
        outputs = self._layer.outputs
        return self.values[self._layer.number, outputs[at].number] if at < len(outputs) else ""

    def result_type_number(self, at: int = 0) -> int:
        """Return the number that ONNX has for the element type of result `at` of the current
        layer.
        """
        return onnx_type_number(self._layer.outputs[at].precision)

    def add_integer_constant(
        self, values: Sequence[int], dtype: int = INT64, scalar: bool = False
    ) -> str:
        """Add a constant of integers to the graph, and return its name."""
        name = self._unique_name(f"{self.prefix}{self._layer.name}:constant")
        tensor = self.graph.initializer.add(name=name, data_type=dtype)
        if not scalar:
            tensor.dims.append(len(values))
        if dtype == INT64:
            tensor.int64_data.extend(values)
        else:
            tensor.int32_data.extend(values)
        return name

    def add_float_constant(self, value: float, dtype: int) -> str:
        """Add a constant of one number with this element type to the graph, and
        return its name.
        """
        name = self._unique_name(f"{self.prefix}{self._layer.name}:constant")
        if dtype in (1, 11):
            tensor = self.graph.initializer.add(name=name, data_type=dtype)
            (tensor.float_data if dtype == 1 else tensor.double_data).append(value)
            return name
        self.graph.initializer.add(name=name, data_type=1).float_data.append(value)
        return self.add_node("Cast", [name], to=dtype)

    def add_zero_of_type(self, name: str, dtype: int) -> str:
        """Add a scalar 0 of this element type to the graph, as a zero point whose type ONNX reads;
        return its name.
        """
        return self.add_integer_constant((0,), dtype, scalar=True)

    # Nodes.

    def add_node(
        self,
        kind: str,
        inputs: Iterable[str],
        outputs: Sequence[str] | None = None,
        domain: str = "",
        **attributes: Attribute,
    ) -> str:
        """Add an ONNX node of the operator `kind` to the graph; return the name of its first
        result, which is a new value unless `outputs` has names.
        """
        name = f"{self.prefix}{node_name_with_modules(self._layer.name)}"
        if self._written:
            name = f"{name}:{self._written}"
        self._written += 1
        if outputs is None:
            outputs = [self._unique_name(f"{self.prefix}{self._layer.name}:value")]
        node = self.graph.node.add(name=name, op_type=kind, domain=domain)
        node.input.extend(inputs)
        while node.input and not node.input[-1]:
            del node.input[-1]
        node.output.extend(outputs)
        for key, value in attributes.items():
            _set_attribute(node.attribute.add(name=key), value)
        return outputs[0]

    def add_result_node(self, kind: str, inputs: Iterable[str], **attributes: Attribute) -> None:
        """Add the ONNX node whose result is the first result of the current layer."""
        self.add_node(kind, inputs, [self.result_name()], **attributes)

    def add_uncounted_node(self) -> None:
        """Add a node for an operation that has no ONNX operator; a count lists it as uncounted."""
        results = [self.result_name(at) for at in range(len(self._layer.outputs))]
        if results:
            self.add_node(self._layer.kind, self.operand_value_names(), results, DOMAIN)

    def declare_result_shapes(self) -> None:
        """Declare the sizes that the file fixes for the results of the current layer, for use
        where ONNX cannot infer a shape.
        """
        for port in self._layer.outputs:
            dtype = onnx_type_number(port.precision)
            if dtype and port.dims and min(port.dims) >= 0:
                value = self.graph.value_info.add(
                    name=self.values[self._layer.number, port.number]
                )
                value.type.tensor_type.elem_type = dtype
                for size in port.dims:
                    value.type.tensor_type.shape.dim.add().dim_value = size

    # Constants of the file.

    def store_constant(self) -> None:
        """Store the constant of the current layer in the graph: its values if it is small,
        otherwise its shape alone.
        """
        stored = layer_constant(self._layer)
        number = onnx_type_number(stored.dtype)
        if not number:
            raise NormalizeError(
                f"{self._layer.name!r} stores elements of the type {stored.dtype!r}, which "
                "crossflops does not know",
                "save the model with another compression of its weights",
            )
        tensor = self.graph.initializer.add(name=self.result_name(), data_type=number)
        tensor.dims.extend(stored.shape)
        self.constant_types[self.result_name()] = ELEMENT_TYPES[number]
        if ELEMENT_TYPES[number].startswith(("float", "bfloat")):
            self.weights_of[self.result_name()] = ELEMENT_TYPES[number]
        content = None if stored.dtype == "string" else stored.read_payload(self.weights)
        if content is not None and len(content) == _payload_bytes(number, stored.shape):
            tensor.raw_data = content


def _payload_bytes(dtype: int, shape: tuple[int, ...]) -> int:
    """Return the size in bytes of a tensor of this ONNX element type and shape."""
    return TensorSpec("", ELEMENT_TYPES[dtype], shape).nbytes


def _set_attribute(attribute: Any, value: Attribute) -> None:
    """Write a value into an ONNX attribute message, in the field for its type."""
    if isinstance(value, bool | int):
        attribute.type, attribute.i = _INT, int(value)
    elif isinstance(value, float):
        attribute.type, attribute.f = _FLOAT, value
    elif isinstance(value, str):
        attribute.type, attribute.s = _STRING, value.encode()
    elif isinstance(value, onnx_message_module().GraphProto):
        attribute.type = _GRAPH
        attribute.g.CopyFrom(value)
    elif value and isinstance(value[0], str):
        attribute.type = _STRINGS
        attribute.strings.extend(item.encode() for item in value)
    else:
        attribute.type = _INTS
        attribute.ints.extend(value)


def layers_in_run_order(net: IrNet) -> Iterator[IrLayer]:
    """Yield the layers of a model so that each comes after the layers whose results it reads."""
    layers = {layer.number: layer for layer in net.layers}
    done: set[int] = set()
    for first in net.layers:
        stack = [first]
        while stack:
            layer = stack[-1]
            if layer.number in done:
                stack.pop()
                continue
            before = [
                layers[net.edges[layer.number, port.number][0]]
                for port in layer.inputs
                if (layer.number, port.number) in net.edges
                and net.edges[layer.number, port.number][0] in layers
                and net.edges[layer.number, port.number][0] not in done
            ]
            if not before:
                done.add(layer.number)
                stack.pop()
                yield layer
            elif len(stack) > len(net.edges) + len(net.layers):
                raise TargetError(
                    "layers of the model read each other in a circle",
                    "the file is damaged: write it again with openvino.save_model",
                )
            else:
                stack += before
