"""Calls as rules see them (`Site`), and conditions on calls.

A condition that one tool alone needs stands in the file of that tool.
"""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Literal

from crossflops.ir.graph import Node, TensorSpec
from crossflops.ir.trace import NESTED, Call, Module, Scalar, Trace


class Site:
    """A call with its module and its ancestors.

    `setting` is the id of the setting in which the tool runs; `node` is the graph's node on the
    node level. Operator calls name their tensors by the operator's schema ("input", "weight",
    "self", "mat2" ...), module calls by position ("0" is the first positional argument).
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
        """The name of the called class, function or operator, such as "aten.conv2d.default"."""
        return self.call.target

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The tensor inputs of the call."""
        return self.call.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The tensors that the call returned."""
        return self.call.outputs

    @property
    def settings(self) -> Mapping[str, Scalar]:
        """The arguments of the call that are not tensors, or the attributes of the node."""
        return self.call.settings

    @property
    def module(self) -> Module:
        """The module that was called or, on the other levels, the one that encloses the call."""
        return self.trace.modules[self.call.module]

    @cached_property
    def around(self) -> tuple[Call, ...]:
        """The call itself and its ancestors, innermost first."""
        return (self.call, *self.trace.ancestors(self.call))

    def input(self, name: str) -> TensorSpec | None:
        """Return the tensor input with this name, or None if the call has none."""
        return self.call.input(name)

    def shape(self, *names: str) -> tuple[int, ...]:
        """Return the shape of the first of these inputs that the call has. Raises LookupError if
        it has none of them.
        """
        for name in names:
            spec = self.call.input(name)
            if spec is not None and spec.shape is not None:
                return spec.shape
        raise LookupError(f"{self.key} has no input {' or '.join(names)}")

    @property
    def result(self) -> TensorSpec:
        """The first output tensor of the call. Raises LookupError if the call has no output."""
        if not self.outputs:
            raise LookupError(f"{self.key} has no output")
        return self.outputs[0]

    @property
    def valid_positions(self) -> int:
        """The number of positions of a padded sequence that a nested tensor keeps.

        Raises ValueError where the run was not observed, so their number is unknown.
        """
        if self.call.position_count_of_padding_mask is None:
            raise ValueError(f"{self.key} has rows of unknown lengths")
        return self.call.position_count_of_padding_mask

    def number(self, name: str) -> int:
        """Return a setting of the call's module as an integer. Raises LookupError if it is
        missing, TypeError if it is not a number.
        """
        value = self.module.settings[name]
        if not isinstance(value, int | float):
            raise TypeError(f"{name} of {self.module.path or 'the model'} is {value!r}")
        return int(value)

    def extents(self, name: str) -> tuple[int, ...]:
        """Return a setting of the call's module as a tuple: one size for all axes, or one for each
        axis.
        """
        value = self.module.settings[name]
        return tuple(map(int, value)) if isinstance(value, list) else (self.number(name),)


def input_elements(call: Site) -> int:
    """Return n(x), the number of elements of the first input."""
    if not call.inputs:
        raise LookupError(f"{call.key} has no input")
    return call.inputs[0].numel


def output_elements(call: Site) -> int:
    """Return n(y), the number of elements of the first output."""
    return call.result.numel


def matches_any_pattern(name: str, patterns: tuple[str, ...]) -> bool:
    """Return whether a name equals or matches one of the patterns; without patterns,
    return True.
    """
    return not patterns or any(
        name == pattern or ("*" in pattern and fnmatchcase(name, pattern)) for pattern in patterns
    )


def in_any_domain(*operators: str) -> tuple[str, ...]:
    """Return name patterns that match ONNX operators of these types in any domain: "Gelu" and
    "*.Gelu".
    """
    return (*operators, *(f"*.{operator}" for operator in operators))


# Functions that a trace names so: they are around functions of PyTorch, and are none.
VMAP = "torch.vmap"
HOOKS, PRE_HOOK = "torch.nn.Module.*hook", "torch.nn.Module.pre_hook"


class Condition:
    """A condition on a call, with the words that describe it.

    Args:
        words: The words, which the names follow.
        holds: The test of a call.
        names: The names that the condition is about.
        whom: Whether the words name the calls themselves, and no further condition.
        watched: The level of the real run that must be observed to decide it, "" if the trace is
            enough.

    Example:
        >>> str(Condition("with", lambda site: "bias" in site.settings, ("bias",)))
        'with bias'
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
        """Return the condition in words."""
        return f"{self.words} {' or '.join(self.names)}".strip()


def _module_ancestors(site: Site) -> list[Call]:
    """Return the module calls among a call and those that enclose it, innermost first."""
    return [call for call in site.around if call.level == "module"]


