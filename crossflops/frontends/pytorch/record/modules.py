"""The module table, and the modules that the nodes of an exported program came from."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from crossflops.errors import ValuesNeededError
from crossflops.frontends.pytorch.load.fakes import is_fake_tensor
from crossflops.frontends.pytorch.load.keras_models import non_weight_tensor_ids
from crossflops.frontends.pytorch.load.tensors import dtype_name
from crossflops.ir.graph import Graph, Node
from crossflops.ir.trace import Call, Module, Parameter, Scalar, Trace

if TYPE_CHECKING:
    from torch import Tensor, nn


def full_class_name(cls: type) -> str:
    """Return the full name of a class, such as "torch.nn.modules.linear.Linear"."""
    return f"{cls.__module__}.{cls.__qualname__}"


def module_identity(module: "nn.Module") -> int:
    """Return an id of a module that its proxies in an export have, too.

    The export wraps modules in proxies that share the attribute dictionary of the module, so the
    dictionary, not the object, identifies it.
    """
    return id(module.__dict__)


class ModuleIndex:
    """The modules of a model, which are found by their object. Ids count from 0, the model
    itself.
    """

    def __init__(self, model: "nn.Module") -> None:
        """Index a model's modules by identity, with their names, parameters and settings."""
        names: dict[int, list[str]] = {}
        self._objects: dict[int, nn.Module] = {}
        for name, module in model.named_modules(remove_duplicate=False):
            names.setdefault(module_identity(module), []).append(name)
            self._objects.setdefault(module_identity(module), module)
        self._ids = {key: number for number, key in enumerate(names)}
        self._storages: dict[int, int] = {}
        self._no_weights = non_weight_tensor_ids(model)
        self._rows = [self._describe_module(key, tuple(paths)) for key, paths in names.items()]

    @property
    def module_descriptions(self) -> tuple[Module, ...]:
        """The descriptions of all modules, in the order of their ids."""
        return tuple(self._rows)

    @property
    def module_objects(self) -> tuple["nn.Module", ...]:
        """The module objects, in the order of their ids."""
        return tuple(self._objects.values())

    @property
    def classes(self) -> set[type]:
        """The classes of all modules."""
        return {type(module) for module in self._objects.values()}

    def is_root(self, module: "nn.Module") -> bool:
        """Return True if the module is the model itself."""
        return self._ids.get(module_identity(module)) == 0

    def row(self, module: "nn.Module") -> Module:
        """Return the description of a module; a module outside of the model gets a new id and no
        names.
        """
        key = module_identity(module)
        if key not in self._ids:
            self._ids[key] = len(self._rows)
            self._objects[key] = module
            self._rows.append(self._describe_module(key, ()))
        return self._rows[self._ids[key]]

    def _describe_module(self, key: int, names: tuple[str, ...]) -> Module:
        """Return the description of a module: id, names, classes, parameters, children and
        settings.
        """
        module = self._objects[key]
        children = tuple(  # before Keras is asked for parameters, which it then registers
            (name, self._ids[module_identity(child)])
            for name, child in module._modules.items()
            if child is not None and module_identity(child) in self._ids
        )
        return Module(
            id=self._ids[key],
            names=names,
            bases=tuple(full_class_name(base) for base in _user_module_class(module).__mro__[:-1]),
            params=tuple(
                Parameter(
                    name,
                    tuple(parameter.shape),
                    self._parameter_number(parameter),
                    dtype_name(parameter.dtype),
                    parameter.requires_grad,
                    _pruning_mask_ones(module, name),
                )
                for name, parameter in module.named_parameters(
                    recurse=False, remove_duplicate=False
                )
                if id(parameter) not in self._no_weights
            ),
            children=children,
            training=module.training,
            settings=module_settings(module),
        )

    def _parameter_number(self, parameter: "Tensor") -> int:
        """Return a number for a parameter object; modules that share a parameter have the same
        number.
        """
        return self._storages.setdefault(id(parameter), len(self._storages))


def _user_module_class(module: "nn.Module") -> type:
    """Return the class of a module as the user wrote it; for a proxy of an export the class behind
    it.
    """
    cls = type(module)
    return cls.__mro__[1] if cls.__name__ == "AttrProxy" else cls


def _pruning_mask_ones(module: "nn.Module", name: str) -> int | None:
    """Return the number of ones in the pruning mask of a parameter; None if it is not pruned or
    the mask has no values.
    """
    if not name.endswith("_orig"):
        return None
    # not by `_buffers`: of a scripted module that is no dict
    mask = dict(module.named_buffers(recurse=False)).get(name.removesuffix("_orig") + "_mask")
    if mask is None or mask.is_meta:
        return None
    if is_fake_tensor(mask):
        raise ValuesNeededError(
            f"the number of pruned elements depends on the pruning mask of {name}"
        )
    return int(mask.sum())


