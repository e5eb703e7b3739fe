"""Find the module of each node: from an exporter's notes, or from the names of the nodes.

And which module a stored weight belongs to: the one whose path its name begins with, else that of
the first node that uses it.
"""

import re
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import count, zip_longest
from math import prod
from typing import Any, NamedTuple, TypeVar

import msgspec

from crossflops.frontends.onnx.parameters import WEIGHTS, Size, nodes_outside_functions
from crossflops.ir.graph import Graph, TensorSpec
from crossflops.ir.trace import Module, Parameter
from crossflops.operators.float_forms import float_operator_name
from crossflops.operators.original_names import without_fusion_suffixes

_SCOPES, _CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
_ITEM = r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\""
_COUNTER = re.compile(r"__\d+$")
_DROPPED = ("", "StatefulPartitionedCall", "PartitionedCall")
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# What PyTorch operators make of a product and never multiply by themselves. The exporter writes a
# node in the place of both, which bears the name of the last one.
_MERGED = re.compile(r"aten\.(\w*batch_norm\w*|add|sub|mul|div|pad|constant_pad_nd)\b")


_P = TypeVar("_P", bound="NodePlace | None")


class NodePlace(NamedTuple):
    """The modules around a node, outermost first, as (path, class); the class may be ""."""

    chain: tuple[tuple[str, str], ...]

    @property
    def innermost_module_path(self) -> str:
        """The path of the innermost module, "" for the root."""
        return self.chain[-1][0] if self.chain else ""


def place_from_notes(
    node: Any, specs: Mapping[str, TensorSpec] = {}, sources: Mapping[str, str] = {}
) -> NodePlace | None:
    """Return the module that torch.onnx noted at a node, or None without such a note.

    `sources` are the stored tensors from which values are dequantized.

    `name_scopes` lists the module paths from the root ("") inwards, and last the operator;
    `class_hierarchy` their classes. A convolution into which a batch normalization was folded has
    the notes of the latter: its module is the owner of its weight.
    """
    scopes, text = None, ""
    for note in node.metadata_props[:]:
        key = note.key
        if key == _SCOPES:
            scopes = note.value
        elif key == _CLASSES:
            text = note.value
    if scopes is None:
        return None
    paths, classes = _module_paths_in_scopes_text(scopes), _list_items_tuple(text)
    operator = classes[-1] if len(classes) > len(paths) else ""
    if node.op_type in _PRODUCTS and _MERGED.match(operator):
        stored = (
            sources.get(name, name if _is_parameter(name, specs) else "") for name in node.input
        )
        weight = next(filter(None, stored), "")
        if weight:
            return _place_of_path(
                weight.rpartition(".")[0], classes[0], _weight_layer_class(node, weight, specs)
            )
    return _place_from_classes(paths, classes)


def _is_parameter(name: str, specs: Mapping[str, TensorSpec]) -> bool:
    """Return whether the value of this name has the role "parameter"."""
    return name in specs and specs[name].role == "parameter"


def _place_of_path(path: str, root: str, layer: str) -> NodePlace:
    """Return a NodePlace for a dotted path; `root` is the root's class, `layer` the last one's."""
    parts = path.split(".") if path else []
    paths = [".".join(parts[: end + 1]) for end in range(len(parts))]
    return NodePlace((("", root), *((index, layer if index == path else "") for index in paths)))


_LAYERS = {
    "Conv": ("torch.nn.modules.conv.Conv{}d", 2),
    "ConvTranspose": ("torch.nn.modules.conv.ConvTranspose{}d", 2),
    "Gemm": ("torch.nn.modules.linear.Linear", 2),
    "MatMul": ("torch.nn.modules.linear.Linear", 2),
}
_WEIGHT = re.compile(r"\.weight(_quantized|_transposed)*$")


def _weight_layer_class(node: Any, weight: str, specs: Mapping[str, TensorSpec]) -> str:
    """Return the class of a PyTorch layer that has a weight like this one, or "" if unknown."""
    form = float_operator_name(node.op_type)
    shape = specs[weight].shape if weight in specs else None
    if form not in _LAYERS or shape is None or not _WEIGHT.search(weight):
        return ""
    name, rest = _LAYERS[form]
    return name.format(len(shape) - rest)


