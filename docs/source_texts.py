"""The texts that an expression of the source can be, read from the syntax trees.

Constants, conditions, functions that return a text, the arguments of every call of a function,
and the rows of a table are followed. What is known only when the code runs is a placeholder in
words: `{number of layers}`.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from choices import Choices
from placeholders import OPAQUE, OPAQUE_NAMES, placeholder

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_DEPTH = 8  # functions and constants that are followed one after the other
_LISTED = 12  # names that a text lists
_FIELDS = {"remedy", "hint"}  # a class with one of them is a row of a table of messages
_COLLECTIONS = ("sorted", "tuple", "list", "set", "frozenset", "dict", "reversed")


@dataclass(eq=False)
class Module:
    """A file: its syntax tree, and the values of the names in it."""

    name: str
    path: Path
    tree: ast.Module
    functions: dict[str, Function] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    values: dict[str, list[ast.expr]] = field(default_factory=dict)
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Scope:
    """The place of an expression: its module, the functions around it, and bound names."""

    module: Module
    functions: tuple[Function, ...] = ()
    bound: dict[str, tuple[ast.expr, "Scope"]] = field(default_factory=dict)

    def with_bound(self, names: dict[str, tuple[ast.expr, "Scope"]]) -> "Scope":
        """Return the scope with more names."""
        return Scope(self.module, self.functions, self.bound | names)


Value: TypeAlias = tuple[ast.expr, Scope]


def read_module(name: str, path: Path) -> Module:
    """Parse a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    module = Module(name, path, tree)
    for node in ast.walk(tree):
        if isinstance(node, Function):
            module.functions.setdefault(node.name, node)
        elif isinstance(node, ast.ClassDef):
            module.classes[node.name] = node
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                module.imports[alias.asname or alias.name] = (node.module, alias.name)
    for statement in tree.body:
        if not isinstance(statement, Function | ast.ClassDef):
            for target, value in _assignments(statement):
                _assign(module.values, target, value)
    return module


