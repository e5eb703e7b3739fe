"""A run of the model: a tree of calls, and a table of the modules.

Of the tree of modules: what lies beneath each one, and how often a tool that walks it meets it.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from math import prod
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from crossflops.ir.graph import Checkpoint, TensorSpec

Level: TypeAlias = Literal[
    "module",
    "function",
    "operator",
    "jit",
    "traced",
    "event",
    "dispatch",
    "lowered",
    "compiled",
    "node",
    "graph",
    "architecture",
]
# levels of a real run, or of a real compilation
OBSERVED: frozenset[str] = frozenset({"jit", "traced", "event", "dispatch", "lowered", "compiled"})
UNWATCHED = "(unwatched)"  # the only call of a run that raises when it is watched
NESTED = "nested:"  # begins what is said of a call in which padding was dropped
Scalar: TypeAlias = bool | int | float | str | list[Any] | None


class StepSetting(msgspec.Struct, frozen=True, kw_only=True):
    """A training step: a forward pass, and a backward pass from the loss to the trained tensors.

    `frozen` and `trainable` are patterns of parameters, or of modules around them: the second
    goes over the first, and over what the model says. `reached` says of each output, flat and in
    their order, whether the loss is made of it; without it all floats are.
    """

    frozen: tuple[str, ...] = ()
    trainable: tuple[str, ...] = ()
    reached: tuple[bool, ...] | UnsetType = UNSET


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A way to run a model. Totals of one tool differ by setting.

    Attributes:
        device: The type of the device: "cpu".
        training: Whether the model is in training mode.
        grad: Whether gradients are recorded.
        hooked: Whether hooks are on the modules, or only on the children of the model. They switch
            off PyTorch's fused paths.
        fake: Whether tensors have shapes and types, and no values. A tool on such tensors prints
            the same, or does not run on them.
        step: The training step that is run, not only a forward pass.

    Example:
        >>> from crossflops import Setting
        >>> Setting(training=True, grad=False).id
        'train no_grad'
    """

    device: str = "cpu"
    training: bool = False
    grad: bool = True
    hooked: bool | Literal["children"] = False
    fake: Literal[True] | UnsetType = UNSET
    step: StepSetting | UnsetType = UNSET

    @property
    def id(self) -> str:
        """A short name of the setting: "eval grad", "train no_grad hooked", "train grad
        step" ...
        """
        words = ["train" if self.training else "eval", "grad" if self.grad else "no_grad"]
        words += ["step"] if self.step else []
        words += ["hooked"] if self.hooked else []
        return " ".join([*words, self.hooked] if isinstance(self.hooked, str) else words)


class View(Setting, frozen=True, kw_only=True):
    """A setting in which the model is run for real, and the kind of record of that run.

    "operator": which calls collapse into fused kernels. "module": which modules of an encoder deal
    with nested tensors. "jit": the graph that torch.jit traces of the model with its results made
    flat, "traced": of the model as it is.
    "event": the operators that PyTorch reports as they begin, with those that they call.
    "dispatch": the operators that multiply, as a dispatch mode sees them. "lowered": the
    instructions that JAX gives to XLA, "compiled": those that XLA makes of them.
    """

    level: Level = "operator"


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of a module. Two with the same `storage` are one tensor under two names.

    `dtype` is named as in a TensorSpec; `trainable` is false for one that is frozen. `kept` is
    the number of ones in the mask that `torch.nn.utils.prune` holds beside it, None without one.
    """

    name: str
    shape: tuple[int, ...]
    storage: int
    dtype: str = "float32"
    trainable: bool = True
    kept: int | None = None

    @property
    def numel(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The size of the stored tensor in bytes."""
        return TensorSpec(self.name, self.dtype, self.shape).nbytes