_PATH = re.compile(r"[A-Za-z_]\w*(\.\w+)*\.[A-Za-z_]\w*")


def _place_from_weight(
    node: Any,
    specs: Mapping[str, TensorSpec],
    sources: Mapping[str, str],
    shared: Container[str],
) -> NodePlace | None:
    """Return the module that owns the node's stored weight, by the weight's name, or None.

    Exporters store equal tensors once: a vector, often all zeros, that several nodes read
    (`shared`) has the name of one of their modules. Neither it nor its copies identify a module.
    """
    for at in WEIGHTS.get(node.op_type, range(len(node.input))):
        name = node.input[at] if at < len(node.input) else ""
        name = sources.get(name, name)
        if name in shared:
            return None
        if not _PATH.fullmatch(name):
            continue
        if name in specs and specs[name].role in ("parameter", "constant"):
            return _place_of_path(
                name.rpartition(".")[0], "", _weight_layer_class(node, name, specs)
            )
    return None


def _has_dotted_stored_name(spec: TensorSpec) -> bool:
    """Return whether a tensor is stored and its name is a dotted path, such as "fc.weight"."""
    return spec.role in ("parameter", "constant") and _PATH.fullmatch(spec.name) is not None


def _vectors_read_by_several_nodes(
    nodes: Sequence[Any], specs: Mapping[str, TensorSpec], sources: Mapping[str, str]
) -> set[str]:
    """Return the names of stored vectors that more than one node reads."""
    readers = Counter(
        sources.get(name, name)
        for node in nodes
        if node.op_type not in _VIEWS
        for name in set(node.input)
    )
    return {
        name
        for name, times in readers.items()
        if times > 1 and name in specs and len(specs[name].shape or ()) < 2
    }


def _places_from_names_or_weights(
    nodes: Sequence[Any], specs: Mapping[str, TensorSpec], sources: Mapping[str, str]
) -> list[NodePlace]:
    """Return each node's module: by the node's name, otherwise by the name of its weight.

    A name with a "/" says that a node is in the root.
    """
    named = [place_from_name(node.name) for node in nodes]
    if not any(_has_dotted_stored_name(spec) for spec in specs.values()):
        return named
    shared = _vectors_read_by_several_nodes(nodes, specs, sources)
    known = [
        index
        if index.chain or "/" in without_fusion_suffixes(node.name)
        else _place_from_weight(node, specs, sources, shared)
        for node, index in zip(nodes, named, strict=True)
    ]
    if None in known:
        _set_places_by_bias(nodes, known, specs, sources)
    return [index or NodePlace(()) for index in known]


_VIEWS = ("DequantizeLinear", "Reshape", "Transpose")
_QUANTIZERS = ("QuantizeLinear", "DequantizeLinear", "Cast", "Mul")


def _places_with_notes_first(
    nodes: Sequence[Any],
    placed: list[NodePlace | None],
    specs: Mapping[str, TensorSpec],
    sources: Mapping[str, str],
) -> list[NodePlace]:
    """Return each node's module; a node without a note gets that of its weight, bias or input.

    They are in the module that owns their weight, or the bias that is added to them; a node that
    (de)quantizes a value is in the module that made it.
    """
    shared = _vectors_read_by_several_nodes(nodes, specs, sources)
    known = [
        _place_from_weight(node, specs, sources, shared) if index is None else index
        for node, index in zip(nodes, placed, strict=True)
    ]
    _set_places_by_bias(nodes, known, specs, sources)
    makers: dict[str, NodePlace] = {}
    for at, node in enumerate(nodes):
        index = known[at]
        if index is None and node.op_type in _QUANTIZERS:
            index = next((makers[name] for name in node.input if name in makers), None)
        known[at] = index or NodePlace(())
        makers.update(dict.fromkeys(node.output, index or NodePlace(())))
    return [index or NodePlace(()) for index in known]