def _assignments(tree: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the targets and the values of assignments in a statement."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield target, node.value
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            yield node.target, node.value


def _assign(values: dict[str, list[ast.expr]], target: ast.expr, value: ast.expr) -> None:
    if isinstance(target, ast.Name):
        values.setdefault(target.id, []).append(value)
    elif isinstance(target, ast.Tuple):
        if isinstance(value, ast.IfExp):
            for index, part in enumerate(target.elts):
                body, other = _element(value.body, index), _element(value.orelse, index)
                _assign(values, part, ast.IfExp(value.test, body, other))
        else:
            for index, part in enumerate(target.elts):
                _assign(values, part, _element(value, index))


def _element(value: ast.expr, index: int) -> ast.expr:
    """Return an item of a tuple; an expression without text if it is not written out."""
    if isinstance(value, ast.Tuple) and index < len(value.elts):
        return value.elts[index]
    return ast.Subscript(value=value, slice=ast.Constant(index), ctx=ast.Load())


def _is_field(node: ast.expr) -> bool:
    """Return whether an expression is the text of a field of a template, such as "{option}"."""
    return isinstance(node, ast.Constant) and str(node.value).startswith("{")


class SourceTexts:
    """The texts of expressions in the modules of a package."""

    def __init__(self, modules: dict[str, Module]) -> None:
        self._modules = modules
        self._calls: dict[int, list[tuple[ast.Call, Scope]]] = {}
        self._locals: dict[int, dict[str, list[ast.expr]]] = {}
        for module in modules.values():
            for scope, call in calls_in(module):
                owner = self._function(call.func, scope)
                if owner is not None:
                    self._calls.setdefault(id(owner[0]), []).append((call, scope))

    def text(self, node: ast.expr, scope: Scope, choices: Choices) -> str:
        """Return one text of an expression, with placeholders."""
        found = self._resolve(node, scope, choices, _DEPTH)
        return placeholder(node) if found is None else found

    def base_call(self, call: ast.Call, scope: Scope) -> tuple[ast.Call, Scope]:
        """Return the call of `super().__init__` in the class that a call makes, if it has one."""
        owner = self._class(call.func, scope)
        init = _initializer(owner[0]) if owner is not None else None
        if owner is None or init is None:
            return call, scope
        for node in ast.walk(init):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "__init__"
                and {part.id for part in _name_nodes(node)} - {"super"} != {"message"}
                and not any(isinstance(part, ast.Starred) for part in call.args)
            ):
                given = {name: (value, scope) for name, value in _arguments(call, init).items()}
                return node, Scope(owner[1], (init,), given)
        return call, scope

    def _class(self, node: ast.expr, scope: Scope) -> tuple[ast.ClassDef, Module] | None:
        """Return the class of the package that an expression names."""
        if not isinstance(node, ast.Name):
            return None
        if node.id in scope.module.classes:
            return scope.module.classes[node.id], scope.module
        source, name = scope.module.imports.get(node.id, ("", ""))
        module = self._modules.get(source)
        return (module.classes[name], module) if module and name in module.classes else None

    def _resolve(self, node: ast.expr, scope: Scope, choices: Choices, depth: int) -> str | None:
        """Return a text of an expression, None if only a run knows it."""
        if depth < 0:
            return None
        if isinstance(node, ast.Constant):
            return _shown_constant(node.value)
        if isinstance(node, ast.JoinedStr):
            return "".join(self._part(part, scope, choices, depth) for part in node.values)
        if isinstance(node, ast.IfExp):
            if self._is_unknown(node, scope, depth):
                return placeholder(node.orelse if _is_empty(node.body) else node.body)
            chosen = choices.pick(("if", ast.dump(node.test)), 2)
            branch = node.orelse if chosen else node.body
            return None if chosen is None else self._words(branch, scope, choices, depth)
        if isinstance(node, ast.BoolOp):
            values = node.values if isinstance(node.op, ast.Or) else node.values[-1:]
            values = [value for value in values if not _is_empty(value)] or values
            if self._is_unknown(node, scope, depth):
                return placeholder(values[0])
            chosen = choices.pick(("or", ast.dump(node)), len(values))
            return None if chosen is None else self._words(values[chosen], scope, choices, depth)
        if isinstance(node, ast.BinOp):
            return self._binary(node, scope, choices, depth)
        if isinstance(node, ast.Name | ast.NamedExpr):
            name = node.target.id if isinstance(node, ast.NamedExpr) else node.id
            return self._text_of_name(name, scope, choices, depth)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, scope, choices, depth)
        if isinstance(node, ast.Subscript):
            return self._item(node, scope, choices, depth)
        if isinstance(node, ast.Call):
            return self._call(node, scope, choices, depth)
        return None

    def _is_unknown(self, node: ast.IfExp | ast.BoolOp, scope: Scope, depth: int) -> bool:
        """Return whether only a run knows any of the alternatives."""
        parts = [node.body, node.orelse] if isinstance(node, ast.IfExp) else node.values
        parts = [part for part in parts if not _is_empty(part)] or parts
        first = Choices([], frozenset())
        return all(self._resolve(part, scope, first, depth - 1) is None for part in parts)

    def _words(self, node: ast.expr, scope: Scope, choices: Choices, depth: int) -> str:
        found = self._resolve(node, scope, choices, depth)
        return placeholder(node) if found is None else found

    def _part(self, node: ast.expr, scope: Scope, choices: Choices, depth: int) -> str:
        if not isinstance(node, ast.FormattedValue):
            return self._words(node, scope, choices, depth)
        if isinstance(node.value, ast.Name | ast.Constant) and node.format_spec is not None:
            number = self._number(node.value, scope)
            spec = node.format_spec
            plain = isinstance(spec, ast.JoinedStr) and all(
                isinstance(part, ast.Constant) for part in spec.values
            )
            if number is not None and plain:
                form = "".join(str(part.value) for part in spec.values)  # type: ignore[attr-defined]
                return format(number, form)
        return self._words(node.value, scope, choices, depth)

    def _binary(self, node: ast.BinOp, scope: Scope, choices: Choices, depth: int) -> str | None:
        number = self._number(node, scope)
        if number is not None:
            return f"{number:,}" if isinstance(number, int) else str(number)
        if not isinstance(node.op, ast.Add):
            return None
        sides = [self._resolve(side, scope, choices, depth) for side in (node.left, node.right)]
        if None in sides and not any(_is_text(side) for side in (node.left, node.right)):
            return None
        return "".join(
            placeholder(side) if text is None else text
            for side, text in zip((node.left, node.right), sides, strict=True)
        )

    def _number(self, node: ast.expr, scope: Scope) -> int | float | None:
        """Return the value of a constant expression of numbers."""
        if isinstance(node, ast.Constant):
            is_number = isinstance(node.value, int | float) and not isinstance(node.value, bool)
            return node.value if is_number else None  # type: ignore[return-value]
        if (isinstance(node, ast.Name) and node.id.isupper()) or isinstance(node, ast.Attribute):
            held = self._values(node, scope)
            return self._number(held[0][0], held[0][1]) if len(held) == 1 else None
        if isinstance(node, ast.BinOp):
            left, right = self._number(node.left, scope), self._number(node.right, scope)
            if left is None or right is None:
                return None
            operations = {ast.Pow: "**", ast.Mult: "*", ast.LShift: "<<", ast.Sub: "-"}
            sign = operations.get(type(node.op))
            return None if sign is None else eval(f"{left}{sign}{right}")
        return None

    def _text_of_name(self, name: str, scope: Scope, choices: Choices, depth: int) -> str | None:
        """Return a text of a variable, a parameter or a constant."""
        if name in OPAQUE_NAMES:
            return None
        if name in scope.bound:
            node, own = scope.bound[name]
            if isinstance(node, ast.Constant):
                return _shown_constant(node.value)
            return _sentence(self._resolve(node, own, choices, depth - 1))
        for level in range(len(scope.functions) - 1, -1, -1):
            function = scope.functions[level]
            inner = Scope(scope.module, scope.functions[: level + 1], scope.bound)
            held = self._local_values(function)
            parameters = _parameters(function)
            if name in held:
                values = [*held[name]]
                chosen = choices.pick(("variable", id(function), name), len(values))
                if chosen is None:
                    return None
                found = self._resolve(values[chosen], inner, choices, depth - 1)
                return found if len(values) == 1 else _sentence(found)
            if name in parameters:
                return _sentence(self._parameter(name, function, inner, choices, depth))
            loop = self._loop_value(name, function, inner, choices)
            if loop is not None:
                return self._resolve(loop[0], loop[1], choices, depth - 1)
        outside = self._global_values(name, scope.module)
        chosen = choices.pick(("constant", scope.module.name, name), len(outside))
        if chosen is None:
            return None
        return self._resolve(*outside[chosen], choices, depth - 1)

    def _parameter(
        self, name: str, function: Function, scope: Scope, choices: Choices, depth: int
    ) -> str | None:
        """Return a text that one call of a function gives to a parameter."""
        sites = self._calls.get(id(function), [])
        chosen = choices.pick(("call", id(function)), len(sites))
        if chosen is None:
            return None
        call, own = sites[chosen]
        given = _arguments(call, function).get(name)
        if given is None:
            default = _default(name, function)
            return None if default is None else self._resolve(default, scope, choices, depth - 1)
        return self._resolve(given, own, choices, depth - 1)

    def _loop_value(
        self, name: str, function: Function, scope: Scope, choices: Choices
    ) -> Value | None:
        """Return a value that a loop over a table that is written out gives to a name."""
        for node in ast.walk(function):
            if isinstance(node, ast.For | ast.comprehension) and name in _names(node.target):
                return self._loop_bindings(node, scope, choices).get(name)
        return None

    def _loop_bindings(
        self, loop: ast.For | ast.comprehension, scope: Scope, choices: Choices
    ) -> dict[str, Value]:
        rows = self._elements(loop.iter, scope, _DEPTH)
        chosen = choices.pick(("loop", id(loop)), len(rows or ()))
        if not rows or chosen is None:
            return {}
        node, own = rows[chosen]
        held: dict[str, list[ast.expr]] = {}
        _assign(held, loop.target, node)
        return {name: (values[0], own) for name, values in held.items()}

    def _attribute(
        self, node: ast.Attribute, scope: Scope, choices: Choices, depth: int
    ) -> str | None:
        """Return a constant of another module, a property, or a column of a table of messages."""
        held = self._values(node, scope)
        if held:
            chosen = choices.pick(("attribute", ast.dump(node)), len(held))
            return None if chosen is None else self._resolve(*held[chosen], choices, depth - 1)
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            owner = scope.module.functions.get(node.attr)
            if owner is not None and any(
                isinstance(mark, ast.Name) and mark.id.endswith("property")
                for mark in owner.decorator_list
            ):
                return self._text_of_return(owner, Scope(scope.module, (owner,)), choices, depth)
        return self._column(node, scope, choices, depth)

    def _column(
        self, node: ast.Attribute, scope: Scope, choices: Choices, depth: int
    ) -> str | None:
        for name, tree in scope.module.classes.items():
            fields = {
                part.target.id: part.value
                for part in tree.body
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
            }
            if node.attr not in fields or not _FIELDS & fields.keys():
                continue
            made = [
                call
                for call in ast.walk(scope.module.tree)
                if isinstance(call, ast.Call)
                and isinstance(call.func, ast.Name)
                and call.func.id == name
                and len(call.args) + len(call.keywords) > 1
            ]
            chosen = choices.pick(("row", scope.module.name, name), len(made))
            if chosen is None:
                return None
            call = made[chosen]
            given = dict(zip(fields, call.args, strict=False))
            given |= {word.arg: word.value for word in call.keywords if word.arg is not None}
            value = given.get(node.attr, fields[node.attr])
            place = Scope(scope.module)
            return None if value is None else self._resolve(value, place, choices, depth - 1)
        return None

    def _item(self, node: ast.Subscript, scope: Scope, choices: Choices, depth: int) -> str | None:
        """Return a text of a table that is written out: one of all of its values."""
        table = self._table(node.value, scope, depth)
        chosen = choices.pick(("item", ast.dump(node)), len(table))
        return None if chosen is None else self._resolve(*table[chosen], choices, depth - 1)

    def _table(self, node: ast.expr, scope: Scope, depth: int) -> list[Value]:
        """Return the values of a dictionary that is written out."""
        if depth < 0:
            return []
        if isinstance(node, ast.Dict):
            return [(value, scope) for value in node.values]
        held = self._values(node, scope)
        return self._table(*held[0], depth - 1) if len(held) == 1 else []

    def _call(self, node: ast.Call, scope: Scope, choices: Choices, depth: int) -> str | None:
        if isinstance(node.func, ast.Name):
            if node.func.id == "nearest_name_hint":
                return self._near_name(node, scope, choices, depth)
            if node.func.id in ("str", "repr") and len(node.args) == 1:
                return self._resolve(node.args[0], scope, choices, depth)
            if node.func.id == "next" and node.args:
                return self._first(node, scope, choices, depth)
        if isinstance(node.func, ast.Attribute):
            if node.func.attr == "join" and isinstance(node.func.value, ast.Constant):
                return self._joined_text(str(node.func.value.value), node.args[0], scope, choices)
            if node.func.attr == "get" and len(node.args) == 2:
                table = [*self._table(node.func.value, scope, depth), (node.args[1], scope)]
                chosen = choices.pick(("item", ast.dump(node)), len(table))
                if len(table) == 1 or chosen is None:
                    return None
                return self._resolve(*table[chosen], choices, depth - 1)
            if node.func.attr == "replace" and _is_field(node.args[0]):
                text = self._resolve(node.func.value, scope, choices, depth)
                new = self._words(node.args[1], scope, choices, depth)
                return None if text is None else text.replace(ast.literal_eval(node.args[0]), new)
            if node.func.attr == "pop":
                return None
        owner = self._function(node.func, scope)
        if owner is None or owner[0].name in OPAQUE:
            return None
        function, module = owner
        given = {name: (value, scope) for name, value in _arguments(node, function).items()}
        for name in _parameters(function):
            default = _default(name, function)
            if name not in given and default is not None:
                given[name] = (default, Scope(module))
        return self._text_of_return(function, Scope(module, (function,), given), choices, depth)

    def _text_of_return(
        self, function: Function, scope: Scope, choices: Choices, depth: int
    ) -> str | None:
        """Return one of the texts that a function returns."""
        returned = [
            node.value
            for node in _own_nodes(function)
            if isinstance(node, ast.Return)
            and node.value is not None
            and not _is_empty(node.value)
        ]
        chosen = choices.pick(("return", id(function)), len(returned))
        if chosen is None:
            return None
        found = self._resolve(returned[chosen], scope, choices, depth - 1)
        return found if len(returned) == 1 else _sentence(found)

    def _near_name(self, node: ast.Call, scope: Scope, choices: Choices, depth: int) -> str | None:
        if choices.pick(("near", ast.dump(node)), 2) == 0:
            return "did you mean {similar name}?"
        if len(node.args) > 2:
            return self._words(node.args[2], scope, choices, depth)
        names = self._texts_of_collection(node.args[1], scope, choices)
        return f"known: {', '.join(names) if names else '{all names}'}"

    def _first(self, node: ast.Call, scope: Scope, choices: Choices, depth: int) -> str | None:
        """Return the item of a generator over a table that is written out."""
        made = node.args[0]
        if not isinstance(made, ast.GeneratorExp) or len(made.generators) != 1:
            return None
        bound = self._loop_bindings(made.generators[0], scope, choices)
        return self._resolve(made.elt, scope.with_bound(bound), choices, depth)

    def _joined_text(
        self, between: str, node: ast.expr, scope: Scope, choices: Choices
    ) -> str | None:
        names = self._texts_of_collection(node, scope, choices)
        return None if not names else between.join(names)

    def _texts_of_collection(
        self, node: ast.expr, scope: Scope, choices: Choices
    ) -> list[str] | None:
        """Return the texts of a collection that is written out, if they are few."""
        rows = self._elements(node, scope, _DEPTH)
        if rows is None or not 0 < len(rows) <= _LISTED:
            return None
        texts = [self._resolve(*row, choices, _DEPTH) for row in rows]
        known = [text for text in texts if text is not None]
        return known if len(known) == len(texts) else None

    def _elements(self, node: ast.expr, scope: Scope, depth: int) -> list[Value] | None:
        """Return the items of a collection that is written out: keys, for a dictionary."""
        if depth < 0:
            return None
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            found: list[Value] = []
            for part in node.elts:
                starred = isinstance(part, ast.Starred)
                inner = self._elements(part.value, scope, depth - 1) if starred else None  # type: ignore[attr-defined]
                if starred and inner is None:
                    return None
                found += inner if inner is not None else [(part, scope)]
            return found
        if isinstance(node, ast.Dict):
            keys = [key for key in node.keys if key is not None]
            return [(key, scope) for key in keys] if len(keys) == len(node.keys) else None
        if isinstance(node, ast.Call):
            return self._elements_of_call(node, scope, depth)
        if isinstance(node, ast.GeneratorExp | ast.ListComp):
            return self._elements_of_generator(node, scope, depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.BitOr):
            sides = [self._elements(side, scope, depth - 1) for side in (node.left, node.right)]
            return None if None in sides else [row for side in sides for row in side or ()]
        if isinstance(node, ast.Name | ast.Attribute):
            held = self._values(node, scope)
            return self._elements(*held[0], depth - 1) if len(held) == 1 else None
        return None

    def _elements_of_call(self, node: ast.Call, scope: Scope, depth: int) -> list[Value] | None:
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("items", "values", "keys"):
            return self._rows(node.func, scope, depth)
        if not isinstance(node.func, ast.Name) or not node.args:
            return None
        if node.func.id in _COLLECTIONS:
            return self._elements(node.args[0], scope, depth - 1)
        if node.func.id == "get_args":
            held = self._values(node.args[0], scope)
            if len(held) == 1 and isinstance(held[0][0], ast.Subscript):
                return self._elements(held[0][0].slice, held[0][1], depth - 1)
        return None

    def _rows(self, node: ast.Attribute, scope: Scope, depth: int) -> list[Value] | None:
        table, own = node.value, scope
        while not isinstance(table, ast.Dict):
            held = self._values(table, own)
            if len(held) != 1 or depth < 0:
                return None
            (table, own), depth = held[0], depth - 1
        pairs = [(key, value) for key, value in zip(table.keys, table.values, strict=True) if key]
        if node.attr == "items":
            return [(ast.Tuple([key, value], ast.Load()), own) for key, value in pairs]
        return [(key if node.attr == "keys" else value, own) for key, value in pairs]

    def _elements_of_generator(
        self, node: ast.GeneratorExp | ast.ListComp, scope: Scope, depth: int
    ) -> list[Value] | None:
        loop = node.generators[0]
        rows = self._elements(loop.iter, scope, depth - 1)
        if rows is None or loop.ifs or len(node.generators) != 1:
            return None
        found: list[Value] = []
        for row, own in rows:
            held: dict[str, list[ast.expr]] = {}
            _assign(held, loop.target, row)
            bound = {name: (values[0], own) for name, values in held.items()}
            found.append((node.elt, scope.with_bound(bound)))
        return found

    def _values(self, node: ast.expr, scope: Scope) -> list[Value]:
        """Return the values of a name without following them."""
        if isinstance(node, ast.Name):
            if node.id in scope.bound:
                return [scope.bound[node.id]]
            for level in range(len(scope.functions) - 1, -1, -1):
                function = scope.functions[level]
                held = self._local_values(function)
                if node.id in held:
                    inner = Scope(scope.module, scope.functions[: level + 1], scope.bound)
                    return [(value, inner) for value in held[node.id]]
                if node.id in _parameters(function):
                    return []
            return self._global_values(node.id, scope.module)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            place = scope.module.imports.get(node.value.id)
            if place is not None and ".".join(place) in self._modules:
                return self._global_values(node.attr, self._modules[".".join(place)])
        return []

    def _global_values(self, name: str, module: Module) -> list[Value]:
        """Return the values that a module, or one that it imports from, gives to a name."""
        if name in module.values:
            return [(value, Scope(module)) for value in module.values[name]]
        if name in module.imports:
            source, original = module.imports[name]
            if source in self._modules:
                return self._global_values(original, self._modules[source])
        return []

    def _local_values(self, function: Function) -> dict[str, list[ast.expr]]:
        """Return the values that a function assigns to names; none of a text that grows."""
        if id(function) not in self._locals:
            held: dict[str, list[ast.expr]] = {}
            for target, value in _assignments(function):
                _assign(held, target, value)
            for node in ast.walk(function):
                if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                    held[node.target.id] = [ast.Set([])]
            self._locals[id(function)] = held
        return self._locals[id(function)]

    def _function(self, node: ast.expr, scope: Scope) -> tuple[Function, Module] | None:
        """Return the function that an expression calls, if it is one of the package."""
        module, name = scope.module, None
        if isinstance(node, ast.Name):
            name = node.id
            if name in module.imports:
                source, name = module.imports[name]
                return self._find_export(source, name)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = node.attr
            place = module.imports.get(node.value.id)
            if place is not None:
                return self._find_export(".".join(place), name)
            if node.value.id not in ("self", "cls"):
                return None
        if name is None or name not in module.functions:
            return None
        return module.functions[name], module

    def _find_export(self, source: str, name: str) -> tuple[Function, Module] | None:
        module = self._modules.get(source)
        if module is None:
            return None
        if name in module.functions:
            return module.functions[name], module
        if name in module.imports and module.imports[name] != (source, name):
            return self._find_export(*module.imports[name])
        return None


