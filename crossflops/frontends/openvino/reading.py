"""An OpenVINO IR file -> its layers, edges and bodies, read by the standard library.

The .xml file has the structure, the .bin file beside it the constants. Of these only small ones
are read, which say axes and sizes. A document type, with which a small file can define entities
that grow without end, is an error: no exporter writes one.
https://docs.openvino.ai/2025/documentation/openvino-ir-format.html
"""

import struct
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, TypeAlias
from xml.parsers import expat

import msgspec

from crossflops.errors import TargetError, unreadable_file_error
from crossflops.load import reject_pointer_or_web_page

_AGAIN = "write the file again with openvino.save_model"
_OLDEST, _NEWEST = 10, 11  # versions of the format; up to 7 it had other layers
_DEEPEST = 200
_SMALL = 1024  # bytes of a constant whose values are read
_SKIPPED = ("rt_info", "meta_data", "quantization_parameters")
_NUMBERS = {
    "i64": "q", "i32": "i", "i16": "h", "i8": "b", "u64": "Q", "u32": "I", "u16": "H", "u8": "B",
    "boolean": "?", "f64": "d", "f32": "f", "f16": "e",
}  # fmt: skip


class _Element:
    """An element of the file: its tag, its attributes, its text, and the elements in it."""

    def __init__(self, tag: str, attributes: Mapping[str, str]) -> None:
        """Start with the tag and the attributes."""
        self.tag, self.attributes, self.text = tag, attributes, ""
        self.children: list[_Element] = []

    def attribute(self, name: str, default: str = "") -> str:
        """Return an attribute, or the default."""
        return self.attributes.get(name, default)

    def children_tagged(self, tag: str) -> "Iterator[_Element]":
        """Yield the elements of this tag."""
        return (child for child in self.children if child.tag == tag)

    def first_child(self, tag: str) -> "_Element":
        """Return the first element of this tag, or an empty one."""
        return next(self.children_tagged(tag), _Element(tag, {}))


class IrPort(msgspec.Struct, frozen=True, kw_only=True):
    """A port of a layer: its number, element type, sizes (-1 for an open one), and names."""

    number: int
    precision: str
    dims: tuple[int, ...]
    names: tuple[str, ...] = ()


class IrLayer(msgspec.Struct, frozen=True, kw_only=True):
    """A layer: its operation and opset, its attributes, its ports, and the bodies in it.

    `maps` has by tag (such as "port_map", "then_port_map") the rows that join outer ports and
    layers of a body.
    """

    number: int
    name: str
    kind: str
    opset: str
    data: Mapping[str, str]
    inputs: tuple[IrPort, ...]
    outputs: tuple[IrPort, ...]
    bodies: "Mapping[str, IrNet]" = {}
    maps: Mapping[str, tuple[tuple[str, Mapping[str, str]], ...]] = {}


# The numbers of a layer and of one of its ports.
LayerPort: TypeAlias = tuple[int, int]


class IrNet(msgspec.Struct, frozen=True, kw_only=True):
    """A model or a body: its layers, and by layer and input port the layer and port before it."""

    name: str
    layers: tuple[IrLayer, ...]
    edges: Mapping[LayerPort, LayerPort]


def read_ir_model(path: Path) -> IrNet:
    """Return the content of an OpenVINO IR file. Raises TargetError."""
    reject_pointer_or_web_page(path)
    root = _parse_xml(path)
    root_name = root.tag
    if root_name != "net":
        raise TargetError(
            f"{path} is not a model of OpenVINO: its root is <{root_name}>, not <net>", _AGAIN
        )
    version = root.attribute("version")
    if not version.isdecimal() or not _OLDEST <= int(version) <= _NEWEST:
        raise TargetError(
            f"{path} has version {version or 'unknown'} of OpenVINO's format, and crossflops "
            f"reads {_OLDEST} and {_NEWEST}",
            "convert the original model again, with OpenVINO 2021 or newer",
        )
    try:
        return _read_net(root)
    except (KeyError, ValueError, RecursionError) as error:
        raise TargetError(f"{path} cannot be read: {error!r}", _AGAIN) from error