def _set_places_by_bias(
    nodes: Sequence[Any],
    known: list[NodePlace | None],
    specs: Mapping[str, TensorSpec],
    sources: Mapping[str, str],
) -> None:
    """Set the module of products without one in `known`: that of the bias added to them."""
    readers: dict[str, list[int]] = {}
    for at, node in enumerate(nodes):
        for name in node.input:
            readers.setdefault(name, []).append(at)
    adding: set[int] = {
        at
        for at, node in enumerate(nodes)
        if float_operator_name(node.op_type) == "Add"
        and _has_stored_operands(node, specs, sources)
    }
    for at in reversed(range(len(nodes))):
        node, users = (
            nodes[at],
            [user for name in nodes[at].output for user in readers.get(name, ())],
        )
        index = known[users[0]] if len(users) == 1 and users[0] in adding else None
        if known[at] is not None or index is None:
            continue
        if node.op_type in _QUANTIZERS:
            known[at] = index
            adding.add(at)
        elif float_operator_name(node.op_type) in _PRODUCTS and _has_stored_operands(
            node, specs, sources
        ):
            known[at] = _place_of_path(index.innermost_module_path, "", _LAYERS["MatMul"][0])


def _has_stored_operands(
    node: Any, specs: Mapping[str, TensorSpec], sources: Mapping[str, str]
) -> bool:
    """Return whether an operand is stored (or a view of a stored one) and no single number."""
    names = (sources.get(name, name) for name in node.input)
    stored = (specs[name] for name in names if name in specs)
    return any(
        spec.role in ("parameter", "constant") and spec.shape is not None and prod(spec.shape) > 1
        for spec in stored
    )


def _sources_by_result(nodes: Sequence[Any], specs: Mapping[str, TensorSpec]) -> dict[str, str]:
    """Return the stored tensor's name by the name of its dequantized or transposed value."""
    return {
        node.output[0]: node.input[0]
        for node in nodes
        if node.op_type in _VIEWS and node.input and node.output
        if node.input[0] in specs and specs[node.input[0]].role in ("parameter", "constant")
    }


# Layers that are alike are in modules of the same classes, and the nodes of one in one module.
_MOST = 4096


@lru_cache(maxsize=_MOST)
def _place_from_classes(paths: tuple[str, ...], classes: tuple[str, ...]) -> NodePlace:
    """Return a NodePlace of these module paths and their classes ("" where there is none)."""
    return NodePlace(tuple(zip_longest(paths, classes[: len(paths)], fillvalue="")))


def _module_paths_in_scopes_text(scopes: str) -> tuple[str, ...]:
    """Return the module paths in a printed list, whose last item is the operator's own."""
    enclosing, comma, _ = scopes.rpartition("', '")
    if comma and '"' not in scopes and "\\" not in scopes:
        return _list_items_tuple(f"{enclosing}']")
    return tuple(_parse_list_items(scopes)[:-1])


@lru_cache(maxsize=_MOST)
def _list_items_tuple(text: str) -> tuple[str, ...]:
    """Return the strings in a printed Python list, as a tuple."""
    return tuple(_parse_list_items(text))


def _parse_list_items(text: str) -> list[str]:
    """Return the strings in a printed Python list, such as "['a', 'b']"."""
    if text[:2] == "['" and text[-2:] == "']" and '"' not in text and "\\" not in text:
        items = text[2:-2].split("', '")  # nearly every list is like that
        if 2 * len(items) == text.count("'"):
            return items
    return [single or double for single, double in re.findall(_ITEM, text)]


