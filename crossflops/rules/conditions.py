"""A call where it stands: what a rule may read of it, and the conditions that it may put.

A condition that one tool alone needs stands in the file of that tool.
"""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Literal

from crossflops.ir.graph import Node, TensorSpec
from crossflops.ir.trace import NESTED, Call, Module, Scalar, Trace


class Site:
    """A call with its module, and with the calls around it.

    `setting` is the id of the setting in which the tool runs, `node` the graph's node on the node
    level. Operator calls name their tensors by the operator's schema ("input", "weight", "self",
    "mat2" ...), module calls by place ("0" is the first positional argument).
    """

    def __init__(
        self, call: Call, trace: Trace, setting: str = "", node: Node | None = None
    ) -> None:
        self.call = call
        self.trace = trace
        self.setting = setting
        self.node = node

    @property
    def key(self) -> str:
        """The key of the call."""
        return self.call.key

    @property
    def target(self) -> str:
        """What was called: a class, a function, an operator."""
        return self.call.target

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The tensors that the call was given."""
        return self.call.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The tensors that it returned."""
        return self.call.outputs

    @property
    def settings(self) -> Mapping[str, Scalar]:
        """Its arguments that are no tensors, or the attributes of the node."""
        return self.call.settings

    @property
    def module(self) -> Module:
        """The module that was called or, on the other levels, the one that encloses the call."""
        return self.trace.modules[self.call.module]

    @cached_property
    def around(self) -> tuple[Call, ...]:
        """The call itself and those around it, innermost first."""
        return (self.call, *self.trace.ancestors(self.call))

    def input(self, name: str) -> TensorSpec | None:
        """The input of that name, or None."""
        return self.call.input(name)

    def shape(self, *names: str) -> tuple[int, ...]:
        """The shape of the first of these inputs that the call has. Raises LookupError."""
        for name in names:
            spec = self.call.input(name)
            if spec is not None and spec.shape is not None:
                return spec.shape
        raise LookupError(f"{self.key} has no input {' or '.join(names)}")

    @property
    def result(self) -> TensorSpec:
        """The first output. Raises LookupError where there is none."""
        if not self.outputs:
            raise LookupError(f"{self.key} has no output")
        return self.outputs[0]

    @property
    def valid_positions(self) -> int:
        """The positions of a padded sequence that are left in a nested tensor.

        Raises ValueError where it was not watched how many they are.
        """
        if self.call.rows is None:
            raise ValueError(f"{self.key} has rows of unknown lengths")
        return self.call.rows

    def number(self, name: str) -> int:
        """A setting of the module. Raises LookupError without it, TypeError if it is no number."""
        value = self.module.settings[name]
        if not isinstance(value, int | float):
            raise TypeError(f"{name} of {self.module.path or 'the model'} is {value!r}")
        return int(value)

    def extents(self, name: str) -> tuple[int, ...]:
        """A setting of the module that is one extent, or one for each axis."""
        value = self.module.settings[name]
        return tuple(map(int, value)) if isinstance(value, list) else (self.number(name),)


def input_elements(call: Site) -> int:
    """n(x)."""
    if not call.inputs:
        raise LookupError(f"{call.key} has no input")
    return call.inputs[0].numel


def output_elements(call: Site) -> int:
    """n(y)."""
    return call.result.numel


def fits(name: str, patterns: tuple[str, ...]) -> bool:
    """Whether a pattern fits the name; no patterns fit everything."""
    return not patterns or any(
        name == pattern or ("*" in pattern and fnmatchcase(name, pattern)) for pattern in patterns
    )


def in_any_domain(*operators: str) -> tuple[str, ...]:
    """Patterns for ONNX operators of these types, for a tool that does not look at the domain."""
    return (*operators, *(f"*.{operator}" for operator in operators))


# Functions that a trace names so: they are around functions of PyTorch, and are none.
VMAP = "torch.vmap"
HOOKS, PRE_HOOK = "torch.nn.Module.*hook", "torch.nn.Module.pre_hook"


class Condition:
    """Something that must hold of a call, and its words: `words`, and the names that follow.

    `whom` says that the words name the calls themselves and no further condition. `watched` is
    the level of the real run that must be watched to tell, "" where the trace is enough.
    """

    def __init__(
        self,
        words: str,
        holds: Callable[[Site], bool],
        names: tuple[str, ...] = (),
        whom: bool = False,
        watched: Literal["", "module", "operator"] = "",
    ) -> None:
        self.words = words
        self.holds = holds
        self.names = names
        self.whom = whom
        self.watched = watched

    def __str__(self) -> str:
        return f"{self.words} {' or '.join(self.names)}".strip()


def _module_ancestors(site: Site) -> list[Call]:
    return [call for call in site.around if call.level == "module"]


def _function_ancestors(site: Site) -> list[Call]:
    return [call for call in site.around if call.level == "function"]


def kind_of(*classes: str) -> Condition:
    """The module is of one of these classes, or of a subclass."""
    known = frozenset(classes)
    return Condition(
        "a subclass", lambda site: not known.isdisjoint(site.module.bases), classes, whom=True
    )