class Module(msgspec.Struct, frozen=True, kw_only=True):
    """One module object. `names` are all its paths from the root, "" for the root itself.

    `bases` is the method resolution order, the class itself first. `children` are the
    registered ones by name, as (name, module id); `settings` the plain attributes.
    """

    id: int
    names: tuple[str, ...]
    bases: tuple[str, ...]
    params: tuple[Parameter, ...]
    children: tuple[tuple[str, int], ...]
    training: bool
    settings: dict[str, Scalar]

    @property
    def class_name(self) -> str:
        """The name of the class without its package and outer classes: `type(module).__name__`."""
        return self.bases[0].rpartition(".")[2] if self.bases else ""

    @property
    def path(self) -> str:
        """The path of the module in reports: its first name, or "(unregistered)" if it
        has none.
        """
        return self.names[0] if self.names else "(unregistered)"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """An invocation, on one level.

    `target` is a class, an entry point (`torch.Tensor.__matmul__`) or an operator
    (`aten.conv2d.default`). `via` is, for a module, "call" or "forward"; for a function,
    "attribute", "reference" (captured before it could be patched), "mode" (by its attribute, while
    a TorchFunctionMode of the model handles the call around) or "hook" (a hook of the
    module, which is no part of its forward). `module` is the id of the module that was called
    or, for the other levels, of the one that encloses the call. `stored` says of a call that is
    not `live` that its result is written into a tensor that outlives the run: a buffer, a
    parameter, an input. `returns` says of a module's call what its result is: "tensor",
    "sequence", "mapping", "none" or, by which most tools are lost, any other "object".
    `fused` names, by setting id, the kernel that swallowed this call in that setting: an operator
    in it, or a function that the kernel was called in place of. Of the call of a module or a
    function that dealt with nested tensors it is `NESTED`, followed by the number of positions
    that a padding mask left.
    `arity` and `keywords` are the numbers of arguments that a module or a function was given by
    position and by keyword. `arguments` are those of a module that are plain values, by their
    position as text or by keyword. `keyword_only` are the arguments of an operator that go by
    keyword alone and were given: the defaults of its schema, None without one.

    A call on the levels in `OBSERVED` belongs to a real run: `setting` is the id of its setting,
    and `of` names the operator calls whose work it does, or does a part of. Its target is spelled
    as PyTorch does there (`aten::linear`), or XLA, its tensors are named by place.
    What `depends_on_inputs` would have other sizes, or not be called, for other values.
    `lists` names the settings of a function that are lists, where a tool may want tuples.
    `grad` is false for what the model runs without gradients (`torch.no_grad`); of an operator,
    `checkpoint` is the one that it stands in, and it `starts` gradients where the model asks for
    those of its result (`requires_grad_`), whatever is trained before it. A `custom` operator is
    one that the user's own code defines; functions and modules beneath an operator are what its
    body called in a run. PyTorch takes a `composite` one apart before anything sees it dispatched.
    """

    key: str
    parent: str | None
    level: Level
    target: str
    module: int
    via: str = ""
    ordinal: int = 1
    settings: dict[str, Scalar] = {}
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    live: bool = True
    stored: bool = False
    constant: bool = False
    assumed: bool = False
    nodes: tuple[str, ...] = ()
    fused: dict[str, str] = {}
    lists: tuple[str, ...] = ()
    arity: int = 0
    keywords: int = 0
    returns: str = ""
    setting: str = ""
    of: tuple[str, ...] = ()
    depends_on_inputs: bool = False
    grad: bool = True
    starts: bool = False
    checkpoint: Checkpoint | None = None
    custom: bool = False
    composite: bool = False
    arguments: dict[str, Scalar] = {}
    keyword_only: dict[str, Scalar | None] = {}

    @property
    def position_count_of_padding_mask(self) -> int | None:
        """The number of positions that a padding mask kept, if a setting made a nested tensor of
        them; else None.
        """
        nested = (kernel for kernel in self.fused.values() if kernel.startswith(NESTED))
        shape = next(nested, "").removeprefix(NESTED)
        return int(shape) if shape else None

    def input(self, name: str) -> TensorSpec | None:
        """Return the tensor input with this name, or None if the call has none."""
        return next((spec for spec in self.inputs if spec.name == name), None)


class Kernel(msgspec.Struct, frozen=True):
    """A fused kernel that ran: how often, and in which modules, in the order of the run."""

    name: str
    times: int
    modules: tuple[str, ...]