def module_settings(module: "nn.Module") -> dict[str, Scalar]:
    """Return the plain public attributes of a module, such as in_channels or kernel_size, by
    name.
    """
    settings: dict[str, Scalar] = {}
    for name, value in vars(module).items():
        if name.startswith("_") or name == "training":
            continue
        if isinstance(value, tuple):
            items = [_to_python_number(item) for item in value]
            if all(isinstance(item, int | float) for item in items):
                settings[name] = items
            continue
        plain = _to_python_number(value)
        if plain is None or isinstance(plain, bool | int | float | str):
            settings[name] = plain
    return settings


def _to_python_number(value: object) -> object:
    """Return a NumPy scalar as a Python number; another value as it is."""
    return value.item() if isinstance(value, np.generic) else value


# The modules that the nodes of an exported program (torch.export) came from.


def place_in_source_modules(model: Any, graph: Graph, trace: Trace) -> tuple[Graph, Trace]:
    """Return graph and trace with the modules of the source model, if the model is an exported
    program's module.

    `module()` of a program runs everything in one module, and the notes (`nn_module_stack`) of its
    nodes have the original ones. They are matched by order; where the operators differ, graph and
    trace stay unchanged. Calls keep the one module that tools see.
    """
    fx = sys.modules.get("torch.fx")
    if fx is None or not isinstance(model, fx.GraphModule):
        return graph, trace
    calls = [call for call in trace.calls if call.level == "operator"]
    stacks = list(_enclosing_modules_of_calls(model, calls))
    if len(stacks) != len(calls):
        return graph, trace
    owners = {call.key: stack for call, stack in zip(calls, stacks, strict=True)}
    rows = _module_table_rows(trace.modules, stacks)
    ids = {row.path: number for number, row in enumerate(rows)}
    moved = {row.id: ids[row.path] for row in trace.modules}
    graph = msgspec.structs.replace(
        graph,
        name=rows[0].class_name,
        nodes=tuple(_with_module_path(node, owners) for node in graph.nodes),
    )
    trace = msgspec.structs.replace(
        trace,
        calls=tuple(_with_module_number(call, moved) for call in trace.calls),
        observed=tuple(_with_module_number(call, moved) for call in trace.observed),
        modules=tuple(
            msgspec.structs.replace(
                row,
                id=number,
                children=tuple((name, moved[child]) for name, child in row.children),
            )
            for number, row in enumerate(rows)
        ),
    )
    return graph, trace


def _with_module_number(call: Call, new_numbers: dict[int, int]) -> Call:
    """Return the call with its module's new number, which `new_numbers` gives by the old one."""
    return msgspec.structs.replace(call, module=new_numbers.get(call.module, call.module))


EnclosingModules = tuple[
    tuple[str, str], ...
]  # path and class of the modules around a node, the root first


def _enclosing_modules_of_calls(model: Any, calls: list[Call]) -> Iterator[EnclosingModules]:
    """Yield for each call the modules (path, class) that enclose it in the model's graph; stop
    where calls and nodes differ.
    """
    nodes = (
        node
        for node in model.graph.nodes
        if node.op == "call_function" and hasattr(node.target, "_schema")
    )
    for call in calls:
        node = next(nodes, None)
        if node is None or str(node.target) != call.target:
            return
        stack = (node.meta.get("nn_module_stack") or {}).values()
        yield tuple((str(path), _class_name_or_text(kind)) for path, kind in stack)


def _class_name_or_text(kind: Any) -> str:
    """Return the full name of a class; a text as it is."""
    return kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"


def _with_module_path(node: Node, owners: dict[str, EnclosingModules]) -> Node:
    """Return the node with the path of the innermost module that encloses its call."""
    stack = owners.get(node.call)
    return msgspec.structs.replace(node, path=stack[-1][0]) if stack else node


def _module_table_rows(rows: tuple[Module, ...], stacks: list[EnclosingModules]) -> list[Module]:
    """Return the descriptions of modules with their source classes, and with modules added that
    only the program names.

    The class that tools see stays among the bases. A new module follows its siblings.
    """
    classes = {path: kind for stack in stacks for path, kind in stack}
    table = [
        msgspec.structs.replace(row, bases=(f"exported.{classes[row.path]}", *row.bases))
        if row.path in classes
        else row
        for row in rows
    ]
    known = {row.path for row in rows}
    for path, kind in classes.items():
        if path not in known:
            above = path.rpartition(".")[0]
            indices = [at for at, row in enumerate(table) if _is_within_path(row.path, above)]
            table.insert(max(indices) + 1, _export_only_module(path, kind))
    return table


def _is_within_path(path: str, ancestor: str) -> bool:
    """Return True if a module path is `ancestor` or inside it; every path is inside ""."""
    return not ancestor or path == ancestor or path.startswith(f"{ancestor}.")


def _export_only_module(path: str, kind: str) -> Module:
    """Return the description of a module that only an exported program names, by path and
    class.
    """
    return Module(
        id=-1,
        names=(path,),
        bases=(f"exported.{kind}",),
        params=(),
        children=(),
        training=False,
        settings={},
    )
