"""The calls of a step, and which backward passes ran through each of them.

A node of autograd's graph is told which of its results have a gradient, and tells to which of its
operands it hands one. So each pass shows which outputs of a call it came from, and with
`autograd.grad(..., inputs)` to which weights and inputs it went. What else ran has a name: a
gradient of a gradient, and a gradient that began within the call.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

from crossflops.frontends.pytorch.load.tensors import to_exportable_result

if TYPE_CHECKING:
    from torch import Tensor, nn

Edge: TypeAlias = tuple[Any, int]  # a node of autograd's graph, and the place of its result
_COMPILED = "CompiledFunction"  # begins the name of a node that torch.compile made


class BackwardPass(msgspec.Struct, frozen=True):
    """A backward pass through a call.

    `missed` are the places of outputs that have a gradient and got none in it, `inputs` the places
    of input tensors that a gradient was handed to. `weights` are the names of the parameters that
    it was run for, None where it was run for all that are trained.
    """

    missed: tuple[int, ...] = ()
    inputs: tuple[int, ...] = ()
    weights: frozenset[str] | None = None


class CallPasses(msgspec.Struct, frozen=True):
    """The backward passes through a call with their counts, and remarks on other passes that
    ran.
    """

    passes: tuple[tuple[BackwardPass, int], ...] = ()
    beside: tuple[str, ...] = ()


SECOND_ORDER = "a second-order gradient was computed through it"
WITHIN = "a backward pass started inside it, from a value that it does not return"
TO_INNER = "the gradient of a value inside it was requested"
BATCHED = "vmap ran its backward pass for a batch of gradients"
TO_TANGENTS = "torch.autograd.forward_ad ran it to compute forward-mode derivatives"
CUT = "a backward pass recomputed it only partly"
TRANSFORMED = "a torch.func transform ran it, and its backward pass is unknown"


class _PassNodes:
    """The nodes of a call that ran in one backward pass, with the gradients at both ends."""

    __slots__ = ("came", "is_restricted", "went")

    def __init__(self, is_restricted: bool) -> None:
        self.is_restricted = is_restricted
        self.came: dict[Any, tuple[bool, ...]] = {}
        self.went: dict[Any, tuple[bool, ...]] = {}


class ModelCall:
    """A call, which no other recorded call encloses, of the model, of a part of it, or of a module
    outside of it.

    `path` is the place of the part, "" for the model and None for a module beside it. `autocast`
    is the type in which products ran. `trained` says of each parameter whether it asked for a
    gradient then. `outputs` is the number of tensors that it returned, `passes` what ran through
    it, once the step is over. `is_again` says that a backward pass ran the call once more, as a
    checkpoint around it does; `finished` are then the modules in it that ran to their end, where
    it did not. `is_transformed` says that a transform of torch.func was around it.
    """

    def __init__(
        self,
        module: "nn.Module",
        path: str | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        autocast: str = "",
        is_again: bool = False,
    ) -> None:
        import torch

        self.module, self.path, self.autocast = module, path, autocast
        self.args, self.kwargs, self.is_again = args, kwargs, is_again
        self.training = module.training
        self.trained = tuple(weight.requires_grad for weight in module.parameters())
        self.is_transformed = is_in_func_transform()
        self._has_grad = torch.is_grad_enabled()
        self._sources = [
            _gradient_identity(tensor) for tensor in tensors_in_graph_order((args, kwargs))
        ]
        self._ends: list[Edge | None] = []
        self._seen: dict[int, _PassNodes] = {}
        self._second_order: set[int] = set()
        self._is_batched = False
        self._is_cut = False
        stored = (*tensors_in_graph_order((args, kwargs)), *module.parameters())
        self._has_tangents = not self.is_transformed and any(map(_has_tangent, stored))
        self.passes = CallPasses()
        self.outputs = 0
        self.finished: frozenset[str] | None = None

    # While the step runs.

    def record_output_gradients(self, output: Any) -> None:
        """Record which tensors in the output of the call have a gradient, and their number."""
        stored = () if isinstance(output, Iterator) else tensors_in_graph_order(output)
        self._ends = [
            (tensor.grad_fn, tensor.output_nr) if tensor.grad_fn is not None else None
            for tensor in stored
        ]
        self.outputs = len(self._ends)

    def record_node_begin(
        self, number: int, is_restricted: bool, node: Any, gradients_in: Iterable[Any]
    ) -> None:
        """Record that backward pass `number` reached an autograd node of the call; `gradients_in`
        are the gradients that it received.
        """
        gradients = tuple(gradients_in)
        if self.is_transformed or any(map(_is_batched_gradient, gradients)):
            self._is_batched = not self.is_transformed
            return
        seen = self._seen.setdefault(number, _PassNodes(is_restricted))
        seen.came[node] = tuple(gradient is not None for gradient in gradients)

    def record_node_end(self, number: int, node: Any, gradients_out: Iterable[Any]) -> None:
        """Record which gradients an autograd node of the call passed on
        (`gradients_out`) in backward pass
        `number`.
        """
        if number in self._seen:
            self._seen[number].went[node] = tuple(
                gradient is not None for gradient in gradients_out
            )

    def record_second_order_pass(self, number: int) -> None:
        """Record that backward pass `number` through the call computes second-order gradients."""
        self._second_order.add(number)

    def has_pass(self, number: int) -> bool:
        """Return True if the backward pass with this number ran through the call."""
        return number in self._seen

    def leaves_of_pass(self, number: int) -> "list[Tensor]":
        """Return the leaf tensors for which backward pass `number` accumulated gradients."""
        seen = self._seen.get(number)
        edges = _gradient_edges(seen) if seen is not None else ()
        return [leaf for leaf in map(_leaf_of_edge, edges) if leaf is not None]

    def record_stopped_recomputation(self, finished: Iterable[str], is_seen: bool) -> None:
        """Record that a recomputation of the call stopped early; `finished` are the module paths
        that ran to their end.

        Nothing is known of them where the inside is not seen; a layer ended before its own work.
        """
        self.finished = frozenset(finished)
        self._is_cut = not is_seen and any(True for _ in self.module.children())

    # When it is over.

    def store_passes(self) -> None:
        """Store the backward passes of the call in `passes`, and free its autograd nodes."""
        self.passes = self._build_call_passes()
        self._sources, self._ends = [], []
        self._seen.clear()

    def _build_call_passes(self) -> CallPasses:
        """Return the backward passes through the call with their counts, and remarks on what else
        ran.
        """
        passes: Counter[BackwardPass] = Counter()
        additional = dict.fromkeys([TRANSFORMED] if self.is_transformed else [])
        additional |= dict.fromkeys([SECOND_ORDER] if self._second_order else [])
        additional |= dict.fromkeys([CUT] if self._is_cut else [])
        additional |= dict.fromkeys([BATCHED] if self._is_batched else [])
        additional |= dict.fromkeys([TO_TANGENTS] if self._has_tangents else [])
        for number, seen in self._seen.items():
            backward = self._backward_pass(seen)
            if backward is not None:
                passes[backward] += 1
            for why in self._remarks_on_unexplained_nodes(
                seen, backward, number in self._second_order
            ):
                additional[why] = None
        return CallPasses(tuple(passes.items()), tuple(additional))

    def _backward_pass(self, seen: _PassNodes) -> BackwardPass | None:
        """Return which outputs, inputs and weights of the call had gradients in a backward pass;
        None if no output had one.
        """
        graded = [index for index, end in enumerate(self._ends) if end is not None]
        reached = {index for index in graded if _has_received_gradient(self._ends[index], seen)}
        if not reached:
            return None
        asking = tuple(index for index, source in enumerate(self._sources) if source is not None)
        missed = tuple(index for index in graded if index not in reached)
        if not seen.is_restricted or any(map(_is_compiled, seen.came)):
            return BackwardPass(missed, asking if self._has_grad else ())
        inputs = tuple(
            index for index in asking if _has_gradient_of_input(self._sources[index], seen)
        )
        names = {id(weight): name for name, weight in self.module.named_parameters()}
        leaves = {
            id(leaf) for leaf in map(_leaf_of_edge, _gradient_edges(seen)) if leaf is not None
        }
        weights = frozenset(name for key, name in names.items() if key in leaves)
        return BackwardPass(missed, inputs, weights)

    def _remarks_on_unexplained_nodes(
        self, seen: _PassNodes, backward: BackwardPass | None, is_second_order: bool
    ) -> Iterator[str]:
        """Yield a remark for each reason why autograd nodes of the call ran without gradients of
        its outputs.
        """
        if backward is not None and backward.weights == frozenset() and not backward.inputs:
            yield TO_INNER
        if is_second_order:
            return
        todo = [
            end[0] for end in self._ends if end is not None and _has_received_gradient(end, seen)
        ]
        behind: set[Any] = set()
        while todo:
            node = todo.pop()
            if node not in behind:
                behind.add(node)
                todo.extend(inner for inner, _ in node.next_functions if inner in seen.came)
        if any(node not in behind and _leaf_of_edge((node, 0)) is None for node in seen.came):
            yield WITHIN


def is_in_func_transform() -> bool:
    """Return True if a transform of torch.func, such as `vmap`, is active."""
    import torch

    return torch._C._functorch.peek_interpreter_stack() is not None


def _is_batched_gradient(gradient: Any) -> bool:
    """Return True if a gradient is batched by vmap or by `is_grads_batched`."""
    from torch._C import _functorch

    return gradient is not None and bool(
        _functorch.is_legacy_batchedtensor(gradient) or _functorch.is_batchedtensor(gradient)
    )


def _has_tangent(tensor: "Tensor") -> bool:
    """Return True if this tensor has a forward-mode derivative."""
    from torch.autograd import forward_ad

    if forward_ad._current_level < 0:
        return False
    return forward_ad.unpack_dual(tensor).tangent is not None


def tensors_in_graph_order(values: Any) -> "list[Tensor]":
    """Return all tensors in arguments or results, in the order in which they are inputs of a
    graph.
    """
    from torch import Tensor
    from torch.utils._pytree import tree_leaves

    return [leaf for leaf in tree_leaves(to_exportable_result(values)) if isinstance(leaf, Tensor)]


def _gradient_identity(tensor: "Tensor") -> Any:
    """Return what identifies the gradient of a tensor: (autograd node, result index), or the id of
    a leaf; None if it requires none.
    """
    if not tensor.requires_grad:
        return None
    return (tensor.grad_fn, tensor.output_nr) if tensor.grad_fn is not None else id(tensor)


def _is_compiled(node: Any) -> bool:
    """Return True if a node of the autograd graph belongs to a function compiled by
    torch.compile.
    """
    return bool(node.name().startswith(_COMPILED))


def _has_received_gradient(end: Edge | None, seen: _PassNodes) -> bool:
    """Return True if an output of the call, given by its autograd edge, received a gradient in the
    backward pass.
    """
    if end is None or end[0] not in seen.came:
        return False
    return _is_compiled(end[0]) or seen.came[end[0]][end[1]]


def _gradient_edges(seen: _PassNodes) -> Iterator[Edge]:
    """Yield the edges of the autograd graph along which the nodes of a call passed gradients
    on.
    """
    for node, went in seen.went.items():
        for edge, has_gradient in zip(node.next_functions, went, strict=False):
            if has_gradient and edge[0] is not None:
                yield edge


def _has_gradient_of_input(source: Any, seen: _PassNodes) -> bool:
    """Return True if a gradient reached the input of a call that `source` identifies."""
    for edge in _gradient_edges(seen):
        leaf = _leaf_of_edge(edge)
        if source == (edge if leaf is None else id(leaf)):
            return True
    return False


def _leaf_of_edge(edge: Edge) -> Any:
    """Return the leaf tensor of an AccumulateGrad node, or None for another node."""
    node = edge[0]
    return node.variable if type(node).__name__ == "AccumulateGrad" else None


# Calls that cost the same.


class CallKind(NamedTuple):
    """A group of equal calls: one of them, and their number."""

    call: ModelCall
    times: int


def group_equal_calls(calls: Iterable[ModelCall]) -> list[CallKind]:
    """Return one call and the number of calls for each group with equal module, mode, shapes and
    backward passes.
    """
    kinds: dict[Any, list[Any]] = {}
    for call in calls:
        mode = call.training, call.trained, call.is_again, call.finished
        key = call.path, id(call.module), mode, call.passes, call_signature(call)
        kinds.setdefault(key, [call, 0])[1] += 1
    return [CallKind(*kind) for kind in kinds.values()]


def call_signature(call: ModelCall) -> Any:
    """Return a key of a call's arguments: shapes and dtypes of tensors, names of keywords, texts
    of other values.
    """
    shapes = tuple(
        (tuple(t.shape), str(t.dtype)) for t in tensors_in_graph_order((call.args, call.kwargs))
    )
    plainly = tuple(
        repr(value) for value in (*call.args, *call.kwargs.values()) if not _contains_tensor(value)
    )
    return shapes, tuple(call.kwargs), plainly


def _contains_tensor(value: Any) -> bool:
    """Return True if the value contains a tensor."""
    return bool(tensors_in_graph_order(value))


def inputs_without_autograd(call: ModelCall) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword arguments of a call, with tensors detached from autograd
    and usable outside of inference mode.
    """
    from torch import Tensor, inference_mode
    from torch.utils._pytree import tree_map_only

    def detach_tensor(tensor: Tensor) -> Tensor:
        """Return a tensor without autograd history, outside of inference mode."""
        with inference_mode(False):
            return tensor.clone() if tensor.is_inference() else tensor.detach()

    args, kwargs = tree_map_only(Tensor, detach_tensor, (call.args, call.kwargs))
    return args, kwargs
