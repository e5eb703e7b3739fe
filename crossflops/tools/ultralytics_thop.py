"""ultralytics-thop 2.2.3: hooks on modules by rules for classes and their subclasses, and a mode
for products of functions.

A rule about a module that contains modules is added to theirs. Functions count where no module
with a rule is around, and in the total alone. Sources: thop/profile.py (`register_hooks`,
`functional_hooks`, `_FunctionCounter`, `profile`), thop/vision/basic_hooks.py,
thop/vision/calc_func.py, thop/rnn_hooks.py. It imports as `thop` and is another package than thop.
"""

from collections.abc import Iterable
from typing import Any

from crossflops.ir.convention import Clause, Convention, Match, Parameters
from crossflops.ir.trace import Level
from crossflops.tools import layers
from crossflops.tools.operators import HOOKS, VMAP

_HOOKS, _RNN, _PROFILE = "thop/vision/basic_hooks.py", "thop/rnn_hooks.py", "thop/profile.py"
_NN, _EXPORT, _SCALE = layers.NN, "graph.export-decomposition", "attention.scale-or-softmax"
_BILINEAR, _EMBEDDING = (f"{_NN}.linear.Bilinear",), (f"{_NN}.sparse.Embedding",)
_ATTENTION = (f"{_NN}.activation.MultiheadAttention",)
_PRELU = (f"{_NN}.activation.PReLU",)
_SOFTMAXES = {
    "Softmax": "softmax",
    "LogSoftmax": "log_softmax",
    "Softmin": "softmin",
    "Softmax2d": "softmax_2d",
}
_NORMS = (
    ("batch_norm", "norm.batch", (f"{_NN}.batchnorm._BatchNorm",), "affine"),
    ("instance_norm", "norm.instance", (f"{_NN}.instancenorm._InstanceNorm",), "affine"),
    ("layer_norm", "norm.layer", layers.LAYER_NORM, "elementwise_affine"),
    ("group_norm", "norm.group", (f"{_NN}.normalization.GroupNorm",), "affine"),
    ("rms_norm", "norm.rms", (f"{_NN}.normalization.RMSNorm",), "elementwise_affine"),
)
_CONTRACTING = (*layers.CONTRACTING, *_BILINEAR, *_ATTENTION)
# Every class with a rule that is not zero: what functions do inside of it is not counted.
_RULED = (
    *_CONTRACTING,
    *sum((isa for _, _, isa, _ in _NORMS), ()),
    *(*_PRELU, *(f"{_NN}.activation.{name}" for name in _SOFTMAXES), *_EMBEDDING),
    *(*layers.AVERAGE_POOLS, *layers.ADAPTIVE_POOLS, *layers.UPSAMPLINGS[:1]),
)
_F = "torch.nn.functional"
_EINSUM, _SDPA = ("torch.einsum",), (f"{_F}.scaled_dot_product_attention",)
_FORWARD = (f"{_F}.multi_head_attention_forward",)
_PRODUCTS = (
    "torch.matmul",
    "torch.Tensor.matmul",
    "torch.Tensor.__matmul__",
    "torch.bmm",
    "torch.Tensor.bmm",
    f"{_F}.linear",
)


def _clause(
    name: str,
    cause: str,
    formula: str | None,
    kind: Any,
    level: Level,
    match: Match,
    reference: str,
    **more: Any,
) -> Clause:
    return Clause(
        id=f"ultralytics-thop.{name}",
        cause=cause,
        level=level,
        match=match,
        kind=kind,
        formula=formula and f"ultralytics-thop.{formula}",
        reference=reference,
        **more,
    )


def _rule(
    name: str,
    cause: str,
    isa: tuple[str, ...],
    formula: str,
    *,
    kind: Any = "part",
    factor: int = 1,
    reference: str = _HOOKS,
    **match: Any,
) -> Clause:
    """A rule for a class and its subclasses: hooks see `__call__`, each module has one."""
    return _clause(
        name,
        cause,
        formula,
        kind,
        "module",
        Match(isa=isa, via="call", **match),
        reference,
        factor=factor,
        times="registered",
        stands_for=layers.operators(isa) if kind == "core" else (),
    )


def _function(
    name: str, cause: str, targets: tuple[str, ...], formula: str | None, **match: Any
) -> Clause:
    """A rule for functions: the mode sees those that no function and no ruled module is around."""
    return _clause(
        name,
        cause,
        formula,
        match.pop("kind", "core"),
        "function",
        Match(targets=targets, outside=_RULED, nested=False, **match),
        f"{_PROFILE}: functional_hooks",
        in_total_only=True,
    )