def _parse_xml(path: Path) -> _Element:
    """Return the root element of an XML file, without elements that a count does not need. Raises
    TargetError.
    """
    stack: list[_Element] = [_Element("", {})]
    skipped = 0

    def open_xml_element(tag: str, attributes: dict[str, str]) -> None:
        """Add an element to the open one, and open it; skip one that a count does not need."""
        nonlocal skipped
        if skipped or tag in _SKIPPED:
            skipped += 1
            return
        if len(stack) > _DEEPEST:
            raise TargetError(f"{path} is nested deeper than {_DEEPEST} elements", _AGAIN)
        element = _Element(tag, attributes)
        stack[-1].children.append(element)
        stack.append(element)

    def close_xml_element(_tag: str) -> None:
        """Close the innermost open element."""
        nonlocal skipped
        if skipped:
            skipped -= 1
        else:
            stack.pop()

    def add_text_to_xml_element(data: str) -> None:
        """Add text to the innermost open element."""
        if not skipped:
            stack[-1].text += data

    def refuse_document_type(*_row: Any) -> None:
        """Raise TargetError for a <!DOCTYPE>, whose entities could grow without limit."""
        raise TargetError(
            f"{path} contains <!DOCTYPE>, which a model of OpenVINO never has", _AGAIN
        )

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = open_xml_element, close_xml_element
    parser.CharacterDataHandler = add_text_to_xml_element
    parser.StartDoctypeDeclHandler = refuse_document_type
    try:
        with path.open("rb") as file:
            parser.ParseFile(file)
    except expat.ExpatError as error:
        raise TargetError(f"{path} is not valid XML: {error}", _AGAIN) from error
    except OSError as error:
        raise TargetError(
            f"cannot read {path}: {error.strerror}", "give the path of a readable .xml file"
        ) from error
    return stack[0].children[0]


def _read_net(element: _Element) -> IrNet:
    """Return the layers and edges in an element, which is a model or the body of a layer."""
    rows = element.first_child("edges").children_tagged("edge")
    edges = {
        (int(row.attribute("to-layer")), int(row.attribute("to-port"))): (
            int(row.attribute("from-layer")),
            int(row.attribute("from-port")),
        )
        for row in rows
    }
    layers = tuple(map(_read_layer, element.first_child("layers").children_tagged("layer")))
    if not layers:
        raise ValueError("there are no layers")
    return IrNet(name=element.attribute("name"), layers=layers, edges=edges)


def _read_layer(element: _Element) -> IrLayer:
    """Return the layer in a <layer> element."""
    maps: dict[str, tuple[tuple[str, Mapping[str, str]], ...]] = {}
    bodies = {}
    for child in element.children:
        if child.tag.endswith("body"):
            bodies[child.tag] = _read_net(child)
        elif child.tag.endswith("port_map") or child.tag == "back_edges":
            maps[child.tag] = tuple((row.tag, row.attributes) for row in child.children)
    return IrLayer(
        number=int(element.attribute("id")),
        name=element.attribute("name"),
        kind=element.attribute("type"),
        opset=element.attribute("version"),
        data=element.first_child("data").attributes,
        inputs=tuple(map(_read_port, element.first_child("input").children_tagged("port"))),
        outputs=tuple(map(_read_port, element.first_child("output").children_tagged("port"))),
        bodies=bodies,
        maps=maps,
    )


def _read_port(element: _Element) -> IrPort:
    """Return the port in a <port> element: its number, type, sizes and names."""
    return IrPort(
        number=int(element.attribute("id")),
        precision=element.attribute("precision"),
        dims=tuple(int(dim.text) for dim in element.children_tagged("dim")),
        names=tuple(filter(None, element.attribute("names").replace("\\,", "\0").split(","))),
    )


class IrConstant(msgspec.Struct, frozen=True, kw_only=True):
    """A constant: its element type, its shape, and where the .bin file has it."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int

    @property
    def has_read_values(self) -> bool:
        """Whether the constant is small enough that its values are read."""
        return self.size <= _SMALL

    def read_payload(self, weights: Path) -> bytes | None:
        """Return the bytes of the constant from the .bin file `weights`; None if it is large or
        the file is missing.
        """
        if not self.has_read_values or not weights.is_file():
            return None
        try:
            with weights.open("rb") as file:
                file.seek(self.offset)
                content = file.read(self.size)
        except OSError as error:
            raise unreadable_file_error(weights, error) from error
        if len(content) < self.size:
            raise TargetError(
                f"{weights} ends before byte {self.offset + self.size}, which the model reads",
                f"copy the .bin file again: it belongs to {weights.with_suffix('.xml').name}",
            )
        return content

    def read_numbers(self, weights: Path) -> tuple[int | float, ...] | None:
        """Return the values of the constant from the .bin file `weights`; None if they are
        unknown.
        """
        content, form = self.read_payload(weights), _NUMBERS.get(self.dtype)
        if content is None or form is None:
            return None
        return struct.unpack(f"<{prod(self.shape)}{form}", content)


def layer_constant(layer: IrLayer) -> IrConstant:
    """Return the type, shape and place in the .bin file of the constant in a Const layer."""
    text = layer.data.get("shape", "")
    return IrConstant(
        dtype=layer.data.get("element_type", ""),
        shape=tuple(int(word) for word in text.split(",") if word.strip()),
        offset=int(layer.data.get("offset", "0")),
        size=int(layer.data.get("size", "0")),
    )