class Trace(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Calls in the order in which they began (a parent before its children), and the modules.

    `observed` are those of the levels in `OBSERVED`, parents first too. `framework` is "torch",
    "tensorflow", "jax" or "sklearn": the rules of a tool are about the calls of one of them.
    `kernels` are the fused ones that ran, by the id of every setting in which the model was run.
    `runtime` is what ran the model where values of a run decided about sizes or calls, else "";
    `notes` are what a reader should know of that run. `writes_detached` says that a detached
    tensor is changed in place, `loops_alike` that the backward pass of a loop does in each run
    all that it does in any. `dropped` are parts of operators of `calls`, as their decompositions
    have them, that a run does and on which no output depends.
    """

    calls: tuple[Call, ...]
    modules: tuple[Module, ...]
    setting: Setting
    observed: tuple[Call, ...] = ()
    framework: str = "torch"
    kernels: dict[str, tuple[Kernel, ...]] = {}
    runtime: str = ""
    notes: tuple[str, ...] = ()
    writes_detached: bool = False
    loops_alike: bool = False
    dropped: tuple[Call, ...] = ()

    @cached_property
    def calls_by_key(self) -> dict[str, Call]:
        """All calls, those of real runs included, by their keys."""
        return {call.key: call for call in (*self.calls, *self.observed)}

    @cached_property
    def children(self) -> dict[str | None, tuple[Call, ...]]:
        """The direct inner calls of each call, by the key of the outer call; the outermost calls
        are under None.
        """
        by_parent: dict[str | None, list[Call]] = {}
        for call in self.calls:
            by_parent.setdefault(call.parent, []).append(call)
        return {key: tuple(calls) for key, calls in by_parent.items()}

    def enclosing_operator(self, call: Call) -> Call | None:
        """Return the nearest operator call that encloses this call, or None if there is none."""
        enclosing = (outer for outer in self.ancestors(call) if outer.level == "operator")
        return next(enclosing, None)

    @cached_property
    def last_call_keys(self) -> frozenset[str]:
        """The key of the last call of each module that was called by `__call__`."""
        by_module = {
            call.module: call.key
            for call in self.calls
            if call.level == "module" and call.via == "call"
        }
        return frozenset(by_module.values())

    def ancestors(self, call: Call) -> tuple[Call, ...]:
        """Return the calls that enclose this one, innermost first."""
        above = []
        while call.parent is not None:
            call = self.calls_by_key[call.parent]
            above.append(call)
        return tuple(above)


# The tree of modules.

Modules = tuple[Module, ...]
CountByModule: TypeAlias = dict[int, int]  # by the id of the module
CountByModuleAndAncestor: TypeAlias = dict[int, dict[int, int]]  # by both ids


class Times(msgspec.Struct, frozen=True):
    """The number of times that a tool books one call of a module.

    `of` gives it by module, of the module table. `within` gives, by module, how often it stands in
    the number of each module around, for a tool that shows a module under each of its parents;
    None where a module stands once, under its first name.
    """

    of: Callable[[Modules], Mapping[int, int]]
    within: Callable[[Modules], Mapping[int, Mapping[int, int]]] | None = None


def subtree_parameters(module: int, modules: Modules) -> tuple[Parameter, ...]:
    """Return the parameters of a module and of all modules inside it, as `.parameters()` does:
    each stored tensor once.
    """
    parameters: dict[int, Parameter] = {}
    todo, reached = [module], {module}
    while todo:
        row = modules[todo.pop()]
        for parameter in row.params:
            parameters.setdefault(parameter.storage, parameter)
        fresh = {child for _, child in row.children} - reached
        reached |= fresh
        todo.extend(fresh)
    return tuple(parameters.values())


def path_counts_by_ancestor(
    modules: Modules, ends: frozenset[str] = frozenset()
) -> CountByModuleAndAncestor:
    """Return, by module id, how many paths lead to the module from itself (1) and from each
    enclosing module, by the id of that module.

    A child stands once in each parent. No chain goes on beneath a module of a class in `ends`.
    """
    parents: dict[int, list[int]] = {}
    for row in modules:
        if row.bases[0] in ends:
            continue
        for child in {child for _, child in row.children}:
            parents.setdefault(child, []).append(row.id)
    known: CountByModuleAndAncestor = {}

    def count_ancestor_chains(module: int) -> CountByModule:
        """Return the number of paths to a module from itself (1) and from each enclosing module,
        by id.
        """
        if module not in known:
            counts = {module: 1}
            for parent in parents.get(module, ()):
                for outer, count in count_ancestor_chains(parent).items():
                    counts[outer] = counts.get(outer, 0) + count
            known[module] = counts
        return known[module]

    return {row.id: count_ancestor_chains(row.id) for row in modules}


def child_paths(modules: Modules, ends: frozenset[str] = frozenset()) -> CountByModule:
    """Return, by module id, the number of paths from the root to the module; a child is counted
    once per parent.

    0 for a module that is registered nowhere. No chain goes on beneath a module of a class in
    `ends`.
    """
    return {
        module: counts.get(0, 0)
        for module, counts in path_counts_by_ancestor(modules, ends).items()
    }


def child_paths_squared(modules: Modules) -> CountByModule:
    """Return, by module id, the square of the number of paths from the root to the module, for a
    tool that registers a hook for each path and adds up along each path.
    """
    return {module: count**2 for module, count in child_paths(modules).items()}


def path_counts_by_ancestor_squared(modules: Modules) -> CountByModuleAndAncestor:
    """Return, by module id and enclosing module id, the number of paths from the enclosing module
    to the module times the paths from the root to the enclosing module.
    """
    return {
        module: {outer: count * counts.get(0, 0) for outer, count in counts.items()}
        for module, counts in path_counts_by_ancestor(modules).items()
    }


def registration_counts(modules: Modules) -> CountByModule:
    """Return, by module id, 1 if the module is registered in the model, under any number of names,
    else 0.
    """
    return {module: min(count, 1) for module, count in child_paths(modules).items()}


def containment_by_ancestor(modules: Modules) -> CountByModuleAndAncestor:
    """Return, by module id, 1 for the module itself and 1 for each module that contains it, by the
    id of that module.
    """
    return {
        module: dict.fromkeys(counts, 1)
        for module, counts in path_counts_by_ancestor(modules).items()
    }


ONCE = Times(registration_counts)
ONCE_IN_EACH = Times(registration_counts, containment_by_ancestor)
ALONG_CHAINS = Times(child_paths, path_counts_by_ancestor)
ALONG_CHAINS_SQUARED = Times(child_paths_squared, path_counts_by_ancestor_squared)
