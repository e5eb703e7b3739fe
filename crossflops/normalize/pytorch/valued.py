"""A trace that knows values: what depends on data is decided by the data that is given.

torch.export works with fake tensors, which have shapes and no values: where a size or a path of
the model is a value of a tensor, it has an unknown size or gives up. PyTorch can carry a real
tensor beside each fake one (`fake_tensor_propagate_real_tensors`, what draft_export does). An
operator whose result is a Python number, or has a size that depends on values, is answered here
from the real tensors: with the number itself, and with a fake tensor of the real shape. So is one
whose fake kernel refuses what the real one takes (`aten._grouped_mm` of float32). So no
size is left open, the model takes the path that a run on these inputs takes, and modules, entry
points and nodes are those of every other export.
Source: torch/_subclasses/fake_tensor.py (FakeTensorMode._dispatch_impl), torch/_C Tag.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from crossflops.normalize.pytorch.specs import spec
from crossflops.normalize.pytorch.untouched import Drawn, seeded


def has_values(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether the model can be run: all its tensors and its inputs hold data."""
    import torch
    from torch.utils._pytree import tree_leaves

    held = [*model.parameters(), *model.buffers(), *tree_leaves((args, dict(kwargs)))]
    return not any(isinstance(value, torch.Tensor) and value.is_meta for value in held)