def _function_ancestors(site: Site) -> list[Call]:
    """Return the function calls among a call and those that enclose it, innermost first."""
    return [call for call in site.around if call.level == "function"]


def kind_of(*classes: str) -> Condition:
    """Return the condition that the class of the call's module is one of these or derived from
    one.

    Args:
        classes: Names of classes.

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> str(kind_of("torch.nn.modules.linear.Linear"))
        'a subclass torch.nn.modules.linear.Linear'
    """
    known = frozenset(classes)
    return Condition(
        "a subclass", lambda site: not known.isdisjoint(site.module.bases), classes, whom=True
    )


def any_but(*names: str) -> Condition:
    """Return the condition that the called class or function is none of these.

    Args:
        names: Names or patterns of targets.

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> str(any_but("aten.mm.default"))
        'any except aten.mm.default'
    """
    return Condition(
        "any except", lambda site: not matches_any_pattern(site.target, names), names, whom=True
    )


def called() -> Condition:
    """Return the condition that the module of the call was called by `__call__`, which runs its
    hooks.

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> str(called())
        'called as module(x)'
    """
    return Condition(
        "called as module(x)", lambda site: _is_innermost_module_called_by(site, "call")
    )


def by_forward() -> Condition:
    """Return the condition that the module of the call was called by `.forward`, which runs no
    hooks.

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> str(by_forward())
        'called by .forward()'
    """
    return Condition(
        "called by .forward()", lambda site: _is_innermost_module_called_by(site, "forward")
    )


def _is_innermost_module_called_by(site: Site, method: str) -> bool:
    """Return whether the innermost module was called by `method`: "call" (`__call__`) or
    "forward".
    """
    modules = _module_ancestors(site)
    return bool(modules) and modules[0].via == method


def subclass_of(*classes: str) -> Condition:
    """Return the condition that the class of the call's module is derived from one of these, but
    is not one of them.

    Args:
        classes: Names of classes.

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> str(subclass_of("models.Block"))
        'in a subclass of models.Block'
    """
    known = frozenset(classes)
    return Condition(
        "in a subclass of", lambda site: not known.isdisjoint(site.module.bases[1:]), classes
    )


def by_name() -> Condition:
    """Return the condition that the nearest function was looked up by its name when it was called,
    so that a tool's replacement of it is seen.

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> str(by_name())
        'called by its name'
    """
    return Condition(
        "called by its name",
        lambda site: _is_function_call_made_by(site, "attribute", "mode"),
        watched="operator",
    )


def captured() -> Condition:
    """Return the condition that the nearest function was called by a reference taken before the
    tool replaced it.

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> str(captured())
        'called by a reference taken before the tool started'
    """
    return Condition(
        "called by a reference taken before the tool started",
        lambda site: _is_function_call_made_by(site, "reference"),
        watched="operator",
    )


def _is_function_call_made_by(site: Site, *ways: str) -> bool:
    """Return whether the innermost function call was made in one of these ways (`Call.via`, such
    as "attribute").
    """
    functions = _function_ancestors(site)
    return bool(functions) and functions[0].via in ways


def through(*functions: str) -> Condition:
    """Return the condition that the nearest function call, the call itself included, is one of
    these functions.

    Args:
        functions: Names or patterns of functions.

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> str(through("torch.matmul"))
        'through torch.matmul'
    """

    def is_innermost_function_in_list(site: Site) -> bool:
        """Return whether the innermost function call is one of `functions`."""
        enclosing = _function_ancestors(site)
        return matches_any_pattern(enclosing[0].target if enclosing else "", functions)

    return Condition("through", is_innermost_function_in_list, functions)


def inside(*classes: str) -> Condition:
    """Return the condition that the call is inside a module of one of these classes, at any depth.

    Args:
        classes: Names or patterns of classes.

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> str(inside("models.Block"))
        'in models.Block'
    """
    return Condition(
        "in",
        lambda site: any(
            matches_any_pattern(call.target, classes) for call in _module_ancestors(site)
        ),
        classes,
    )


def under(*functions: str) -> Condition:
    """Return the condition that the call is inside a call of one of these functions, at any depth.

    Args:
        functions: Names or patterns of functions.

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> str(under("torch.vmap"))
        'under torch.vmap'
    """
    return Condition(
        "under",
        lambda site: any(
            matches_any_pattern(call.target, functions) for call in _function_ancestors(site)
        ),
        functions,
    )


def in_body() -> Condition:
    """Return the condition that the call was made by the Python body of a custom operator.

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> str(in_body())
        'in the body of a custom operator'
    """
    return Condition(
        "in the body of a custom operator",
        lambda site: site.trace.enclosing_operator(site.call) is not None,
        watched="operator",
    )


