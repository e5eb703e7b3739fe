"""Load the rules of jax2onnx without its slow parts, and choose which of them are used.

Some stand for functions of many equations (flax.nnx.Linear, jax.nn.softmax), which they replace
while a model is traced; without one, its equations are converted each by itself. Wanted are those
of functions that ONNX has as one operator. The others know only some of the arguments that their
functions take (jax2onnx/plugins/flax/nnx/max_pool.py forgets a padding in numbers), and hide the
equations that XLA is given.
"""

import importlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any

from crossflops.patches import inventory
from crossflops.patches.patching import patching_attribute, patching_items, restore_attribute

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


def load_conversion_rules() -> None:
    """Load the conversion rules of jax2onnx, except its examples and the rules for libraries that
    are not imported.

    What is left out builds models when it is imported, and cannot be needed. Permanent
    changes of JAX by a rule's import are undone (jax2onnx/plugins/jax/numpy/cumsum.py).
    """
    left = ["examples", *(name for name in _SKIPPED if name not in sys.modules)]
    names = [f"jax2onnx.plugins.{name}" for name in left]
    hidden = [name for name in names if name not in sys.modules]
    changed = [(module, dict(vars(module))) for module in map(importlib.import_module, _CHANGED)]
    try:
        # None hides a module from import
        with patching_items(sys.modules, dict.fromkeys(hidden), inventory.MODULES):
            importlib.import_module(_SYSTEM).import_all_plugins()
    finally:
        for module, before in changed:
            for name, content in before.items():
                if vars(module).get(name) is not content:
                    restore_attribute(module, name, content)


@contextmanager
def removing_rules(names: Iterable[str]) -> Iterator[None]:
    """Return a context in which jax2onnx has no rules of these names."""
    rules = _jax2onnx_rule_registry()
    before = dict(rules)
    for name in names:
        rules.pop(name, None)
    try:
        yield
    finally:
        rules.clear()
        rules.update(before)


def function_rules_to_skip() -> set[str]:
    """Return the names of rules for whole functions that ONNX has no single operator for."""
    return function_replacing_rules() - _WANTED


def function_replacing_rules() -> set[str]:
    """Return the names of all rules that replace whole functions, not single primitives."""
    return {
        name
        for name, rule in _jax2onnx_rule_registry().items()
        if _replaces_library_functions(rule)
    }


def failing_rules(error: BaseException) -> set[str]:
    """Return the names of rules for whole functions in whose code an error was raised.

    One whose function takes other arguments than the model passes is named in the message.
    """
    modules = set(_traceback_modules(error.__traceback__))
    for link in (error.__cause__, error.__context__):
        modules |= set(_traceback_modules(link.__traceback__)) if link is not None else set()
    return {
        name
        for name in function_replacing_rules()
        if (kind := type(_jax2onnx_rule_registry()[name])).__module__ in modules
        or kind.__name__ in str(error)
    }


@contextmanager
def correcting_product_and_norm_rules() -> Iterator[None]:
    """Return a context in which jax2onnx converts products and norms correctly.

    jax2onnx/plugins/jax/lax/dot_general.py: _try_lower_matmul makes a Gemm of a product along the
    first axis of a matrix as if it were along the second one (here it is an Einsum), and
    _compute_einsum_labels names the axes of a batch twice where nothing is contracted.
    jax2onnx/plugins/flax: both batch_norm.py normalize by the running statistics where the layer
    does so by its batch, and along the last axis; nnx/rms_norm.py does not read reduction_axes.
    """
    changes = (
        ("dot_general", "_try_lower_matmul", _product_rule_replacement, inventory.PRODUCTS),
        ("dot_general", "_compute_einsum_labels", _einsum_labels_replacement, inventory.PRODUCTS),
        ("nnx.batch_norm", "_make_patch", _batch_norm_rule_patch, inventory.FLAX_BATCH_NORMS),
        ("linen.batch_norm", "_make_patch", _batch_norm_rule_patch, inventory.LINEN_BATCH_NORMS),
        ("nnx.rms_norm", "_patch_call", _feature_norm_rule_patch, inventory.FLAX_RMS_NORMS),
    )
    with ExitStack() as undo:
        for rule, name, change, declared in changes:
            kind = type(_jax2onnx_rule_registry().get(rule))
            if name in vars(kind):
                method = change(vars(kind)[name])
                undo.enter_context(patching_attribute(kind, name, method, declared))
        yield