@contextmanager
def valued() -> Iterator[Drawn]:
    """In this context torch.export carries real tensors, and asks them where it would guess.

    Random numbers begin at seed 0: the same ones when a program is traced again. Whether there
    were any is known behind the context.
    """
    import torch._functorch.config as config
    from torch._subclasses import meta_utils
    from torch._subclasses.fake_tensor import FakeTensorMode

    usual, check = FakeTensorMode._dispatch_impl, "_maybe_infer_fake_kernel_from_pytree_out"
    checked, copied = getattr(FakeTensorMode, check), meta_utils._safe_copy

    def dispatch(mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if not mode.propagate_real_tensors:
            return usual(mode, func, types, args, kwargs)
        if asks_for_values(func):
            answer = _answer(mode, func, args, kwargs)
            if answer is not _UNKNOWN:
                return answer
        try:
            with _drawing_once(func, args, kwargs):
                return _settled(mode, lambda: usual(mode, func, types, args, kwargs))
        except Exception:
            answer = _UNKNOWN if _changes(func) else _answer(mode, func, args, kwargs)
            if answer is _UNKNOWN:
                raise
            return answer

    def as_it_is(mode: Any, func: Any, fake: Any, real: Any, out: Any, real_out: Any) -> Any:
        return out  # fake and real kernels may differ in what is a view, which is no work

    FakeTensorMode._dispatch_impl = dispatch
    setattr(FakeTensorMode, check, as_it_is)
    meta_utils._safe_copy = _copy
    try:
        with seeded() as drawn, config.patch(fake_tensor_propagate_real_tensors=True):
            yield drawn
    finally:
        FakeTensorMode._dispatch_impl = usual
        setattr(FakeTensorMode, check, checked)
        meta_utils._safe_copy = copied


def _copy(copy: Any, source: Any) -> None:
    """Parameters too: PyTorch's own leaves the copy of a parameter without values."""
    import torch

    if type(source) in (torch.Tensor, torch.nn.Parameter):
        copy.copy_(source)


_UNKNOWN = object()


def asks_for_values(func: Any) -> bool:
    """Whether an operator's result, or the size of it, is a matter of values."""
    import torch

    asking = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    return isinstance(func, torch._ops.OpOverload) and not asking.isdisjoint(func.tags)


def _changes(func: Any) -> bool:
    """Whether an operator works in place: it may have done so before it raised."""
    return getattr(getattr(func, "_schema", None), "is_mutable", True)


def _answer(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """What the operator gives for the real tensors; _UNKNOWN where one of them has none."""
    import torch
    from torch.utils._pytree import tree_map_only

    given = _real(args, kwargs)
    if given is None:
        return _UNKNOWN
    own, named = given
    return tree_map_only(torch.Tensor, lambda value: _fake(mode, value), func(*own, **named))


def _real(args: Any, kwargs: Any) -> Any:
    """The arguments with the real tensors behind them; None where a tensor has none behind it."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils import _pytree

    flat, form = _pytree.tree_flatten((args, kwargs or {}))
    fakes = [value for value in flat if isinstance(value, FakeTensor)]
    plain = [value for value in flat if isinstance(value, torch.Tensor)]
    if len(fakes) < len(plain) or any(one.real_tensor is None for one in fakes):
        return None
    values = [one.real_tensor if isinstance(one, FakeTensor) else one for one in flat]
    return _pytree.tree_unflatten(values, form)


@contextmanager
def _drawing_once(func: Any, args: Any, kwargs: Any) -> Iterator[None]:
    """In this context a random operator takes from the generator what one call of it takes.

    It is computed for the real tensors, and may be again in the decomposition of the fake ones.
    """
    import torch
    from torch.utils._pytree import tree_map_only

    given = _real(args, kwargs) if draws(func) else None
    if given is None:
        yield
        return
    before = torch.get_rng_state()
    own, named = tree_map_only(torch.Tensor, torch.ops.aten.clone.default, given)
    func(*own, **named)
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    try:
        yield
    except BaseException:
        torch.set_rng_state(before)  # it did not run: what runs in its place draws in its place
        raise
    torch.set_rng_state(after)


def draws(func: Any) -> bool:
    """Whether an operator may draw random numbers."""
    import torch

    return torch.Tag.nondeterministic_seeded in getattr(func, "tags", ())


@contextmanager
def repeating(drawn: Mapping[str, Any]) -> Iterator[None]:
    """In this context the nodes of a program that is traced again have the values in `drawn`.

    An exporter traces more than once, and by operators that draw other numbers (a `bernoulli`
    becomes a comparison with `rand`).
    """
    from torch.fx import Interpreter

    usual = Interpreter.run_node

    def run_node(self: Any, n: Any) -> Any:
        result = usual(self, n)
        if n.name in drawn:
            _overwrite(result, drawn[n.name])
        return result

    Interpreter.run_node = run_node
    try:
        yield
    finally:
        Interpreter.run_node = usual


def _overwrite(result: Any, value: Any) -> None:
    """Give the fake tensors of a result these values, where they have their shapes."""
    import torch
    from torch._functorch._aot_autograd.functional_utils import from_fun
    from torch.utils._python_dispatch import _disable_current_modes
    from torch.utils._pytree import tree_leaves

    for fake, real in zip(tree_leaves(result), tree_leaves(value), strict=False):
        held = getattr(from_fun(fake), "real_tensor", None)
        if held is not None and isinstance(real, torch.Tensor) and held.shape == real.shape:
            with _disable_current_modes():
                torch.ops.aten.copy_.default(held, real)


def _settled(mode: Any, run: Callable[[], Any]) -> Any:
    """What an operator gives, with the real sizes where it makes up open ones.

    That is what an operator from outside does (torchvision's nms), which nothing announces.
    """
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._pytree import tree_map_only

    shapes = mode.shape_env
    pending = list(shapes.pending_fresh_unbacked_symbols) if shapes is not None else []
    result = run()
    if shapes is None or len(shapes.pending_fresh_unbacked_symbols) == len(pending):
        return result
    # else the exporter asks where in the result the new symbols are
    shapes.pending_fresh_unbacked_symbols[:] = pending

    def closed(value: Any) -> Any:
        real = value.real_tensor
        return value if spec("", value).shape is not None or real is None else _fake(mode, real)

    return tree_map_only(FakeTensor, closed, result)


def _fake(mode: Any, real: Any) -> Any:
    """A fake tensor that stands for a real one, and carries it."""
    import torch

    with mode:
        like = torch.empty_strided(real.shape, real.stride(), dtype=real.dtype, device=real.device)
    like.real_tensor = real
    return like