def _layers() -> Iterable[Clause]:
    """Layers that contract; under `torch.vmap` a hook sees one example of many."""
    rows = (
        ("convolution", layers.CONVOLUTIONS),
        ("transposed", layers.TRANSPOSED),
        ("linear", layers.LINEAR),
    )
    for name, isa in rows:
        yield _rule(f"{name}.vmapped", "function.vmap", isa, name, kind="core", under=(VMAP,))
    for name, isa in (*rows, ("bilinear", _BILINEAR), ("attention", _ATTENTION)):
        yield _rule(name, _EXPORT, isa, name, kind="core")
    yield _rule("attention.softmax", _SCALE, _ATTENTION, "attention_softmax")
    for name, isa in (("recurrent", layers.RECURRENT), ("cell", layers.CELLS)):
        yield _rule(name, "rnn.fused", isa, name, kind="core", reference=_RNN)
        gates, bias = "rnn.gate-elementwise", "bias.rnn"
        yield _rule(f"{name}.gates", gates, isa, f"{name}_gates", reference=_RNN)
        biased = {"bias": True}
        yield _rule(f"{name}.bias", bias, isa, f"{name}_bias", reference=_RNN, settings=biased)


def _components() -> Iterable[Clause]:
    """Layers that do not contract."""
    for name, cause, isa, flag in _NORMS:
        for state, affine, factor in (("affine", True, 4), ("plain", False, 2)):
            yield _rule(
                f"{name}.{state}",
                cause,
                isa,
                "input_elements",
                factor=factor,
                settings={flag: affine},
            )
    yield _rule("prelu", "act.piecewise-other", _PRELU, "input_elements")
    for name, formula in _SOFTMAXES.items():
        yield _rule(formula, "softmax", (f"{_NN}.activation.{name}",), formula)
    yield _rule("average", "pool.avg", layers.AVERAGE_POOLS, "average")
    yield _rule("adaptive", "pool.adaptive", layers.ADAPTIVE_POOLS, "adaptive_average")
    for mode, factor in (("linear", 5), ("bilinear", 11), ("bicubic", 259), ("trilinear", 31)):
        yield _rule(
            f"upsample.{mode}",
            "upsample.linear",
            layers.UPSAMPLINGS[:1],
            "output_elements",
            factor=factor,
            settings={"mode": mode},
        )


def _functions() -> Iterable[Clause]:
    """Products of functions outside of ruled modules."""
    complex_ = ("complex64", "complex128")
    for name, operand in (("einsum.several", "3"), ("einsum.listed", "1.2")):
        yield _function(name, "op.unregistered-zero", _EINSUM, None, has=(operand,))
    yield _function("products.vmapped", "function.vmap", _PRODUCTS, "product", under=(VMAP,))
    yield _function(
        "products.complex", "contraction.complex", _PRODUCTS, "product", dtypes=complex_
    )
    yield _function("products", _EXPORT, _PRODUCTS, "product")
    yield _function("einsum", "einsum.path-estimate", _EINSUM, "einsum")
    yield _function("sdpa", _EXPORT, _SDPA, "dot_product_attention")
    yield _function("attention.forward", _EXPORT, _FORWARD, "function_attention")
    yield _function(
        "attention.forward.softmax",
        _SCALE,
        _FORWARD,
        "function_attention_softmax",
        kind="part",
    )


def _unseen() -> Iterable[Clause]:
    """Why contraction work is not seen, the most particular reason first."""
    for name, cause, match in (
        ("hook", "module.hook-work", Match(under=(HOOKS,))),
        ("direct-forward", "module.direct-forward", Match(isa=_CONTRACTING, via="forward")),
        ("unregistered", "module.unregistered", Match(isa=_CONTRACTING, registered=False)),
    ):
        reference = f"{_PROFILE}: register_hooks"
        yield _clause(f"unseen.{name}", cause, None, "unseen", "operator", match, reference)


CONVENTIONS = (
    Convention(
        tool="ultralytics-thop",
        edition="2.2.3",
        verified=("2.2.3",),
        unit=1,
        printed_as="MACs",
        sees="module",
        counts_dead=True,
        unseen="functional.invisible",
        forces={"training": False, "grad": False, "hooked": True},
        rules_add=True,
        source=_PROFILE,
        clauses=(*_layers(), *_components(), *_functions(), *_unseen()),
        parameters=Parameters(reference="thop/vision/calc_func.py: calculate_parameters"),
    ),
)