def _batch_norm_rule_patch(method: Any) -> Any:
    """Return a patch by which jax2onnx's batch norm rule is used only for running averages."""

    def batch_norm_with_restricted_rule(original: Any) -> Any:
        """Return a batch norm that uses jax2onnx's version only with running averages."""
        by_averages = method.__func__(original)

        def run_batch_norm_by_applicable_rule(
            module: Any, x: Any, use_running_average: Any = None, **more: Any
        ) -> Any:
            """Run the batch norm: jax2onnx's version for running averages on the last axis."""
            own = module.use_running_average
            is_averaged = own if use_running_average is None else use_running_average
            is_last = module.axis in (-1, x.ndim - 1)
            chosen = by_averages if is_averaged and is_last else original
            return chosen(module, x, use_running_average, **more)

        return run_batch_norm_by_applicable_rule

    return staticmethod(batch_norm_with_restricted_rule)


def _feature_norm_rule_patch(method: Any) -> Any:
    """Return a patch by which jax2onnx's norm rule is used only if it reduces scaled axes."""

    def feature_norm_with_restricted_rule(kind: Any, original: Any) -> Any:
        """Return a norm that uses jax2onnx's version only if it reduces over its feature axes."""
        along_features = method.__func__(kind, original)

        def run_feature_norm_by_applicable_rule(
            module: Any, x: Any, *more: Any, **named: Any
        ) -> Any:
            """Run the norm: jax2onnx's version if it reduces over its feature axes."""
            is_same = module.reduction_axes == module.feature_axes
            return (along_features if is_same else original)(module, x, *more, **named)

        return run_feature_norm_by_applicable_rule

    return classmethod(feature_norm_with_restricted_rule)


def _product_rule_replacement(method: Any) -> Any:
    """Return a product rule that is used only with batch axes or a contraction of axis 1."""

    def try_lower_product(self: Any, *provided: Any) -> Any:
        """Lower a product by the rule if it applies; return whether it was lowered."""
        (*_, contracted, _, batch, _) = provided
        return bool(batch or contracted == (1,)) and method(self, *provided)

    return try_lower_product


def _einsum_labels_replacement(method: Any) -> Any:
    """Return a rule for einsum labels in which batch axes occur once in the result."""

    def labels_without_repetition(self: Any, *provided: Any) -> tuple[str, str, str]:
        """Return the einsum labels of both operands and the result, batch labels once."""
        (*_, contracted, _, batch, other_batch) = provided
        left, right, result = method(self, *provided)
        if batch and not contracted:
            shared = [left[axis] for axis in batch]
            others = [label for n, label in enumerate(left) if n not in batch]
            others += [label for n, label in enumerate(right) if n not in other_batch]
            result = "".join((*shared, *others))
        return left, right, result

    return labels_without_repetition


def _jax2onnx_rule_registry() -> dict[str, Any]:
    """Return jax2onnx's rules by the names of their primitives."""
    rules: dict[str, Any] = importlib.import_module(_SYSTEM).PLUGIN_REGISTRY
    return rules


def _replaces_library_functions(rule: Any) -> bool:
    """Return whether a rule of jax2onnx replaces functions of a library, not only primitives."""
    specs = getattr(type(rule), "binding_specs", None)
    try:
        return specs is not None and any(spec.attr[-2:] != "_p" for spec in specs())
    except Exception:  # a rule for another version of a library
        return False


def _traceback_modules(traceback: TracebackType | None) -> Iterator[str]:
    """Yield the module names of a traceback's frames, outermost first."""
    while traceback is not None:
        yield traceback.tb_frame.f_globals.get("__name__", "")
        traceback = traceback.tb_next
