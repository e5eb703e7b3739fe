"""To which module an instruction belongs, and what its name stack tells of it."""

import re
from collections.abc import Iterator

from crossflops.core.trace import Call, Module, Scalar
from crossflops.normalize.jax.scopes import path_of
from crossflops.normalize.xla.calls import Owner

_CELLS = ("LSTMCell", "OptimizedLSTMCell", "SimpleCell", "GRUCell")
_LAYERS = {
    **{one: one for one in ("BatchNorm", "LayerNorm", "GroupNorm", "InstanceNorm", "RMSNorm")},
    **dict.fromkeys(_CELLS, "RNN cell"),
}
# Functions of jax.nn and jax.numpy, which stand in name stacks as "jit(NAME)".
_FUNCTIONS = {
    "relu": "relu",
    **dict.fromkeys(
        ("relu6", "leaky_relu", "hard_tanh", "hard_sigmoid", "hard_silu", "hard_swish",
         "squareplus", "soft_sign", "sparse_plus", "sparse_sigmoid"),
        "piecewise",
    ),
    **dict.fromkeys(
        ("sigmoid", "silu", "swish", "gelu", "elu", "selu", "celu", "softplus", "log_sigmoid",
         "mish", "glu"),
        "smooth",
    ),
    **dict.fromkeys(("softmax", "log_softmax"), "softmax"),
    **dict.fromkeys(("_take", "take", "_one_hot", "one_hot"), "lookup"),
}  # fmt: skip
_JITTED = re.compile(r"jit\(([^()]*)\)")
_BACKWARD = "transpose(jvp("


def owner(rows: tuple[Module, ...], trace: tuple[Call, ...]) -> Owner:
    """The owner of any name stack, in a model of these modules and calls."""
    ids = {path: one.id for one in rows for path in one.names}
    keys: dict[int, str] = {}
    for call in trace:
        if call.storey == "module":
            keys.setdefault(call.module, call.key)
    kinds = {path: _kind(path, rows, ids) for path in ids}

    def found(names: str) -> tuple[str | None, int, dict[str, Scalar]]:
        path = path_of(names) or ""
        module = ids.get(path, 0)
        facts: dict[str, Scalar] = {
            "layer": kinds.get(path, ""),
            "function": _function(names),
            "backward": _BACKWARD in names,
        }
        return keys.get(module, keys.get(0)), module, facts

    return found


def _kind(path: str, rows: tuple[Module, ...], ids: dict[str, int]) -> str:
    """Which kind of layer the module is or lies in: a normalization, a cell, or ""."""
    for around in _around(path):
        bases = rows[ids[around]].bases if around in ids else ()
        for base in bases:
            if (name := base.rpartition(".")[2]) in _LAYERS:
                return _LAYERS[name]
    return ""


def _around(path: str) -> Iterator[str]:
    while path:
        yield path
        path = path.rpartition(".")[0]
    yield ""


def _function(names: str) -> str:
    """The innermost known function around an instruction, "" for none."""
    known = [one for one in _JITTED.findall(names) if one in _FUNCTIONS]
    return _FUNCTIONS[known[-1]] if known else ""