def any_but(*names: str) -> Condition:
    """The target is none of these."""
    return Condition("any except", lambda site: not fits(site.target, names), names, whom=True)


def called() -> Condition:
    """The module, or the one around, was called by `__call__`, where hooks see it."""
    return Condition("called as module(x)", lambda site: _came_by(site, "call"))


def by_forward() -> Condition:
    """The module, or the one around, was called by `.forward`, which no hook sees."""
    return Condition("called by .forward()", lambda site: _came_by(site, "forward"))


def _came_by(site: Site, via: str) -> bool:
    modules = _module_ancestors(site)
    return bool(modules) and modules[0].via == via


def subclass_of(*classes: str) -> Condition:
    """The class of the enclosing module is derived from one of these, and is none of them."""
    known = frozenset(classes)
    return Condition(
        "in a subclass of", lambda site: not known.isdisjoint(site.module.bases[1:]), classes
    )


def by_name() -> Condition:
    """The nearest function was called by its attribute, where a tool can replace it."""
    return Condition(
        "called by its name",
        lambda site: _is_reached_by(site, "attribute", "mode"),
        watched="operator",
    )


def captured() -> Condition:
    """The nearest function was called by a reference that was taken before a tool began."""
    return Condition(
        "called by a reference taken before the tool began",
        lambda site: _is_reached_by(site, "reference"),
        watched="operator",
    )


def _is_reached_by(site: Site, *ways: str) -> bool:
    functions = _function_ancestors(site)
    return bool(functions) and functions[0].via in ways


def through(*functions: str) -> Condition:
    """The nearest function around is one of these."""

    def holds(site: Site) -> bool:
        enclosing = _function_ancestors(site)
        return fits(enclosing[0].target if enclosing else "", functions)

    return Condition("through", holds, functions)


def inside(*classes: str) -> Condition:
    """A module of one of these classes is around."""
    return Condition(
        "in",
        lambda site: any(fits(call.target, classes) for call in _module_ancestors(site)),
        classes,
    )


def under(*functions: str) -> Condition:
    """A call of one of these functions is around."""
    return Condition(
        "under",
        lambda site: any(fits(call.target, functions) for call in _function_ancestors(site)),
        functions,
    )


def in_body() -> Condition:
    """The body of a custom operator made the call."""
    return Condition(
        "in the body of a custom operator",
        lambda site: site.trace.operator_around(site.call) is not None,
        watched="operator",
    )


def registered(expected: bool = True) -> Condition:
    """The enclosing module has a name in the model, or has none."""
    words = "registered in the model" if expected else "not registered in the model"
    return Condition(words, lambda site: bool(site.module.names) == expected)


def as_root(expected: bool = True) -> Condition:
    """The module is the whole model, or a part of it."""
    words = "as the whole model" if expected else "not as the whole model"
    return Condition(words, lambda site: (site.module.id == 0) == expected)


def leaf(expected: bool = True) -> Condition:
    """The module has no modules in it, or has some."""
    words = "without submodules" if expected else "with submodules"
    return Condition(words, lambda site: (not site.module.children) == expected)


def setting(**values: Scalar) -> Condition:
    """Settings have these values: the call's own, or on the module level the module's."""

    def holds(site: Site) -> bool:
        settings = site.module.settings if site.call.level == "module" else site.settings
        return all(name in settings and settings[name] == value for name, value in values.items())

    return Condition(", ".join(f"{name}={value}" for name, value in values.items()), holds)


def recorded_as(words: str, **values: Scalar) -> Condition:
    """What the recording of a run says of a call has these values; `words` say what that means."""
    return Condition(words, setting(**values).holds)


def has(*names: str) -> Condition:
    """Inputs of the call, or parameters of the module that was called, have all these names."""
    return Condition(
        "with",
        lambda site: all(
            any(fits(own, (name,)) for own in _site_tensor_names(site)) for name in names
        ),
        names,
    )


def lacks(*names: str) -> Condition:
    """No input of the call, or no parameter of the module that was called, has such a name."""
    return Condition(
        "without",
        lambda site: not any(fits(name, names) for name in _site_tensor_names(site)),
        names,
    )


def _site_tensor_names(site: Site) -> set[str]:
    if site.call.level == "module":
        return {parameter.name for parameter in site.module.params}
    return {spec.name for spec in site.inputs}


def run_as(*kernels: str) -> Condition:
    """In the setting in which the tool runs, a kernel of these names swallowed the call."""

    def holds(site: Site) -> bool:
        fused = site.call.fused
        return site.setting in fused and fits(fused[site.setting], kernels)

    nested = all(kernel == f"{NESTED}*" for kernel in kernels)
    return Condition("run as", holds, kernels, watched="module" if nested else "operator")


def padding_dropped() -> Condition:
    """An encoder dropped the positions that a padding mask covers, and made a nested tensor."""
    return run_as(f"{NESTED}*")


def of_type(*dtypes: str) -> Condition:
    """The first input has one of these element types."""
    return Condition(
        "of", lambda site: bool(site.inputs) and site.inputs[0].dtype in dtypes, dtypes
    )


def of_complex() -> Condition:
    """The first input holds complex numbers."""
    return of_type("complex64", "complex128")
