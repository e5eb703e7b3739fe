"""The FLOPs of the products that are executed in each module: in a real run, and in a run of the
exported program.

Both run for real under the same dispatch mode, so that whatever PyTorch makes of an operator (the
kernel of an attention, the order of an einsum) it makes in both. Operators are weighed by
PyTorch's own formulas (torch.utils.flop_counter), by which alone they are compared.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from crossflops.frontends.pytorch.load.fakes import is_fake_tensor
from crossflops.frontends.pytorch.load.model import copy_inputs
from crossflops.frontends.pytorch.record.entry_points import recording_entry_points
from crossflops.frontends.pytorch.record.modules import ModuleIndex
from crossflops.frontends.pytorch.record.operators import (
    frame_number_of_node,
    generator_state_of_node,
)
from crossflops.frontends.pytorch.record.recorder import Recorder
from crossflops.frontends.seeds import setting_torch_random_state

if TYPE_CHECKING:
    from torch import nn

FlopsByModulePath = Counter[str]  # twice the MACs of products, by the path of the module


class SavedTensorsNeededError(Exception):
    """An error of a model whose run reads the tensors that a backward pass reads."""


def run_model_and_count_product_flops(
    model: "nn.Module", args: tuple[Any, ...], kwargs: Mapping[str, Any], saves_tensors: bool
) -> FlopsByModulePath:
    """Run the model; return the FLOPs of its matrix products and convolutions by module path.

    Gradients are on: without them modules take fast paths, which no export takes. The run may
    change the model.

    Args:
        model: The model, in the mode of the run.
        args: Its positional inputs.
        kwargs: Its inputs by name.
        saves_tensors: Whether a backward pass can follow. Otherwise the run keeps no tensor for
            one, which are most of the memory of a run.

    Raises:
        SavedTensorsNeededError: The model computes gradients in its forward pass, and the run
            keeps no tensors for them.
    """
    import torch

    index = ModuleIndex(model)
    recorder = Recorder(index, without_wrappers=True)

    def path_of_running_module() -> str:
        """Return the path of the module that runs now; "" outside of all."""
        return index.module_descriptions[recorder.stack[-1].module].path if recorder.stack else ""

    args, kwargs = copy_inputs(args, kwargs)
    with (
        torch.enable_grad(),
        nullcontext() if saves_tensors else _saving_no_tensors(),
        recording_entry_points(recorder, with_captured=False),
        _counting_product_flops(path_of_running_module) as executed,
    ):
        model(*args, **kwargs)
    return executed


def _drop_tensor(_: Any) -> None:
    """Return nothing to keep of a tensor that a backward pass would read."""


@contextmanager
def _saving_no_tensors() -> Iterator[None]:
    """Keep no tensors for a backward pass inside the block. Raises SavedTensorsNeededError if one
    ran, also if the model caught its error, or if the block needs hooks of its own for them.
    """
    from torch.autograd.graph import saved_tensors_hooks

    was_needed = False

    def require_saved_tensor(_: None) -> Any:
        """Raise SavedTensorsNeededError: a backward pass reads a tensor."""
        nonlocal was_needed
        was_needed = True
        raise SavedTensorsNeededError

    try:
        with saved_tensors_hooks(_drop_tensor, require_saved_tensor):
            yield
    except Exception as error:  # torch.func allows no such hooks
        raise SavedTensorsNeededError from error
    if was_needed:
        raise SavedTensorsNeededError


def run_program_and_count_product_flops(
    program: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], recorder: Recorder
) -> FlopsByModulePath:
    """Run an exported program; return the FLOPs of its matrix products and convolutions by module
    path.

    Operators on fake tensors are run once for all equal nodes: a large model repeats a few blocks
    many times.
    """
    import torch
    from torch.autograd.graph import saved_tensors_hooks
    from torch.fx import Interpreter
    from torch.utils._pytree import tree_flatten

    at = [""]
    known: dict[Any, tuple[Any, int]] = {}  # what it gives, and what it weighs

    class ModuleTracker(Interpreter):
        """An interpreter that keeps the module of the running node."""

        def run_node(self, n: Any) -> Any:
            """Run an FX node with its random state and return its result; meanwhile `at` has the
            path of its module.
            """
            if n.op == "call_function":
                at[0] = recorder.index.module_descriptions[
                    recorder.frames[frame_number_of_node(n) or 0].module
                ].path
            with setting_torch_random_state(generator_state_of_node(n, recorder.generators)):
                return super().run_node(n)

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            """Call an operator and return its result; take result and FLOPs from an equal earlier
            call if there is one.
            """
            key = _equal_work_key(target, args, kwargs)
            if key in known:
                result, work = known[key]
                if work:
                    executed[at[0]] += work
                return result
            before = executed[at[0]]
            result = super().call_function(target, args, kwargs)
            if key is not None:
                known[key] = result, executed[at[0]] - before
            return result

    full = program.module(check_guards=False)
    if any(
        _is_writing_node(node) for node in full.graph.nodes
    ):  # perhaps into the model's own weights
        for parameter in full.parameters():
            parameter.data = parameter.data.clone()
    flat = tree_flatten(copy_inputs(args, kwargs))[0]
    with (
        torch.enable_grad(),
        saved_tensors_hooks(_drop_tensor, _drop_tensor),  # a program reads none back
        _counting_product_flops(lambda: at[0]) as executed,
    ):
        ModuleTracker(full).run(*flat, enable_io_processing=False)
    return +executed  # without the zeros that were looked up


def _is_writing_node(node: Any) -> bool:
    """Return True if an FX call may change a tensor in place."""
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and (schema is None or schema.is_mutable)


def _equal_work_key(target: Any, args: Any, kwargs: Any) -> Any:
    """Return a key that calls of an operator with equal work have in common; None if values may
    matter.
    """
    import torch
    from torch.utils._pytree import tree_flatten

    if not isinstance(target, torch._ops.OpOverload) or target._schema.is_mutable:
        return None
    leaves, form = tree_flatten((args, kwargs))
    facts: list[Any] = []
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            facts.append((type(leaf), leaf))
        elif is_fake_tensor(leaf):
            facts.append((leaf.shape, leaf.stride(), leaf.dtype, leaf.device))
        else:
            return None
    key = target, tuple(facts), form
    try:
        hash(key)
    except TypeError:
        return None
    return key


@contextmanager
def _counting_product_flops(current_path: Callable[[], str]) -> Iterator[FlopsByModulePath]:
    """Yield a counter of the FLOPs of products that run inside the block, by module: the key is
    the path that `current_path()` returns when the product runs.
    """
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    executed: FlopsByModulePath = Counter()

    class Weighing(TorchDispatchMode):
        """A dispatch mode that counts operators with a formula, and decomposes composites."""

        supports_higher_order_operators = True

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            """Return an operator's result; add its FLOPs by PyTorch's counter to the module."""
            kwargs = kwargs or {}
            packet = getattr(func, "overloadpacket", None)
            if packet not in flop_registry and _may_consist_of_operators(func):
                with self:
                    result = func.decompose(*args, **kwargs)
                if result is not NotImplemented:
                    return result
            result = func(*args, **kwargs)
            if packet in flop_registry and (
                work := flop_registry[packet](*args, **kwargs, out_val=result)
            ):
                executed[current_path()] += work
            return result

    with Weighing():
        yield executed


def _may_consist_of_operators(func: Any) -> bool:
    """Return True if an operator may consist of others; False for operators of the namespace
    `prim`.
    """
    import torch

    return isinstance(func, torch._ops.OpOverload) and func.namespace != "prim"


def modules_with_different_flops(run: FlopsByModulePath, exported: FlopsByModulePath) -> list[str]:
    """Return the sorted paths of the modules whose FLOPs of products differ in the two counts."""
    return sorted(path for path in {*run, *exported} if run[path] != exported[path])