def registered(expected: bool = True) -> Condition:
    """Return the condition that the module of the call has a name in the model (with False: that
    it has none).

    Args:
        expected: Whether it must be so, or must not.

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> str(registered(False))
        'not registered in the model'
    """
    words = "registered in the model" if expected else "not registered in the model"
    return Condition(words, lambda site: bool(site.module.names) == expected)


def as_root(expected: bool = True) -> Condition:
    """Return the condition that the module of the call is the whole model (with False: that it is
    only a part of it).

    Args:
        expected: Whether it must be so, or must not.

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> str(as_root())
        'as the whole model'
    """
    words = "as the whole model" if expected else "not as the whole model"
    return Condition(words, lambda site: (site.module.id == 0) == expected)


def leaf(expected: bool = True) -> Condition:
    """Return the condition that the module of the call has no submodules (with False: that it has
    some).

    Args:
        expected: Whether it must be so, or must not.

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> str(leaf())
        'without submodules'
    """
    words = "without submodules" if expected else "with submodules"
    return Condition(words, lambda site: (not site.module.children) == expected)


def setting(**values: Scalar) -> Condition:
    """Return the condition that these settings have these values: settings of the module for a
    module call, of the call itself otherwise.

    Args:
        values: The values by the name of the setting.

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> str(setting(bias=True))
        'bias=True'
    """

    def has_setting_values(site: Site) -> bool:
        """Return whether the call or its module has all the required settings, each with its
        value.
        """
        settings = site.module.settings if site.call.level == "module" else site.settings
        return all(name in settings and settings[name] == value for name, value in values.items())

    return Condition(
        ", ".join(f"{name}={value}" for name, value in values.items()), has_setting_values
    )


def recorded_as(words: str, **values: Scalar) -> Condition:
    """Return the condition that settings have these values, with `words` as its text on a page.

    Args:
        words: The meaning of the values.
        values: The values by the name of the setting.

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> str(recorded_as("with a mask", mask=True))
        'with a mask'
    """
    return Condition(words, setting(**values).holds)


def has(*names: str) -> Condition:
    """Return the condition that the call has an input (a module call: a parameter) for each of
    these names.

    Args:
        names: Names or patterns.

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> str(has("bias"))
        'with bias'
    """
    return Condition(
        "with",
        lambda site: all(
            any(matches_any_pattern(own, (name,)) for own in _site_tensor_names(site))
            for name in names
        ),
        names,
    )


def lacks(*names: str) -> Condition:
    """Return the condition that the call has no input (a module call: no parameter) with one of
    these names.

    Args:
        names: Names or patterns.

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> str(lacks("bias"))
        'without bias'
    """
    return Condition(
        "without",
        lambda site: (
            not any(matches_any_pattern(name, names) for name in _site_tensor_names(site))
        ),
        names,
    )


def _site_tensor_names(site: Site) -> set[str]:
    """Return the names of the module's own parameters for a module call, else the names of the
    call's inputs.
    """
    if site.call.level == "module":
        return {parameter.name for parameter in site.module.params}
    return {spec.name for spec in site.inputs}


def run_as(*kernels: str) -> Condition:
    """Return the condition that, in the tool's setting, a fused kernel with one of these names ran
    the call.

    Args:
        kernels: Names or patterns of kernels.

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> str(run_as("aten._native_multi_head_attention.default"))
        'run as aten._native_multi_head_attention.default'
    """

    def ran_as_fused_kernel(site: Site) -> bool:
        """Return whether one of the fused kernels ran the call in the tool's setting."""
        fused = site.call.fused
        return site.setting in fused and matches_any_pattern(fused[site.setting], kernels)

    nested = all(kernel == f"{NESTED}*" for kernel in kernels)
    return Condition(
        "run as", ran_as_fused_kernel, kernels, watched="module" if nested else "operator"
    )


def padding_dropped() -> Condition:
    """Return the condition that an encoder left out the padded positions of its input, by a nested
    tensor.

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> padding_dropped().words
        'run as'
    """
    return run_as(f"{NESTED}*")


def of_type(*dtypes: str) -> Condition:
    """Return the condition that the first input has one of these element types.

    Args:
        dtypes: Names of types, such as "float32".

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> str(of_type("float16", "bfloat16"))
        'of float16 or bfloat16'
    """
    return Condition(
        "of", lambda site: bool(site.inputs) and site.inputs[0].dtype in dtypes, dtypes
    )


def of_complex() -> Condition:
    """Return the condition that the elements of the first input are complex numbers.

    Returns:
        The condition, whose text is the words on a page.

    Example:
        >>> str(of_complex())
        'of complex64 or complex128'
    """
    return of_type("complex64", "complex128")
