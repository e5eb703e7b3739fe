"""The rules of jax2onnx: known without what is slow, and only those that are wanted.

Some stand for functions of many equations (flax.nnx.Linear, jax.nn.softmax), which they replace
while a model is traced; without one, its equations are converted each by itself. Wanted are those
of functions that ONNX has as one operator. The others know only some of the arguments that their
functions take (jax2onnx/plugins/flax/nnx/max_pool.py forgets a padding in numbers), and hide the
equations that XLA is given.
"""

import importlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

_SYSTEM = "jax2onnx.plugins.plugin_system"
_CHANGED = ("jax.numpy", "jax.lax", "jax.nn", "flax.nnx")
_SKIPPED = ("equinox", "dm_pix")
_NORMS = ("batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "dropout")
_ACTIVATIONS = (
    *("celu", "elu", "gelu", "hard_sigmoid", "hard_swish", "hard_tanh", "leaky_relu"),
    *("log_sigmoid", "log_softmax", "mish", "relu", "relu6", "selu", "sigmoid", "silu"),
    *("soft_sign", "softmax", "softplus", "tanh"),
)
_WANTED = {
    *(f"{flax}.{name}" for flax in ("nnx", "linen") for name in (*_NORMS, *_ACTIVATIONS)),
    *(f"jax.nn.{name}" for name in _ACTIVATIONS),
}


def register() -> None:
    """Make the rules known, and leave out what takes long: the examples build models.

    Those for libraries that are not imported build some, too, and cannot be needed. What a rule
    changes in JAX for good, as it is imported, is put back (jax2onnx/plugins/jax/numpy/cumsum.py).
    """
    left = ["examples", *(name for name in _SKIPPED if name not in sys.modules)]
    names = [f"jax2onnx.plugins.{name}" for name in left]
    hidden = [name for name in names if name not in sys.modules]
    changed = [(module, dict(vars(module))) for module in map(importlib.import_module, _CHANGED)]
    # None hides a module from import, which the types of sys.modules do not tell
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        importlib.import_module(_SYSTEM).import_all_plugins()
    finally:
        for name in hidden:
            del sys.modules[name]
        for module, before in changed:
            vars(module).update(before)


@contextmanager
def without(names: Iterable[str]) -> Iterator[None]:
    """While this is open, the rules of these names are not there."""
    rules = _rules()
    before = dict(rules)
    for name in names:
        rules.pop(name, None)
    try:
        yield
    finally:
        rules.clear()
        rules.update(before)


def unwanted() -> set[str]:
    """The names of the rules for whole functions whose equations are better converted."""
    return replacing() - _WANTED


def replacing() -> set[str]:
    """The names of all rules that stand for functions, which can be left out."""
    return {name for name, rule in _rules().items() if _replaces(rule)}


def at_fault(error: BaseException) -> set[str]:
    """The names of the rules that stand for functions in whose code an error arose.

    One whose function takes other arguments than the model gives is named in the message.
    """
    modules = set(_modules(error.__traceback__))
    for link in (error.__cause__, error.__context__):
        modules |= set(_modules(link.__traceback__)) if link is not None else set()
    return {
        name
        for name in replacing()
        if (kind := type(_rules()[name])).__module__ in modules or kind.__name__ in str(error)
    }


@contextmanager
def mended() -> Iterator[None]:
    """While this is open, jax2onnx lowers products as they are.

    jax2onnx/plugins/jax/lax/dot_general.py: _try_lower_matmul makes a Gemm of a product along the
    first axis of a matrix as if it were along the second one (here it is an Einsum), and
    _compute_einsum_labels names the axes of a batch twice where nothing is contracted.
    """
    kind = type(_rules()["dot_general"])
    names = {"_try_lower_matmul": _only_along_the_last, "_compute_einsum_labels": _each_once}
    before = {name: vars(kind)[name] for name in names if name in vars(kind)}
    for name, method in before.items():
        setattr(kind, name, names[name](method))
    try:
        yield
    finally:
        for name, method in before.items():
            setattr(kind, name, method)


def _only_along_the_last(method: Any) -> Any:
    def lowered(self: Any, *given: Any) -> Any:
        (*_, contracted, _, batch, _) = given
        return bool(batch or contracted == (1,)) and method(self, *given)

    return lowered


def _each_once(method: Any) -> Any:
    def labels(self: Any, *given: Any) -> tuple[str, str, str]:
        (*_, contracted, _, batch, other_batch) = given
        left, right, result = method(self, *given)
        if batch and not contracted:
            shared = [left[axis] for axis in batch]
            others = [label for n, label in enumerate(left) if n not in batch]
            others += [label for n, label in enumerate(right) if n not in other_batch]
            result = "".join((*shared, *others))
        return left, right, result

    return labels


def _rules() -> dict[str, Any]:
    rules: dict[str, Any] = importlib.import_module(_SYSTEM).PLUGIN_REGISTRY
    return rules


def _replaces(rule: Any) -> bool:
    specs = getattr(type(rule), "binding_specs", None)
    try:
        return specs is not None and any(spec.attr[-2:] != "_p" for spec in specs())
    except Exception:  # a rule for another version of a library
        return False


def _modules(traceback: TracebackType | None) -> Iterator[str]:
    while traceback is not None:
        yield traceback.tb_frame.f_globals.get("__name__", "")
        traceback = traceback.tb_next
