"""XLA's cost analysis of a program of JAX: of the one that it is given, and of the compiled one.

`jax.jit(f).lower(*args).cost_analysis()["flops"]`, and the same after `.compile()`. The analysis
visits every instruction once, also in the body of a loop, and adds up in single precision.
Products count 2 per MAC, a convolution only where its filter meets an element of the image.
Functions such as exp are a property of their own, "transcendentals", and no flops.
Source: xla/service/hlo_cost_analysis.cc.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Literal

import msgspec

from crossflops.ir.convention import Clause, Convention, Match
from crossflops.ir.trace import Scalar
from crossflops.tools.formulas.xla import ELEMENTWISE

_SOURCE = "xla/service/hlo_cost_analysis.cc"
_CONTRACTIONS = {"dot": "GetDotFlops", "convolution": "GetConvolutionFlops"}
_CONVERSIONS = ("convert", "bitcast-convert", "reduce-precision", "stochastic-convert")
_ARITHMETIC = ("add", "subtract", "multiply", "divide")
_NATIVE = tuple(
    one for one in ELEMENTWISE if one not in {*_CONVERSIONS, *_ARITHMETIC}
)  # fmt: skip
_INDEXED = ("scatter", "map", "select-and-scatter")
_REDUCTIONS = ("reduce", "reduce-window", *_INDEXED)
_ESTIMATES = ("sort", "fft", "cholesky", "triangular-solve", "all-reduce", "all-reduce-start")
# The layer around an instruction, the function of jax.nn that it is in, what it adds a bias to.
_LAYERS = {
    "norm.batch": "BatchNorm",
    "norm.layer": "LayerNorm",
    "norm.group": "GroupNorm",
    "norm.instance": "InstanceNorm",
    "norm.rms": "RMSNorm",
    "rnn.gate-elementwise": "RNN cell",
}
_FUNCTIONS = {
    "act.relu": "relu",
    "act.piecewise-other": "piecewise",
    "act.transcendental": "smooth",
    "softmax": "softmax",
    "embedding.lookup": "lookup",
}
_BIASES = {"bias.conv": "convolution", "bias.linear": "product"}
# What compilation changes, by the kinds of instructions that come or go.
_REWRITTEN = {
    "xla.rewritten-contraction": tuple(_CONTRACTIONS),
    "xla.rewritten-reduction": _REDUCTIONS,
    "xla.type-conversion": _CONVERSIONS,
    "xla.rewritten-arithmetic": (*_ARITHMETIC, *_NATIVE),
    "xla.rewritten-algorithm": _ESTIMATES,
    "xla.library-call": ("custom-call",),
}


def _clause(
    kind: Literal["core", "part"],
    name: str,
    cause: str,
    handler: str,
    targets: tuple[str, ...],
    settings: Mapping[str, Scalar],
    formula: str | None,
) -> Clause:
    """A clause about instructions of the program that XLA is given.

    `handler` is the function of the analysis that counts them.
    """
    return Clause(
        id=f"xla-lowered.{name}",
        cause=cause,
        level="lowered",
        match=Match(targets=targets, settings=dict(settings)),
        kind=kind,
        formula=formula,
        reference=f"{_SOURCE}: {handler}",
    )


_core = partial(_clause, "core")


def _contractions() -> Iterator[Clause]:
    every, formula = tuple(_CONTRACTIONS), "xla.contraction"
    handlers = ", ".join(_CONTRACTIONS.values())
    yield _core("branch", "control.branch", "HandleConditional", every, {"chosen": False}, None)
    for name, cause, handler, settings in (
        ("alone", "graph.export-decomposition", handlers, {"alone": True}),
        ("in-loop", "control.loop-body-once", "HandleWhile", {"in_loop": True}),
    ):
        yield _core(name, cause, handler, every, settings, formula)
    causes = {"dot": "graph.export-decomposition", "convolution": "conv.padding-valid-taps"}
    for one, cause in causes.items():
        yield _core(one, cause, _CONTRACTIONS[one], (one,), {}, formula)


def _parts() -> Iterator[Clause]:
    """What is no contraction: of the first kind in this order that it is of."""

    def part(
        name: str, cause: str, handler: str, targets: tuple[str, ...], **settings: Scalar
    ) -> Clause:
        formula = "xla.flops" if targets else "xla.work"
        told = {"chosen": True, **settings}
        return _clause("part", name, cause, handler, targets, told, formula)

    one, forward = "HandleElementwiseOp", {"backward": False}
    for cause, layer in _LAYERS.items():
        yield part(cause, cause, one, (), **forward, layer=layer)
    for cause, function in _FUNCTIONS.items():
        yield part(cause, cause, one, (), **forward, layer="", function=function)
    yield part("backward", "scope.backward", one, (), backward=True)
    plain: dict[str, Scalar] = {**forward, "layer": "", "function": ""}
    for cause, after in _BIASES.items():
        yield part(cause, cause, one, ("add",), **plain, after=after)
    for name, cause, targets, kind in (
        ("arithmetic", "elementwise.add-function", _ARITHMETIC, "real"),
        ("native", "elementwise.native", _NATIVE, "real"),
        ("whole", "graph.shape-arithmetic-counted", (*_ARITHMETIC, *_NATIVE), "whole"),
    ):
        yield part(name, cause, one, targets, **plain, after="", numbers=kind)
    for name, cause, handler, targets in (
        ("conversion", "elementwise.type-conversion", "HandleConvert", _CONVERSIONS),
        ("reduce", "reduce.mean", "HandleReduce", ("reduce",)),
        ("indexed", "elementwise.native", "HandleScatter", _INDEXED),
        ("estimates", "op.estimated", "HandleSort, HandleFft ...", _ESTIMATES),
    ):
        yield part(name, cause, handler, targets, **plain)
    for cause, pooled in (("pool.max", "max"), ("pool.avg", "sum"), ("reduce.mean", "")):
        name = f"window-{pooled or 'other'}"
        yield part(name, cause, "HandleReduceWindow", ("reduce-window",), **plain, pooled=pooled)
    yield part("library", "op.library-call", "HandleCustomCall", ("custom-call",))


def _compiled() -> Iterator[Clause]:
    """The same of the compiled program, and what came or went."""
    for one in LOWERED:
        settings = {**one.match.settings, "lowered": True}
        yield msgspec.structs.replace(
            one,
            id=one.id.replace("xla-lowered", "xla-compiled"),
            level="compiled",
            match=msgspec.structs.replace(one.match, settings=settings),
        )
    changes = (
        *(("rewritten", cause, targets) for cause, targets in _REWRITTEN.items()),
        ("once", "xla.computed-once", ()),
        ("again", "xla.computed-again", ()),
    )
    for change, cause, targets in changes:
        yield Clause(
            id=cause.replace("xla", "xla-compiled"),
            cause=cause,
            level="compiled",
            match=Match(targets=targets, settings={"change": change}),
            kind="part",
            formula="xla.change",
            reference=f"{_SOURCE}: of the program that was compiled",
        )


LOWERED = (*_contractions(), *_parts())


def _convention(tool: str, **fields: object) -> Convention:
    return Convention(
        tool=tool,
        edition="0.10",
        verified=("0.10.2",),
        unit=2,
        printed_as="flops",
        counts_dead=True,
        unseen="graph.export-decomposition",
        source=_SOURCE,
        framework="jax",
        reads="xla.programs",
        adds_up="xla.single-precision",
        rounds="precision.float32",
        **fields,  # type: ignore[arg-type]  # fields of a convention, by name
    )


CONVENTIONS = (
    _convention("xla-lowered", sees="lowered", clauses=LOWERED),
    _convention("xla-compiled", sees="compiled", clauses=tuple(_compiled())),
)