def place_from_name(name: str) -> NodePlace:
    """Return the module in a node name: "/layer1/layer1.0/conv1/Conv" is in layer1.0.conv1.

    PyTorch's older exporter repeats the path of a container in the names of its items; tf2onnx
    keeps TensorFlow's names and appends counters.
    """
    path, chain = "", []
    for part in without_fusion_suffixes(name).split("/")[:-1]:
        word = _COUNTER.sub("", part)
        if word in _DROPPED:
            continue
        last = path.rpartition(".")[2] if path else ""
        if last and word.startswith(f"{last}."):
            path += word.removeprefix(last)
        elif path and word.startswith(f"{path}."):
            path = word
        else:
            path = f"{path}.{word}" if path else word
        chain.append((path, ""))
    return NodePlace(tuple(chain))


def node_places(nodes: Sequence[Any], specs: Mapping[str, TensorSpec]) -> list[NodePlace]:
    """Return the module of each node of a graph; `specs` has the graph's values by name."""
    sources = _sources_by_result(nodes, specs)
    noted = _deduplicate_values(place_from_notes(node, specs, sources) for node in nodes)
    if any(index is not None for index in noted):
        return _deduplicate_values(_places_with_notes_first(nodes, noted, specs, sources))
    return _deduplicate_values(_places_from_names_or_weights(nodes, specs, sources))


def _deduplicate_values(values: Iterable[_P]) -> list[_P]:
    """Return the values with one shared object instead of several equal ones.

    A million nodes may be in a few hundred places.
    """
    kept: dict[_P, _P] = {}
    return [kept.setdefault(value, value) for value in values]


def build_module_table(module_places: Iterable[NodePlace], root: str) -> tuple[Module, ...]:
    """Return the root and each module that a node is in, parents before children."""
    classes: dict[str, str] = {"": ""}
    for index in dict.fromkeys(module_places):  # most nodes share theirs with others
        for path, name in index.chain:
            if path not in classes:  # otherwise the modules around it are there, too
                for end in (at for at, letter in enumerate(path) if letter == "."):
                    classes.setdefault(path[:end], "")
            classes[path] = classes.get(path) or name
    classes[""] = classes[""] or root
    ids = {path: number for number, path in enumerate(classes)}
    children: dict[str, list[tuple[str, int]]] = {}
    for path in ids:
        if path:
            parent, _, name = path.rpartition(".")
            children.setdefault(parent, []).append((name, ids[path]))
    return tuple(
        Module(
            id=ids[path],
            names=(path,),
            bases=(name,),
            params=(),
            children=tuple(children.get(path, ())),
            training=False,
            settings={},
        )
        for path, name in classes.items()
    )


def with_parameters(
    modules: tuple[Module, ...], graph: Graph, weights: Mapping[str, Mapping[str, Size]]
) -> tuple[Module, ...]:
    """Return the modules with those weights of the graph's nodes that they own."""
    paths = {row.path for row in modules}
    names = {name for sizes in weights.values() for name in sizes}
    specs = {
        tensor.name: tensor
        for node in nodes_outside_functions(graph.nodes)
        for tensor in node.inputs
        if tensor and tensor.name in names
    }
    users = {node.key: node.path for node in graph.nodes if node.key in weights}
    by_path: dict[str, list[Parameter]] = {}
    storages = count()
    for key, sizes in weights.items():
        for name, size in sizes.items():
            path = _weight_owner_path(name, paths, users[key])
            short = name.removeprefix(f"{path}.")
            parameter = _parameter(short, size.numel, specs.get(name), next(storages))
            by_path.setdefault(path, []).append(parameter)
    return tuple(
        msgspec.structs.replace(row, params=tuple(by_path[row.path]))
        if row.path in by_path
        else row
        for row in modules
    )


def _weight_owner_path(name: str, paths: Container[str], user: str) -> str:
    """Return the longest module path that a weight's name begins with, else that of its user."""
    path = name
    while "." in path:
        path = path.rpartition(".")[0]
        if path in paths:
            return path
    return user


def _parameter(name: str, numel: int, spec: TensorSpec | None, storage: int) -> Parameter:
    """Return a parameter; if packed, it has more elements than its tensor and no dtype."""
    if spec is None or spec.shape is None or prod(spec.shape) != numel:
        return Parameter(name, (numel,), storage, dtype="")
    return Parameter(name, spec.shape, storage, spec.dtype)