def calls_in(module: Module) -> Iterator[tuple[Scope, ast.Call]]:
    """Yield every call of a file, with its scope."""
    yield from _calls(module.tree, Scope(module))


def _calls(node: ast.AST, scope: Scope) -> Iterator[tuple[Scope, ast.Call]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield scope, child
        inner = scope
        if isinstance(child, Function):
            inner = Scope(scope.module, (*scope.functions, child))
        yield from _calls(child, inner)


def _own_nodes(function: Function) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without those of the functions in it."""
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, Function | ast.ClassDef | ast.Lambda):
            yield child
            yield from _own_nodes(child)  # type: ignore[arg-type]


def _names(target: ast.expr) -> set[str]:
    return {node.id for node in _name_nodes(target)}


def _name_nodes(node: ast.AST) -> Iterator[ast.Name]:
    return (part for part in ast.walk(node) if isinstance(part, ast.Name))


def _initializer(owner: ast.ClassDef) -> Function | None:
    """Return the `__init__` of a class."""
    return next(
        (part for part in owner.body if isinstance(part, Function) and part.name == "__init__"),
        None,
    )


def _parameters(function: Function) -> list[str]:
    given = function.args
    return [part.arg for part in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def _default(name: str, function: Function) -> ast.expr | None:
    """Return the default of a parameter."""
    given = function.args
    positional = [part.arg for part in (*given.posonlyargs, *given.args)]
    defaults = dict(zip(positional[::-1], given.defaults[::-1], strict=False))
    defaults |= {
        part.arg: value
        for part, value in zip(given.kwonlyargs, given.kw_defaults, strict=True)
        if value is not None
    }
    return defaults.get(name)


def _arguments(call: ast.Call, function: Function) -> dict[str, ast.expr]:
    """Return the arguments of a call by the names of the parameters."""
    given = function.args
    names = [part.arg for part in (*given.posonlyargs, *given.args)]
    if names[:1] in (["self"], ["cls"]):
        names = names[1:]
    if any(isinstance(value, ast.Starred) for value in call.args):
        return {}
    found = dict(zip(names, call.args, strict=False))
    return found | {word.arg: word.value for word in call.keywords if word.arg is not None}


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _is_empty(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and not node.value


def _sentence(text: str | None) -> str | None:
    """Return a text of several words or with an option; None for one word, a value of a run."""
    if text is None:
        return None
    own = re.sub(r"\{[^{}]*\}", "", text).strip()
    return text if " " in own or (own.startswith("-") and own.strip("-")) else None


def _shown_constant(value: object) -> str | None:
    if isinstance(value, bool) or value is None or value is Ellipsis:
        return None
    return f"{value:,}" if isinstance(value, int) and value >= 10_000 else str(value)
